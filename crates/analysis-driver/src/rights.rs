//! Access rights in the file vocabulary, which is what a device's handles are checked with
//! (winnt.h; the I/O manager's generic mapping for files and devices).

pub const FILE_READ_DATA: u32 = 0x1;
pub const FILE_WRITE_DATA: u32 = 0x2;
pub const READ_CONTROL: u32 = 0x2_0000;
pub const WRITE_DAC: u32 = 0x4_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
pub const GENERIC_ALL: u32 = 0x1000_0000;

/// `FILE_GENERIC_READ`, `_WRITE`, `_EXECUTE` and `FILE_ALL_ACCESS`.
pub const FILE_GENERIC_READ: u32 = 0x12_0089;
pub const FILE_GENERIC_WRITE: u32 = 0x12_0116;
pub const FILE_GENERIC_EXECUTE: u32 = 0x12_00a0;
pub const FILE_ALL_ACCESS: u32 = 0x1f_01ff;

const NAMES: [(u32, &str); 20] = [
    (0x1, "FILE_READ_DATA"),
    (0x2, "FILE_WRITE_DATA"),
    (0x4, "FILE_APPEND_DATA"),
    (0x8, "FILE_READ_EA"),
    (0x10, "FILE_WRITE_EA"),
    (0x20, "FILE_EXECUTE"),
    (0x40, "FILE_DELETE_CHILD"),
    (0x80, "FILE_READ_ATTRIBUTES"),
    (0x100, "FILE_WRITE_ATTRIBUTES"),
    (0x1_0000, "DELETE"),
    (READ_CONTROL, "READ_CONTROL"),
    (WRITE_DAC, "WRITE_DAC"),
    (0x8_0000, "WRITE_OWNER"),
    (0x10_0000, "SYNCHRONIZE"),
    (0x100_0000, "ACCESS_SYSTEM_SECURITY"),
    (0x200_0000, "MAXIMUM_ALLOWED"),
    (GENERIC_ALL, "GENERIC_ALL"),
    (GENERIC_EXECUTE, "GENERIC_EXECUTE"),
    (GENERIC_WRITE, "GENERIC_WRITE"),
    (GENERIC_READ, "GENERIC_READ"),
];

/// Generic rights replaced by what they mean for a file or device.
#[must_use]
pub fn map_generic(mask: u32) -> u32 {
    let mut out = mask & 0x0fff_ffff;
    for (generic, rights) in [
        (GENERIC_READ, FILE_GENERIC_READ),
        (GENERIC_WRITE, FILE_GENERIC_WRITE),
        (GENERIC_EXECUTE, FILE_GENERIC_EXECUTE),
        (GENERIC_ALL, FILE_ALL_ACCESS),
    ] {
        if mask & generic != 0 {
            out |= rights;
        }
    }
    out
}

/// The rights a mask names; a whole generic set is named as one. Bits nobody named stay visible in
/// the mask itself.
#[must_use]
pub fn names(mask: u32) -> Vec<String> {
    if mask == FILE_ALL_ACCESS {
        return vec!["FILE_ALL_ACCESS".to_owned()];
    }
    NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generics() {
        assert_eq!(map_generic(GENERIC_READ), FILE_GENERIC_READ);
        assert_eq!(map_generic(GENERIC_ALL | 0x1), FILE_ALL_ACCESS);
        assert_eq!(map_generic(GENERIC_READ | GENERIC_WRITE), 0x12_019f);
    }
}
