#![no_main]
//! Any payload as a request, and as the answer to one: what is decoded is encoded to the same.

use kd_api::{Reply, ReplyBody, Request};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = Reply::failure(0).encode(data);
    let (first, second) = data.split_at(data.len() / 2);
    for bytes in [data, first, second] {
        let Ok(request) = Request::decode(bytes) else { continue };
        assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
        if let Ok(reply) = Reply::decode(&request, second) {
            if let ReplyBody::Data(data) = &reply.body {
                assert!(data.len() < second.len());
            }
            let again = reply.encode(&request.encode());
            assert_eq!(Reply::decode(&request, &again).map(|r| r.body), Ok(reply.body));
        }
    }
});
