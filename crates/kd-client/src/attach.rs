//! From a connection string to a target (spec 71 sections 3.4 and 7.1).

use std::rc::Rc;
use std::time::{Duration, Instant};

use connection_string::{Connection, Transport};
use engine_native::live::{Going, Origin, SLOTS, live_kernel};
use kd_api::{KernelClass, ReplyBody, Request, Version, status};
use kd_transport::ByteStream;
use target::{Halt, Machine, Stop, Target, TargetError};

use crate::kernel::{Came, Kernel, State};
use crate::{AttachError, Options};

/// How long a target that was broken into may take before it is asked for its state again.
const BREAK_AGAIN: Duration = Duration::from_secs(2);
/// How long a target that was asked to stop is listened to when the attach is given up: what stops
/// for nobody stays stopped.
const LAST_CHANCE: Duration = Duration::from_millis(300);
/// Breakpoint handles a debugger before us may have left (`BREAKPOINT_TABLE_SIZE`).
const HANDLES: std::ops::RangeInclusive<u32> = 1..=32;
/// What no test here can show (spec 71 section 12.5).
const UNPROVEN: &str = "this connection is proven against a simulated kernel, not yet against a real one";
const AMD64: u16 = 0x8664;

/// What happens on the way, for whoever shows it.
pub trait Watch {
    /// The connection is made: a target may be stopped from here on.
    fn connected(&self) {}
    /// What is being done, in words.
    fn step(&self, text: &str) {
        let _ = text;
    }
}

/// Nobody watches.
impl Watch for () {}

/// Dials, stops the target if it runs, and opens it.
///
/// # Errors
/// [`AttachError`]. A target that was stopped on the way was let run again, as far as it answered.
pub fn attach(
    connection: &Connection,
    options: &Options,
    watch: &dyn Watch,
    halt: &Halt,
) -> Result<Box<dyn Target>, AttachError> {
    if let Transport::Tcp { .. } | Transport::Unix { .. } = connection.transport() {
        watch.step("connecting");
    }
    let stream = kd_transport::connect(connection.transport(), halt)?;
    let timeout = connection.timeout().unwrap_or(options.timeout);
    let aim = if options.aim.is_empty() { connection.to_string() } else { options.aim.clone() };
    attach_stream(Box::new(stream), &Options { timeout, aim, ..options.clone() }, watch, halt)
}

/// [`attach`] over a stream that is made already.
///
/// # Errors
/// As for [`attach`].
pub fn attach_stream(
    stream: Box<dyn ByteStream>,
    options: &Options,
    watch: &dyn Watch,
    halt: &Halt,
) -> Result<Box<dyn Target>, AttachError> {
    watch.connected();
    let mut state = State::new(stream, options.clone());
    first_stop(&mut state, watch, halt)?;
    watch.step("reading what it says of itself");
    let origin = match learn(&mut state) {
        Ok(origin) => origin,
        Err(error) => {
            let_run(&mut state);
            return Err(error);
        }
    };
    let kernel = Rc::new(Kernel::new(origin, state));
    live_kernel(Rc::clone(&kernel) as Rc<_>, &options.symbols).map_err(|error| {
        let_run(&mut kernel.state());
        match error.category {
            "unsupported" => AttachError::Unsupported(error.message),
            _ => AttachError::Failed(error.message),
        }
    })
}

fn failed(error: TargetError) -> AttachError {
    AttachError::Failed(error.to_string())
}

