//! Runs of an entry, and which of them is the answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use target::{Address, Code, Halt};

use crate::image::PlacedImage;
use crate::record::{Phase, Replay, ReplayStatus, Run, StoppedAt};
use crate::world::{Budget, Ended, Unmodelled, World};

/// Instructions of all runs.
const INSTRUCTIONS: u64 = 5_000_000;
/// Time of all runs.
const TIME: Duration = Duration::from_secs(2);
const MAX_RUNS: usize = 4;

/// One finished run.
struct Attempt {
    world: World,
    run: Run,
}

/// Runs the image's entry point as `DriverEntry(DriverObject, RegistryPath)`, at most 5 million
/// instructions, 10,000 stub calls a run and 2 s (or `halt`). An entry that fails is run again with another
/// result of the last import it looked at (then the one before, ...); the richest run is the answer.
#[must_use]
pub fn replay(image: &PlacedImage, halt: &Halt) -> Replay {
    let halt = halt.at_most(TIME);
    let mut budget = Budget { instructions: INSTRUCTIONS, halt: &halt };
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut search = Search::default();
    while attempts.len() < MAX_RUNS {
        let Some(attempt) = attempt(image, &search, &mut budget) else { break };
        let goes_on = search.next(&attempt) && budget.instructions > 0 && halt.stop().is_none();
        attempts.push(attempt);
        if !goes_on {
            break;
        }
    }
    let best = (0..attempts.len()).max_by_key(|&i| (richness(&attempts[i]), std::cmp::Reverse(i)));
    let Some(best) = best else { return not_run(image) };
    attempts[best].run.chosen = true;
    let runs = attempts.iter().map(|a| a.run.clone()).collect();
    let mut chosen = attempts.swap_remove(best);
    device_add(&mut chosen.world, &mut budget);
    result(chosen, runs)
}

fn not_run(image: &PlacedImage) -> Replay {
    Replay {
        status: ReplayStatus::NotRun,
        runs: Vec::new(),
        dispatch: None,
        unload: None,
        start_io: None,
        add_device: None,
        fast_io: None,
        devices: Vec::new(),
        links: Vec::new(),
        framework: None,
        callbacks: Vec::new(),
        dynamic_imports: Vec::new(),
        stopped_at: Some(StoppedAt {
            address: Address(image.base),
            reason: "the image has no entry point that can be run".to_owned(),
        }),
    }
}

fn attempt(image: &PlacedImage, search: &Search, budget: &mut Budget<'_>) -> Option<Attempt> {
    if image.pe.entry_point == 0 {
        return None;
    }
    let mut world = World::new(image, &search.toggled())?;
    let entry = image.base.wrapping_add(u64::from(image.pe.entry_point));
    let arguments = [world.objects.driver, world.objects.registry_path];
    let ended = world.call(entry, &arguments, budget);
    let (returned, stopped_at) = match ended {
        Ended::Returned(value) => (Some(Code(value as u32)), None),
        Ended::Stopped(stopped) => (None, Some(stopped)),
    };
    let run = Run {
        returned,
        instructions: world.emulator.steps,
        stub_calls: world.stub_calls,
        changed: search.trial.as_ref().map(|u| u.name.clone()),
        stopped_at,
        chosen: false,
    };
    Some(Attempt { world, run })
}

/// Top two bits of an NTSTATUS: an error.
fn failed(status: Code) -> bool {
    status.0 >> 30 == 3
}

/// Which stub calls are answered otherwise: what helped is kept, what did not is left.
#[derive(Default)]
struct Search {
    kept: Vec<u32>,
    trial: Option<Unmodelled>,
    /// Calls that were tried in vain, by ordinal, since something was last kept.
    vain: Vec<u32>,
    /// Stub calls of the best run so far, and its unmodelled ones.
    reached: u32,
    candidates: Vec<Unmodelled>,
}

impl Search {
    fn toggled(&self) -> Vec<u32> {
        self.kept.iter().copied().chain(self.trial.as_ref().map(|u| u.ordinal)).collect()
    }

