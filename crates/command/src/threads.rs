//! `~`: threads (processors of a kernel target), and commands on each of them.

use target::{Result, Selection, TargetError, Thread};

use crate::catalog;
use crate::notation::known_place;
use crate::registers;
use crate::run::{Run, usage};
use crate::session::is_stop;

/// `arguments` is everything behind the first `~`.
pub(crate) fn tilde(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let threads = run.target.threads()?;
    let (chosen, rest): (Vec<Thread>, &str) = choose(run, &threads, arguments)?;
    let rest = rest.trim();
    if chosen.is_empty() {
        return Err(TargetError::failed_because(
            "no_thread",
            format!("Illegal thread error in '~{arguments}'"),
        ));
    }
    match rest {
        "" => {
            let detailed = !arguments.is_empty();
            for thread in &chosen {
                run.check()?;
                let row = row(run, thread);
                run.say(row);
                if detailed {
                    details(run, thread);
                }
            }
            Ok(())
        }
        "s" => match chosen.as_slice() {
            [thread] => switch(run, thread),
            _ => Err(usage("~s needs one thread: ~1s")),
        },
        "f" | "u" | "n" | "m" => Err(TargetError::unsupported(
            "unknown_command",
            "threads of a recorded target are not frozen or resumed, with either engine.",
        )),
        command => on_each(run, &chosen, command.strip_prefix('e').map_or(command, str::trim_start)),
    }
}

/// The threads a specifier names, and the command behind it.
fn choose<'t>(run: &Run<'_>, threads: &[Thread], text: &'t str) -> Result<(Vec<Thread>, &'t str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return Ok((threads.to_vec(), text));
    }
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((threads.to_vec(), rest));
    }
    if let Some(rest) = text.strip_prefix('.') {
        let current = threads.iter().filter(|t| is_current(run, t)).cloned().collect();
        return Ok((current, rest));
    }
    if let Some(rest) = text.strip_prefix('#') {
        return Ok((threads.iter().filter(|t| t.event).cloned().collect(), rest));
    }
    if let Some(id) = text.strip_prefix("~[") {
        let (id, rest) = id.split_once(']').ok_or_else(|| usage("~~[ID] lacks its ']'"))?;
        let id = run.evaluate(id)?;
        return Ok((threads.iter().filter(|t| u64::from(t.system_id) == id).cloned().collect(), rest));
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(index) = text[..digits].parse::<u32>() else {
        return Err(usage(format!("'{text}' names no thread: a number, . # * or ~[ID] does")));
    };
    Ok((threads.iter().filter(|t| t.index == index).cloned().collect(), &text[digits..]))
}

fn selection_of(run: &Run<'_>, thread: &Thread) -> Selection {
    if run.target.facts().kind.is_kernel() {
        Selection { processor: Some(thread.system_id), ..run.target.selection() }
    } else {
        Selection { thread: Some(thread.system_id), ..run.target.selection() }
    }
}

fn is_current(run: &Run<'_>, thread: &Thread) -> bool {
    let selection = run.target.selection();
    let kernel = run.target.facts().kind.is_kernel();
    let selected = if kernel { selection.processor } else { selection.thread };
    selected == Some(thread.system_id)
}

fn row(run: &Run<'_>, thread: &Thread) -> String {
    let notation = run.notation();
    let mark = match (is_current(run, thread), thread.event) {
        (true, _) => '.',
        (false, true) => '#',
        _ => ' ',
    };
    if run.target.facts().kind.is_kernel() {
        let object = thread.thread_object.map(|o| format!("  Thread: {}", notation.address(o)));
        return format!(
            "{mark}{:>3}  Processor {}{}",
            thread.index,
            thread.system_id,
            object.unwrap_or_default()
        );
    }
    let process = run.target.facts().process.as_ref().and_then(|p| p.pid);
    let pid = thread.process_id.or(process).unwrap_or(crate::events::UNKNOWN_ID);
    let suspended = thread.suspend_count.map_or("?".to_owned(), |c| c.to_string());
    let teb = thread.teb.map_or("?".to_owned(), |t| notation.address(t));
    let name = thread.name.as_deref().map(|n| format!(" \"{n}\"")).unwrap_or_default();
    format!(
        "{mark}{:>3}  Id: {pid:x}.{:x} Suspend: {suspended} Teb: {teb} Unfrozen{name}",
        thread.index, thread.system_id
    )
}

fn details(run: &mut Run<'_>, thread: &Thread) {
    if let Some(start) = thread.start_address.filter(|&a| a != 0) {
        let shown = run.notation().address(start);
        let place =
            known_place(run.target, start).map_or(shown.clone(), |place| format!("{place} ({shown})"));
        run.say(format!("      Start: {place}"));
    }
    if let Some(priority) = thread.priority {
        run.say(format!("      Priority: {priority}"));
    }
}

fn switch(run: &mut Run<'_>, thread: &Thread) -> Result<()> {
    run.select(selection_of(run, thread))?;
    run.session.reset_scope();
    match run.selected_context() {
        Ok(context) => registers::block(run, &context),
        Err(TargetError::Failed { reason: Some("no_context"), .. }) => {
            run.say("(no registers are recorded for it)");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Runs a command on each thread, then goes back to where it was.
fn on_each(run: &mut Run<'_>, threads: &[Thread], command: &str) -> Result<()> {
    if command.starts_with('~') {
        return Err(usage("a thread command cannot hold another one"));
    }
    let (serve, arguments) = catalog::find(command)?;
    let selection = run.target.selection();
    let context = run.session.context.take();
    let frame = std::mem::take(&mut run.session.frame);
    let mut result = Ok(());
    for thread in threads {
        let wanted = selection_of(run, thread);
        // The header's mark tells the thread that was current before.
        let header = row(run, thread);
        run.say("");
        run.say(header);
        let outcome = run.check().and_then(|()| run.select(wanted)).and_then(|()| serve(run, arguments));
        run.session.reset_scope();
        let restored = run.select(selection);
        match outcome.and(restored) {
            Ok(()) => {}
            Err(error) if is_stop(&error) => {
                result = Err(error);
                break;
            }
            // One thread without registers does not hide the others.
            Err(error) => run.say(format!("({error})")),
        }
    }
    run.session.context = context;
    run.session.frame = frame;
    result
}
