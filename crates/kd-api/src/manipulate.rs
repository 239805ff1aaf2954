//! The numbers of the manipulate APIs, and the envelope they share (`DBGKD_MANIPULATE_STATE64`).

/// The envelope's bytes; what follows is an API's variable part.
pub const ENVELOPE: usize = 0x38;
/// The most variable bytes of a packet on a byte stream.
pub const MAX_VARIABLE: usize = 4_000 - ENVELOPE;

/// NTSTATUS values of replies and continues.
pub mod status {
    /// `STATUS_SUCCESS`.
    pub const SUCCESS: u32 = 0;
    /// `STATUS_UNSUCCESSFUL`: what a refusal says when nothing fits better.
    pub const UNSUCCESSFUL: u32 = 0xC000_0001;
    /// `STATUS_NO_MORE_ENTRIES`: a search found nothing.
    pub const NO_MORE_ENTRIES: u32 = 0x8000_001A;
    /// `DBG_EXCEPTION_HANDLED`: go on from a breakpoint or step.
    pub const DBG_EXCEPTION_HANDLED: u32 = 0x0001_0001;
    /// `DBG_CONTINUE`: go on from anything else.
    pub const DBG_CONTINUE: u32 = 0x0001_0002;
    /// `DBG_EXCEPTION_NOT_HANDLED`.
    pub const DBG_EXCEPTION_NOT_HANDLED: u32 = 0x8001_0001;
    /// `STATUS_BREAKPOINT`.
    pub const BREAKPOINT: u32 = 0x8000_0003;
    /// `STATUS_SINGLE_STEP`: a step, or a debug register's breakpoint.
    pub const SINGLE_STEP: u32 = 0x8000_0004;
}

/// What a target sends to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A `STATE_MANIPULATE` packet.
    Reply,
    /// Nothing: a reply would be taken as the answer to the next request.
    Nothing,
    /// A `STATE_CHANGE64` of the processor asked for.
    StateChange,
}

/// A manipulate API's number (`DbgKd*Api`). Any may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Api(pub u32);

macro_rules! apis {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Api {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// The API's name, where it has one.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

apis! {
    READ_VIRTUAL = 0x3130, "Read through the current address space.";
    WRITE_VIRTUAL = 0x3131, "Write through the current address space.";
    GET_CONTEXT = 0x3132, "A processor's CONTEXT.";
    SET_CONTEXT = 0x3133, "Write a processor's CONTEXT.";
    WRITE_BREAKPOINT = 0x3134, "Insert a code breakpoint; the target chooses its handle.";
    RESTORE_BREAKPOINT = 0x3135, "Remove a code breakpoint.";
    CONTINUE = 0x3136, "Go on, without control over the processor.";
    READ_CONTROL_SPACE = 0x3137, "A processor's PCR, PRCB, special registers, thread.";
    WRITE_CONTROL_SPACE = 0x3138, "Write the same.";
    READ_IO = 0x3139, "Read a port.";
    WRITE_IO = 0x313A, "Write a port.";
    REBOOT = 0x313B, "Restart the machine.";
    CONTINUE2 = 0x313C, "Go on, stepping or not, with DR7.";
    READ_PHYSICAL = 0x313D, "Read physical memory.";
    WRITE_PHYSICAL = 0x313E, "Write physical memory.";
    QUERY_SPECIAL_CALLS = 0x313F, "Special calls of a step.";
    SET_SPECIAL_CALL = 0x3140, "Add a special call.";
    CLEAR_SPECIAL_CALLS = 0x3141, "Forget the special calls.";
    SET_INTERNAL_BREAKPOINT = 0x3142, "A breakpoint that the kernel counts.";
    GET_INTERNAL_BREAKPOINT = 0x3143, "Its counts.";
    READ_IO_EXTENDED = 0x3144, "Read a port of a bus.";
    WRITE_IO_EXTENDED = 0x3145, "Write a port of a bus.";
    GET_VERSION = 0x3146, "Protocol, build, machine, kernel base, lists.";
    WRITE_BREAKPOINT_EX = 0x3147, "Insert several breakpoints.";
    RESTORE_BREAKPOINT_EX = 0x3148, "Remove several breakpoints.";
    CAUSE_BUGCHECK = 0x3149, "Stop the machine with a bug check.";
    SWITCH_PROCESSOR = 0x3150, "Be stopped on another processor.";
    PAGE_IN = 0x3151, "Bring a page in.";
    READ_MSR = 0x3152, "Read a model-specific register.";
    WRITE_MSR = 0x3153, "Write a model-specific register.";
    SEARCH_MEMORY = 0x3156, "Find a pattern in virtual memory.";
    GET_BUS_DATA = 0x3157, "Read configuration space.";
    SET_BUS_DATA = 0x3158, "Write configuration space.";
    CHECK_LOW_MEMORY = 0x3159, "Check memory under 4 GiB.";
    CLEAR_ALL_INTERNAL = 0x315A, "Forget the internal breakpoints.";
    FILL_MEMORY = 0x315B, "Fill memory with a pattern.";
    QUERY_MEMORY = 0x315C, "What an address is, and its protection.";
    SWITCH_PARTITION = 0x315D, "Look at another partition.";
    WRITE_CUSTOM_BREAKPOINT = 0x315E, "Insert a breakpoint of given bytes.";
    GET_CONTEXT_EX = 0x315F, "A part of a processor's CONTEXT.";
    SET_CONTEXT_EX = 0x3160, "Write a part of it.";
}

impl Api {
    /// What a target sends to it. Anything unknown gets a reply: a refusal.
    #[must_use]
    pub fn answer(self) -> Answer {
        match self {
            Self::CONTINUE
            | Self::CONTINUE2
            | Self::REBOOT
            | Self::CAUSE_BUGCHECK
            | Self::SET_SPECIAL_CALL
            | Self::CLEAR_SPECIAL_CALLS
            | Self::SET_INTERNAL_BREAKPOINT
            | Self::CLEAR_ALL_INTERNAL => Answer::Nothing,
            Self::SWITCH_PROCESSOR => Answer::StateChange,
            _ => Answer::Reply,
        }
    }
}
