//! `threads`: threads of a process, processors of a kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, ContextOf, Rva, Target, Thread, View};

use crate::error::ToolError;
use crate::location::attribution;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::{cell, fenced};
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::whose;

pub(crate) struct Threads;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Rows at most, default 64.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    limit: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    User,
    Processors,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    index: u32,
    system_id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread_object: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    teb: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspend_count: Option<u32>,
    /// The thread the last event happened on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    event: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    kind: Kind,
    total: usize,
    /// `system_id` of the selected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<u32>,
    threads: Vec<Row>,
}

fn row(target: &dyn Target, thread: &Thread, kernel: bool) -> Row {
    let of =
        if kernel { ContextOf::Processor(thread.system_id) } else { ContextOf::Thread(thread.system_id) };
    let ip = target.context(of, View::Default).ok().flatten().map(|context| context.ip());
    let (module, rva, _) = ip.map(|ip| attribution(target, ip)).unwrap_or_default();
    Row {
        index: thread.index,
        system_id: thread.system_id,
        process_id: thread.process_id,
        processor: thread.processor,
        thread_object: thread.thread_object.map(Address),
        teb: thread.teb.map(Address),
        ip: ip.map(Address),
        module,
        rva,
        name: thread.name.clone(),
        suspend_count: thread.suspend_count,
        event: thread.event,
    }
}

impl Tool for Threads {
    const NAME: &'static str = "threads";
    const TITLE: &'static str = "Threads";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Threads of a process, or processors of a kernel target, with where each stands. `system_id` is what \
         other tools take as thread.",
    )];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let what = match output.kind {
            Kind::User => "threads",
            Kind::Processors => "processors",
        };
        let mut text = format!("{} of {} {what}", output.threads.len(), output.total);
        if let Some(current) = output.current {
            text.push_str(&format!(", current {current}"));
        }
        let rows: Vec<[String; 5]> = output
            .threads
            .iter()
            .map(|row| {
                let mark = match (Some(row.system_id) == output.current, row.event) {
                    (_, true) => "#",
                    (true, false) => ".",
                    (false, false) => "",
                };
                let place = match (&row.module, row.rva) {
                    (Some(module), Some(rva)) => format!("{module}+{rva}"),
                    _ => String::new(),
                };
                [
                    format!("{mark}{}", row.index),
                    row.system_id.to_string(),
                    cell(row.ip.as_ref()),
                    place,
                    row.name.clone().or_else(|| row.teb.map(|teb| format!("teb {teb}"))).unwrap_or_default(),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&fenced(["index", "id", "ip", "where", "name"], &rows));
        if output.threads.len() < output.total {
            text.push_str(&format!("\nlimit {} returns all.", output.total));
        }
        text
    }
}

impl WorkerTool for Threads {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        whose::has_threads(job.target)?;
        let limit = params.limit.unwrap_or(64) as usize;
        let kernel = job.target.facts().kind.is_kernel();
        let all = job.target.threads()?;
        let selection = job.target.selection();
        let mut threads = Vec::new();
        for thread in all.iter().take(limit) {
            job.halt.check("listing threads")?;
            threads.push(row(job.target, thread, kernel));
        }
        Ok(Output {
            kind: if kernel { Kind::Processors } else { Kind::User },
            total: all.len(),
            current: if kernel { selection.processor } else { selection.thread },
            threads,
        })
    }
}
