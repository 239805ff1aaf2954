//! What a machine is, as a test or a JSON file says it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::events::Scripted;
use crate::faults::Injected;

/// A number written `"0x…"` in JSON; a plain number is taken too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(Self(value)),
            Written::Text(text) => text
                .strip_prefix("0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .map(Self)
                .ok_or_else(|| serde::de::Error::custom(format!("{text} is no 0x number"))),
        }
    }
}

/// Why a scenario is no machine.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error("the scenario has {0} processors; 1 to 16 are possible")]
    Processors(usize),
    #[error("the code at {address:#x} is no hexadecimal text of whole bytes")]
    Code { address: u64 },
    #[error("there is no register {0}")]
    Register(String),
    #[error("kernel and drivers need addresses of the kernel half and of whole pages: {0:#x}")]
    Base(u64),
}

/// A compiled image, and its symbols (which the kernel's needs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFile {
    pub image: PathBuf,
    pub pdb: Option<PathBuf>,
    pub base: Hex,
    /// The path on the module list.
    pub path: String,
}

/// Bytes put into kernel memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    pub address: Hex,
    /// Hexadecimal.
    pub bytes: String,
}

/// How a processor begins. Registers that are not named begin with a value of their own
/// (`0x1111 * number`), so that no two are taken for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorState {
    pub rip: Hex,
    #[serde(default)]
    pub registers: BTreeMap<String, Hex>,
}

/// A machine. The default one has the stand-in kernel, one driver with [code](Scenario::CODE) that runs
/// for ever, and one processor, stopped at its first instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    pub build: u16,
    /// Without one, the stand-in kernel at [`KERNEL_BASE`](Self::KERNEL_BASE).
    pub kernel: Option<ImageFile>,
    pub drivers: Vec<ImageFile>,
    pub code: Vec<Code>,
    pub processors: Vec<ProcessorState>,
    /// It runs until a break-in, and answers no RESET before.
    pub running: bool,
    pub events: Vec<Scripted>,
    /// Numbers of APIs that are refused.
    pub refused: Vec<Hex>,
    /// The special registers tell no GDT: what a debugger makes of it is a control of the tests.
    pub without_gdt: bool,
    /// GET_VERSION tells no debugger data.
    pub without_debugger_data: bool,
    /// Reads show the bytes of breakpoints, not what is under them.
    pub shows_breakpoints: bool,
    pub msrs: BTreeMap<String, Hex>,
    pub ports: BTreeMap<String, Hex>,
    pub faults: Vec<Injected>,
    /// How long a packet of the target may go unacknowledged, in milliseconds.
    pub repeat_ms: u64,
}

impl Scenario {
    pub const KERNEL_BASE: u64 = 0xffff_f803_2100_0000;
    /// Where the default machine's code begins: nop; then a loop of mov, inc, call, mov to memory, add,
    /// nop, jmp. The routine it calls is at +0x20, `hlt` in a loop at +0x40, its counter at +0x80.
    pub const CODE: u64 = 0xffff_f803_4000_0000;
    /// The default machine's stack of processor n is at this address less `0x10000 * n`.
    pub const STACK: u64 = 0xffff_f803_6010_0000;
    const CODE_BYTES: &'static str = concat!(
        "90",             // nop
        "48c7c034120000", // mov rax, 1234h
        "48ffc0",         // inc rax
        "e810000000",     // call +20h
        "48890569000000", // mov [rip+69h], rax
        "4883c301",       // add rbx, 1
        "90",             // nop
        "ebe3",           // jmp +1
        "cccc",
        "5159c3", // push rcx; pop rcx; ret
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
        "f4ebfd" // hlt; jmp -3
    );

    /// The default machine with this many processors: the first in the loop, the others halted.
    #[must_use]
    pub fn with_processors(count: u16) -> Self {
        let state = |number: u16| ProcessorState {
            rip: Hex(Self::CODE + if number == 0 { 0 } else { 0x40 }),
            registers: [("rsp".to_owned(), Hex(Self::STACK - 0x1_0000 * u64::from(number)))].into(),
        };
        Self { processors: (0..count).map(state).collect(), ..Self::default() }
    }

    /// A scenario from JSON.
    ///
    /// # Errors
    /// Not a scenario.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The fixtures' kernel and driver, so that symbols resolve: `folder` is the repository's `fixtures`.
    #[must_use]
    pub fn with_fixtures(self, folder: &std::path::Path) -> Self {
        let file = |name: &str, pdb: &str, base, path: &str| ImageFile {
            image: folder.join(name),
            pdb: Some(folder.join(pdb)),
            base: Hex(base),
            path: path.into(),
        };
        let kernel =
            file("ntkrnlmp.exe", "ntkrnlmp.pdb", Self::KERNEL_BASE, r"\SystemRoot\system32\ntoskrnl.exe");
        let driver = file(
            "faultdrv.sys",
            "faultdrv.pdb",
            0xffff_f803_5000_0000,
            r"\SystemRoot\System32\drivers\faultdrv.sys",
        );
        Self { kernel: Some(kernel), drivers: vec![driver], ..self }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            build: 19041,
            kernel: None,
            drivers: Vec::new(),
            code: vec![Code { address: Hex(Self::CODE), bytes: Self::CODE_BYTES.into() }],
            processors: vec![ProcessorState {
                rip: Hex(Self::CODE),
                registers: [("rsp".to_owned(), Hex(Self::STACK))].into(),
            }],
            running: false,
            events: Vec::new(),
            refused: Vec::new(),
            without_gdt: false,
            without_debugger_data: false,
            shows_breakpoints: false,
            msrs: [
                ("0xc0000080".to_owned(), Hex(0xd01)),
                ("0xc0000082".to_owned(), Hex(Self::KERNEL_BASE + 0x1000)),
            ]
            .into(),
            ports: [("0x80".to_owned(), Hex(0x5a))].into(),
            faults: Vec::new(),
            repeat_ms: 1_000,
        }
    }
}
