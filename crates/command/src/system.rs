//! `vertarget`, `version`, `.effmach`, `.sympath`, `.reload`, `.echo`, `.time`, `|`.

use target::{Machine, OsVersion, Result, TargetError, TargetExt as _};

use crate::calendar;
use crate::run::Run;

/// DbgEng's words for a machine.
fn machine_words(machine: Machine) -> &'static str {
    match machine {
        Machine::X64 => "x64",
        Machine::X86 => "x86 compatible",
        Machine::Arm64 => "ARM 64-bit (AArch64)",
        Machine::Arm32 => "ARM (NT) Thumb-2",
    }
}

fn product_name(os: &OsVersion) -> String {
    let server = os.product.is_some_and(|p| p != "workstation");
    match (os.major, os.minor, server) {
        (10, _, _) => "Windows 10".to_owned(),
        (6, 3, _) => "Windows 8.1".to_owned(),
        (6, 2, _) => "Windows 8".to_owned(),
        (6, 1, _) => "Windows 7".to_owned(),
        (6, 0, false) => "Windows Vista".to_owned(),
        (6, 0, true) => "Windows Server 2008".to_owned(),
        (5, 2, _) => "Windows Server 2003".to_owned(),
        (5, 1, _) => "Windows XP".to_owned(),
        (5, 0, _) => "Windows 2000".to_owned(),
        (major, minor, _) => format!("Windows {major}.{minor}"),
    }
}

pub(crate) fn vertarget(run: &mut Run<'_>, _: &str) -> Result<()> {
    let target = run.target;
    let facts = target.facts();
    let kernel = facts.kind.is_kernel();
    if let Some(os) = &facts.os {
        let word = if kernel { "Kernel Version" } else { "Version" };
        let service_pack = os.service_pack.as_deref().filter(|s| !s.is_empty());
        let service_pack = service_pack.map(|s| format!(" ({s})")).unwrap_or_default();
        let processors = match facts.processors {
            Some(1) => " UP".to_owned(),
            Some(count) => format!(" MP ({count} procs)"),
            None => String::new(),
        };
        run.say(format!(
            "{} {word} {}{service_pack}{processors} Free {}",
            product_name(os),
            os.build,
            machine_words(facts.machine)
        ));
        let product = match os.product {
            Some("server") => Some("Server"),
            Some("domain_controller") => Some("LanManNt"),
            Some(_) => Some("WinNt"),
            None => None,
        };
        if let Some(product) = product {
            run.say(format!("Product: {product}"));
        }
        if let Some(lab) = &os.build_lab {
            run.say(if kernel { format!("Built by: {lab}") } else { lab.clone() });
        }
    } else {
        run.say(format!("The target does not say which system it is; {}", machine_words(facts.machine)));
    }
    if kernel {
        kernel_base(run);
    }
    time(run, "")
}

fn kernel_base(run: &mut Run<'_>) {
    let Ok(Some(kernel)) = run.target.module_named("nt") else { return };
    let notation = run.notation();
    // Only when it is known without a guess; asking for it must not fail the command.
    let list =
        run.target.resolve("nt!PsLoadedModuleList").ok().and_then(|hits| hits.first().map(|h| h.address));
    let list = list.map(|l| format!(" PsLoadedModuleList = 0x{}", notation.address(l)));
    run.say(format!("Kernel base = 0x{}{}", notation.address(kernel.base), list.unwrap_or_default()));
}

/// `.time`: when the target was recorded, how long system and process had been up.
pub(crate) fn time(run: &mut Run<'_>, _: &str) -> Result<()> {
    let facts = run.target.facts();
    let dump = facts.dump.as_ref();
    let recorded = dump.and_then(|d| d.time.as_deref());
    let session = crate::events::debugger_time(run).unwrap_or_else(|| "not available".to_owned());
    let system = dump.and_then(|d| d.uptime_ms).map(calendar::span);
    let created = facts.process.as_ref().and_then(|p| p.created).filter(|&c| c != 0);
    let process = created.zip(recorded.and_then(calendar::unix_seconds)).and_then(|(created, now)| {
        let seconds = u64::try_from(now.checked_sub(i64::from(created))?).ok()?;
        // Writers that know no start give the time of the dump.
        (seconds != 0).then_some(calendar::span(seconds.checked_mul(1000)?))
    });
    run.say(format!("Debug session time: {session}"));
    run.say(format!("System Uptime: {}", system.as_deref().unwrap_or("not available")));
    if !run.target.facts().kind.is_kernel() {
        run.say(format!("Process Uptime: {}", process.as_deref().unwrap_or("not available")));
    }
    Ok(())
}

pub(crate) fn effective_machine(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if !arguments.is_empty() {
        return Err(TargetError::unsupported(
            "command_form",
            "the effective machine is not switched here: ask for the other view of a thread instead",
        ));
    }
    let machine = run.session.context().map_or(run.target.facts().machine, |c| c.machine);
    let short = match machine {
        Machine::X64 => "AMD64",
        other => other.name(),
    };
    run.say(format!("Effective machine: {} ({short})", machine_words(machine)));
    Ok(())
}

pub(crate) fn symbol_path(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if !arguments.is_empty() {
        return Err(TargetError::unsupported(
            "command_form",
            "the symbol path is set by its own operation, not by .sympath; .sympath alone shows it",
        ));
    }
    let paths = run.target.symbol_paths();
    let shown = |path: &str| if path.is_empty() { "<empty>".to_owned() } else { path.to_owned() };
    run.say(format!("Symbol search path is: {}", shown(&paths.symbols)));
    run.say(format!("Executable search path is: {}", shown(&paths.images)));
    if !paths.network {
        run.say("Symbol servers are not asked: the network is off");
    }
    Ok(())
}

/// `.reload [/f] [/user] [MODULE]`: symbols are looked for again; the target is not touched.
pub(crate) fn reload(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (mut force, mut pattern) = (false, None);
    for word in arguments.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "/f" => force = true,
            "/user" | "/i" | "/n" | "/s" => {}
            _ if word.starts_with('/') => {
                return Err(TargetError::unsupported(
                    "command_form",
                    format!(".reload {word} is not served"),
                ));
            }
            _ => pattern = Some(word),
        }
    }
    let reloaded = run.target.reload(pattern, force)?;
    run.say(format!("Symbols of {} modules will be looked for again", reloaded.modules));
    Ok(())
}

pub(crate) fn echo(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    run.say(arguments.trim_matches('"'));
    Ok(())
}

pub(crate) fn version(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    vertarget(run, arguments)?;
    run.say(format!("windbg-mcp {}", env!("CARGO_PKG_VERSION")));
    Ok(())
}

pub(crate) fn process_list(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if !arguments.is_empty() {
        return Err(TargetError::unsupported("command_form", "there is one process here: | alone shows it"));
    }
    let facts = run.target.facts();
    let process = facts.process.clone().unwrap_or_default();
    let how = if facts.kind.is_live() { "attach" } else { "examine" };
    let name = process.name.as_deref().unwrap_or("<unknown>");
    run.say(format!(".  0\tid: {:x}\t{how}\tname: {name}", process.pid.unwrap_or(0)));
    Ok(())
}
