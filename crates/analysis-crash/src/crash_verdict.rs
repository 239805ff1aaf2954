//! The verdict on a bug check: one plain sentence and how sure it is.

use analysis_status::base_code;
use target::{Found, FrameInfo};

use crate::leads::Leads;
use crate::result::{Cause, Confidence, ContextOrigin, CrashTriage, Verdict};

impl Verdict {
    pub(crate) fn new(cause: Cause, confidence: Confidence, sentence: String) -> Self {
        Self { cause, confidence, sentence }
    }
    pub(crate) fn unknown() -> Self {
        Self::new(Cause::CantTell, Confidence::Low, String::new())
    }
}

/// Codes a person or a tool asks for.
fn is_requested(base: u32) -> bool {
    matches!(base, 0xe2 | 0xdead_dead | 0x1c8 | 0x161)
}

/// `MATT`, `MOON`, `SOLS`: what the acquisition tools of MoonSols (DumpIt, win32dd) put in a dump's header.
fn is_acquired(triage: &CrashTriage) -> bool {
    let [p1, p2, ..] = triage.bug_check.parameters;
    triage.bug_check.code.0 == u32::from_le_bytes(*b"MATT")
        && p1.0 == u64::from(u32::from_le_bytes(*b"MOON"))
        && p2.0 == u64::from(u32::from_le_bytes(*b"SOLS"))
}

/// Codes that say pool or kernel memory was overwritten: who did it is not who found it.
fn is_corruption(base: u32) -> bool {
    matches!(base, 0x19 | 0xc2 | 0xc5 | 0xc6 | 0x139 | 0x13a | 0x109 | 0xc1 | 0xf7)
}

fn is_disk_status(status: u32) -> bool {
    // Device errors as NTSTATUS: IO_DEVICE_ERROR, DEVICE_DATA_ERROR, DEVICE_NOT_CONNECTED, DATA_ERROR, CRC_ERROR, ...
    matches!(
        status,
        0xc000_0185
            | 0xc000_009c
            | 0xc000_009d
            | 0xc000_003e
            | 0xc000_003f
            | 0xc000_00a3
            | 0xc000_016a
            | 0xc000_016b
            | 0xc000_0010
            | 0xc000_000e
            | 0xc000_0032
            | 0xc000_0102
            | 0xc000_0006
    )
}

/// The verdict on a bug check.
pub(crate) fn of_crash(triage: &CrashTriage, leads: &Leads) -> Verdict {
    let base = base_code(triage.bug_check.code.0);
    let name =
        triage.bug_check.name.clone().unwrap_or_else(|| format!("bug check {}", triage.bug_check.code));
    by_code(base, triage, leads, &name).unwrap_or_else(|| by_frame(base, triage, &name))
}

fn by_code(base: u32, triage: &CrashTriage, leads: &Leads, name: &str) -> Option<Verdict> {
    match base {
        _ if is_requested(base) => Some(Verdict::new(
            Cause::CantTell,
            Confidence::High,
            format!("The system did not fail by itself: the dump was asked for ({name})."),
        )),
        _ if is_acquired(triage) => Some(Verdict::new(
            Cause::CantTell,
            Confidence::High,
            "The system did not fail: a memory acquisition tool (DumpIt or win32dd) wrote the dump.".into(),
        )),
        0x23 | 0x24 | 0x77 | 0x7a | 0x7b | 0xed => Some(storage(base, leads, name)),
        0x124 | 0x9c | 0x1a | 0x4e | 0x12b => Some(hardware(base, triage, leads, name)),
        0x116 | 0x117 | 0x141 => Some(display(leads, name)),
        0x9f => Some(power(triage, leads)),
        0xa0 | 0x14f | 0x15f | 0x19c => Some(Verdict::new(
            Cause::Power,
            Confidence::Medium,
            format!("A power transition failed or took too long ({name})."),
        )),
        0xef | 0xf4 | 0xc000_021a => Some(critical_process(base, leads, name)),
        0x133 | 0x101 | 0x1ca | 0xea | 0x1d5 | 0x1db => Some(hang(triage, name)),
        _ => None,
    }
}

fn storage(base: u32, leads: &Leads, name: &str) -> Verdict {
    let sure =
        if leads.io_status.is_some_and(is_disk_status) { Confidence::High } else { Confidence::Medium };
    let sentence = match base {
        0x23 | 0x24 => {
            format!("The file system gave up on a volume ({name}): check the disk and its file system.")
        }
        0x7b | 0xed => {
            format!("The boot volume could not be used ({name}): suspect the disk, its cable or its driver.")
        }
        _ => format!(
            "A page of memory could not be read back from the disk ({name}): suspect the disk, its cable or its driver."
        ),
    };
    Verdict::new(Cause::Disk, sure, sentence)
}

