//! A worker process: its image, its environment, its first message.

use std::process::Stdio;
use std::sync::Arc;

use channel::{LineBuffer, Message};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Shared;
use crate::image::Image;
use crate::stderr::{self, LastWords};

/// A worker that said it is ready.
pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) pid: u32,
    pub(crate) engine: String,
    pub(crate) input: ChildStdin,
    pub(crate) output: Lines,
    pub(crate) last_words: Arc<LastWords>,
}

/// Messages of a worker.
pub(crate) struct Lines {
    output: ChildStdout,
    buffer: LineBuffer,
    piece: Vec<u8>,
}

impl Lines {
    fn new(output: ChildStdout) -> Self {
        Self { output, buffer: LineBuffer::new(), piece: vec![0; 64 << 10] }
    }

    /// The next message; `Ok(None)` at the end. A line that does not parse comes as
    /// [`Message::Fatal`]: the worker is of another build, and nothing behind it can be relied on.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Message>> {
        loop {
            match self.buffer.next_message() {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) => {}
                Err(error) => return Ok(Some(Message::Fatal { text: error.to_string() })),
            }
            match self.output.read(&mut self.piece).await? {
                0 => return Ok(None),
                count => self.buffer.extend(&self.piece[..count]),
            }
        }
    }
}

/// Secrets a launched debuggee must not inherit through its worker, and what is the supervisor's
/// alone.
fn withheld(name: &str) -> bool {
    name == "WINDBG_MCP_PROFILES"
        || name.starts_with("WINDBG_MCP_PROFILE_")
        || name.starts_with("WINDBG_MCP_LISTEN_TOKEN")
        || name.starts_with("WINDBG_MCP_TRANSCRIPT")
        || name == "WINDBG_MCP_REDACT"
}

