//! Every driver by every compiler: what the tool says, what each oracle says, and whether they agree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::hazards::{self, Fault};
use super::mapped::{self, Mapped};
use super::objects::{self, Objects};
use super::source::{self, Oracle, Source, Variant};
use super::sweep::{self, Swept};
use super::wine;

/// What to run.
pub(crate) struct Asked {
    pub(crate) fresh: bool,
    pub(crate) sweep: bool,
    pub(crate) wine: bool,
    pub(crate) every_build: bool,
    pub(crate) program: Option<PathBuf>,
    pub(crate) drivers: Vec<String>,
}

/// One driver's one build.
struct Cell<'a> {
    source: &'a Source,
    variant: Variant,
    image: PathBuf,
    /// Wine loads this build.
    wine: bool,
}

impl Cell<'_> {
    /// Without the codes that only x86 and x64 builds have.
    fn on_this_machine(&self, codes: &BTreeSet<u32>) -> BTreeSet<u32> {
        let arm = self.variant == Variant::Arm64Clang;
        codes.iter().copied().filter(|code| !arm || !self.source.row.x86_only.contains(code)).collect()
    }
}

/// What was found out about a cell.
#[derive(Default)]
struct Seen {
    swept: Option<Result<Swept>>,
    wine: Option<Result<BTreeMap<u32, u32>>>,
    mapped: Option<Result<Mapped>>,
    hazards: Option<Result<Vec<Fault>>>,
    objects: Option<Result<Objects>>,
}

enum Found {
    Swept(Result<Swept>),
    Wine(Result<BTreeMap<u32, u32>>),
    Mapped(Result<Mapped>),
    Hazards(Result<Vec<Fault>>),
    Objects(Result<Objects>),
}

/// Runs the oracles, prints the table, fails when a row does.
pub(crate) fn print(asked: &Asked) -> Result<()> {
    let sources = source::all(&asked.drivers)?;
    let cells = cells(&sources, asked.every_build);
    let harness = sweep::build()?;
    let host = if asked.wine { Some(wine::Host::new()?) } else { None };
    let started = Instant::now();
    let seen: Vec<Mutex<Seen>> = cells.iter().map(|_| Mutex::new(Seen::default())).collect();
    let put = |index: usize, found: Found| {
        if let Ok(mut seen) = seen[index].lock() {
            match found {
                Found::Swept(swept) => seen.swept = Some(swept),
                Found::Wine(errors) => seen.wine = Some(errors),
                Found::Mapped(mapped) => seen.mapped = Some(mapped),
                Found::Hazards(found) => seen.hazards = Some(found),
                Found::Objects(found) => seen.objects = Some(found),
            }
        }
    };
    let next = Mutex::new(0..cells.len());
    let sweeps = || {
        while let Some(index) = next.lock().ok().and_then(|mut range| range.next()) {
            let cell = &cells[index];
            if asked.sweep && cell.source.oracle != Oracle::None && sweep::possible(cell.variant) {
                let swept = sweep::run(&harness, cell.source, &cell.image, asked.fresh);
                put(index, Found::Swept(swept));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(sweeps);
        scope.spawn(sweeps);
        if let Some(host) = &host {
            for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.wine) {
                let service = format!("Wm{}{index}", cell.source.id);
                put(index, Found::Wine(host.sweep(cell.source, &service, &cell.image)));
            }
        }
        if let Some(program) = &asked.program {
            for (index, cell) in cells.iter().enumerate() {
                put(index, Found::Mapped(mapped::ask(program, &cell.image)));
                if cell.source.row.planted.is_some() {
                    put(index, Found::Hazards(hazards::ask(program, &cell.image)));
                }
                if cell.source.row.objects.is_some() {
                    put(index, Found::Objects(objects::ask(program, &cell.image)));
                }
            }
        }
    });
    let seen: Vec<Seen> = seen.into_iter().map(|seen| seen.into_inner().unwrap_or_default()).collect();
    let failed = rows(&cells, &seen) + host.as_ref().map_or(Ok(0), gate)?;
    println!("{} builds in {} s", cells.len(), started.elapsed().as_secs());
    if failed > 0 {
        bail!("{failed} rows of the table above do not hold");
    }
    Ok(())
}

