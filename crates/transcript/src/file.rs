//! The file: appended to, never truncated; shared with other processes; rotated under a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::settings::Settings;

/// Tries for the lock before a record is appended past the bound instead.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(2);
/// After a rotation that failed, the next is tried so much later.
const RETRY: Duration = Duration::from_secs(30);

pub(crate) struct Sink {
    path: PathBuf,
    file: File,
    identity: Identity,
    /// Pipes and devices are written to and never rotated.
    regular: bool,
    max_bytes: u64,
    keep: usize,
    rotate_from: Option<Instant>,
}

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(windows)]
type Identity = same_file::Handle;

#[cfg(unix)]
fn identity(file: &File, _: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(windows)]
fn identity(_: &File, path: &Path) -> io::Result<Identity> {
    same_file::Handle::from_path(path)
}

/// Whether `path` still names the open file.
#[cfg(unix)]
fn is_current(identity: &Identity, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == *identity)
}

#[cfg(windows)]
fn is_current(identity: &Identity, path: &Path) -> bool {
    same_file::Handle::from_path(path).is_ok_and(|other| other == *identity)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        /// `O_NONBLOCK`: a pipe without a reader must not hold up the start.
        #[cfg(target_os = "linux")]
        const NONBLOCK: i32 = 0o4000;
        #[cfg(not(target_os = "linux"))]
        const NONBLOCK: i32 = 0x0004;
        options.mode(0o600).custom_flags(NONBLOCK);
    }
    options.open(path)
}

/// The same, making the folder it is in.
fn open_in_folder(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    open(path)
}

/// Whether `file` is what standard output goes to, which carries JSON-RPC and nothing else.
#[cfg(unix)]
fn is_stdout(identity: &Identity) -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;
    let Ok(copy) = io::stdout().as_fd().try_clone_to_owned() else { return false };
    File::from(copy).metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == *identity)
}

#[cfg(windows)]
fn is_stdout(identity: &Identity) -> bool {
    same_file::Handle::stdout().is_ok_and(|stdout| stdout == *identity)
}

impl Sink {
    pub(crate) fn open(settings: &Settings) -> io::Result<Self> {
        let file = open_in_folder(&settings.path)?;
        // Through links, so that rotating renames the file and not a link to it.
        let path = settings.path.canonicalize().unwrap_or_else(|_| settings.path.clone());
        let identity = identity(&file, &path)?;
        let null = path == Path::new("/dev/null");
        if !null && is_stdout(&identity) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is standard output, which carries JSON-RPC only",
            ));
        }
        let regular = file.metadata()?.is_file();
        let (max_bytes, keep) = (settings.max_bytes, settings.keep);
        Ok(Self { path, file, identity, regular, max_bytes, keep, rotate_from: None })
    }

    /// Appends in one write; how much of it was written when not all was.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.file.write(bytes) {
                Ok(written) if written == bytes.len() => return Ok(()),
                Ok(written) => {
                    let why = format!("only {written} of {} bytes were written", bytes.len());
                    return Err(io::Error::new(io::ErrorKind::WriteZero, why));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the open file the one a record of `length` bytes belongs in. Answers the name the file
    /// was given when this rotated it.
    pub(crate) fn ready(&mut self, length: usize) -> io::Result<Option<String>> {
        if !self.regular {
            return Ok(None);
        }
        if !is_current(&self.identity, &self.path) {
            self.reopen()?;
        }
        if !self.is_full(length) || self.rotate_from.is_some_and(|from| Instant::now() < from) {
            return Ok(None);
        }
        match self.rotate(length) {
            Ok(rotated) => {
                self.rotate_from = None;
                Ok(rotated)
            }
            Err(error) => {
                self.rotate_from = Some(Instant::now() + RETRY);
                tracing::warn!(path = %self.path.display(), %error, "the transcript was not rotated; it grows on");
                Ok(None)
            }
        }
    }

    fn is_full(&self, length: usize) -> bool {
        let size = self.file.metadata().map_or(0, |metadata| metadata.len());
        self.max_bytes > 0 && size > 0 && size.saturating_add(length as u64) > self.max_bytes
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = open_in_folder(&self.path)?;
        self.identity = identity(&file, &self.path)?;
        self.file = file;
        Ok(())
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    fn rotate(&mut self, length: usize) -> io::Result<Option<String>> {
        let mut lock_path = self.path.clone().into_os_string();
        lock_path.push(".lock");
        let lock = open(Path::new(&lock_path))?;
        let mut tries = 0;
        while lock.try_lock().is_err() {
            tries += 1;
            if tries == TRIES {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "its lock is held by another process"));
            }
            std::thread::sleep(PAUSE);
        }
        // Somebody may have rotated while this waited.
        if !is_current(&self.identity, &self.path) {
            self.reopen()?;
        }
        if !self.is_full(length) {
            return Ok(None);
        }
        if self.keep == 0 {
            std::fs::remove_file(&self.path)?;
            self.reopen()?;
            return Ok(None);
        }
        for number in (1..self.keep).rev() {
            let from = self.numbered(number);
            if from.exists() {
                std::fs::rename(from, self.numbered(number + 1))?;
            }
        }
        let first = self.numbered(1);
        std::fs::rename(&self.path, &first)?;
        self.reopen()?;
        Ok(first.file_name().map(|name| name.to_string_lossy().into_owned()))
        // The lock goes with its file.
    }
}
