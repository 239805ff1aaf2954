//! Facts out of a DbgEng session's text.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Transcript {
    /// The open itself was refused.
    pub refused: bool,
    /// `System Uptime`, milliseconds.
    pub uptime_ms: Option<u64>,
    /// `Debug session time` as RFC 3339.
    pub time: Option<String>,
    sections: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleFrame {
    pub inline: bool,
    /// `Child-SP`, or `ChildEBP` on x86.
    pub sp: u64,
    pub ret: u64,
    /// Filled in from the frame below.
    pub ip: u64,
    /// `nt!KeBugCheckEx+0x10`, `nt+0x3f5a80`, `0x7e`.
    pub place: String,
}

#[derive(Clone, Debug)]
pub struct OracleModule {
    pub start: u64,
    pub end: u64,
    pub name: String,
    /// `private pdb symbols`, `export symbols`, `deferred`, `no symbols`.
    pub symbols: String,
}

#[derive(Clone, Debug)]
pub struct OracleThread {
    pub pid: u32,
    pub tid: u32,
    pub suspend: u32,
    pub teb: u64,
    pub frames: Vec<OracleFrame>,
}

#[derive(Clone, Debug, Default)]
pub struct OracleException {
    pub address: u64,
    pub code: u32,
    pub flags: u32,
    pub parameters: Vec<u64>,
}

/// A number as DbgEng prints it, backtick or not.
fn hex(text: &str) -> Option<u64> {
    let digits: String = text.trim().trim_start_matches("0x").chars().filter(|&c| c != '`').collect();
    if digits.is_empty() || digits.len() > 16 { None } else { u64::from_str_radix(&digits, 16).ok() }
}

impl Transcript {
    pub fn parse(text: &str) -> Self {
        let after = |key: &str| text.lines().find_map(|l| l.trim().strip_prefix(key).map(str::to_owned));
        let mut out = Self {
            refused: !text.lines().any(|l| l.trim() == "open 0"),
            uptime_ms: after("System Uptime: ").and_then(|t| uptime(&t)),
            time: after("Debug session time: ").and_then(|t| session_time(&t)),
            sections: Vec::new(),
        };
        for line in text.lines() {
            let line = line.trim_end();
            if let Some(command) = line.strip_prefix("---- ") {
                out.sections.push((command.to_owned(), Vec::new()));
            } else if let Some((_, lines)) = out.sections.last_mut() {
                lines.push(line.to_owned());
            }
        }
        out
    }

    /// The `nth` run of a command.
    fn section(&self, command: &str, nth: usize) -> Option<&[String]> {
        self.sections.iter().filter(|(c, _)| c == command).nth(nth).map(|(_, lines)| lines.as_slice())
    }

    pub fn registers(&self) -> BTreeMap<String, u64> {
        registers(self.section("r", 0).unwrap_or_default())
    }
    pub fn exception_registers(&self) -> BTreeMap<String, u64> {
        registers(self.section(".ecxr", 0).unwrap_or_default())
    }

    /// The stack of `r`'s registers.
    pub fn stack(&self) -> Vec<OracleFrame> {
        frames(self.section("k", 0).unwrap_or_default(), self.registers_ip(false))
    }
    /// The stack after `.ecxr`.
    pub fn exception_stack(&self) -> Vec<OracleFrame> {
        frames(self.section("k", 1).unwrap_or_default(), self.registers_ip(true))
    }

    fn registers_ip(&self, exception: bool) -> u64 {
        let registers = if exception { self.exception_registers() } else { self.registers() };
        ["rip", "eip", "pc"].iter().find_map(|n| registers.get(*n).copied()).unwrap_or(0)
    }

    pub fn modules(&self) -> Vec<OracleModule> {
        let mut out = Vec::new();
        for line in self.section("lm", 0).unwrap_or_default() {
            if line.starts_with("Unloaded") {
                break;
            }
            out.extend(module(line));
        }
        out
    }

    pub fn unloaded(&self) -> Vec<OracleModule> {
        let lines = self.section("lm", 0).unwrap_or_default();
        let after = lines.iter().skip_while(|l| !l.starts_with("Unloaded")).skip(1);
        after.filter_map(|l| module(l)).collect()
    }

    pub fn exception(&self) -> Option<OracleException> {
        let lines = self.section(".exr -1", 0)?;
        let mut out = OracleException::default();
        let value = |line: &str, key: &str| {
            line.trim().strip_prefix(key).and_then(|rest| hex(rest.split_whitespace().next()?))
        };
        let mut seen = false;
        for line in lines {
            if let Some(v) = value(line, "ExceptionAddress:") {
                out.address = v;
                seen = true;
            } else if let Some(v) = value(line, "ExceptionCode:") {
                out.code = u32::try_from(v).unwrap();
            } else if let Some(v) = value(line, "ExceptionFlags:") {
                out.flags = u32::try_from(v).unwrap();
            } else if let Some(v) = line.trim().strip_prefix("Parameter[").and_then(|r| r.split_once("]:")) {
                out.parameters.extend(hex(v.1));
            }
        }
        seen.then_some(out)
    }