/// Says how Wine's I/O manager gates the sixteen pairs of handle and code; 1 when not as required.
fn gate(host: &wine::Host) -> Result<usize> {
    const ERROR_ACCESS_DENIED: u32 = 5;
    let outcomes = host.access_gate()?;
    let is_right = |((granted, required), error): (&(u32, u32), &u32)| {
        *error == if required & !granted == 0 { 0 } else { ERROR_ACCESS_DENIED }
    };
    let right = outcomes.iter().filter(|&pair| is_right(pair)).count();
    println!("access gate under wine: {right} of 16");
    Ok(usize::from(right != 16))
}

/// Wine loads one build of each driver, all four compilers taking turns, unless every one is wanted.
fn cells(sources: &[Source], every_build: bool) -> Vec<Cell<'_>> {
    let mut turn = 0;
    let mut cells = Vec::new();
    for source in sources {
        let loadable: Vec<Variant> =
            source.variants.iter().copied().filter(|&variant| sweep::possible(variant)).collect();
        let own = loadable.get(turn % loadable.len().max(1)).copied();
        turn += usize::from(source.wine);
        for &variant in &source.variants {
            let image = source::folder().join("bin").join(variant.name()).join(format!("{}.sys", source.id));
            let loads = loadable.contains(&variant) && (every_build || own == Some(variant));
            cells.push(Cell { source, variant, image, wine: source.wine && loads });
        }
    }
    cells
}

/// Prints the rows; how many do not hold.
fn rows(cells: &[Cell<'_>], seen: &[Seen]) -> usize {
    println!("{:<6} {:<12} {:>6}  {:<12} {:<22} ioctl_map", "driver", "build", "codes", "oracle", "wine");
    let mut failed = 0;
    for (cell, own) in cells.iter().zip(seen) {
        let truth = truth(cell, own, cells, seen);
        let (oracle, mut wrong) = match &own.swept {
            None => (if truth.is_some() { "x64 set" } else { "spec" }, None),
            Some(Err(error)) => ("failed", Some(format!("sweep: {error:#}"))),
            Some(Ok(swept)) => {
                (if swept.whole { "sweep 2^32" } else { "sweep types" }, against_row(cell.source, swept))
            }
        };
        let wine = match &own.wine {
            None => "-".to_owned(),
            Some(Err(error)) => {
                wrong = wrong.or_else(|| Some(format!("wine: {error:#}")));
                "failed".to_owned()
            }
            Some(Ok(found)) => match against_wine(cell.source, found) {
                None => format!("{} codes, equal", found.len()),
                Some(what) => {
                    wrong = wrong.or(Some(what));
                    "differs".to_owned()
                }
            },
        };
        let map = match &own.mapped {
            None => "-".to_owned(),
            Some(Err(error)) => {
                wrong = wrong.or_else(|| Some(format!("{error:#}")));
                "failed".to_owned()
            }
            Some(Ok(mapped)) => match against_map(cell, mapped, truth.as_ref()) {
                None => said(mapped),
                Some(what) => {
                    wrong = wrong.or(Some(what));
                    "differs".to_owned()
                }
            },
        };
        let (mut said, missed) = faults(cell, own);
        wrong = wrong.or(missed);
        let (made, differs) = objects_made(cell, own);
        said.push_str(&made);
        wrong = wrong.or(differs);
        let codes = truth.as_ref().map_or(cell.source.row.accepted.len(), BTreeSet::len);
        println!(
            "{:<6} {:<12} {codes:>6}  {oracle:<12} {wine:<22} {map}{said}",
            cell.source.id,
            cell.variant.name()
        );
        if let Some(what) = wrong {
            println!("       {what}");
            failed += 1;
        }
    }
    failed
}

/// What is said of planted faults, and what is wrong about it.
fn faults(cell: &Cell<'_>, own: &Seen) -> (String, Option<String>) {
    let (Some(planted), Some(found)) = (&cell.source.row.planted, &own.hazards) else {
        return (String::new(), None);
    };
    let whole = cell.variant == Variant::X64Clang;
    match found {
        Err(error) => (String::new(), Some(format!("{error:#}"))),
        Ok(found) => {
            let said = format!("; {} of {} planted faults", found.len(), planted.len());
            (said, hazards::against(planted, found, whole))
        }
    }
}

/// What is said of devices and links, and what is wrong about it.
fn objects_made(cell: &Cell<'_>, own: &Seen) -> (String, Option<String>) {
    let (Some(wanted), Some(found)) = (&cell.source.row.objects, &own.objects) else {
        return (String::new(), None);
    };
    match found {
        Err(error) => (String::new(), Some(format!("{error:#}"))),
        Ok(found) => {
            let said = format!("; {} devices, {} links", found.devices.len(), found.links.len());
            (said, objects::against(wanted, found))
        }
    }
}

fn said(mapped: &Mapped) -> String {
    let whole = if mapped.complete { "complete" } else { "incomplete" };
    format!("equal, {whole}, {} ms", mapped.took.as_millis())
}

/// The accepted codes as they were seen: this build's own, else those of an x64 build of the source.
fn truth(cell: &Cell<'_>, own: &Seen, cells: &[Cell<'_>], seen: &[Seen]) -> Option<BTreeSet<u32>> {
    let of = |seen: &Seen| Some(seen.swept.as_ref()?.as_ref().ok()?.accepted().collect());
    of(own).or_else(|| {
        let same = cells.iter().zip(seen).filter(|(other, _)| other.source.id == cell.source.id);
        same.filter_map(|(_, seen)| of(seen)).next()
    })
}

