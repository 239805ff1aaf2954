//! Wine's server is every program of its prefix: when it dies, a worker that only waits does not
//! notice, and one that asks it something loses its threads one by one.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::session::Session;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The server of one prefix.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    pid: u32,
    /// In clock ticks since boot: a process id may be given to another.
    started: String,
}

/// State letter and start time of a process (`/proc/PID/stat`, proc(5): fields 3 and 22).
fn stat(pid: u32) -> Option<(String, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.to_owned()))
}

/// The server of `prefix`: it works in a folder named after the prefix's device and inode.
fn find(prefix: &Path) -> Option<Server> {
    let of = std::fs::metadata(prefix).ok()?;
    let folder = format!("server-{:x}-{:x}", of.dev(), of.ino());
    let pids = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let here = |pid: u32| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let (state, started) = stat(pid).filter(|_| cwd.ends_with(&folder))?;
        (state != "Z").then_some(Server { pid, started })
    };
    pids.into_iter().find_map(here)
}

impl Server {
    fn lives(&self) -> bool {
        stat(self.pid).is_some_and(|(state, started)| state != "Z" && started == self.started)
    }
}

/// Closes the session when its Wine server is gone. Where servers cannot be found (no `/proc`), the
/// worker's own end is what is noticed.
pub(crate) async fn watch(session: Arc<Session>, prefix: PathBuf) {
    let Some(server) = find(&prefix) else { return };
    let mut exited = session.exited.subscribe();
    loop {
        tokio::select! {
            _ = exited.wait_for(|gone| *gone) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if !server.lives() {
            session.lose(&format!("Wine's server of the prefix {} ended", prefix.display()), false);
            session.kill.cancel();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_is_found_by_where_it_works_and_seen_to_end() {
        let prefix = tempfile::tempdir().unwrap();
        let of = std::fs::metadata(prefix.path()).unwrap();
        assert_eq!(find(prefix.path()), None);
        let folder = prefix.path().join(format!("server-{:x}-{:x}", of.dev(), of.ino()));
        std::fs::create_dir(&folder).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").current_dir(&folder).spawn().unwrap();
        let server = find(prefix.path()).unwrap();
        assert_eq!(server.pid, child.id());
        assert!(server.lives());
        child.kill().unwrap();
        // A zombie serves nobody.
        while stat(server.pid).is_some_and(|(state, _)| state != "Z") {
            std::thread::yield_now();
        }
        assert!(!server.lives());
        child.wait().unwrap();
        assert!(!server.lives());
        let other = Server { pid: std::process::id(), started: "0".into() };
        assert!(!other.lives(), "another process of the same id");
    }
}
