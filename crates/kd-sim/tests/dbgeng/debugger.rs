//! The engine through its own interfaces, and the runner of the cases.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kd_sim::{Listen, Report, Scenario, Simulator};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_ATTACH_KERNEL_CONNECTION, DEBUG_INTERRUPT_ACTIVE, DEBUG_OUTCTL_THIS_CLIENT, DEBUG_STATUS_BREAK,
    DEBUG_STATUS_NO_DEBUGGEE, IDebugClient5, IDebugControl4, IDebugOutputCallbacksWide,
    IDebugOutputCallbacksWide_Impl, IDebugSymbols3,
};
use windows::Win32::System::LibraryLoader::{GetProcAddress, LOAD_WITH_ALTERED_SEARCH_PATH, LoadLibraryExW};
use windows::core::{GUID, HRESULT, HSTRING, Interface, PCWSTR, implement, s};

pub(crate) type Case = (&'static str, fn());

/// Set for the process that runs one case.
const CASE: &str = "KD_SIM_CASE";
/// A case that takes longer is ended.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) fn main(cases: &[Case]) {
    if let Ok(wanted) = std::env::var(CASE) {
        cases.iter().find(|(name, _)| *name == wanted).expect("the case exists").1();
        // The engine's own threads do not end.
        std::process::exit(0);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        return cases.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let filter: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let shown = arguments.iter().any(|a| a == "--nocapture");
    let mut failed = Vec::new();
    for (name, _) in cases.iter().filter(|(n, _)| filter.is_empty() || filter.iter().any(|f| n.contains(*f)))
    {
        let (ended, text) = case(name);
        println!("test {name} ... {}", if ended { "ok" } else { "FAILED" });
        if !ended || shown {
            println!("{text}");
        }
        if !ended {
            failed.push(*name);
        }
    }
    println!("{} failed of {}: {failed:?}", failed.len(), cases.len());
    std::process::exit(i32::from(!failed.is_empty()));
}

/// Whether the case of this name ended well, and what it said.
fn case(name: &str) -> (bool, String) {
    let log = std::env::temp_dir().join(format!("kd-sim-{}-{name}.txt", std::process::id()));
    let file = std::fs::File::create(&log).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CASE, name)
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if began.elapsed() > BOUND => {
                child.kill().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    let _ = std::fs::remove_file(&log);
    match status {
        Some(status) => (status.success(), text),
        None => (false, format!("{text}\nended after {} s", BOUND.as_secs())),
    }
}

#[implement(IDebugOutputCallbacksWide)]
struct Output(Arc<Mutex<String>>);

impl IDebugOutputCallbacksWide_Impl for Output_Impl {
    fn Output(&self, _mask: u32, text: &PCWSTR) -> windows::core::Result<()> {
        if !text.is_null() {
            // SAFETY: the engine passes a NUL-terminated string that lives for the call.
            let text = String::from_utf16_lossy(unsafe { text.as_wide() });
            print!("{text}");
            self.0.lock().unwrap().push_str(&text);
        }
        Ok(())
    }
}

/// The engine, attached to a simulator of its own.
pub(crate) struct Debugger {
    pub(crate) simulator: Simulator,
    control: IDebugControl4,
    symbols: IDebugSymbols3,
    output: Arc<Mutex<String>>,
    _client: IDebugClient5,
    /// What the engine said until its first stop.
    pub(crate) said: String,
}

/// The engine lets any thread interrupt it.
struct Interrupter(IDebugControl4);
// SAFETY: `SetInterrupt` is documented to be callable from every thread.
unsafe impl Send for Interrupter {}

impl Interrupter {
    fn interrupt_after(self, delay: Duration) {
        std::thread::spawn(move || {
            let whole = self;
            std::thread::sleep(delay);
            // SAFETY: see above.
            unsafe { whole.0.SetInterrupt(DEBUG_INTERRUPT_ACTIVE) }.unwrap();
        });
    }
}

fn create() -> IDebugClient5 {
    type DebugCreate = unsafe extern "system" fn(*const GUID, *mut *mut c_void) -> HRESULT;
    let path: PathBuf = std::env::current_exe().unwrap().with_file_name("dbgeng.dll");
    // SAFETY: the path is NUL-terminated; dbgeng.h declares DebugCreate so; it returns one reference.
    unsafe {
        let library =
            LoadLibraryExW(&HSTRING::from(path.as_os_str()), None, LOAD_WITH_ALTERED_SEARCH_PATH).unwrap();
        let entry = GetProcAddress(library, s!("DebugCreate")).unwrap();
        let create = std::mem::transmute::<unsafe extern "system" fn() -> isize, DebugCreate>(entry);
        let mut client = std::ptr::null_mut();
        create(&IDebugClient5::IID, &mut client).ok().unwrap();
        IDebugClient5::from_raw(client)
    }
}

impl Debugger {
    /// Attaches and waits for the first stop.
    pub(crate) fn attach(scenario: &Scenario) -> Self {
        Self::attach_with(scenario, None)
    }

    /// The same; interrupts after a while, for a machine that runs.
    pub(crate) fn attach_with(scenario: &Scenario, interrupt: Option<Duration>) -> Self {
        let simulator = Simulator::start(scenario, &Listen::local()).unwrap();
        let client = create();
        let output = Arc::new(Mutex::new(String::new()));
        let callbacks: IDebugOutputCallbacksWide = Output(Arc::clone(&output)).into();
        let control: IDebugControl4 = client.cast().unwrap();
        let symbols: IDebugSymbols3 = client.cast().unwrap();
        let connection = HSTRING::from(simulator.connection());
        // SAFETY: the strings and the callbacks outlive the calls; the engine keeps its own reference.
        unsafe {
            client.SetOutputCallbacksWide(&callbacks).unwrap();
            client.AttachKernelWide(DEBUG_ATTACH_KERNEL_CONNECTION, &connection).unwrap();
        }
        std::mem::forget(connection);
        let mut debugger = Self { simulator, control, symbols, output, _client: client, said: String::new() };
        if let Some(delay) = interrupt {
            debugger.interrupt_after(delay);
        }
        debugger.wait();
        debugger.said = debugger.take();
        debugger
    }

    /// Finds the fixtures' PDBs from now on.
    pub(crate) fn with_symbols(&self) {
        let folder = test_data::fixture("ntkrnlmp.pdb").parent().unwrap().display().to_string();
        let folder = folder.trim_start_matches(r"\\?\").replace('/', r"\");
        let folder = if folder.starts_with('\\') { format!("Z:{folder}") } else { folder };
        // SAFETY: the string outlives the call.
        unsafe { self.symbols.SetSymbolPathWide(&HSTRING::from(folder)) }.unwrap();
        self.run(".reload");
    }

    pub(crate) fn interrupt_after(&self, delay: Duration) {
        Interrupter(self.control.clone()).interrupt_after(delay);
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.output.lock().unwrap())
    }

    fn wait(&self) {
        // SAFETY: integers only. A kernel's wait takes no bound.
        unsafe { self.control.WaitForEvent(0, u32::MAX) }.unwrap();
    }

    /// A command's output; of one that resumes, until the next stop.
    pub(crate) fn run(&self, command: &str) -> String {
        println!("\n> {command}");
        self.take();
        // SAFETY: the string outlives the call. What the command answers is in its output.
        let _ = unsafe { self.control.ExecuteWide(DEBUG_OUTCTL_THIS_CLIENT, &HSTRING::from(command), 0) };
        // SAFETY: no arguments.
        let status = unsafe { self.control.GetExecutionStatus() }.unwrap();
        if status != DEBUG_STATUS_BREAK && status != DEBUG_STATUS_NO_DEBUGGEE {
            self.wait();
        }
        self.take()
    }

    pub(crate) fn report(&self) -> Report {
        self.simulator.report()
    }

    /// How often an API was asked for.
    pub(crate) fn asked(&self, api: u32) -> u64 {
        self.report().summary.requests.get(&api).copied().unwrap_or(0)
    }
}

/// Fails with the whole text unless `part` is in it.
#[track_caller]
pub(crate) fn has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in:\n{text}");
}

/// An address as the engine writes it: `fffff803`40000000`.
pub(crate) fn address(value: u64) -> String {
    format!("{:08x}`{:08x}", value >> 32, value & 0xffff_ffff)
}
