//! What is encoded is decoded, garbage in undefined fields is not looked at, and any bytes are taken.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use kd_api::{
    Answer, Api, Context, Continue2, ControlRequest, DebugIo, DecodeError, ENVELOPE, FileReply, FileRequest,
    FillSpace, Reply, ReplyBody, Request, SpecialRegisters, StateChange, TraceIo,
};
use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

fn request() -> impl Strategy<Value = Request> {
    let (a, n, p) = (any::<u64>(), any::<u32>(), any::<u16>());
    prop_oneof![
        (a, n).prop_map(|(address, count)| Request::ReadVirtual { address, count }),
        (a, bytes(64)).prop_map(|(address, data)| Request::WriteVirtual { address, data }),
        p.prop_map(|processor| Request::GetContext { processor }),
        (p, bytes(64)).prop_map(|(processor, context)| Request::SetContext { processor, context }),
        a.prop_map(|address| Request::WriteBreakpoint { address }),
        n.prop_map(|handle| Request::RestoreBreakpoint { handle }),
        n.prop_map(|status| Request::Continue { status }),
        (p, a, n).prop_map(|(processor, selector, count)| Request::ReadControlSpace {
            processor,
            selector,
            count
        }),
        (p, a, bytes(64)).prop_map(|(processor, selector, data)| Request::WriteControlSpace {
            processor,
            selector,
            data
        }),
        (a, n, n).prop_map(|(port, size, value)| Request::WriteIo { port, size, value }),
        (a, n).prop_map(|(port, size)| Request::ReadIo { port, size }),
        (n, any::<bool>(), a).prop_map(|(s, t, d)| Request::Continue2(Continue2::new(s, t, d))),
        (a, n, n).prop_map(|(address, count, cache)| Request::ReadPhysical { address, count, cache }),
        (a, bytes(64), n).prop_map(|(address, data, cache)| Request::WritePhysical { address, data, cache }),
        (a, n).prop_map(|(address, flags)| Request::SetInternalBreakpoint { address, flags }),
        (n, n, n, n, a, n).prop_map(|(size, interface, bus, space, port, value)| {
            Request::WriteIoExtended { size, interface, bus, space, port, value }
        }),
        Just(Request::GetVersion),
        (n, prop::collection::vec((a, n), 0..5))
            .prop_map(|(status, breakpoints)| Request::WriteBreakpointEx { status, breakpoints }),
        (n, prop::collection::vec(n, 0..5))
            .prop_map(|(status, handles)| Request::RestoreBreakpointEx { status, handles }),
        n.prop_map(|code| Request::CauseBugCheck { code }),
        p.prop_map(|processor| Request::SwitchProcessor { processor }),
        (n, a).prop_map(|(msr, value)| Request::WriteMsr { msr, value }),
        (a, a, bytes(20)).prop_map(|(start, length, pattern)| Request::SearchMemory {
            start,
            length,
            pattern
        }),
        (n, n, n, n, bytes(20)).prop_map(|(kind, bus, slot, offset, data)| Request::SetBusData {
            kind,
            bus,
            slot,
            offset,
            data
        }),
        (a, n, any::<bool>(), bytes(20)).prop_map(|(address, length, physical, pattern)| {
            let space = if physical { FillSpace::Physical } else { FillSpace::Virtual };
            Request::FillMemory { address, length, space, pattern }
        }),
        a.prop_map(|address| Request::QueryMemory { address }),
        (a, a, any::<u8>(), any::<u8>()).prop_map(|(address, instruction, size, alignment)| {
            Request::WriteCustomBreakpoint { address, instruction, size, alignment }
        }),
        (p, n, n).prop_map(|(processor, offset, count)| Request::GetContextEx { processor, offset, count }),
        (p, n, bytes(64)).prop_map(|(processor, offset, data)| Request::SetContextEx {
            processor,
            offset,
            data
        }),
        Just(Request::ClearAllInternal),
    ]
}

