//! The one table of accepted differences between the native engine and Microsoft's DbgEng. A row says
//! where it holds and why the two may differ there; a row that nothing needs any more is a failure of
//! the test, so that the table stays what it says.

use crate::fields::Difference;
use crate::glob::fits;

/// A difference somebody looked at. `|` stands between alternatives of a pattern.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Dump, question and field; `*` is any run of characters.
    pub dump: &'static str,
    pub question: &'static str,
    pub field: &'static str,
    /// What the two values must be besides.
    pub when: fn(&Difference) -> bool,
    /// Why it stands, for a debugger engineer.
    pub because: &'static str,
}

impl Row {
    fn covers(&self, dump: &str, difference: &Difference) -> bool {
        let any = |patterns: &str, text: &str| patterns.split('|').any(|pattern| fits(pattern, text));
        any(self.dump, dump)
            && any(self.question, &difference.question)
            && any(self.field, &difference.field)
            && (self.when)(difference)
    }
}

/// The index of the first row that covers a difference of `dump`.
#[must_use]
pub fn accepted(dump: &str, difference: &Difference) -> Option<usize> {
    ACCEPTED.iter().position(|row| row.covers(dump, difference))
}

mod when {
    //! What the two values of a row are to each other.

    use serde_json::Value;

    use crate::fields::Difference;
    use crate::text::NAMES_BETWEEN;

    fn texts(d: &Difference) -> Option<(&str, &str)> {
        d.native.as_ref().and_then(Value::as_str).zip(d.other.as_ref().and_then(Value::as_str))
    }

    pub(super) fn any(_: &Difference) -> bool {
        true
    }

    /// DbgEng has nothing there.
    pub(super) fn native_only(d: &Difference) -> bool {
        d.native.is_some() && d.other.is_none()
    }

    pub(super) fn dbgeng_only(d: &Difference) -> bool {
        d.native.is_none() && d.other.is_some()
    }

    pub(super) fn one_without(d: &Difference) -> bool {
        native_only(d) || dbgeng_only(d)
    }

    pub(super) fn both_there(d: &Difference) -> bool {
        d.native.is_some() && d.other.is_some()
    }

    /// Both refused, which they say in the category.
    pub(super) fn both_refused(d: &Difference) -> bool {
        let refused = |text: &str| text == "debugger" || text.starts_with("debugger: ");
        texts(d).is_some_and(|(native, other)| refused(native) && refused(other))
    }

    /// The same but for the fraction of a second.
    pub(super) fn same_second(d: &Difference) -> bool {
        let times = texts(d).is_some_and(|(a, b)| a.split('.').next() == b.split('.').next());
        let number = |v: &Option<Value>| v.as_ref().and_then(Value::as_u64).map(|ms| ms / 1000);
        times || number(&d.native).is_some_and(|seconds| Some(seconds) == number(&d.other))
    }

    pub(super) fn same_mnemonic(d: &Difference) -> bool {
        texts(d).is_some_and(|(a, b)| a.split(' ').next() == b.split(' ').next())
    }

    /// The native engine's instruction is none to DbgEng.
    pub(super) fn not_decoded(d: &Difference) -> bool {
        texts(d).is_some_and(|(_, other)| other == "???")
    }

    fn names(value: Option<&Value>) -> Vec<&str> {
        value.and_then(Value::as_str).map(|text| text.split(NAMES_BETWEEN).collect()).unwrap_or_default()
    }

    /// Names that the pattern fits only in their decorated form.
    pub(super) fn decorated(d: &Difference) -> bool {
        let is = |name: &&str| name.contains("`string'") || name.contains("!??");
        d.other.is_none() && names(d.native.as_ref()).iter().any(is)
    }

    /// Every name DbgEng has for the address is one of the native engine's, which has more.
    pub(super) fn more_names(d: &Difference) -> bool {
        let (native, other) = (names(d.native.as_ref()), names(d.other.as_ref()));
        !other.is_empty() && other.iter().all(|name| native.iter().any(|ours| same_name(ours, name)))
    }

