//! The last records of each client, as its resource `windbg://transcript` shows them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes kept a client.
pub(crate) const KEPT: usize = 256 << 10;
/// Clients told apart; the one heard of longest ago gives way.
const CLIENTS: usize = 64;

#[derive(Default)]
struct Lines {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    used: u64,
}

impl Lines {
    fn push(&mut self, line: &Arc<str>) {
        self.bytes += line.len();
        self.lines.push_back(Arc::clone(line));
        while self.bytes > KEPT {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }
}

/// Whole lines in memory: a file that was rotated, or that others write too, need not be searched.
#[derive(Default)]
pub(crate) struct Recent {
    /// The run's first line.
    start: Option<Arc<str>>,
    clients: HashMap<String, Lines>,
    clock: u64,
}

impl Recent {
    /// Files a line of `client`; of every client when it is nobody's.
    pub(crate) fn push(&mut self, client: Option<&str>, line: &str) {
        let line: Arc<str> = Arc::from(line);
        if self.start.is_none() {
            self.start = Some(Arc::clone(&line));
        }
        self.clock += 1;
        match client {
            None => self.clients.values_mut().for_each(|lines| lines.push(&line)),
            Some(client) => {
                if !self.clients.contains_key(client) {
                    self.admit(client);
                }
                if let Some(lines) = self.clients.get_mut(client) {
                    lines.used = self.clock;
                    lines.push(&line);
                }
            }
        }
    }

    fn admit(&mut self, client: &str) {
        if self.clients.len() >= CLIENTS
            && let Some(oldest) = self.clients.iter().min_by_key(|(_, lines)| lines.used)
        {
            let oldest = oldest.0.clone();
            self.clients.remove(&oldest);
        }
        let mut lines = Lines::default();
        if let Some(start) = &self.start {
            lines.push(start);
        }
        self.clients.insert(client.to_owned(), lines);
    }

    /// The client's last lines, oldest first.
    pub(crate) fn of(&self, client: &str) -> String {
        match self.clients.get(client) {
            Some(lines) => lines.lines.iter().map(|line| &**line).collect(),
            None => self.start.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lines_and_everybodys_and_no_other_clients() {
        let mut recent = Recent::default();
        recent.push(None, "start\n");
        recent.push(Some("a"), "a1\n");
        recent.push(Some("b"), "b1\n");
        recent.push(None, "gap\n");
        assert_eq!(recent.of("a"), "start\na1\ngap\n");
        assert_eq!(recent.of("b"), "start\nb1\ngap\n");
        assert_eq!(recent.of("c"), "start\n");
    }

    #[test]
    fn whole_lines_up_to_the_bound() {
        let mut recent = Recent::default();
        let line = format!("{}\n", "x".repeat(99_999));
        for _ in 0..5 {
            recent.push(Some("a"), &line);
        }
        assert_eq!(recent.of("a").len(), 200_000);
        recent.push(Some("a"), &"y".repeat(KEPT + 1));
        assert_eq!(recent.of("a"), "");
        for client in 0..200 {
            recent.push(Some(&client.to_string()), "l\n");
        }
        assert_eq!(recent.clients.len(), CLIENTS);
    }
}
