//! The engine's string calls: a first call for the size, a second for the text.

/// Names longer than this are cut: no symbol, path or module name needs more.
const LIMIT: usize = 64 * 1024;

/// Runs a `(buffer, size)` call with a buffer that is large enough.
pub(crate) fn wide(
    call: impl Fn(Option<&mut [u16]>, Option<*mut u32>) -> windows::core::Result<()>,
) -> windows::core::Result<String> {
    let mut buffer = vec![0u16; 512];
    let mut size = 0u32;
    call(Some(&mut buffer), Some(&mut size))?;
    let needed = usize::try_from(size).unwrap_or(0);
    if needed > buffer.len() {
        buffer.resize(needed.min(LIMIT), 0);
        call(Some(&mut buffer), Some(&mut size))?;
    }
    let end = buffer.iter().position(|&unit| unit == 0).unwrap_or(buffer.len());
    Ok(String::from_utf16_lossy(&buffer[..end]))
}
