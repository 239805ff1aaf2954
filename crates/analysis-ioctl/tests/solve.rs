//! Sets and the inverse of expressions, against brute force.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use analysis_ioctl::expr::{Expr, Op, Unary, Variable};
use analysis_ioctl::set::{BitSource, Set, Sets};
use analysis_ioctl::solve::{Comparison, Kind, Outcome, Solver, holds};
use code::record::Condition;
use proptest::prelude::*;

/// Sets over the low 8 bits (the rest zero), so that brute force is 256 values.
fn small(sets: &mut Sets, values: &BTreeSet<u8>) -> Set {
    sets.values_of(&values.iter().map(|&v| u32::from(v)).collect::<Vec<_>>())
}

fn members(sets: &Sets, set: Set) -> BTreeSet<u8> {
    (0..=255u8).filter(|&v| sets.contains(set, u32::from(v))).collect()
}

proptest! {
    #[test]
    fn algebra_is_that_of_sets(
        a in proptest::collection::btree_set(any::<u8>(), 0..80),
        b in proptest::collection::btree_set(any::<u8>(), 0..80),
    ) {
        let mut sets = Sets::default();
        let (x, y) = (small(&mut sets, &a), small(&mut sets, &b));
        let (and, or, minus) = (sets.and(x, y), sets.or(x, y), sets.minus(x, y));
        prop_assert_eq!(members(&sets, and), &a & &b);
        prop_assert_eq!(members(&sets, or), &a | &b);
        prop_assert_eq!(members(&sets, minus), &a - &b);
        prop_assert_eq!(sets.count(x), a.len() as u64);
        let not = sets.not(x);
        prop_assert_eq!(sets.count(not), (1u64 << 32) - a.len() as u64);
        prop_assert_eq!(sets.min(x), a.first().map(|&v| u32::from(v)));
        prop_assert_eq!(sets.max(x), a.last().map(|&v| u32::from(v)));
        let listed = sets.values(x, 256).unwrap();
        prop_assert_eq!(listed, a.iter().map(|&v| u32::from(v)).collect::<Vec<_>>());
        // Equal sets are one handle, however they were made.
        let again = sets.minus(or, minus);
        prop_assert_eq!(again, y);
        // Patterns and intervals rebuild the set.
        let mut rebuilt = Set::EMPTY;
        for (mask, value) in sets.patterns(x, 4096).unwrap() {
            let part = sets.pattern(mask, value);
            rebuilt = sets.or(rebuilt, part);
        }
        prop_assert_eq!(rebuilt, x);
        let mut rebuilt = Set::EMPTY;
        for (low, high) in sets.intervals(not, 4096).unwrap() {
            let part = sets.interval(low, high);
            rebuilt = sets.or(rebuilt, part);
        }
        prop_assert_eq!(rebuilt, not);
        if let Some(&first) = a.first() {
            let (mask, value) = sets.fixed_bits(x);
            let varying = a.iter().fold(0, |all, v| all | (v ^ first));
            prop_assert_eq!(mask, !u32::from(varying));
            prop_assert_eq!(value, u32::from(first & !varying));
        }
    }

    #[test]
    fn preimages_of_additions_and_bit_maps(
        values in proptest::collection::btree_set(any::<u32>(), 1..40),
        addend in any::<u32>(),
        probes in proptest::collection::vec(any::<u32>(), 20),
        turn in 0u8..32,
    ) {
        let mut sets = Sets::default();
        let list: Vec<u32> = values.iter().copied().collect();
        let set = sets.values_of(&list);
        let before = sets.before_add(set, addend);
        let sources: [BitSource; 32] = std::array::from_fn(|i| BitSource::Input {
            index: (i as u8 + turn) % 32,
            inverted: i % 3 == 0,
        });
        let turned = sets.before_bits(set, &sources);
        let near = list.iter().map(|v| v.wrapping_sub(addend));
        for probe in near.chain(probes) {
            prop_assert_eq!(sets.contains(before, probe), values.contains(&probe.wrapping_add(addend)));
            let image = (0..32).fold(0u32, |all, i| {
                let bit = probe >> ((i + u32::from(turn)) % 32) & 1;
                all | (bit ^ u32::from(i % 3 == 0)) << i
            });
            prop_assert_eq!(sets.contains(turned, probe), values.contains(&image));
        }
        prop_assert_eq!(sets.count(before), values.len() as u64);
    }
}