/// Begin and end of the union's fields that an API's request defines.
fn defined(api: Api) -> &'static [(usize, usize)] {
    match api {
        Api::READ_VIRTUAL
        | Api::WRITE_VIRTUAL
        | Api::READ_CONTROL_SPACE
        | Api::WRITE_CONTROL_SPACE
        | Api::READ_IO
        | Api::SET_INTERNAL_BREAKPOINT => &[(0x10, 0x1C)],
        Api::WRITE_IO | Api::READ_PHYSICAL | Api::WRITE_PHYSICAL => &[(0x10, 0x20)],
        Api::WRITE_BREAKPOINT | Api::QUERY_MEMORY => &[(0x10, 0x18)],
        Api::RESTORE_BREAKPOINT | Api::CONTINUE | Api::CAUSE_BUGCHECK => &[(0x10, 0x14)],
        Api::WRITE_MSR => &[(0x10, 0x1C)],
        Api::CONTINUE2 => &[(0x10, 0x30)],
        Api::WRITE_IO_EXTENDED => &[(0x10, 0x2C)],
        Api::WRITE_BREAKPOINT_EX | Api::RESTORE_BREAKPOINT_EX | Api::GET_CONTEXT_EX | Api::SET_CONTEXT_EX => {
            &[(0x10, 0x18)]
        }
        Api::SEARCH_MEMORY | Api::SET_BUS_DATA => &[(0x10, 0x24)],
        Api::FILL_MEMORY => &[(0x10, 0x20)],
        Api::WRITE_CUSTOM_BREAKPOINT => &[(0x10, 0x20), (0x24, 0x26)],
        _ => &[],
    }
}

/// Whether the request says which processor it is for.
fn has_processor(api: Api) -> bool {
    matches!(
        api,
        Api::GET_CONTEXT
            | Api::SET_CONTEXT
            | Api::READ_CONTROL_SPACE
            | Api::WRITE_CONTROL_SPACE
            | Api::SWITCH_PROCESSOR
            | Api::GET_CONTEXT_EX
            | Api::SET_CONTEXT_EX
    )
}

proptest! {
    #[test]
    fn a_request_is_what_was_encoded(request in request()) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn undefined_fields_are_not_looked_at(request in request(), garbage in prop::collection::vec(any::<u8>(), ENVELOPE)) {
        let api = request.api();
        let mut sent = request.encode();
        for (at, byte) in garbage.into_iter().enumerate().skip(4) {
            let processor = (6..8).contains(&at) && has_processor(api);
            if !processor && !defined(api).iter().any(|(begin, end)| (*begin..*end).contains(&at)) {
                sent[at] = byte;
            }
        }
        prop_assert_eq!(Request::decode(&sent), Ok(request));
    }

    #[test]
    fn a_read_is_as_long_as_it_says(address: u64, asked in 0u32..100, data in bytes(120), told in 0u32..120) {
        let request = Request::ReadVirtual { address, count: asked };
        let mut sent = Reply::success(ReplyBody::Data(data.clone())).encode(&request.encode());
        sent[0x1C..0x20].copy_from_slice(&told.to_le_bytes());
        let right = told as usize == data.len() && told <= asked;
        prop_assert_eq!(Reply::decode(&request, &sent).is_ok(), right);
    }

    #[test]
    fn a_refusal_has_no_counts(request in request(), status in 0x8000_0000u32..) {
        let sent = Reply::failure(status).encode(&request.encode());
        prop_assert_eq!(sent.len(), ENVELOPE);
        prop_assert_eq!(Reply::decode(&request, &sent), Ok(Reply::failure(status)));
    }

    #[test]
    fn any_bytes_are_taken(bytes in bytes(600), request in request()) {
        if let Ok(decoded) = Request::decode(&bytes) {
            prop_assert_eq!(Request::decode(&decoded.encode()), Ok(decoded));
        }
        let mut answer = bytes.clone();
        if answer.len() >= 4 {
            answer[..4].copy_from_slice(&request.api().0.to_le_bytes());
        }
        let _ = Reply::decode(&request, &answer);
        let _ = Reply::failure(0).encode(&bytes);
        if let Ok(stop) = StateChange::decode(&bytes) {
            prop_assert_eq!(StateChange::decode(&stop.encode()), Ok(stop));
        }
        let _ = (DebugIo::decode(&bytes), DebugIo::decode_answer(&bytes), TraceIo::decode(&bytes));
        let _ = (ControlRequest::decode(&bytes), FileRequest::decode(&bytes), FileReply::decode(&bytes));
        let _ = (SpecialRegisters::decode(&bytes), Context::decode(&bytes));
    }
}

#[test]
fn the_answer_to_another_request_is_none() {
    let reply = Reply::success(ReplyBody::None).encode(&Request::GetVersion.encode());
    let asked = Request::ReadVirtual { address: 0, count: 1 };
    assert_eq!(Reply::decode(&asked, &reply), Err(DecodeError::OtherApi { asked: 0x3130, answered: 0x3146 }));
}

/// Spec 71 section 5, column R.
#[test]
fn what_has_no_reply() {
    let silent: Vec<u32> = (0x3130..=0x3160).filter(|api| Api(*api).answer() == Answer::Nothing).collect();
    assert_eq!(silent, [0x3136, 0x313B, 0x313C, 0x3140, 0x3141, 0x3142, 0x3149, 0x315A]);
    assert_eq!(Api(0x3150).answer(), Answer::StateChange);
    assert_eq!(Api(0x9999).answer(), Answer::Reply);
}
