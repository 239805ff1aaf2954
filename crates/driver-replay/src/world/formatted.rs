//! `swprintf` and its family, as far as device names need it.

use super::{Answer, World};

/// Longest text made.
const MAX_TEXT: usize = 4096;

impl World {
    pub(crate) fn format_call(&mut self, name: &str) -> Option<Answer> {
        let wide = name.contains('w');
        // (format, index of the first value; a va_list when `list`), and the room in units.
        let (format, values, list, room) = match name {
            "swprintf" | "sprintf" => (1, 2, false, None),
            "_snwprintf" | "_snprintf" => (2, 3, false, Some(1)),
            "_vsnwprintf" | "_vsnprintf" => (2, 3, true, Some(1)),
            "swprintf_s" | "sprintf_s" => (2, 3, false, Some(1)),
            _ => return None,
        };
        let buffer = self.argument(0);
        let room = room.map_or(MAX_TEXT as u64, |index| self.argument(index).min(MAX_TEXT as u64));
        let format = self.argument(format);
        let format = self.text_at(format, wide);
        let list = list.then(|| self.argument(values));
        let mut next = values;
        let mut at = list.unwrap_or(0);
        let pointer = self.pointer();
        let text = self.formatted(&format, wide, &mut |world| {
            if list.is_some() {
                let value = world.read(at, pointer);
                at = at.wrapping_add(u64::from(pointer));
                value
            } else {
                next += 1;
                world.argument(next - 1)
            }
        });
        Some(Answer::Value(self.put_text(buffer, &text, wide, room)))
    }

    fn put_text(&mut self, buffer: u64, text: &[u16], wide: bool, room: u64) -> u64 {
        let width = if wide { 2 } else { 1 };
        for (i, &unit) in (0..room).zip(text.iter().chain(std::iter::once(&0))) {
            self.write(buffer.wrapping_add(i * width), width as u32, u64::from(unit));
        }
        // What does not fit is -1, as the underscored ones give.
        if text.len() as u64 > room { u64::MAX } else { text.len() as u64 }
    }

    fn text_at(&mut self, at: u64, wide: bool) -> Vec<u16> {
        let width = if wide { 2 } else { 1 };
        let length = self.terminated(at, width).min(MAX_TEXT as u64);
        (0..length).map(|i| self.read(at.wrapping_add(i * width), width as u32) as u16).collect()
    }

    fn formatted(&mut self, format: &[u16], wide: bool, next: &mut dyn FnMut(&mut Self) -> u64) -> Vec<u16> {
        let mut out = Vec::new();
        let mut units = format.iter().copied().peekable();
        while let Some(unit) = units.next() {
            if out.len() > MAX_TEXT {
                break;
            }
            if unit != u16::from(b'%') {
                out.push(unit);
                continue;
            }
            let mut spec = String::new();
            let conversion = loop {
                let Some(c) = units.next().and_then(|u| char::from_u32(u32::from(u))) else { return out };
                if c == '%' || c.is_ascii_alphabetic() && !matches!(c, 'l' | 'h' | 'w' | 'I') {
                    break c;
                }
                spec.push(c);
                if spec.len() > 16 {
                    return out;
                }
            };
            let digits: String = spec.chars().filter(char::is_ascii_digit).collect();
            let digits = digits.strip_prefix("64").or_else(|| digits.strip_prefix("32")).unwrap_or(&digits);
            let zero = digits.starts_with('0');
            let width = digits.parse::<usize>().unwrap_or(0).min(64);
            let long = spec.contains("I64") || spec.contains("ll") || conversion == 'p';
            let number = |value: u64| if long { value } else { value & 0xffff_ffff };
            let piece: Vec<u16> = match conversion {
                '%' => vec![u16::from(b'%')],
                'd' | 'i' => {
                    let value = next(self);
                    let signed = if long { value as i64 } else { i64::from(value as i32) };
                    signed.to_string().encode_utf16().collect()
                }
                'u' => number(next(self)).to_string().encode_utf16().collect(),
                'x' => format!("{:x}", number(next(self))).encode_utf16().collect(),
                'X' | 'p' => format!("{:X}", number(next(self))).encode_utf16().collect(),
                'c' | 'C' => vec![next(self) as u16],
                's' | 'S' => {
                    let at = next(self);
                    let wide_text =
                        spec.contains(['w', 'l']) || wide == (conversion == 's') && !spec.contains('h');
                    self.text_at(at, wide_text)
                }
                'Z' => {
                    let at = next(self);
                    self.unicode_string(at).unwrap_or_default().encode_utf16().collect()
                }
                _ => Vec::new(),
            };
            let pad = if zero { u16::from(b'0') } else { u16::from(b' ') };
            out.extend(std::iter::repeat_n(pad, width.saturating_sub(piece.len())));
            out.extend(piece);
        }
        out.truncate(MAX_TEXT);
        out
    }
}
