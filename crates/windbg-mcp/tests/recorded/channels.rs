//! A dump with planted values, and a client that looks at it through every channel there is.

use std::path::{Path, PathBuf};

use dumpforge::{
    Content, FrameSpec, Function, ImageBuilder, StackBuilder, UserDump, UserException, UserThread,
};
use serde_json::{Value, json};
use target::{ExceptionRecord, Guid, Machine};

use crate::mcp::Client;

const BASE: u64 = 0x1_4000_0000;
/// Where text lies in memory.
pub(crate) const MEMORY: u64 = 0x50_0000;

/// What is planted, set by set.
pub(crate) const PLANTED: [&str; 6] = [
    "planteduser",
    "ghp_a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6",
    "MIIEplantedkey",
    "planted.person@example.org",
    "10.77.66.55",
    "2001:db8::77:66",
];

/// The same shape with other values: nothing in it is personal.
pub(crate) fn dump(folder: &Path, values: [&str; 6]) -> PathBuf {
    let [user, token, key, mail, ipv4, ipv6] = values;
    let home = format!(r"C:\Users\{user}\app");
    let image = ImageBuilder::new(Machine::X64, "crashme.exe")
        .pdb(Guid(*b"crash me, please"), 1, &format!(r"{home}\crashme.pdb"))
        .program()
        .function(Function::new("crash"))
        .build();
    let frames = [FrameSpec::inside(&image, BASE, "crash")];
    let stack = StackBuilder::new(Machine::X64, 0x20_0000, 0x2000).build(&frames, 0);
    let mut dump = UserDump::new(Machine::X64);
    dump.add_image(&image, BASE, &format!(r"{home}\crashme.exe"), true);
    dump.threads.push(UserThread::new(0x10, &stack).named(&format!("for {mail}")));
    let text = format!(
        "{home}\\a.txt token={token} {mail} {ipv4} [{ipv6}] -----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\0"
    );
    let mut memory = text.clone().into_bytes();
    memory.resize(0x400, 0);
    memory.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    // What a command that prints 32 characters a line shows whole.
    memory.resize(0xf00, 0);
    memory.extend(mail.as_bytes());
    memory.resize(0x1000, 0);
    dump.memory.push((MEMORY, Content::Bytes(memory)));
    dump.exception = Some(UserException {
        thread: 0x10,
        record: ExceptionRecord { code: 0xc000_0005, address: frames[0].ip, ..ExceptionRecord::default() },
        context: Some(stack.context.clone()),
    });
    dump.comment = Some(format!("from {mail} at {ipv4}"));
    let path = folder.join(format!("Users/{user}"));
    std::fs::create_dir_all(&path).unwrap();
    let path = path.join("a.dmp");
    std::fs::write(&path, dump.dump().unwrap()).unwrap();
    path
}

/// Asks for everything that shows them; all that was answered, notifications and resources included.
pub(crate) fn look_everywhere(client: &mut Client, dump: &Path) -> Vec<Value> {
    let missing = dump.with_file_name("none.dmp");
    let mut out = Vec::new();
    let calls = [
        ("open_dump", json!({ "path": dump })),
        ("open_dump", json!({ "path": missing })),
        ("exception_triage", json!({})),
        ("modules", json!({})),
        ("threads", json!({})),
        ("backtrace", json!({})),
        ("read_memory", json!({ "address": "0x500000", "size": 0x1000 })),
        ("execute", json!({ "command": "da 0x500f00" })),
        ("execute", json!({ "command": "lmv" })),
        ("execute", json!({ "command": "nonsense C:\\Users\\planteduser\\x" })),
        ("read_memory", json!({ "address": "planted.person@example.org" })),
        ("session_status", json!({})),
        ("server_log", json!({ "level": "debug", "limit": 500 })),
    ];
    for (tool, arguments) in calls {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": tool } });
        out.push(client.request("tools/call", params));
    }
    for uri in ["windbg://sessions", "windbg://transcript"] {
        out.push(client.request("resources/read", json!({ "uri": uri })));
    }
    let prompt = json!({ "name": "triage-dump", "arguments": { "path": dump } });
    out.push(client.request("prompts/get", prompt));
    // Where a name belongs and any text may come; a user's name and a key are known by what is around them.
    let [user, token, _, mail, ipv4, ipv6] = PLANTED;
    for value in [&format!(r"C:\Users\{user}\x"), token, mail, ipv4, ipv6] {
        let steps = json!([{ "op": "command", "command": "? 1", "name": value }]);
        for (tool, arguments) in [
            (value, json!({ "session_id": value })),
            ("registers", json!({ "session_id": value })),
            ("debug_batch", json!({ "steps": steps })),
        ] {
            out.push(client.request("tools/call", json!({ "name": tool, "arguments": arguments })));
        }
    }
    out.push(client.request("tools/call", json!({ "name": "end_session", "arguments": {} })));
    out.extend(client.notifications.iter().cloned());
    out
}