    /// The same but for what DbgEng cuts off a name: one underscore in front, and of compiler-made
    /// data everything that its undecoration does not understand.
    fn same_name(native: &str, other: &str) -> bool {
        let whole = native.replace('@', "");
        let short = whole.replacen("!_", "!", 1);
        let cut = whole.contains("!_CT") || whole.contains("{for `");
        [whole, short].iter().any(|ours| ours == other || (cut && ours.starts_with(other)))
    }

    /// Flags of Just My Code: `__XXXXXXXX_file@h`.
    pub(super) fn just_my_code(d: &Difference) -> bool {
        let flag = |name: &&str| {
            let Some((_, name)) = name.split_once("!__") else { return false };
            let digits = name.chars().take_while(char::is_ascii_hexdigit).count();
            digits == 8 && name.contains('@')
        };
        d.other.is_none() && names(d.native.as_ref()).iter().all(flag)
    }

    /// The native engine says what DbgEng says, and more.
    pub(super) fn in_more_words(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| native.starts_with(other))
    }

    pub(super) fn anonymous(d: &Difference) -> bool {
        let without = |text: &str| text.contains("<anonymous-tag>") || text.contains("<unnamed-t");
        texts(d).is_some_and(|(native, other)| without(native) || without(other))
    }

    pub(super) fn underscore(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| native.replacen("!_", "!", 1) == other)
    }

    pub(super) fn deferred(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| native == "deferred" || other == "deferred")
    }

    pub(super) fn dwarf(d: &Difference) -> bool {
        texts(d) == Some(("dwarf", "export"))
    }

    /// Type descriptors, which only DbgEng's undecoration makes a name of.
    pub(super) fn type_descriptor(d: &Difference) -> bool {
        let named = |name: &&str| name.ends_with(" `RTTI Type Descriptor'");
        d.native.is_none() && names(d.other.as_ref()).iter().all(named)
    }

    /// Both lost the way, and say so in the words each has for it.
    pub(super) fn lost(d: &Difference) -> bool {
        let ours = ["the return address is not code", "no unwind data", "stack memory is missing"];
        let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).map(ToOwned::to_owned);
        let (native, other) = (text(&d.native), text(&d.other));
        native.is_none_or(|text| ours.contains(&text.as_str()))
            && other.is_none_or(|text| text == "the next return address is in no module")
    }

    /// Served by the native engine, and to DbgEng not there.
    pub(super) fn served_only(d: &Difference) -> bool {
        texts(d) == Some(("served", "debugger: not_in_dump"))
    }

    pub(super) fn served_with_symbols(d: &Difference) -> bool {
        texts(d) == Some(("served", "debugger"))
    }

    /// Served by DbgEng, and refused by the native engine for want of what the row says.
    pub(super) fn refused_only(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| {
            other == "served" && ["debugger: no_such_thread", "debugger: no_context"].contains(&native)
        })
    }

    pub(super) fn outs(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| native.starts_with("outs") && other.starts_with("outs "))
    }

    /// The same file, on this machine and on Wine's drive Z.
    pub(super) fn on_drive_z(d: &Difference) -> bool {
        texts(d).is_some_and(|(native, other)| other == format!("Z:{}", native.replace('/', "\\")))
    }

    /// A caller's frame: its address is a return address.
    pub(super) fn caller(d: &Difference) -> bool {
        both_there(d) && !d.field.contains("frames[0]")
    }
}

use when::{
    anonymous, any, both_refused, both_there, caller, dbgeng_only, decorated, deferred, dwarf, in_more_words,
    just_my_code, lost, more_names, native_only, not_decoded, on_drive_z, one_without, outs, refused_only,
    same_mnemonic, same_second, served_only, served_with_symbols, type_descriptor, underscore,
};

const fn row(
    dump: &'static str,
    question: &'static str,
    field: &'static str,
    when: fn(&Difference) -> bool,
    because: &'static str,
) -> Row {
    Row { dump, question, field, when, because }
}

const RAW_WORDS: &str = "no image and so no unwind data for the code: DbgEng goes on with stack words that look like \
                         code, the native engine ends the walk and marks such words as a scan";
const HEADER_ONLY: &str = "the file ends behind its header: DbgEng finds no processor block and so no context, the \
                           native engine takes the CONTEXT of the header itself, and says what is cut off";