/// RESETs, then break-ins, until the target stands. Nothing bounds it until something answers.
fn first_stop(state: &mut State, watch: &dyn Watch, halt: &Halt) -> Result<(), AttachError> {
    watch.step("waiting for the target to answer");
    state.link.reset();
    let mut asked = false;
    let mut again: Option<Instant> = None;
    let mut heard: Option<Instant> = None;
    loop {
        if let Some(why) = halt.stop() {
            if asked {
                last_chance(state);
            }
            return Err(AttachError::Ended(match why {
                Stop::Deadline => "the call's time ran out",
                Stop::Interrupted => "on request",
            }));
        }
        if heard.is_none() && state.link.heard > 0 {
            heard = Some(Instant::now());
        }
        if heard.is_some_and(|at| at.elapsed() >= state.options.stop_within) {
            last_chance(state);
            return Err(AttachError::DoesNotStop(state.options.stop_within));
        }
        if again.is_some_and(|at| at.elapsed() >= BREAK_AGAIN) {
            // It may stand after all, and have lost what it was sent.
            again = None;
            state.link.reset();
        }
        match state.turn(Duration::MAX).map_err(failed)? {
            Some(Came::Stopped) => {
                state.name_thread();
                return Ok(());
            }
            // It runs, or is not there.
            Some(Came::Silent) => {
                watch.step("the target does not answer as a stopped one does; sent a break-in, waiting");
                state.link.break_in()?;
                asked = true;
                again = Some(Instant::now());
            }
            _ => {}
        }
    }
}

/// A stop that comes after all is let go again.
fn last_chance(state: &mut State) {
    let until = Instant::now() + LAST_CHANCE;
    while Instant::now() < until && state.standing.is_none() {
        if state.turn(LAST_CHANCE).is_err() {
            return;
        }
    }
    let_run(state);
}

fn let_run(state: &mut State) {
    if state.standing.is_none() {
        return;
    }
    let going = Going { step: false, handled: true, armed: [false; SLOTS] };
    if let Err(error) = state.proceed(status::DBG_CONTINUE, &going) {
        tracing::warn!(%error, "the target could not be let run again");
    }
}

/// What the target is; removes what a debugger before us left.
fn learn(state: &mut State) -> Result<Origin, AttachError> {
    let ReplyBody::Version(version) = state.read(&Request::GetVersion).map_err(failed)? else {
        return Err(AttachError::Failed("the target does not say which version it is".to_owned()));
    };
    check(&version)?;
    for handle in HANDLES {
        // Most are none, and the target refuses them.
        state.ask(&Request::RestoreBreakpoint { handle }).map_err(failed)?;
    }
    state.tell(&Request::ClearAllInternal).map_err(failed)?;
    let processor = state.standing.as_ref().map_or(0, |standing| standing.stop.processor);
    state.remember_foreign(processor);
    Ok(Origin {
        machine: Some(Machine::X64),
        build: u32::from(version.minor),
        kernel_base: version.kernel_base,
        loaded_modules: version.loaded_module_list,
        debugger_data_list: version.debugger_data_list,
        aim: state.options.aim.clone(),
        limitations: limitations(&version, state),
    })
}

fn check(version: &Version) -> Result<(), AttachError> {
    if version.machine != AMD64 {
        return Err(AttachError::Unsupported(format!(
            "the target is of machine {:#06x}; the native engine serves x64 kernels over KD, engine dbgeng may serve this one",
            version.machine
        )));
    }
    if version.protocol < 5 {
        return Err(AttachError::Unsupported(format!(
            "the target speaks version {} of the KD protocol; 5 and later are served",
            version.protocol
        )));
    }
    Ok(())
}

fn limitations(version: &Version, state: &State) -> Vec<String> {
    let mut out = vec![UNPROVEN.to_owned()];
    let class = version.class();
    if class != KernelClass::Nt {
        out.push(format!(
            "the target is no Windows NT kernel ({}): it has no processes and threads of one",
            words(class)
        ));
    }
    if state.foreign_dr7 != 0 {
        out.push(
            "hardware breakpoints were set before this session came; they stay, and use up slots".to_owned(),
        );
    }
    out
}

fn words(class: KernelClass) -> String {
    match class {
        KernelClass::Nt => "NT".to_owned(),
        KernelClass::Xbox => "Xbox".to_owned(),
        KernelClass::BootDebugger => "boot debugger".to_owned(),
        KernelClass::Hypervisor => "hypervisor".to_owned(),
        KernelClass::Other(number) => format!("class {number}"),
        other => format!("{other:?}"),
    }
}
