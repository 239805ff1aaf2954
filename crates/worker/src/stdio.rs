//! The channel is the inherited stdin and stdout, taken away from everyone else in the process: a
//! DLL that prints must not write into a message (spec 00 decision 23).

use std::fs::File;
use std::io;

/// The private ends.
pub(crate) struct Channel {
    pub(crate) input: File,
    pub(crate) output: File,
}

/// Keeps private duplicates of stdin and stdout, then points stdin at the null device and stdout
/// at stderr.
#[cfg(unix)]
pub(crate) fn adopt() -> io::Result<Channel> {
    use std::os::fd::{AsFd, AsRawFd};

    // `try_clone_to_owned` duplicates close-on-exec.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let null = File::open("/dev/null")?;
    let point = |from: i32, to: i32| {
        // SAFETY: both are open descriptors; `to` is a standard one nobody holds an owner of.
        if unsafe { libc::dup2(from, to) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    point(null.as_raw_fd(), libc::STDIN_FILENO)?;
    point(libc::STDERR_FILENO, libc::STDOUT_FILENO)?;
    Ok(Channel { input, output })
}

#[cfg(windows)]
pub(crate) fn adopt() -> io::Result<Channel> {
    use std::ffi::c_void;
    use std::os::windows::io::{AsHandle, IntoRawHandle};

    const STD_INPUT_HANDLE: u32 = -10_i32 as u32;
    const STD_OUTPUT_HANDLE: u32 = -11_i32 as u32;
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn SetStdHandle(which: u32, handle: *mut c_void) -> i32;
    }
    let point = |which: u32, handle: std::os::windows::io::OwnedHandle| {
        // SAFETY: the handle is open and given up to the process for the rest of its life.
        let done = unsafe { SetStdHandle(which, handle.into_raw_handle()) };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // Duplicates are not inheritable.
    let input = File::from(io::stdin().as_handle().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_handle().try_clone_to_owned()?);
    let errors = io::stderr().as_handle().try_clone_to_owned()?;
    point(STD_INPUT_HANDLE, File::open("NUL")?.into())?;
    point(STD_OUTPUT_HANDLE, errors)?;
    Ok(Channel { input, output })
}
