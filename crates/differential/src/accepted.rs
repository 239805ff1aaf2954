//! The one table of accepted differences between the native engine and Microsoft's DbgEng. A row says
//! where it holds and why the two may differ there; a row that nothing needs any more is a failure of
//! the test, so that the table stays what it says.

use crate::fields::Difference;
use crate::glob::fits;

/// A difference somebody looked at.
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
        fits(self.dump, dump)
            && fits(self.question, &difference.question)
            && fits(self.field, &difference.field)
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

    /// Names that the pattern fits only in their decorated form.
    pub(super) fn decorated(d: &Difference) -> bool {
        let names = d.native.as_ref().and_then(Value::as_array);
        let is = |name: &Value| name.as_str().is_some_and(|n| n.contains("`string'") || n.contains("!??"));
        d.other.is_none() && names.is_some_and(|names| names.iter().any(is))
    }

    /// A member that is the base class of its own name.
    pub(super) fn base_class(d: &Difference) -> bool {
        let kind = d.native.as_ref().and_then(Value::as_str);
        d.other.is_none() && kind.is_some_and(|kind| d.field.ends_with(&format!(" {kind}")))
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

    /// A caller's frame: its address is a return address.
    pub(super) fn caller(d: &Difference) -> bool {
        both_there(d) && !d.field.contains("frames[0]")
    }
}

use when::{
    anonymous, any, base_class, both_refused, both_there, caller, dbgeng_only, decorated, deferred, dwarf,
    in_more_words, native_only, not_decoded, one_without, same_mnemonic, same_second, underscore,
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

const BASES: &str = "DbgEng lays the members of a base class out in the derived one; the native engine shows the base as \
                     one member, as C++ sees it";

pub const ACCEPTED: &[Row] = &[
    // What a whole file is to the two.
    row("kernel/full_header_only*", "*", "*", any, HEADER_ONLY),
    row("kernel/triage_arm32*", "*", "*", any, ARM32),
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
    row("kernel/triage_*", "threads", "threads[*].thread_object", native_only, TRIAGE),
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
    row("*", "backtrace*", "ended", both_there, "both lost the way, each says so in its words"),
    row(
        "*",
        "backtrace*",
        "ended",
        one_without,
        "after words that only look like a caller DbgEng meets a zero and \
         takes it for the outermost frame, or a word in no module; the native engine stopped before them",
    ),
    row("user/bp_tiny-exe-fastfail.dmp", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row("user/kd_allreg_amd64/*", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
    row("user/kt2/*", "backtrace thread*", "frames[*]..", dbgeng_only, RAW_WORDS),
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
    row("user/crash_x86/*", "disassemble*", "*", one_without, NO_MAP),
    row("user/crash_x86/*", "read_memory*", "outcome", any, NO_MAP),
    row("user/forged_arm64/*", "disassemble*", "instructions[*]", native_only, UDF),
    row("user/forged_arm64/*", "disassemble*", "instructions[*].text", not_decoded, UDF),
    row("user/forged_arm64/*", "disassemble*", "stopped_early", dbgeng_only, UDF),
    row("*", "disassemble*", "outcome", both_refused, "DbgEng does not say why an expression has no value"),
    row("user/cxx_eh_x64/*", "disassemble ucrtbase!*", "outcome", any, UNDERSCORE),
    row(
        "user/kt2/*",
        "disassemble *<*",
        "outcome",
        both_there,
        "to DbgEng a template's name is an expression with less-than signs",
    ),
    row("*", "read_memory*", "outcome", both_refused, "DbgEng does not say why memory is not there"),
    row("*", "read_memory*", "why", both_there, "DbgEng does not say why memory is not there"),
    // Names and types.
    row(
        "*",
        "execute x *",
        "0x*[*]",
        any,
        "folded functions: one address, several names; DbgEng lists those with private symbols, the native engine \
         the public ones too",
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
    row("*", "execute dt *", "fields.*", base_class, BASES),
    row("*", "execute dt *", "fields.*", dbgeng_only, BASES),
    row(
        "*",
        "execute dt *",
        "fields.*",
        in_more_words,
        "the native engine also says the parameters of a function that is pointed to",
    ),
    row("*", "execute dt *", "fields.*", anonymous, "how a type without a name is called"),
    // Triage.
    row("kernel/triage_*", "crash_triage", "process_name", native_only, TRIAGE),
    row("kernel/triage_*", "crash_triage", "thread.*", native_only, TRIAGE),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "access.*", both_there, STACK_REGION),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "summary", both_there, STACK_REGION),
    row("user/bp_exec_av_on_stack.dmp", "exception_triage", "verdict.sentence", both_there, STACK_REGION),
];
