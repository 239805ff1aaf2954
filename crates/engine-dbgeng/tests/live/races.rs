//! Breaks that land in the moment the target stops by itself (spec 10 section 11.3): each reaches the
//! run it was meant for or nothing, and no later resume pays for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use engine_dbgeng::DbgEng;
use target::capability::{Resume, RunStop, StopReason};
use target::{Halt, Target};

use crate::harness::{at, context, launched, resume, resume_within, set};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("an_interrupt_lands_as_the_job_ends_then_the_next_job_is_not_cut", break_race),
    ("an_interrupt_lands_as_a_step_ends_then_the_next_step_moves", step_race),
    ("an_interrupt_at_any_moment_of_the_first_resume", first_resume_race),
];

/// `ENGINE_DBGENG_ROUNDS` asks for a longer soak.
fn rounds(ordinary: u64) -> u64 {
    std::env::var("ENGINE_DBGENG_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(ordinary)
}

/// Milliseconds between two arrivals at the breakpoint.
const PAUSE: u64 = 12;

/// A fixed seed: what fails once fails again as far as time allows.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Sets flags of halts after exact times, from another thread.
struct Raiser {
    ask: mpsc::Sender<(Arc<AtomicBool>, Duration)>,
}

impl Raiser {
    fn start() -> Self {
        let (ask, asked) = mpsc::channel::<(Arc<AtomicBool>, Duration)>();
        std::thread::spawn(move || {
            for (flag, after) in asked {
                let began = Instant::now();
                while began.elapsed() < after {
                    std::thread::yield_now();
                }
                flag.store(true, Ordering::Relaxed);
            }
        });
        Self { ask }
    }

    /// Resumes, and asks for a break `after` it began to.
    fn resume(&self, engine: &DbgEng, how: Resume, after: Duration) -> RunStop {
        let halt = Halt::unbounded();
        let moving = || self.ask.send((halt.flag(), after)).unwrap();
        let run = engine.run().unwrap();
        run.resume(how, crate::harness::BOUND, &moving, &halt)
            .unwrap_or_else(|error| panic!("break after {after:?}: {error}"))
    }
}

fn break_race() {
    let mut random = Random(0x5eed_cafe);
    let raiser = Raiser::start();
    let engine = launched("victim.exe", &format!("2000000000 {PAUSE}"));
    let record = set(&engine, &at("victim!poke"));
    resume(&engine, Resume::Go);
    let (mut broken, mut reached) = (0, 0);
    for round in 0..rounds(1000) {
        let after = Duration::from_micros(random.below((PAUSE + 4) * 1000));
        let stop = raiser.resume(&engine, Resume::Go, after);
        match stop.reason {
            StopReason::BreakIn => {
                assert!(stop.interrupted, "round {round}, after {after:?}: {stop:?}");
                broken += 1;
                // Not cut by the break of the run before.
                let next = resume(&engine, Resume::Go);
                assert_eq!(next.reason, StopReason::Breakpoint { id: record.id }, "round {round}: {next:?}");
            }
            StopReason::Breakpoint { .. } => {
                assert!(!stop.interrupted, "round {round}: {stop:?}");
                reached += 1;
            }
            _ => panic!("round {round}, break after {after:?}: {stop:?}"),
        }
        assert_eq!(Some(context(&engine).ip()), record.address, "round {round}");
        assert!(engine.threads().unwrap().len() <= 4, "threads that broke in end");
    }
    assert!(broken > 0 && reached > 0, "both must happen: {broken} and {reached}");
}

fn step_race() {
    let mut random = Random(0x0dd_5eed);
    let raiser = Raiser::start();
    let engine = launched("victim.exe", "2000000000 0");
    set(&engine, &at("victim!poke"));
    for round in 0..rounds(200) {
        resume(&engine, Resume::Go);
        let poke = context(&engine).ip();
        let code = engine.disassemble(poke, 1).unwrap();
        let stop = raiser.resume(&engine, Resume::StepInto, Duration::from_micros(random.below(3000)));
        let interrupted = match stop.reason {
            StopReason::Step => false,
            StopReason::BreakIn => true,
            _ => panic!("round {round}: {stop:?}"),
        };
        if interrupted && context(&engine).ip() == poke {
            assert_eq!(resume(&engine, Resume::StepInto).reason, StopReason::Step, "round {round}");
        }
        // The step was made once, and a second one makes another.
        assert_eq!(context(&engine).ip(), poke + code[0].bytes.0.len() as u64, "round {round}: {stop:?}");
        let next = resume(&engine, Resume::StepInto);
        assert_eq!(next.reason, StopReason::Step, "round {round}: {next:?}");
        assert_ne!(context(&engine).ip(), poke + code[0].bytes.0.len() as u64, "round {round}");
    }
}

fn first_resume_race() {
    let mut random = Random(0xf1f1_5eed);
    let raiser = Raiser::start();
    for round in 0..rounds(40).min(200) {
        let engine = launched("spin.exe", "");
        let after = Duration::from_micros(random.below(4000));
        let stop = raiser.resume(&engine, Resume::Go, after);
        assert!(stop.interrupted && !stop.target_gone, "round {round}, after {after:?}: {stop:?}");
        let next = resume_within(&engine, Resume::Go, Duration::from_millis(30));
        assert!(next.timed_out, "round {round}, after {after:?}: {next:?}");
        assert_eq!(engine.release().unwrap(), target::Ending::Terminated);
    }
}