    /// `pid.tid` of `.lastevent`.
    pub fn last_event(&self) -> Option<(u32, u32)> {
        let line = self.section(".lastevent", 0)?.iter().find(|l| l.starts_with("Last event: "))?;
        let ids = line.strip_prefix("Last event: ")?.split(':').next()?;
        let (pid, tid) = ids.split_once('.')?;
        Some((u32::from_str_radix(pid, 16).ok()?, u32::from_str_radix(tid, 16).ok()?))
    }

    pub fn bug_check(&self) -> Option<(u32, [u64; 4])> {
        let lines = self.section(".bugcheck", 0)?;
        let code = lines.iter().find_map(|l| l.strip_prefix("Bugcheck code "))?;
        let arguments = lines.iter().find_map(|l| l.strip_prefix("Arguments "))?;
        let values: Vec<u64> = arguments.split_whitespace().filter_map(hex).collect();
        Some((u32::from_str_radix(code.trim(), 16).ok()?, values.try_into().ok()?))
    }

    pub fn threads(&self) -> Vec<OracleThread> {
        let mut out: Vec<OracleThread> = Vec::new();
        let mut lines: Vec<String> = Vec::new();
        let finish = |out: &mut Vec<OracleThread>, lines: &mut Vec<String>| {
            if let Some(last) = out.last_mut() {
                last.frames = frames(lines, 0);
            }
            lines.clear();
        };
        for line in self.section("~*k", 0).unwrap_or_default() {
            if let Some(thread) = thread(line) {
                finish(&mut out, &mut lines);
                out.push(thread);
            } else {
                lines.push(line.clone());
            }
        }
        finish(&mut out, &mut lines);
        out
    }
}

/// `20 days 13:32:39.251`.
fn uptime(text: &str) -> Option<u64> {
    let (days, clock) = text.split_once(" days ")?;
    Some(days.parse::<u64>().ok()? * 86_400_000 + clock_ms(clock.trim())?)
}

fn clock_ms(text: &str) -> Option<u64> {
    let (clock, ms) = text.split_once('.')?;
    let seconds = clock.split(':').try_fold(0u64, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
    Some(seconds * 1000 + ms.parse::<u64>().ok()?)
}

/// `Sun Feb 21 01:38:22.987 2021 (UTC + 0:00)`.
fn session_time(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, clock, year, ..] = words[..] else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|m| *m == month)? + 1;
    Some(format!("{year}-{month:02}-{:02}T{clock}Z", day.parse::<u32>().ok()?))
}

fn thread(line: &str) -> Option<OracleThread> {
    let (_, rest) = line.split_once(" Id: ")?;
    let mut words = rest.split_whitespace();
    let (pid, tid) = words.next()?.split_once('.')?;
    let suspend = words.nth(1)?;
    let teb = words.nth(1)?;
    Some(OracleThread {
        pid: u32::from_str_radix(pid, 16).ok()?,
        tid: u32::from_str_radix(tid, 16).ok()?,
        suspend: suspend.parse().ok()?,
        teb: hex(teb)?,
        frames: Vec::new(),
    })
}

fn module(line: &str) -> Option<OracleModule> {
    let mut words = line.split_whitespace();
    let start = words.next().filter(|w| w.len() >= 8).and_then(hex)?;
    let end = words.next().filter(|w| w.len() >= 8).and_then(hex)?;
    let name = words.next()?.to_owned();
    let symbols = line.split_once('(').and_then(|(_, r)| r.split_once(')')).map_or("", |(s, _)| s).to_owned();
    Some(OracleModule { start, end, name, symbols })
}

fn registers(lines: &[String]) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for line in lines {
        for word in line.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else { continue };
            let known = name.len() <= 3 && name.chars().all(|c| c.is_ascii_alphanumeric());
            if let (true, Some(value)) = (known, hex(value)) {
                out.insert(name.to_owned(), value);
            }
        }
        // Behind the flags comes the disassembly, which may hold `=` too.
        if line.contains("efl=") || line.contains("psr=") {
            break;
        }
    }
    out.remove("psr");
    out
}

fn frames(lines: &[String], ip: u64) -> Vec<OracleFrame> {
    let mut out: Vec<OracleFrame> = Vec::new();
    let mut next = ip;
    for line in lines {
        if let Some(rest) = line.strip_prefix("(Inline") {
            let place = rest.rsplit_once("-- ").map_or("", |(_, p)| p).trim().to_owned();
            out.push(OracleFrame { inline: true, sp: 0, ret: 0, ip: next, place });
            continue;
        }
        let mut words = line.splitn(3, ' ');
        let (Some(sp), Some(ret), Some(place)) = (words.next(), words.next(), words.next()) else { continue };
        if sp.len() < 8 || ret.len() < 8 {
            continue;
        }
        let (Some(sp), Some(ret)) = (hex(sp), hex(ret)) else { continue };
        // Inline rows above belong to this frame's address.
        out.push(OracleFrame { inline: false, sp, ret, ip: next, place: place.trim().to_owned() });
        next = ret;
    }
    out
}
