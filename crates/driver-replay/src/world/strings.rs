//! Strings and memory blocks.

use super::{Answer, World};

/// Most characters or bytes one call moves.
const MAX_MOVE: u64 = 1 << 20;

impl World {
    pub(crate) fn string_call(&mut self, name: &str) -> Option<Answer> {
        let value = match name {
            "RtlInitUnicodeString" | "RtlInitUnicodeStringEx" => self.init_string(2),
            "RtlInitAnsiString" | "RtlInitString" => self.init_string(1),
            "RtlCopyUnicodeString" => self.copy_unicode(),
            "RtlAppendUnicodeStringToString" => {
                let (to, from) = (self.argument(0), self.argument(1));
                let (length, buffer) = self.counted(from);
                self.append(to, buffer, length)
            }
            "RtlAppendUnicodeToString" => {
                let (to, from) = (self.argument(0), self.argument(1));
                let length = self.terminated(from, 2) * 2;
                self.append(to, from, length)
            }
            "RtlEqualUnicodeString" | "RtlCompareUnicodeString" => {
                let (a, b, fold) = (self.argument(0), self.argument(1), self.argument(2) & 0xff != 0);
                let fold_text = |text: Option<String>| {
                    let text = text.unwrap_or_default();
                    if fold { text.to_uppercase() } else { text }
                };
                let (a, b) = (fold_text(self.unicode_string(a)), fold_text(self.unicode_string(b)));
                if name == "RtlEqualUnicodeString" { u64::from(a == b) } else { a.cmp(&b) as i64 as u64 }
            }
            "memcpy"
            | "memmove"
            | "RtlCopyMemory"
            | "RtlMoveMemory"
            | "RtlCopyBytes"
            | "RtlCopyMemoryNonTemporal" => {
                let (to, from, length) = (self.argument(0), self.argument(1), self.argument(2));
                self.copy(to, from, length);
                to
            }
            "memset" | "RtlFillMemory" | "RtlZeroMemory" | "RtlZeroBytes" => {
                let to = self.argument(0);
                let (byte, length) = match name {
                    "memset" => (self.argument(1), self.argument(2)),
                    "RtlFillMemory" => (self.argument(2), self.argument(1)),
                    _ => (0, self.argument(1)),
                };
                self.fill(to, byte as u8, length);
                to
            }
            "memcmp" | "RtlCompareMemory" => {
                let (a, b, length) = (self.argument(0), self.argument(1), self.argument(2));
                let (same, order) = self.compare(a, b, length);
                if name == "memcmp" { order } else { same }
            }
            "strlen" | "wcslen" | "strnlen" | "wcsnlen" => {
                let (at, wide) = (self.argument(0), name.starts_with("wcs"));
                let length = self.terminated(at, if wide { 2 } else { 1 });
                if name.ends_with("nlen") { length.min(self.argument(1)) } else { length }
            }
            "wcscpy" | "wcscat" | "strcpy" | "strcat" => {
                let (to, from) = (self.argument(0), self.argument(1));
                let width = if name.starts_with("wcs") { 2 } else { 1 };
                let skip = if name.ends_with("cat") { self.terminated(to, width) } else { 0 };
                let length = self.terminated(from, width) + 1;
                self.copy(to.wrapping_add(skip * width), from, length * width);
                to
            }
            "wcscmp" | "_wcsicmp" | "wcsncmp" | "_wcsnicmp" | "strcmp" | "_stricmp" | "strncmp"
            | "_strnicmp" => self.compare_text(name),
            _ => return None,
        };
        Some(Answer::Value(value))
    }

    /// Units before the terminator.
    pub(crate) fn terminated(&mut self, at: u64, width: u64) -> u64 {
        if at == 0 {
            return 0;
        }
        (0..0x8000)
            .find(|i| {
                let unit = self.emulator.memory.read(at.wrapping_add(i * width), width as u32);
                unit.is_ok_and(|u| u.bits() == 0) || unit.is_err()
            })
            .unwrap_or(0x8000)
    }