const ARM32: &str = "32-bit kernel dumps are served as header facts only (decision 7)";
const X86_GUESS: &str = "x86 code without image: both follow ebp, the native engine further, past frames whose \
                         return address DbgEng does not find";
const NO_DWARF: &str = "DbgEng reads no DWARF: mingw images have export symbols there, the native engine functions \
                        and lines";
const UNDERSCORE: &str = "DbgEng takes the underscore of an exported name for C decoration and drops it";
const UDF: &str = "DbgEng does not decode UDF, with which the code of this forged dump ends";
const NO_MAP: &str =
    "under Wine DbgEng cannot map this x86 image (it says: unable to change protection for image)";
const TRIAGE: &str = "without the kernel's PDB DbgEng has no process and no thread; the native engine knows where \
                      the triage dump keeps them";
const STACK_REGION: &str = "DbgEng's QueryVirtual does not say what memory is for; the native engine knows stacks \
                            from the thread list";

const IMAGE: &str = "a bare image has no registers; DbgEng evaluates those of the process it makes of it, which stands at \
                     the entry point";
const ISF: &str = "the kernel's symbols are an ISF file, which DbgEng does not read";
const NEAREST: &str =
    "DbgEng names the nearest symbol at any distance; the native engine only what the address lies in";

pub const ACCEPTED: &[Row] = &[
    // What a whole file is to the two.
    row("kernel/full_header_only*", "open_dump", "summary.dump.truncated", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "open_dump", "summary.modules_loaded", dbgeng_only, HEADER_ONLY),
    row("kernel/full_header_only*", "modules", "outcome", both_there, HEADER_ONLY),
    row("kernel/full_header_only*", "current_location", "location_state", both_there, HEADER_ONLY),
    row("kernel/full_header_only*", "current_location", "address", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "crash_triage", "faulting_frame_note", both_there, HEADER_ONLY),
    row("kernel/full_header_only*", "crash_triage|backtrace*", "frames[0]..|ended", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "registers*", "registers[*]|source", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "registers*", "instruction_pointer", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "threads", "threads[0].ip", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "execute ? @$ip", "value", native_only, HEADER_ONLY),
    row("kernel/full_header_only*", "execute ? @$ip", "nothing", dbgeng_only, HEADER_ONLY),
    row("kernel/triage_arm32*", "open_dump", "summary.dump.format", both_there, ARM32),
    row("kernel/triage_arm32*", "current_location|registers|backtrace", "processor", dbgeng_only, ARM32),
    row("kernel/triage_arm32*", "threads", "total", both_there, ARM32),
    row("kernel/triage_arm32*", "threads", "threads[*]|current", dbgeng_only, ARM32),
    row("kernel/triage_arm32*", "registers thread *|backtrace thread *", "outcome", refused_only, ARM32),
    row("kernel/triage_arm32*", "execute ? *@$*", "nothing", native_only, ARM32),
    row("kernel/triage_arm32*", "execute ? *@$*", "value", dbgeng_only, ARM32),
    row("kernel/triage_arm32*", "disassemble *@$*", "outcome", refused_only, ARM32),
    row("kernel/triage_arm32*", "modules", "unloaded[*]", dbgeng_only, ARM32),
    row("kernel/triage_arm32*", "modules", "unloaded_matched", both_there, ARM32),
    row("isf/*", "*", "*symbol|*displacement", native_only, ISF),
    row("isf/*", "current_location", "coordinate.identity.pdb", native_only, ISF),
    row("isf/*", "disassemble nt!*", "outcome", served_with_symbols, ISF),
    row("isf/*", "modules", "modules[*].symbols", both_there, ISF),
    // Images.
    row("images/*", "execute ? *@$ip*", "nothing", native_only, IMAGE),
    row("images/*", "execute ? *@$ip*", "value", dbgeng_only, IMAGE),
    row("images/*", "disassemble *@$*", "outcome", refused_only, IMAGE),
    row(
        "images/*",
        "modules",
        "modules[*].version",
        dbgeng_only,
        "the native engine takes versions from a dump's list and not from the image's resources",
    ),
    row(
        "images/*",
        "modules",
        "modules[*].loaded_image_name",
        on_drive_z,
        "each names the file as its system does",
    ),
    row("synthetic/syn_rdmp8*", "open_dump", "outcome", any, "DbgEng 15063 does not know dump type 8"),
    row(
        "negative/*",
        "open_dump",
        "outcome",
        both_refused,
        "both refuse; DbgEng does not say whether the file or its type is at fault",
    ),
    // What the openers say.
    row("*", "open_dump", "summary.os.product", native_only, "no DbgEng interface gives the product type"),
    row(
        "*",
        "open_dump",
        "summary.dump.comment",
        native_only,
        "no DbgEng interface gives a kernel dump's comment",
    ),
    row("*", "open_dump", "summary.dump.time", same_second, "DbgEng's times are whole seconds"),
    row("*", "open_dump", "summary.dump.uptime_ms", same_second, "DbgEng's times are whole seconds"),
    row(
        "user/kd_wow64_release/*full*",
        "open_dump",
        "summary.dump.uptime_ms",
        native_only,
        "DbgEng takes it from the misc stream, which is too old here; the native engine from the shared user data page",
    ),
    row(
        "synthetic/syn_bmp5*",
        "open_dump",
        "summary.dump.format",
        both_there,
        "DbgEng says what a dump holds and not how its pages are indexed: a full dump by bitmap is a full dump",
    ),
    // Modules.
    row(
        "*",
        "*",
        "*image_name",
        |d| d.other.as_ref().is_some_and(|name| name == "ntkrnlmp.dll") || native_only(d),
        "DbgEng names the kernel's image after its PDB; the native engine as the loaded-module list does",
    ),
    row(
        "user/kd_x64_release/*",
        "modules",
        "modules[*].loaded_image_name",
        dbgeng_only,
        "full dumps of the old format list no paths; DbgEng takes them from the loader's list in memory",
    ),
    row(
        "*",
        "modules",
        "modules[*].symbols",
        deferred,
        "each loads a module's symbols when something needs them",
    ),
    row("*", "modules", "modules[*].symbols", dwarf, NO_DWARF),
    row(
        "*",
        "modules",
        "modules[*].pdb",
        native_only,
        "DbgEng hands out the CodeView record of a module only after it looked for the symbols",
    ),
    row(
        "*",
        "modules",
        "modules[*].symbols_note",
        one_without,
        "DbgEng does not say why symbols are missing",
    ),
    // Threads.
    row("*", "threads", "threads[*].suspend_count", native_only, "DbgEng prints it, no interface gives it"),
    row("kernel/triage_*|isf/*", "threads", "threads[*].thread_object", native_only, TRIAGE),
    row(
        "user/kd_wow64_release/*",
        "registers thread*",
        "source",
        both_there,
        "DbgEng does not say that the 32-bit registers come from the CPU area of the WoW64 layer",
    ),
    // Frames.
    row("*", "*", "*found", both_there, "DbgEng does not say how it found a frame; each is called `unwind`"),
    row(
        "*",
        "*",
        "*frames[*].source.line",
        caller,
        "DbgEng 15063 gives the line of the return address, which is that of the \
         statement after the call; the native engine gives the call's own",
    ),
    row("*", "*", "*frames[*].source", native_only, NO_DWARF),
    row(
        "user/bp_*|user/crash_x86/*|user/kd_*|user/kt2/*|user/llvm_*|user/rm_*|kernel/triage_*|isf/*",
        "backtrace*",
        "ended",
        lost,
        "no image and so no unwind data for the last caller: no DbgEng interface says how a walk ended, so its \
         worker tells it from the last frame",
    ),
    row("user/bp_tiny-exe-fastfail.dmp", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row("user/kd_allreg_amd64/*", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row("user/llvm_sigsegv_x64.dmp", "*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row("user/rm_invalid_parameter_x64.dmp", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row(
        "kernel/triage_arm64*",
        "backtrace thread*",
        "frames[*]..",
        dbgeng_only,
        "no image: DbgEng takes lr for the caller, which it is only as long as the function has called nothing",
    ),
    row("user/bp_minidump2.dmp", "*", "frames[*]..", native_only, X86_GUESS),
    row("user/crash_x86/*", "backtrace thread*", "frames[*]..", native_only, X86_GUESS),
    row("user/cxx_eh_x64/*", "*", "*symbol", underscore, UNDERSCORE),
    row(
        "user/kd_x64_release/*",
        "*",
        "*symbol",
        dbgeng_only,
        "DbgEng names the nearest export at any distance; the native engine only the function unwind data says it is in",
    ),
    row(
        "user/kd_x64_release/*",
        "*",
        "*displacement",
        dbgeng_only,
        "DbgEng names the nearest export at any distance; the native engine only the function unwind data says it is in",
    ),
    // Code and memory.
    row(
        "*",
        "disassemble*",
        "instructions[*].text",
        same_mnemonic,
        "how operands are written, and which symbol names one",
    ),
    row("user/crash_x86/*", "disassemble*", "outcome", served_only, NO_MAP),
    row("user/crash_x86/*", "read_memory*", "outcome", served_only, NO_MAP),
    row(
        "synthetic/*",
        "disassemble @$ip+*",
        "instructions[0].text",
        outs,
        "outsb is short for outs dx, byte ptr [rsi]",
    ),
    row("user/cxx_eh_x64/*", "disassemble @$ip+*", "symbol|displacement", both_there, NO_DWARF),
    row("*", "disassemble @$ip+*", "symbol|displacement", dbgeng_only, NEAREST),
    row("user/cxx_eh_x64/*", "disassemble ucrtbase!*CxxThrowException", "outcome", both_there, UNDERSCORE),
    row("user/forged_arm64/*", "disassemble*", "instructions[*]", native_only, UDF),
    row("user/forged_arm64/*", "disassemble*", "instructions[*].text", not_decoded, UDF),
    row("user/forged_arm64/*", "disassemble*", "stopped_early", dbgeng_only, UDF),
    row("*", "disassemble*", "outcome", both_refused, "DbgEng does not say why an expression has no value"),
    row("*", "read_memory*", "outcome", both_refused, "DbgEng does not say why memory is not there"),
    row("*", "read_memory*", "why", both_there, "DbgEng does not say why memory is not there"),
    // Names and types.
    row(
        "*",
        "execute x *",
        "0x*",
        more_names,
        "folded functions: DbgEng lists the names that have private symbols, the native engine the public ones too. \
         Of a public name DbgEng cuts an underscore, and what its undecoration does not know",
    ),
    row(
        "*",
        "execute x *!_C*",
        "0x*",
        just_my_code,
        "flags of Just My Code: DbgEng makes another name of what stands behind the @ and so does not find them",
    ),
    row(
        "*",
        "execute x *!_C*",
        "0x*",
        type_descriptor,
        "`class X `RTTI Type Descriptor'` to the native engine, without the first word to DbgEng",
    ),
    row(
        "*",
        "execute dt *!_TP_CALLBACK_PRIORITY",
        "fields.TP_CALLBACK_PRIORITY_COUNT",
        dbgeng_only,
        "two definitions in the PDB differ: each engine shows another, the native one says that there are two",
    ),
    row(
        "*",
        "execute x *",
        "0x*",
        decorated,
        "string literals and initialisers of the public symbols: the native engine matches their decorated names too",
    ),
    row(
        "user/kd_wow64_release/*",
        "execute ? *",
        "value",
        both_there,
        "the process is a 64-bit one to DbgEng, which calculates so; the native engine shows its 32-bit side",
    ),
    row(
        "*",
        "execute dt *",
        "fields.*",
        in_more_words,
        "the native engine also says the parameters of a function that is pointed to",
    ),
    row("*", "execute dt *", "fields.*", anonymous, "how a type without a name is called"),
    // Triage.
    row("kernel/triage_*|isf/*", "crash_triage", "process_name", native_only, TRIAGE),
    row("kernel/triage_*|isf/*", "crash_triage", "thread.*", native_only, TRIAGE),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "access.*", both_there, STACK_REGION),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "summary", both_there, STACK_REGION),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "verdict.sentence", both_there, STACK_REGION),
];
