#![no_main]
//! Any bytes as a container: the CAB signature in front, else as they are.

#[path = "../support/watch.rs"]
mod watch;

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("packed");
    let mut bytes = data.to_vec();
    if bytes.len() > 4 && bytes[0] & 1 == 0 {
        bytes[..4].copy_from_slice(b"MSCF");
    }
    if std::fs::write(&path, bytes).is_ok() {
        let _ = dump::open(&path);
    }
});