    /// Length in bytes and buffer of a counted string.
    fn counted(&mut self, at: u64) -> (u64, u64) {
        if at == 0 {
            return (0, 0);
        }
        let buffer = at.wrapping_add(self.either(8, 4));
        (self.read(at, 2), self.read_pointer(buffer))
    }

    fn init_string(&mut self, width: u64) -> u64 {
        let (to, from) = (self.argument(0), self.argument(1));
        let length = (self.terminated(from, width) * width).min(0xfffc);
        self.write(to, 2, length);
        self.write(to.wrapping_add(2), 2, if from == 0 { 0 } else { length + width });
        let buffer = to.wrapping_add(self.either(8, 4));
        self.write_pointer(buffer, from);
        0
    }

    fn copy_unicode(&mut self) -> u64 {
        let (to, from) = (self.argument(0), self.argument(1));
        let (length, source) = self.counted(from);
        let room = self.read(to.wrapping_add(2), 2);
        let (_, buffer) = self.counted(to);
        let length = length.min(room);
        self.copy(buffer, source, length);
        self.write(to, 2, length);
        0
    }

    fn append(&mut self, to: u64, from: u64, length: u64) -> u64 {
        let (used, buffer) = self.counted(to);
        let room = self.read(to.wrapping_add(2), 2);
        if used + length > room {
            // STATUS_BUFFER_TOO_SMALL
            return 0xc000_0023;
        }
        self.copy(buffer.wrapping_add(used), from, length);
        self.write(to, 2, used + length);
        if used + length + 2 <= room {
            self.write(buffer.wrapping_add(used + length), 2, 0);
        }
        0
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, length: u64) {
        let length = length.min(MAX_MOVE);
        // Unknown bytes stay unknown; overlapping blocks move as `memmove` does.
        let mut values = Vec::new();
        for i in 0..length {
            match self.emulator.memory.read(from.wrapping_add(i), 1) {
                Ok(value) => values.push(value),
                Err(_) => break,
            }
        }
        for (i, value) in (0..).zip(values) {
            if self.emulator.memory.write(to.wrapping_add(i), 1, value).is_err() {
                break;
            }
        }
    }

    fn fill(&mut self, to: u64, byte: u8, length: u64) {
        let chunk = [byte; 256];
        let mut done = 0;
        let length = length.min(MAX_MOVE);
        while done < length {
            let count = (length - done).min(256);
            if self.emulator.memory.write_bytes(to.wrapping_add(done), &chunk[..count as usize]).is_err() {
                break;
            }
            done += count;
        }
    }

    /// Equal bytes from the start, and what `memcmp` says.
    fn compare(&mut self, a: u64, b: u64, length: u64) -> (u64, u64) {
        for i in 0..length.min(MAX_MOVE) {
            let (x, y) = (self.read(a.wrapping_add(i), 1), self.read(b.wrapping_add(i), 1));
            if x != y {
                return (i, if x < y { u64::MAX } else { 1 });
            }
        }
        (length, 0)
    }

    fn compare_text(&mut self, name: &str) -> u64 {
        let (a, b) = (self.argument(0), self.argument(1));
        let width = if name.contains("wcs") { 2 } else { 1 };
        let fold = name.contains("icmp");
        let limit = if name.contains("ncmp") || name.contains("nicmp") { self.argument(2) } else { u64::MAX };
        for i in 0..limit.min(0x8000) {
            let unit = |world: &mut Self, at: u64| {
                let unit = world.read(at.wrapping_add(i * width), width as u32);
                if fold && (0x41..=0x5a).contains(&unit) { unit + 0x20 } else { unit }
            };
            let (x, y) = (unit(self, a), unit(self, b));
            if x != y {
                return if x < y { u64::MAX } else { 1 };
            }
            if x == 0 {
                break;
            }
        }
        0
    }
}
