//! Volatility ISF text for a forged kernel: its symbols and the types at the forge's offsets, so that
//! an engine knows names and layouts without a PDB.

use std::fmt::Write as _;

use crate::image::Image;
use crate::layout::Layout;

type Field = (&'static str, u16, &'static str);

const POINTER: &str = r#"{"kind":"pointer","subtype":{"kind":"base","name":"void"}}"#;
const LIST: &str = r#"{"kind":"struct","name":"_LIST_ENTRY"}"#;
const BYTE: &str = r#"{"kind":"base","name":"unsigned char"}"#;
const WORD: &str = r#"{"kind":"base","name":"unsigned long"}"#;
const QUAD: &str = r#"{"kind":"base","name":"unsigned long long"}"#;
const SHORT: &str = r#"{"kind":"base","name":"unsigned short"}"#;
const STRING: &str = r#"{"kind":"struct","name":"_UNICODE_STRING"}"#;
const NAME: &str = r#"{"kind":"array","count":15,"subtype":{"kind":"base","name":"unsigned char"}}"#;

/// The ISF (JSON) of a kernel image built here.
#[must_use]
pub fn isf(kernel: &Image, layout: &Layout) -> String {
    let guid =
        kernel.codeview.get(4..20).and_then(|g| g.try_into().ok()).map(target::Guid).unwrap_or_default();
    let age = kernel.codeview.get(20).copied().unwrap_or(1);
    let mut out = format!(
        r#"{{"metadata":{{"format":"6.1.0","windows":{{"pdb":{{"GUID":"{guid}","age":{age},"database":"ntkrnlmp.pdb","machine_type":{}}}}}}},"#,
        kernel.machine.image_machine()
    );
    out.push_str(r#""base_types":{"#);
    let bases = [
        ("void", 0, "void"),
        ("pointer", 8, "int"),
        ("unsigned char", 1, "char"),
        ("unsigned short", 2, "int"),
        ("unsigned long", 4, "int"),
        ("unsigned long long", 8, "int"),
        ("wchar", 2, "int"),
    ];
    let base = |(name, size, kind): &(&str, u32, &str)| {
        format!(r#""{name}":{{"endian":"little","kind":"{kind}","signed":false,"size":{size}}}"#)
    };
    out.push_str(&bases.iter().map(base).collect::<Vec<_>>().join(","));
    out.push_str(r#"},"enums":{},"user_types":{"#);
    let types: Vec<String> =
        types(layout).iter().map(|(name, size, fields)| one_type(name, *size, fields)).collect();
    out.push_str(&types.join(","));
    out.push_str(r#"},"symbols":{"#);
    let symbol = |(name, rva): (&String, &u32)| format!(r#""{name}":{{"address":{rva}}}"#);
    out.push_str(&kernel.symbols.iter().map(symbol).collect::<Vec<_>>().join(","));
    out.push_str("}}");
    out
}

fn one_type(name: &str, size: u16, fields: &[Field]) -> String {
    let mut out = format!(r#""{name}":{{"kind":"struct","size":{size},"fields":{{"#);
    for (index, (field, offset, kind)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(out, r#"{comma}"{field}":{{"offset":{offset},"type":{kind}}}"#);
    }
    out.push_str("}}");
    out
}

fn types(l: &Layout) -> Vec<(&'static str, u16, Vec<Field>)> {
    const KPROCESS: &str = r#"{"kind":"struct","name":"_KPROCESS"}"#;
    const KTHREAD: &str = r#"{"kind":"struct","name":"_KTHREAD"}"#;
    const APC: &str = r#"{"kind":"struct","name":"_KAPC_STATE"}"#;
    const CID: &str = r#"{"kind":"struct","name":"_CLIENT_ID"}"#;
    vec![
        ("_LIST_ENTRY", 16, vec![("Flink", 0, POINTER), ("Blink", 8, POINTER)]),
        (
            "_UNICODE_STRING",
            16,
            vec![("Length", 0, SHORT), ("MaximumLength", 2, SHORT), ("Buffer", 8, POINTER)],
        ),
        ("_CLIENT_ID", 16, vec![("UniqueProcess", 0, POINTER), ("UniqueThread", 8, POINTER)]),
        ("_KAPC_STATE", 0x30, vec![("Process", 0x20, POINTER)]),
        (
            "_KPROCESS",
            l.eprocess_unique_process_id,
            vec![
                ("DirectoryTableBase", l.kprocess_directory_table_base, QUAD),
                ("ThreadListHead", l.kprocess_thread_list_head, LIST),
            ],
        ),
        (
            "_EPROCESS",
            l.eprocess_size,
            vec![
                ("Pcb", 0, KPROCESS),
                ("UniqueProcessId", l.eprocess_unique_process_id, POINTER),
                ("ActiveProcessLinks", l.eprocess_active_process_links, LIST),
                ("InheritedFromUniqueProcessId", l.eprocess_parent, POINTER),
                ("Peb", l.eprocess_peb, POINTER),
                ("WoW64Process", l.eprocess_wow64_process, POINTER),
                ("ImageFileName", l.eprocess_image_file_name, NAME),
                ("ThreadListHead", l.eprocess_thread_list_head, LIST),
                ("ExitTime", l.eprocess_exit_time, QUAD),
            ],
        ),
        (
            "_KTHREAD",
            l.ethread_start_address.min(l.ethread_cid),
            vec![
                ("InitialStack", l.kthread_initial_stack, POINTER),
                ("StackLimit", l.kthread_stack_limit, POINTER),
                ("StackBase", l.kthread_stack_base, POINTER),
                ("KernelStack", l.kthread_kernel_stack, POINTER),
                ("ApcState", l.kthread_apc_process - 0x20, APC),
                ("Teb", l.kthread_teb, POINTER),
                ("State", l.kthread_state, BYTE),
                ("NextProcessor", l.kthread_next_processor, WORD),
                ("Process", l.kthread_process, POINTER),
                ("WaitReason", l.kthread_wait_reason, BYTE),
                ("ThreadListEntry", l.kthread_list_entry, LIST),
            ],
        ),
        (
            "_ETHREAD",
            l.ethread_size,
            vec![
                ("Tcb", 0, KTHREAD),
                ("Cid", l.ethread_cid, CID),
                ("StartAddress", l.ethread_start_address, POINTER),
                ("ThreadListEntry", l.ethread_list_entry, LIST),
            ],
        ),
        (
            "_KPRCB",
            l.prcb_size,
            vec![
                ("CurrentThread", l.prcb_current_thread, POINTER),
                ("IdleThread", l.prcb_idle_thread, POINTER),
                ("Number", l.prcb_number, WORD),
                ("Context", l.prcb_context, POINTER),
            ],
        ),
        (
            "_KLDR_DATA_TABLE_ENTRY",
            0xa0,
            vec![
                ("InLoadOrderLinks", 0, LIST),
                ("DllBase", 0x30, POINTER),
                ("EntryPoint", 0x38, POINTER),
                ("SizeOfImage", 0x40, WORD),
                ("FullDllName", 0x48, STRING),
                ("BaseDllName", 0x58, STRING),
                ("TimeDateStamp", 0x9c, WORD),
            ],
        ),
    ]
}