/// How a sweep differs from the specification's row.
fn against_row(source: &Source, swept: &Swept) -> Option<String> {
    let row = &source.row;
    if swept.default != row.default {
        return Some(format!("sweep: default {:#010x}, not {:#010x}", swept.default, row.default));
    }
    let accepted: BTreeSet<u32> = swept.accepted().collect();
    let refused: BTreeSet<u32> =
        swept.statuses.keys().copied().filter(|code| !accepted.contains(code)).collect();
    different("sweep, accepted", &accepted, &row.accepted)
        .or_else(|| different("sweep, refused", &refused, &row.refused.keys().copied().collect()))
}

fn against_wine(source: &Source, found: &BTreeMap<u32, u32>) -> Option<String> {
    let recognised = source.row.accepted.iter().chain(source.row.refused.keys()).copied().collect();
    different("wine", &found.keys().copied().collect(), &recognised)
}

/// How the tool's map differs from the truth, or from the row where there is none.
fn against_map(cell: &Cell<'_>, mapped: &Mapped, truth: Option<&BTreeSet<u32>>) -> Option<String> {
    let row = &cell.source.row;
    let only = |codes: &BTreeSet<u32>| cell.on_this_machine(codes);
    let truth = &only(truth.unwrap_or(&row.accepted));
    let mut found = mapped.accepted.clone();
    if row.not_proved {
        if mapped.code_proved {
            return Some("ioctl_map: code_proved, which nothing proves".to_owned());
        }
        found.extend(&mapped.unproved);
    } else if let Some(code) = mapped.unproved.iter().find(|code| !row.unproved.contains(code)) {
        return Some(format!("ioctl_map: {code:#x} is listed unproved"));
    }
    found.retain(|code| !row.elsewhere.contains(code));
    if let Some(what) = different("ioctl_map, fast I/O", &mapped.fast_io, &row.fast_io) {
        return Some(what);
    }
    if row.unresolved && !mapped.unresolved {
        return Some("ioctl_map: nothing unresolved, and something is".to_owned());
    }
    let may_be_incomplete = row.may_be_incomplete || row.not_proved || row.capped;
    if (row.unresolved && mapped.complete) || !(mapped.complete || may_be_incomplete) {
        return Some(format!("ioctl_map: complete is {}", mapped.complete));
    }
    if !mapped.complete && row.may_be_incomplete {
        let wrong: BTreeSet<u32> = found.difference(truth).copied().collect();
        return different("ioctl_map, incomplete", &wrong, &BTreeSet::new());
    }
    if row.capped {
        let wrong: BTreeSet<u32> = found.difference(truth).copied().collect();
        return match mapped.code_count == truth.len() as u64 {
            true => different("ioctl_map, capped", &wrong, &BTreeSet::new()),
            false => Some(format!("ioctl_map: {} codes, not {}", mapped.code_count, truth.len())),
        };
    }
    different("ioctl_map", &found, truth).or_else(|| {
        let refused: BTreeSet<u32> = mapped.refused.keys().copied().collect();
        different("ioctl_map, refused", &refused, &row.refused.keys().copied().collect())
    })
}

/// The first few codes that one has and the other has not.
fn different(who: &str, found: &BTreeSet<u32>, wanted: &BTreeSet<u32>) -> Option<String> {
    let few = |codes: Vec<&u32>| {
        let shown: Vec<String> = codes.iter().take(4).map(|code| format!("{code:#010x}")).collect();
        let more = if codes.len() > 4 { format!(" and {} more", codes.len() - 4) } else { String::new() };
        shown.join(" ") + &more
    };
    let extra: Vec<&u32> = found.difference(wanted).collect();
    let missing: Vec<&u32> = wanted.difference(found).collect();
    match (extra.is_empty(), missing.is_empty()) {
        (true, true) => None,
        (false, _) => Some(format!("{who}: wrong codes {}", few(extra))),
        (true, false) => Some(format!("{who}: missing codes {}", few(missing))),
    }
}