/// One step of an expression over the code.
#[derive(Clone, Debug)]
enum Step {
    Binary(Op, u8, u64),
    Reversed(u8, u64),
    Unary(Unary, u8),
    SignExtend(u8, u8),
    Truncate(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let width = prop_oneof![Just(8u8), Just(16), Just(32), Just(32), Just(32), Just(64)];
    let op = prop_oneof![
        Just(Op::Add),
        Just(Op::Sub),
        Just(Op::Xor),
        Just(Op::And),
        Just(Op::Or),
        Just(Op::Mul),
        Just(Op::ShiftLeft),
        Just(Op::ShiftRight),
        Just(Op::ShiftRightArithmetic),
        Just(Op::RotateLeft),
        Just(Op::RotateRight),
    ];
    let constant = prop_oneof![any::<u64>(), 0u64..64, Just(0x22_2003u64), Just(0xffff_ffff_ffdd_dffdu64)];
    prop_oneof![
        6 => (op, width.clone(), constant.clone()).prop_map(|(op, width, value)| {
            let shift = !matches!(op, Op::Add | Op::Sub | Op::Xor | Op::And | Op::Or | Op::Mul);
            Step::Binary(op, width, if shift { value % u64::from(width) } else { value })
        }),
        1 => (width.clone(), constant).prop_map(|(width, value)| Step::Reversed(width, value)),
        1 => (prop_oneof![Just(Unary::Not), Just(Unary::Negate)], width).prop_map(|(op, w)| Step::Unary(op, w)),
        1 => Just(Step::Unary(Unary::ByteSwap, 32)),
        1 => Just(Step::SignExtend(32, 64)),
        1 => Just(Step::SignExtend(8, 32)),
        1 => prop_oneof![Just(8u8), Just(16), Just(32)].prop_map(Step::Truncate),
    ]
}

fn build(solver: &mut Solver<'_>, steps: &[Step]) -> Expr {
    let mut at = solver.exprs.var(Variable::CODE);
    for step in steps {
        at = match *step {
            Step::Binary(op, width, value) => {
                let value = solver.exprs.constant(value);
                solver.exprs.binary(op, width, at, value)
            }
            Step::Reversed(width, value) => {
                let value = solver.exprs.constant(value);
                solver.exprs.binary(Op::Sub, width, value, at)
            }
            Step::Unary(op, width) => solver.exprs.unary(op, width, at),
            Step::SignExtend(from, to) => solver.exprs.sign_extend(at, from, to),
            Step::Truncate(bits) => solver.exprs.truncate(at, bits),
        };
    }
    at
}

fn mask(width: u8) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// What the machine computes, written apart from the crate's own evaluation.
fn reference(steps: &[Step], code: u32) -> u64 {
    let mut at = u64::from(code);
    for step in steps {
        at = match *step {
            Step::Binary(op, width, value) => {
                let (m, a, b) = (mask(width), at & mask(width), value & mask(width));
                let w = u32::from(width);
                let n = b as u32;
                m & match op {
                    Op::Add => a.wrapping_add(b),
                    Op::Sub => a.wrapping_sub(b),
                    Op::Mul => a.wrapping_mul(b),
                    Op::And => a & b,
                    Op::Or => a | b,
                    Op::Xor => a ^ b,
                    Op::ShiftLeft => a << n,
                    Op::ShiftRight => a >> n,
                    Op::ShiftRightArithmetic => match width {
                        8 => (a as i8 >> n) as u64,
                        16 => (a as i16 >> n) as u64,
                        32 => (a as i32 >> n) as u64,
                        _ => (a as i64 >> n) as u64,
                    },
                    Op::RotateLeft => {
                        if n == 0 {
                            a
                        } else {
                            a << n | a >> (w - n)
                        }
                    }
                    Op::RotateRight => {
                        if n == 0 {
                            a
                        } else {
                            a >> n | a << (w - n)
                        }
                    }
                }
            }
            Step::Reversed(width, value) => mask(width) & value.wrapping_sub(at),
            Step::Unary(Unary::Not, width) => mask(width) & !at,
            Step::Unary(Unary::Negate, width) => mask(width) & at.wrapping_neg(),
            Step::Unary(Unary::ByteSwap, _) => u64::from((at as u32).swap_bytes()),
            Step::SignExtend(8, _) => u64::from(at as i8 as i32 as u32),
            Step::SignExtend(..) => at as u32 as i32 as i64 as u64,
            Step::Truncate(bits) => at & mask(bits),
        };
    }
    at
}

const CONDITIONS: [Condition; 14] = [
    Condition::Equal,
    Condition::NotEqual,
    Condition::Below,
    Condition::AboveOrEqual,
    Condition::Above,
    Condition::BelowOrEqual,
    Condition::Less,
    Condition::GreaterOrEqual,
    Condition::Greater,
    Condition::LessOrEqual,
    Condition::Sign,
    Condition::NotSign,
    Condition::Overflow,
    Condition::NotOverflow,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Whatever a condition is found to say is what the flags would be, for every probed code.
    #[test]
    fn conditions_on_expressions(
        steps in proptest::collection::vec(step(), 0..5),
        constant in prop_oneof![any::<u64>(), 0u64..0x40, Just(0x22_2003u64)],
        same in any::<bool>(),
        index in 0usize..14,
        width in prop_oneof![Just(8u8), Just(16), Just(32), Just(32), Just(64)],
        kind in prop_oneof![Just(Kind::Subtract), Just(Kind::Add), Just(Kind::Logic)],
        arm in any::<bool>(),
        probes in proptest::collection::vec(any::<u32>(), 40),
        base in any::<u32>(),
    ) {
        let constants = |_: u64, _: u8| None;
        let mut solver = Solver::new(64, &constants);
        let whole = build(&mut solver, &steps);
        let condition = CONDITIONS[index];
        // Constants that are hit: the value at one of the probes.
        let constant = mask(width) & if same { reference(&steps, base) } else { constant };
        let a = solver.exprs.truncate(whole, width);
        let b = if kind == Kind::Logic { 0 } else { constant };
        let b = solver.exprs.constant(b);
        let current = solver.sets.interval(base & !0xff, base | 0xff);
        let comparison = Comparison::Flags { kind, a, b, width };
        let outcome = solver.decide(condition, &comparison, arm, &|_| current);
        let near = (0..256).map(|i| (base & !0xff) + i);
        // Exact answers hold everywhere, enumerated ones within `current`.
        for code in near {
            let value = reference(&steps, code);
            let rhs = if kind == Kind::Logic { 0 } else { constant };
            let expected = holds(kind, condition, value, rhs, width, arm).unwrap();
            match &outcome {
                Outcome::Always => prop_assert!(expected, "{code:#x}"),
                Outcome::Never => prop_assert!(!expected, "{code:#x}"),
                Outcome::Splits { taken, other } => {
                    let (taken, other) = (taken[0].set, other[0].set);
                    prop_assert_eq!(solver.sets.contains(taken, code), expected, "{:#x} -> {:#x}", code, value);
                    prop_assert_eq!(solver.sets.contains(other, code), !expected, "{:#x}", code);
                }
                Outcome::Free | Outcome::Lost => prop_assert!(false, "256 values are enumerable: {outcome:?}"),
            }
        }
        // The whole space, where the answer did not need `current`.
        let full = solver.decide(condition, &comparison, arm, &|_| Set::ALL);
        for code in probes.into_iter().chain([base]) {
            let value = reference(&steps, code);
            let rhs = if kind == Kind::Logic { 0 } else { constant };
            let expected = holds(kind, condition, value, rhs, width, arm).unwrap();
            match &full {
                Outcome::Always => prop_assert!(expected, "{code:#x}"),
                Outcome::Never => prop_assert!(!expected, "{code:#x}"),
                Outcome::Splits { taken, .. } => {
                    prop_assert_eq!(solver.sets.contains(taken[0].set, code), expected, "full {:#x}", code);
                }
                Outcome::Free | Outcome::Lost => {}
            }
        }
    }
}

/// The rows of spec 40 section 3.3's table that must be exact over all 2^32 codes.
#[test]
fn bijections_and_rotations_are_exact() {
    let constants = |_: u64, _: u8| None;
    let cases: [(&[Step], Condition, u64, u64); 6] = [
        // A chain of bijections with equality: one preimage.
        (
            &[Step::Binary(Op::Mul, 32, 0x9e37_79b1), Step::Binary(Op::Xor, 32, 0xdead_beef)],
            Condition::Equal,
            0x1111_1111,
            1,
        ),
        // A rotated interval.
        (&[Step::Binary(Op::Sub, 32, 0x22_2003)], Condition::BelowOrEqual, 0x24, 0x25),
        // A signed pivot above 0x80000000.
        (&[], Condition::Less, 0x9c40_2580, 0x1c40_2580),
        // A rotate with an unsigned bound.
        (
            &[Step::Binary(Op::Sub, 32, 0x22_2003), Step::Binary(Op::RotateRight, 32, 2)],
            Condition::BelowOrEqual,
            10,
            11,
        ),
        // A mask.
        (&[Step::Binary(Op::And, 32, 0xffff_0000)], Condition::Equal, 0x22_0000, 0x1_0000),
        // A shift.
        (&[Step::Binary(Op::ShiftRight, 32, 2)], Condition::Equal, 0x8_8800, 4),
    ];
    for (steps, condition, constant, count) in cases {
        let mut solver = Solver::new(64, &constants);
        let a = build(&mut solver, steps);
        let b = solver.exprs.constant(constant);
        let comparison = Comparison::Flags { kind: Kind::Subtract, a, b, width: 32 };
        let Outcome::Splits { taken, other } = solver.decide(condition, &comparison, false, &|_| Set::ALL)
        else {
            panic!("{steps:?} {condition:?} is not exact")
        };
        assert_eq!(solver.sets.count(taken[0].set), count, "{steps:?} {condition:?}");
        assert_eq!(solver.sets.count(other[0].set), (1 << 32) - count);
    }
}
