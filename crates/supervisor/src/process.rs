//! A worker process: its image, its environment, its first message.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use channel::{LineBuffer, Message};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Shared;
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

/// Secrets a launched debuggee must not inherit through its worker.
fn withheld(name: &str) -> bool {
    name == "WINDBG_MCP_PROFILES"
        || name.starts_with("WINDBG_MCP_PROFILE_")
        || name.starts_with("WINDBG_MCP_LISTEN_TOKEN")
}

/// This executable; by what the kernel still holds of it when its file was replaced by an upgrade.
fn own_image() -> Result<PathBuf, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("cannot find this executable to start a worker from: {error}"))?;
    let held = PathBuf::from("/proc/self/exe");
    Ok(if !own.exists() && held.exists() { held } else { own })
}

fn command(shared: &Shared) -> Result<(Command, PathBuf), String> {
    let image = match &shared.config.worker {
        Some(path) => path.clone(),
        None => own_image()?,
    };
    let mut command = Command::new(&image);
    command
        .args(&shared.config.worker_args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os().filter(|(name, _)| withheld(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command.envs(shared.config.worker_env.iter().map(|(name, value)| (name, value)));
    // Ctrl+C at the terminal is the supervisor's: the worker has a target to let go first.
    #[cfg(unix)]
    command.process_group(0);
    #[cfg(windows)]
    {
        const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
        command.creation_flags(CREATE_NEW_PROCESS_GROUP);
    }
    Ok((command, image))
}

/// Starts a worker for the session `id` and waits for its first message.
///
/// # Errors
/// Why no worker could be started, in a sentence.
pub(crate) async fn start(shared: &Arc<Shared>, id: &str) -> Result<Worker, String> {
    let (mut command, image) = command(shared)?;
    let image = image.display();
    let mut child = command
        .spawn()
        .map_err(|error| format!("no engine worker could be started from {image}: {error}"))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors), Some(pid)) = (pipes.0, pipes.1, pipes.2, child.id()) else {
        return Err(format!("the engine worker started from {image} has no pipes"));
    };
    let last_words = stderr::drain(errors, Arc::clone(shared), id.to_owned());
    let mut output = Lines::new(output);
    let first = tokio::time::timeout(shared.config.worker_ready, output.next()).await;
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
            let how = status.ok().and_then(Result::ok).map_or_else(String::new, |s| format!(" ({s})"));
            last_words.all(std::time::Duration::from_secs(1)).await;
            let said = last_words.said().map_or_else(String::new, |words| format!("; it said: {words}"));
            format!("the engine worker {image} ended before it was ready{how}{said}")
        }
        Ok(Err(error)) => format!("the engine worker {image} could not be read: {error}"),
        Err(_) => format!(
            "the engine worker {image} was not ready within {} s (WINDBG_MCP_WORKER_READY_SECS)",
            shared.config.worker_ready.as_secs()
        ),
    };
    // Waits too, so that no zombie is left.
    if let Err(error) = child.kill().await {
        tracing::debug!(pid, %error, "a refused worker was gone already");
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    #[test]
    fn secrets_are_withheld_and_nothing_else() {
        for name in ["WINDBG_MCP_PROFILES", "WINDBG_MCP_PROFILE_LAB_KEY", "WINDBG_MCP_LISTEN_TOKEN_FILE"] {
            assert!(super::withheld(name), "{name}");
        }
        for name in ["PATH", "WINDBG_MCP_ENGINE_DIR", "RUST_LOG"] {
            assert!(!super::withheld(name), "{name}");
        }
    }
}