fn hardware(base: u32, triage: &CrashTriage, leads: &Leads, name: &str) -> Verdict {
    let p1 = triage.bug_check.parameters[0].0;
    let memory = |confidence, sentence: String| Verdict::new(Cause::Memory, confidence, sentence);
    match base {
        0x124 if leads.whea.as_ref().is_some_and(|w| w.memory) => memory(
            Confidence::High,
            "The hardware reported a fatal memory error: suspect the memory modules.".into(),
        ),
        0x124 | 0x9c => Verdict::new(
            Cause::CantTell,
            Confidence::Medium,
            format!(
                "The hardware reported a fatal error ({name}): suspect processor, memory, power supply or cooling."
            ),
        ),
        0x1a if p1 == 0x41792 || p1 == 0x403 => memory(
            Confidence::Medium,
            "A page table entry is damaged by what looks like a flipped bit: suspect the memory modules."
                .into(),
        ),
        _ => memory(
            Confidence::Low,
            format!(
                "The memory manager's structures are damaged ({name}): bad memory modules, or a driver that overwrote \
                 them."
            ),
        ),
    }
}

fn display(leads: &Leads, name: &str) -> Verdict {
    match &leads.owner_module {
        Some(module) => Verdict::new(
            Cause::Driver,
            Confidence::High,
            format!("The display driver {module} did not respond in time and could not be recovered."),
        ),
        None => Verdict::new(
            Cause::Driver,
            Confidence::Medium,
            format!("The display driver did not respond in time ({name})."),
        ),
    }
}

fn critical_process(base: u32, leads: &Leads, name: &str) -> Verdict {
    if base == 0xc000_021a {
        let sentence = "A process the system cannot do without (winlogon or csrss) ended.".into();
        return Verdict::new(Cause::Application, Confidence::Medium, sentence);
    }
    let who = leads.terminated.as_deref().unwrap_or("that the system cannot do without");
    if leads.io_status.is_some_and(is_disk_status) {
        let sentence =
            format!("The process {who} ended ({name}): its memory could not be read from the disk.");
        return Verdict::new(Cause::Disk, Confidence::Medium, sentence);
    }
    let sentence = format!("The critical process {who} ended ({name}).");
    Verdict::new(Cause::Application, Confidence::Medium, sentence)
}

fn power(triage: &CrashTriage, leads: &Leads) -> Verdict {
    if let Some(module) = leads.blocked.as_ref().and_then(|b| b.module.as_ref().or(b.driver.as_ref())) {
        let sentence = format!("The driver {module} did not complete a power request in time.");
        return Verdict::new(Cause::Driver, Confidence::High, sentence);
    }
    let near = triage
        .faulting_frame
        .as_ref()
        .map(|f| format!("; {} is on the stack", f.place()))
        .unwrap_or_default();
    let sentence = format!("A driver did not finish a power transition in time{near}.");
    Verdict::new(Cause::Power, Confidence::Medium, sentence)
}

fn hang(triage: &CrashTriage, name: &str) -> Verdict {
    match &triage.faulting_frame {
        Some(frame) => Verdict::new(
            Cause::Hang,
            Confidence::Low,
            format!("A processor was kept busy too long ({name}); it was in {}.", frame.place()),
        ),
        None => Verdict::new(
            Cause::Hang,
            Confidence::Medium,
            format!("A processor or thread did not get on in time ({name})."),
        ),
    }
}

fn by_frame(base: u32, triage: &CrashTriage, name: &str) -> Verdict {
    let Some(frame) = &triage.faulting_frame else {
        return no_frame(base, name);
    };
    let place = frame.place();
    let Some(module) = image_or_module(triage, frame) else {
        let gone = frame.unloaded_module.as_ref().map(|m| format!(", once of {m}")).unwrap_or_default();
        return Verdict::new(
            Cause::Driver,
            Confidence::Low,
            format!("Code ran at {place}, in no loaded module{gone} ({name})."),
        );
    };
    if is_corruption(base) {
        return Verdict::new(
            Cause::Driver,
            Confidence::Low,
            format!(
                "Kernel memory was damaged ({name}); it was noticed in {place}, which need not be who did it."
            ),
        );
    }
    let recorded = frame.found == Found::Context && triage.context_source != ContextOrigin::CrashContext;
    let confidence = match (frame.found, recorded) {
        (Found::Scan, _) => Confidence::Low,
        (_, true) => Confidence::High,
        _ => Confidence::Medium,
    };
    let how = match base {
        0x0a | 0xd1 | 0x50 | 0xbe | 0xfc | 0xd5 | 0xd6 => "touched memory it must not touch",
        0xc4 | 0xc9 => "broke a rule that Driver Verifier watches",
        0x3b | 0x7e | 0x8e | 0x1e | 0x7f => "crashed",
        _ => "stopped the system",
    };
    Verdict::new(Cause::Driver, confidence, format!("The driver {module} {how} at {place} ({name})."))
}

fn image_or_module(triage: &CrashTriage, frame: &FrameInfo) -> Option<String> {
    let module = frame.module.clone()?;
    let same = triage.analysis.module_name.as_ref() == Some(&module);
    Some(triage.analysis.image_name.clone().filter(|_| same).unwrap_or(module))
}

fn no_frame(base: u32, name: &str) -> Verdict {
    let sentence = if is_corruption(base) {
        format!("Kernel memory was damaged ({name}); nothing in the dump says by whom.")
    } else {
        format!("The system stopped with {name}; no driver is on the stack to blame.")
    };
    Verdict::new(Cause::CantTell, Confidence::Low, sentence)
}