    /// Takes in a run; whether another is worth it.
    fn next(&mut self, attempt: &Attempt) -> bool {
        if !attempt.run.returned.is_some_and(failed) {
            return false;
        }
        // Every run up to a changed answer is the same, so ordinals stay comparable.
        if attempt.run.stub_calls > self.reached {
            self.reached = attempt.run.stub_calls;
            self.candidates.clone_from(&attempt.world.unmodelled);
            self.kept.extend(self.trial.take().map(|u| u.ordinal));
            self.vain.clear();
        } else {
            self.vain.extend(self.trial.take().map(|u| u.ordinal));
        }
        let untried =
            |u: &&Unmodelled| u.tested && !self.kept.contains(&u.ordinal) && !self.vain.contains(&u.ordinal);
        self.trial = self.candidates.iter().rev().find(untried).cloned();
        self.trial.is_some()
    }
}

fn live(attempt: &Attempt) -> usize {
    attempt.world.found.devices.iter().filter(|(_, d)| !d.deleted).count()
}

/// More is better; returning well counts most.
fn richness(attempt: &Attempt) -> (bool, usize) {
    let found = &attempt.world.found;
    let queues = found.framework.as_ref().map_or(0, |f| f.queues.len());
    let well = attempt.run.returned.is_some_and(|s| !failed(s));
    (well, live(attempt) * 4 + queues * 4 + found.links.len() + found.callbacks.len())
}

/// Calls what the entry registered for new devices.
fn device_add(world: &mut World, budget: &mut Budget<'_>) {
    let wdm = world.add_device().map(|a| a.0).filter(|&a| world.image.contains(a));
    let wdf = world.found.wdf_device_add.filter(|&a| world.image.contains(a));
    world.phase = Phase::DeviceAdd;
    if let Some(routine) = wdf {
        let init = world.allocate(0x200);
        let arguments = [world.objects.thing, init];
        let _ = world.call(routine, &arguments, budget);
    } else if let Some(routine) = wdm {
        let physical = world.device_object(0x22, 0, false, true, 0);
        let arguments = [world.objects.driver, physical];
        let _ = world.call(routine, &arguments, budget);
    }
}

fn result(chosen: Attempt, runs: Vec<Run>) -> Replay {
    let Attempt { mut world, run } = chosen;
    let status = if run.stopped_at.is_none() { ReplayStatus::Complete } else { ReplayStatus::Partial };
    let dispatch = world.dispatch();
    let (unload, start_io) = (world.driver_field(0x68, 0x34), world.driver_field(0x60, 0x30));
    let (add_device, fast_io) = (world.add_device(), world.fast_io());
    let found = world.found;
    Replay {
        status,
        runs,
        dispatch: Some(dispatch),
        unload,
        start_io,
        add_device,
        fast_io,
        devices: found.devices.into_iter().map(|(_, device)| device).collect(),
        links: found.links,
        framework: found.framework,
        callbacks: found.callbacks,
        dynamic_imports: found.dynamic_imports,
        stopped_at: run.stopped_at,
    }
}

/// Most results kept by [`replay_cached`].
const MAX_CACHED: usize = 4;

/// What tells images apart: base, timestamp, size, checksum, name.
type Key = (u64, u32, u32, u32, String);

thread_local! {
    static CACHE: RefCell<Vec<(Key, Rc<Replay>)>> = const { RefCell::new(Vec::new()) };
}

/// [`replay`], once for each image of this thread's session. A result that `halt` cut short is not kept.
#[must_use]
pub fn replay_cached(image: &PlacedImage, halt: &Halt) -> Rc<Replay> {
    let pe = &image.pe;
    let key = (image.base, pe.timestamp, pe.size_of_image, pe.checksum, image.name.clone());
    let known = CACHE.with_borrow(|all| all.iter().find(|(k, _)| *k == key).map(|(_, r)| Rc::clone(r)));
    if let Some(known) = known {
        return known;
    }
    let result = Rc::new(replay(image, halt));
    if halt.stop().is_none() {
        CACHE.with_borrow_mut(|all| {
            if all.len() == MAX_CACHED {
                all.remove(0);
            }
            all.push((key, Rc::clone(&result)));
        });
    }
    result
}