/// A built windbg-mcp that serves ioctl_map: the release program, else the debug one.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    ["release", "debug"]
        .iter()
        .map(|profile| root.join("target").join(profile).join("windbg-mcp"))
        .find(|path| path.is_file())
        .context("no windbg-mcp in target: cargo build --release --bin windbg-mcp")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn source(id: &str) -> Source {
        source::all(&[id.to_owned()]).unwrap().remove(0)
    }

    fn mapped(source: &Source) -> Mapped {
        Mapped {
            accepted: source.row.accepted.clone(),
            refused: source.row.refused.iter().map(|(&code, &status)| (code, Some(status))).collect(),
            complete: true,
            code_proved: true,
            code_count: source.row.accepted.len() as u64,
            fast_io: source.row.fast_io.clone(),
            ..Mapped::default()
        }
    }

    fn verdict(source: &Source, mapped: &Mapped) -> Option<String> {
        let variant = Variant::X64GccO2;
        against_map(&Cell { source, variant, image: PathBuf::new(), wine: false }, mapped, None)
    }

    #[test]
    fn a_wrong_a_missing_and_an_unproved_code_fail_a_row() {
        let source = source("d02");
        let good = mapped(&source);
        assert_eq!(verdict(&source, &good), None);
        let mut wrong = good.clone();
        wrong.accepted.insert(0x22_2013);
        assert!(verdict(&source, &wrong).unwrap().contains("wrong codes 0x00222013"));
        let mut missing = good.clone();
        missing.accepted.pop_first();
        assert!(verdict(&source, &missing).unwrap().contains("missing codes 0x00222003"));
        let unproved = Mapped { unproved: [1].into(), ..good.clone() };
        assert!(verdict(&source, &unproved).unwrap().contains("unproved"));
        let incomplete = Mapped { complete: false, ..good };
        assert!(verdict(&source, &incomplete).is_some());
    }

    #[test]
    fn codes_of_fast_io_are_a_set_of_their_own() {
        let source = source("d32");
        let good = mapped(&source);
        assert!(!source.row.fast_io.is_subset(&source.row.accepted));
        assert_eq!(verdict(&source, &good), None);
        let unmapped = Mapped { fast_io: BTreeSet::new(), ..good.clone() };
        assert!(verdict(&source, &unmapped).unwrap().contains("fast I/O: missing"));
        let mut mixed = good;
        mixed.accepted.extend(&source.row.fast_io);
        assert!(verdict(&source, &mixed).unwrap().contains("wrong codes"));
    }

    #[test]
    fn an_incomplete_loop_may_miss_codes_but_invents_none() {
        let source = source("d06b");
        let none = Mapped { accepted: BTreeSet::new(), complete: false, ..mapped(&source) };
        assert_eq!(verdict(&source, &none), None);
        let invented = Mapped { accepted: [7].into(), ..none };
        assert!(verdict(&source, &invented).is_some());
    }

    #[test]
    fn a_refused_code_and_a_dead_host_are_told_apart() {
        let source = source("d07");
        let mut swept = Swept { default: 0xc000_0010, ..Swept::default() };
        swept.statuses =
            [(0x22_2000, vec![0xc000_000d, 0]), (0x22_2004, vec![0]), (0x22_2008, vec![0xc000_0022])].into();
        assert_eq!(against_row(&source, &swept), None);
        swept.statuses.insert(0x22_2008, vec![0]);
        assert!(against_row(&source, &swept).is_some());
        assert!(against_wine(&source, &BTreeMap::from([(0x22_2000, 0)])).is_some());
    }

    #[test]
    fn faults_that_were_not_planted_fail_everywhere() {
        let planted = [("double_fetch".to_owned(), Some(1)), ("unguarded_device".to_owned(), None)];
        assert_eq!(hazards::against(&planted, &planted, true), None);
        assert!(hazards::against(&planted, &planted[..1], true).is_some());
        assert_eq!(hazards::against(&planted, &planted[..1], false), None);
        assert!(hazards::against(&[], &planted, false).is_some());
        let twice = [planted[0].clone(), planted[0].clone(), planted[1].clone()];
        assert!(hazards::against(&planted, &twice, true).is_some());
    }
}