/// `kept`: a process that ends on its word alone, because what it holds is not let go of with it.
fn command(shared: &Shared, image: &Image, kept: bool) -> Command {
    let mut command = Command::new(&image.program);
    command
        .args(&image.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(!kept);
    for (name, _) in std::env::vars_os().filter(|(name, _)| withheld(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command.envs(image.environment.iter().map(|(name, value)| (name, value)));
    command.envs(shared.config.worker_env.iter().map(|(name, value)| (name, value)));
    // Ctrl+C at the terminal is the supervisor's: the worker has a target to let go first.
    #[cfg(unix)]
    command.process_group(0);
    #[cfg(windows)]
    command.creation_flags(creation_flags());
    command
}

/// A process group of its own; no console window when this process has no console to share.
#[cfg(windows)]
fn creation_flags() -> u32 {
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
    const CREATE_NO_WINDOW: u32 = 0x0800_0000;
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetConsoleProcessList(list: *mut u32, count: u32) -> u32;
    }
    let mut list = [0; 1];
    // SAFETY: the list is as long as said. Zero is "no console"; a window handle would say nothing of
    // a pseudo-console.
    let shared = unsafe { GetConsoleProcessList(list.as_mut_ptr(), 1) } != 0;
    CREATE_NEW_PROCESS_GROUP | if shared { 0 } else { CREATE_NO_WINDOW }
}

/// Why a worker did not start.
pub(crate) struct NotStarted {
    pub(crate) why: String,
    /// The worker itself said that it has no engine.
    pub(crate) no_engine: bool,
}

/// Wine's loader ends a program so when a DLL it imports is missing, without a word.
const WINE_DLL_MISSING: i32 = 53;

/// Starts the first of `images` that will start; with the reasons of those before it.
///
/// # Errors
/// Why the last one did not, the others before it.
pub(crate) async fn start_first<'a>(
    shared: &Arc<Shared>,
    id: &str,
    images: &'a [Image],
    kept: bool,
) -> Result<(Worker, &'a Image, Vec<String>), NotStarted> {
    let mut before = Vec::new();
    let mut no_engine = false;
    for image in images {
        match start(shared, id, image, kept).await {
            Ok(worker) => return Ok((worker, image, before)),
            Err(failure) => {
                tracing::warn!(session = id, "{}", failure.why);
                no_engine = failure.no_engine;
                before.push(failure.why);
            }
        }
    }
    Err(NotStarted { why: before.join("; "), no_engine })
}

/// Starts a worker for the session `id` and waits for its first message.
///
/// # Errors
/// Why no worker could be started, in a sentence.
async fn start(shared: &Arc<Shared>, id: &str, image: &Image, kept: bool) -> Result<Worker, NotStarted> {
    let failed = |why: String| NotStarted { why, no_engine: false };
    let ready = image.ready;
    let under_wine = image.under_wine;
    let mut command = command(shared, image, kept);
    let image = image.name();
    let mut child = command
        .spawn()
        .map_err(|error| failed(format!("no engine worker could be started from {image}: {error}")))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors), Some(pid)) = (pipes.0, pipes.1, pipes.2, child.id()) else {
        return Err(failed(format!("the engine worker started from {image} has no pipes")));
    };
    let last_words = stderr::drain(errors, Arc::clone(shared), id.to_owned());
    let mut output = Lines::new(output);
    let first = tokio::time::timeout(ready, output.next()).await;
    let no_engine = matches!(first, Ok(Ok(Some(Message::Fatal { .. }))));
    let refused = match first {
        Ok(Ok(Some(Message::Ready { build, engine, .. }))) if build == channel::build() => {
            tracing::debug!(pid, session = id, "engine worker ready");
            return Ok(Worker { child, pid, engine, input, output, last_words });
        }
        Ok(Ok(Some(Message::Ready { build, .. }))) => format!(
            "the engine worker {image} is of build {build}, this server of build {}; install both from one release",
            channel::build()
        ),
        Ok(Ok(Some(Message::Fatal { text }))) => format!("the engine worker {image} could not start: {text}"),
        Ok(Ok(Some(_))) => format!("the engine worker {image} did not begin with its build"),
        Ok(Ok(None)) => {
            let status = tokio::time::timeout(std::time::Duration::from_secs(1), child.wait()).await;
            let status = status.ok();
            let how =
                status.as_ref().and_then(|s| s.as_ref().ok()).map_or_else(String::new, |s| format!(" ({s})"));
            last_words.all(std::time::Duration::from_secs(1)).await;
            let said = last_words.said().map_or_else(String::new, |words| format!("; it said: {words}"));
            let silent = status.and_then(Result::ok).and_then(|s| s.code()) == Some(WINE_DLL_MISSING);
            let hint = if under_wine && silent {
                "; Wine found a DLL missing that it imports: bcryptprimitives.dll belongs beside it"
            } else {
                ""
            };
            format!("the engine worker {image} ended before it was ready{how}{said}{hint}")
        }
        Ok(Err(error)) => format!("the engine worker {image} could not be read: {error}"),
        Err(_) => format!(
            "the engine worker {image} was not ready within {} s (WINDBG_MCP_WORKER_READY_SECS)",
            ready.as_secs()
        ),
    };
    // Waits too, so that no zombie is left.
    if let Err(error) = child.kill().await {
        tracing::debug!(pid, %error, "a refused worker was gone already");
    }
    Err(NotStarted { why: refused, no_engine })
}

#[cfg(test)]
mod tests {
    #[test]
    fn secrets_are_withheld_and_nothing_else() {
        for name in [
            "WINDBG_MCP_PROFILES",
            "WINDBG_MCP_PROFILE_LAB_KEY",
            "WINDBG_MCP_LISTEN_TOKEN_FILE",
            "WINDBG_MCP_TRANSCRIPT",
            "WINDBG_MCP_TRANSCRIPT_KEEP",
            "WINDBG_MCP_REDACT",
        ] {
            assert!(super::withheld(name), "{name}");
        }
        for name in ["PATH", "WINDBG_MCP_ENGINE_DIR", "RUST_LOG"] {
            assert!(!super::withheld(name), "{name}");
        }
    }
}
