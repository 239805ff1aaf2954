//! What holds for every message and every way its bytes arrive.

use channel::{Interrupt, LineBuffer, LineError, LogLine, MAX_LINE, Message, Op, Outcome, Request, encode};
use proptest::prelude::*;
use serde_json::{Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<String>(), any::<String>(), any::<String>())
            .prop_map(|(build, engine, arch)| Message::Ready { build, engine, arch }),
        any::<String>().prop_map(|text| Message::Fatal { text }),
        any::<u64>().prop_map(|id| Message::Committed { id }),
        any::<u64>().prop_map(|id| Message::Opened { id }),
        (any::<u64>(), any::<String>()).prop_map(|(id, text)| Message::Progress { id, text }),
        (any::<u64>(), any::<String>(), any::<String>(), any::<u64>()).prop_map(
            |(at_ms, target, text, dropped)| Message::Log(LogLine {
                at_ms,
                level: "info".into(),
                target,
                text,
                dropped
            })
        ),
        (any::<u64>(), value(), any::<bool>()).prop_map(|(id, data, interrupted)| Message::Done {
            id,
            result: Outcome::Ok { data, interrupted }
        }),
        (any::<u64>(), value()).prop_map(|(id, error)| Message::Done { id, result: Outcome::Err { error } }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        value().prop_map(|request| Op::Open { request }),
        (any::<String>(), value()).prop_map(|(operation, args)| Op::Run { operation, args }),
        any::<Option<u64>>().prop_map(|job| Op::Interrupt { job }),
        any::<u64>().prop_map(|job| Op::Cancel { job }),
        Just(Op::End),
    ];
    (any::<u64>(), op, any::<Option<u64>>()).prop_map(|(id, op, patience_ms)| Request { id, op, patience_ms })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn messages_survive_any_split(messages in prop::collection::vec(message(), 1..6), step in 1usize..50) {
        let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
        let mut buffer = LineBuffer::new();
        let mut got = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend(piece);
            while let Some(message) = buffer.next_message::<Message>().unwrap() {
                got.push(message);
            }
        }
        prop_assert_eq!(got, messages);
    }

    #[test]
    fn requests_survive(request in request()) {
        let line = encode(&request).unwrap();
        prop_assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1, "one line: {:?}", line);
        let mut buffer = LineBuffer::new();
        buffer.extend(&line);
        prop_assert_eq!(buffer.next_message::<Request>().unwrap(), Some(request));
    }

    #[test]
    fn any_bytes_give_an_answer_and_the_next_line_is_read(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut buffer = LineBuffer::new();
        buffer.extend(&noise);
        buffer.extend(b"\n");
        buffer.extend(&encode(&Message::Committed { id: 7 }).unwrap());
        let mut last = None;
        for _ in 0..=noise.len() + 1 {
            match buffer.next_message::<Message>() {
                Ok(Some(message)) => last = Some(message),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        prop_assert_eq!(last, Some(Message::Committed { id: 7 }));
    }
}

#[test]
fn an_unparsable_line_says_how_it_begins() {
    let mut buffer = LineBuffer::new();
    buffer.extend(b"garbage from another build\n");
    let error = buffer.next_message::<Message>().unwrap_err();
    assert!(error.to_string().contains("garbage from another build"), "{error}");
}

#[test]
fn lines_past_the_bound_are_refused_on_both_sides() {
    let text = "x".repeat(MAX_LINE);
    let result = Outcome::Ok { data: json!(text), interrupted: false };
    assert!(matches!(encode(&Message::Done { id: 1, result }), Err(LineError::TooLong)));

    let mut buffer = LineBuffer::new();
    buffer.extend(text.as_bytes());
    assert!(buffer.next_message::<Message>().unwrap().is_none());
    buffer.extend(b"x");
    assert!(matches!(buffer.next_message::<Message>(), Err(LineError::TooLong)));
}

#[test]
fn a_line_of_one_mebibyte_passes() {
    let message =
        Message::Done { id: 1, result: Outcome::Ok { data: json!("y".repeat(1 << 20)), interrupted: false } };
    let mut buffer = LineBuffer::new();
    buffer.extend(&encode(&message).unwrap());
    assert_eq!(buffer.next_message::<Message>().unwrap(), Some(message));
}

#[test]
fn interrupt_outcomes_are_words() {
    assert_eq!(serde_json::to_value(Interrupt::AlreadyPending).unwrap(), "already_pending");
}
