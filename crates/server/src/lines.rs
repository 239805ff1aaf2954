//! Lines a client sent that are no JSON, or too long to be read. The transport drops those, and a
//! client that asked something in one would wait for ever: where the line says its `id`, a request
//! that every client's id is answered by takes its place.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

/// Bytes of one line; the transport's own limit.
const LINE: usize = 16 << 20;
/// Bytes of an id that are looked at.
const ID: usize = 128;
/// The method of the request in an unreadable line's place.
pub(crate) const UNREADABLE: &str = "unreadable line";

/// Copies lines until either end closes.
pub(crate) async fn forward(input: impl AsyncRead + Unpin, mut output: impl AsyncWrite + Unpin) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let (mut ids, mut length) = (IdFinder::default(), 0usize);
    loop {
        let Ok(available) = input.fill_buf().await else { return };
        if available.is_empty() {
            return;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.map_or(available.len(), |at| at + 1)];
        ids.read(part);
        length = length.saturating_add(part.len());
        if length <= LINE {
            line.extend_from_slice(part);
        }
        let read = part.len();
        input.consume(read);
        if end.is_none() {
            continue;
        }
        if let Some(why) = unreadable(&line, length) {
            line = ids.id().map(|id| substitute(&id, &why)).unwrap_or_default();
        }
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
        line.clear();
        (ids, length) = (IdFinder::default(), 0);
    }
}

fn unreadable(line: &[u8], length: usize) -> Option<String> {
    if length > LINE {
        return Some(format!("the line is {length} bytes long; at most {LINE} are read"));
    }
    let text = line.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(line);
    if text.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let error = serde_json::from_slice::<serde_json::Value>(text).err()?;
    Some(format!("the line is no JSON that can be read: {error}"))
}

fn substitute(id: &serde_json::Value, why: &str) -> Vec<u8> {
    let request =
        serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": UNREADABLE, "params": { "why": why } });
    let mut line = request.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The `id` of the outermost object of a line, found without understanding the rest.
#[derive(Default)]
struct IdFinder {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The string or word read last at depth 1, as written.
    word: Vec<u8>,
    /// That word was the key `"id"`, and a colon followed.
    is_id: bool,
    id: Option<Vec<u8>>,
}

impl IdFinder {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.word.clear();
            }
            b'}' | b']' => {
                self.end_of_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_of_value(),
            b':' if self.depth == 1 => {
                self.is_id = self.word == br#""id""#;
                self.word.clear();
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() < ID {
            self.word.push(byte);
        }
    }

    fn end_of_value(&mut self) {
        if self.depth == 1 {
            if self.is_id {
                self.id = Some(std::mem::take(&mut self.word));
            }
            self.is_id = false;
            self.word.clear();
        }
    }

    /// A request's id is a number or a string.
    fn id(&self) -> Option<serde_json::Value> {
        let id: serde_json::Value = serde_json::from_slice(self.id.as_deref()?).ok()?;
        (id.is_i64() || id.is_u64() || id.is_string()).then_some(id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn forwarded(input: &[u8]) -> String {
        let mut output = Vec::new();
        forward(input, &mut output).await;
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn readable_lines_pass_as_they_are() {
        for text in ["{\"id\":1}\n", "\u{feff}{}\r\n", "\n", "[1]\n{}\n"] {
            assert_eq!(forwarded(text.as_bytes()).await, text);
        }
        // A last line without its end is no message.
        assert_eq!(forwarded(b"{}").await, "");
    }

    #[tokio::test]
    async fn an_unreadable_request_is_answered_by_its_id() {
        let deep = format!("{{\"params\":{}{},\"id\":\"a\"}}\n", "[".repeat(1000), "]".repeat(1000));
        let surrogate =
            r#"{"id": 7, "method": "x", "params": {"path": "\udcff", "id": 8}}"#.to_owned() + "\n";
        for (line, id) in [(deep, "\"a\""), (surrogate, "7")] {
            let text = forwarded(line.as_bytes()).await;
            assert!(text.contains(&format!("\"id\":{id},")) && text.contains(UNREADABLE), "{text}");
        }
    }

    #[tokio::test]
    async fn what_has_no_id_is_dropped() {
        for line in ["nonsense\n", "{\n", "\0\n", "{\"id\":null,\n", "{\"params\":{\"id\":1},]\n"] {
            assert_eq!(forwarded(line.as_bytes()).await, "", "{line}");
        }
        assert_eq!(forwarded(b"x\n{}\n").await, "{}\n");
    }

    #[tokio::test]
    async fn a_line_too_long_is_not_kept_and_is_answered() {
        let line = format!("{{\"params\":\"{}\",\"id\":3}}\n{{}}\n", "x".repeat(LINE));
        let text = forwarded(line.as_bytes()).await;
        assert!(
            text.contains("\"id\":3,") && text.contains("bytes long") && text.ends_with("\n{}\n"),
            "{text}"
        );
    }
}
