//! Payloads as byte literals: a constant that both directions share would hide from a round trip.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use kd_api::{
    Continue2, DebugIo, DebuggerData, DebuggerDataError, DecodeError, FileReply, FileRequest, KernelClass,
    NO_SUCH_FILE, Reply, ReplyBody, Request, SpecialRegisters, StateChange, StopReason,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// As Microsoft's DbgEng 10.0.15063 sent it: the envelope is not cleared, and a target must not mind.
#[test]
fn a_read_of_dbgeng() {
    let bytes =
        hex("30310000 3e00 0000 0d010000 00000000 1049002103f8ffff 05010000 00000000 0d01000000000000
         00000a0100000000 889d027001000000");
    assert_eq!(bytes.len(), 0x38);
    let request = Request::decode(&bytes).unwrap();
    assert_eq!(request, Request::ReadVirtual { address: 0xffff_f803_2100_4910, count: 0x105 });
    let clean =
        hex("30310000 0000 0000 00000000 00000000 1049002103f8ffff 05010000 00000000 0000000000000000
         0000000000000000 0000000000000000");
    assert_eq!(request.encode(), clean);
    // The reply echoes the envelope, garbage and all.
    let reply = Reply::success(ReplyBody::Data(vec![0x31, 0x39])).encode(&bytes);
    let expected =
        hex("30310000 3e00 0000 00000000 00000000 1049002103f8ffff 05010000 02000000 0d01000000000000
         00000a0100000000 889d027001000000 3139");
    assert_eq!(reply, expected);
    assert_eq!(Reply::decode(&request, &reply), Ok(Reply::success(ReplyBody::Data(vec![0x31, 0x39]))));
}

/// The union of DbgEng's GET_VERSION is garbage; the answer's fields are where the spec says.
#[test]
fn a_version_of_a_boot_debugger() {
    let request = hex(
        "46310000 44006100 00000000 00000000 0f04 614a 06 02 0200 6486 0c 32 59 00 0000 000000 2103f8ffff 000000",
    );
    let mut bytes = request.clone();
    bytes.resize(0x38, 0);
    bytes[0x20..0x28].copy_from_slice(&0xffff_f803_2100_0000u64.to_le_bytes());
    bytes[0x28..0x30].copy_from_slice(&0xffff_f803_2100_4000u64.to_le_bytes());
    bytes[0x30..0x38].copy_from_slice(&0xffff_a580_0000_1e30u64.to_le_bytes());
    let Reply { body: ReplyBody::Version(version), .. } =
        Reply::decode(&Request::GetVersion, &bytes).unwrap()
    else {
        panic!("no version")
    };
    assert_eq!(version.class(), KernelClass::BootDebugger);
    assert_eq!((version.minor, version.protocol, version.secondary, version.flags), (19041, 6, 2, 2));
    assert_eq!((version.machine, version.max_state_change, version.max_manipulate), (0x8664, 0x32, 0x59));
    assert_eq!(version.kernel_base, 0xffff_f803_2100_0000);
    assert_eq!(version.debugger_data_list, 0xffff_a580_0000_1e30);
    assert_eq!(Reply::success(ReplyBody::Version(version)).encode(&bytes), bytes);
}

#[test]
fn a_step() {
    let request = Request::Continue2(Continue2::new(0x0001_0001, true, 0x400));
    let bytes =
        hex("3c310000 0000 0000 00000000 00000000 01000100 01000000 0004000000000000 0100000000000000
         0000000000000000 0000000000000000");
    assert_eq!(request.encode(), bytes);
    assert_eq!(Request::decode(&bytes), Ok(request));
}

/// Spec 71 section 12.1, vector 2.
#[test]
fn no_such_file() {
    let mut request = hex("30340000 00000000 89001200 80000000 01000000 01000000");
    request.resize(0x40, 0);
    request.extend("\\x.sys".encode_utf16().flat_map(u16::to_le_bytes));
    request.extend([0, 0]);
    let FileRequest::Create { access, attributes, share, disposition, path, .. } =
        FileRequest::decode(&request).unwrap()
    else {
        panic!("no create")
    };
    assert_eq!((access, attributes, share, disposition), (0x12_0089, 0x80, 1, 1));
    assert_eq!(String::from_utf16(&path).unwrap(), "\\x.sys");
    let mut answer = hex("30340000 0F0000C0 89001200 80000000 01000000 01000000");
    answer.resize(0x40, 0);
    assert_eq!(FileReply::failure(NO_SUCH_FILE).encode(&request), answer);
    assert_eq!(FileReply::decode(&answer), Ok(FileReply::failure(NO_SUCH_FILE)));
}

/// The simulator's first stop, as DbgEng took it, with every field at its own place.
#[test]
fn a_stop() {
    let mut bytes =
        hex("30300000 0600 0100 02000000 00000000 9015000080a5ffff 0000004003f8ffff 03000080 00000000
         0000000000000000 0000004003f8ffff 02000000 00000000 0800000000000000 1122334455667788");
    bytes.resize(0xB8, 0);
    bytes.extend(hex("01000000 00000000 f00fffff00000000 0004000000000000 46020000 0300 0300 9048c7"));
    bytes.resize(0xE8, 0);
    bytes.extend(hex("1000 2b00 2c00 5300"));
    let stop = StateChange::decode(&bytes).unwrap();
    assert_eq!((stop.processor_level, stop.processor, stop.processors), (6, 1, 2));
    assert_eq!((stop.thread, stop.program_counter), (0xffff_a580_0000_1590, 0xffff_f803_4000_0000));
    let StopReason::Exception(exception) = stop.reason else { panic!("{stop:?}") };
    assert_eq!((exception.code, exception.parameter_count, exception.first_chance), (0x8000_0003, 2, true));
    assert_eq!(exception.parameters[..3], [8, 0x8877_6655_4433_2211, 0]);
    assert_eq!((stop.control.dr6, stop.control.dr7, stop.control.eflags), (0xffff_0ff0, 0x400, 0x246));
    assert_eq!(stop.control.instructions, [0x90, 0x48, 0xc7]);
    let segments = (stop.control.cs, stop.control.ds, stop.control.es, stop.control.fs);
    assert_eq!(segments, (0x10, 0x2b, 0x2c, 0x53));
    assert_eq!(StateChange::decode(&bytes).unwrap().encode(), bytes);
}

#[test]
fn a_module_that_is_loaded_and_all_that_are_gone() {
    let mut bytes = hex("31300000 0600 0000 01000000 00000000");
    bytes.resize(0x20, 0);
    bytes.extend(hex("06000000 00000000 0000007003f8ffff ffffffffffffffff 34120000 00400000 00"));
    bytes.resize(0xF0, 0);
    bytes.extend(b"a.sys\0");
    let stop = StateChange::decode(&bytes).unwrap();
    let StopReason::LoadSymbols(load) = &stop.reason else { panic!("{stop:?}") };
    assert_eq!((load.path.as_slice(), load.base, load.size), (&b"a.sys"[..], 0xffff_f803_7000_0000, 0x4000));
    assert!(!load.unload && load.process == u64::MAX && load.checksum == 0x1234);
    assert_eq!(stop.encode(), bytes);
    bytes[0x20] = 0x60;
    let told = DecodeError::Length { what: "a module's path", told: 0x60, found: 6 };
    assert_eq!(StateChange::decode(&bytes), Err(told));
    // The way down to a reboot.
    let mut gone = hex("31300000");
    gone.resize(0xF0, 0);
    gone[0x28..0x30].fill(0xff);
    gone[0x40] = 1;
    let StopReason::LoadSymbols(load) = StateChange::decode(&gone).unwrap().reason else { panic!() };
    assert!(load.forgets_all());
}

#[test]
fn text_both_ways() {
    let print = hex("30320000 0000 0100 03000000 00000000 616263");
    assert_eq!(DebugIo::decode(&print), Ok(DebugIo::Print { processor: 1, text: b"abc".to_vec() }));
    let ask = hex("31320000 0000 0000 02000000 08000000 3f20");
    assert_eq!(
        DebugIo::decode(&ask),
        Ok(DebugIo::GetString { processor: 0, prompt: b"? ".to_vec(), most: 8 })
    );
    let answer = hex("31320000 0000 0000 00000000 02000000 6f6b");
    assert_eq!(DebugIo::Answer { processor: 0, text: b"ok".to_vec() }.encode(), answer);
}

#[test]
fn special_registers_keep_the_gdt_at_0x56() {
    let mut bytes = vec![0; 0xE0];
    bytes[0x56..0x60].copy_from_slice(&hex("5700 0010000003f8ffff"));
    bytes[0x10] = 2;
    bytes[0xA9] = 1;
    let registers = SpecialRegisters::decode(&bytes).unwrap();
    assert_eq!((registers.gdt_limit, registers.gdt_base), (0x57, 0xffff_f803_0000_1000));
    assert_eq!((registers.cr3, registers.gs_base), (2, 0x100));
    assert_eq!(registers.encode(), bytes);
}

#[test]
fn debugger_data_is_checked_before_it_is_believed() {
    let (list, base) = (0xffff_a580_0000_1e30u64, 0xffff_f803_2100_0000u64);
    let mut block = vec![0; 0x340];
    block[..8].copy_from_slice(&list.to_le_bytes());
    block[8..16].copy_from_slice(&list.to_le_bytes());
    block[16..24].copy_from_slice(&hex("4b444247 40030000"));
    block[24..32].copy_from_slice(&base.to_le_bytes());
    block[0x48..0x50].copy_from_slice(&7u64.to_le_bytes());
    block[0x2B4..0x2B6].copy_from_slice(&8u16.to_le_bytes());
    let data = DebuggerData::decode(&block, list, base).unwrap();
    assert_eq!(data.get(DebuggerData::LOADED_MODULE_LIST), Some(7));
    assert_eq!(data.get(DebuggerData::OFFSET_PRCB_CURRENT_THREAD), Some(8));
    // This build's block ends before it.
    assert_eq!(data.get(DebuggerData::PTE_BASE), None);
    let other = DebuggerData::decode(&block, list, base + 0x1000);
    assert_eq!(other, Err(DebuggerDataError::KernelBase { expected: base + 0x1000, found: base }));
    assert_eq!(DebuggerData::decode(&block, 5, base), Err(DebuggerDataError::Links(list)));
    assert_eq!(DebuggerData::decode(&block[..0x10], list, base), Err(DebuggerDataError::Short(0x10)));
    block[0x14] = 0x10;
    block[0x15] = 0;
    assert_eq!(DebuggerData::decode(&block, list, base), Err(DebuggerDataError::Size(0x10)));
    block[0x10] = 0;
    assert!(matches!(DebuggerData::decode(&block, list, base), Err(DebuggerDataError::Tag(_))));
}
