#![no_main]
//! Any payload as each of the packets that are no requests.

use kd_api::{
    Context, ControlRequest, DebugIo, DebuggerData, FileReply, FileRequest, SpecialRegisters, StateChange,
    TraceIo,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(stop) = StateChange::decode(data) {
        assert_eq!(StateChange::decode(&stop.encode()), Ok(stop));
    }
    if let Ok(text) = DebugIo::decode(data) {
        assert_eq!(DebugIo::decode(&text.encode()), Ok(text));
    }
    let _ = (DebugIo::decode_answer(data), TraceIo::decode(data), ControlRequest::decode(data));
    if let Ok(request) = FileRequest::decode(data) {
        assert_eq!(FileRequest::decode(&request.encode()), Ok(request));
    }
    if let Ok(reply) = FileReply::decode(data) {
        let _ = reply.encode(data);
    }
    if let Ok(special) = SpecialRegisters::decode(data) {
        assert_eq!(SpecialRegisters::decode(&special.encode()), Ok(special));
    }
    let _ = Context::decode(data).map(|context| (context.rip(), context.xmm(15), context.fxsave().len()));
    if let Ok(block) = DebuggerData::decode(data, 0, 0) {
        let _: Vec<_> = DebuggerData::FIELDS.iter().map(|field| block.get(*field)).collect();
    }
});
