//! Spec 20 section 3.6, a row a test, over memory that counts its reads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;

use analysis_walk::{Field, Node, Nodes, Plan, Stopped, Walk, walk};
use proptest::prelude::*;
use target::{Memory, ReadOutcome, RegionMemory, Space, Stop, Unreadable};

/// Memory that counts how often it was asked.
struct Counted {
    memory: RegionMemory,
    reads: Cell<usize>,
    /// After this many reads every further one runs into the deadline.
    cut_after: usize,
}

impl Memory for Counted {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() > self.cut_after {
            return ReadOutcome::stopped(0, Unreadable::Deadline);
        }
        self.memory.read(space, address, buffer)
    }
}

fn counted(regions: &[(u64, Vec<u8>)]) -> Counted {
    let mut memory = RegionMemory::new();
    for (address, bytes) in regions {
        memory.add(*address, bytes.clone());
    }
    Counted { memory, reads: Cell::new(0), cut_after: usize::MAX }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Nodes of one link each: `(address, next)`.
fn linked(nodes: &[(u64, u64)]) -> Counted {
    counted(&nodes.iter().map(|(at, next)| (*at, words(&[*next]))).collect::<Vec<_>>())
}

const POINTER: Field = Field { offset: 0, size: 8 };

fn plan(nodes: Nodes, fields: &[Field]) -> Plan {
    Plan { nodes, fields: fields.to_vec(), pointer_size: 8 }
}

fn chain(start: u64, stop_at: Option<u64>, count: usize) -> Plan {
    plan(Nodes::Chain { start, link: 0, stop_at, count }, &[])
}

fn run(plan: &Plan, memory: &Counted) -> Walk {
    walk(plan, memory, &|| None)
}

fn addresses(walk: &Walk) -> Vec<u64> {
    walk.nodes.iter().map(|node| node.address).collect()
}

#[test]
fn a_list_with_a_hole() {
    let memory = counted(&[(0x1000, words(&[1])), (0x3000, words(&[3]))]);
    let walk = run(&plan(Nodes::List(vec![0x1000, 0x2000, 0x3000]), &[POINTER]), &memory);
    assert_eq!((walk.nodes.len(), walk.unreadable, walk.stopped), (3, 1, Stopped::Complete));
    assert_eq!(walk.nodes[1], Node { address: 0x2000, next: None, values: vec![None] });
    assert_eq!(walk.nodes[2].values, [Some(3)]);
    assert_eq!((memory.reads.get(), walk.note), (3, None));
}

#[test]
fn an_array_with_a_hole_in_the_middle() {
    let memory = counted(&[(0x1000, words(&[1])), (0x1010, words(&[3]))]);
    let walk = run(&plan(Nodes::Array { start: 0x1000, stride: 8, count: 3 }, &[POINTER]), &memory);
    assert_eq!(addresses(&walk), [0x1000, 0x1008, 0x1010]);
    assert_eq!((walk.unreadable, walk.stopped), (1, Stopped::Complete));
    assert_eq!(walk.nodes[1].values, [None]);
}

#[test]
fn an_array_of_stride_minus_8_descends() {
    let memory = counted(&[(0x0ff0, words(&[3, 2, 1]))]);
    let walk = run(&plan(Nodes::Array { start: 0x1000, stride: -8, count: 3 }, &[POINTER]), &memory);
    assert_eq!(addresses(&walk), [0x1000, 0x0ff8, 0x0ff0]);
    assert_eq!(walk.nodes[2].values, [Some(3)]);
}

#[test]
fn a_chain_into_unmapped_memory() {
    let walk = run(&chain(0x1000, None, 64), &linked(&[(0x1000, 0x2000)]));
    assert_eq!((walk.nodes.len(), walk.stopped), (2, Stopped::UnreadableLink { at: 0x2000 }));
    assert_eq!((walk.nodes[1].next, walk.unreadable), (None, 1));
}

#[test]
fn a_chain_ending_in_null_also_exactly_at_the_count() {
    let memory = linked(&[(0x1000, 0x2000), (0x2000, 0)]);
    for count in [2, 64] {
        let walk = run(&chain(0x1000, None, count), &memory);
        assert_eq!((walk.nodes.len(), walk.stopped), (2, Stopped::NullLink), "{count}");
    }
}

#[test]
fn a_chain_that_runs_back_into_its_middle() {
    let memory = linked(&[(0x1000, 0x2000), (0x2000, 0x3000), (0x3000, 0x2000)]);
    let walk = run(&chain(0x1000, None, 64), &memory);
    assert_eq!((walk.nodes.len(), walk.stopped), (3, Stopped::Loop { at: 0x2000 }));
}

#[test]
fn a_circular_list_closes_on_its_first_node() {
    let memory = linked(&[(0x1000, 0x2000), (0x2000, 0x1000)]);
    assert_eq!(run(&chain(0x1000, None, 64), &memory).stopped, Stopped::Loop { at: 0x1000 });
    let alone = linked(&[(0x1000, 0x1000)]);
    assert_eq!(run(&chain(0x1000, None, 1), &alone).stopped, Stopped::Loop { at: 0x1000 });
}

#[test]
fn a_circular_list_with_stop_at() {
    let memory = linked(&[(0x1000, 0x2000), (0x2000, 0x3000), (0x3000, 0x1000)]);
    let walk = run(&chain(0x2000, Some(0x1000), 64), &memory);
    assert_eq!(addresses(&walk), [0x2000, 0x3000]);
    assert_eq!(walk.stopped, Stopped::StopAddress { at: 0x1000 });
}

#[test]
fn an_empty_list_has_no_nodes() {
    let memory = linked(&[]);
    let head = run(&chain(0x1000, Some(0x1000), 64), &memory);
    assert_eq!((head.nodes.len(), head.stopped), (0, Stopped::StopAddress { at: 0x1000 }));
    let null = run(&chain(0, None, 64), &memory);
    assert_eq!((null.nodes.len(), null.stopped, memory.reads.get()), (0, Stopped::NullLink, 0));
}

#[test]
fn a_chain_of_3_and_a_count_of_2() {
    let memory = linked(&[(0x1000, 0x2000), (0x2000, 0x3000), (0x3000, 0)]);
    let walk = run(&chain(0x1000, None, 2), &memory);
    assert_eq!((walk.nodes.len(), walk.stopped), (2, Stopped::Cap { next: 0x3000 }));
}

#[test]
fn fields_at_10_and_20_in_one_mapping_are_one_read() {
    let memory = counted(&[(0x1000, words(&[0, 0, 0x11, 0, 0x22]))]);
    let fields = [Field { offset: 0x10, size: 8 }, Field { offset: 0x20, size: 8 }];
    let walk = run(&plan(Nodes::List(vec![0x1000]), &fields), &memory);
    assert_eq!(walk.nodes[0].values, [Some(0x11), Some(0x22)]);
    assert_eq!(memory.reads.get(), 1);
}

#[test]
fn fields_0_and_100_with_the_tail_unmapped() {
    let memory = counted(&[(0x1000, words(&[7]))]);
    let fields = [POINTER, Field { offset: 0x100, size: 8 }];
    let walk = run(&plan(Nodes::List(vec![0x1000]), &fields), &memory);
    assert_eq!((&walk.nodes[0].values, walk.unreadable), (&vec![Some(7), None], 0));
    assert_eq!(memory.reads.get(), 3);
}

#[test]
fn fields_further_apart_than_a_page_are_read_alone() {
    let memory = counted(&[(0x1000, words(&[7])), (0x3000, words(&[8]))]);
    let fields = [POINTER, Field { offset: 0x2000, size: 8 }];
    let walk = run(&plan(Nodes::List(vec![0x1000]), &fields), &memory);
    assert_eq!((&walk.nodes[0].values, memory.reads.get()), (&vec![Some(7), Some(8)], 2));
}

#[test]
fn sizes_1_2_4_over_78_56_34_12() {
    let memory = counted(&[(0x1000, vec![0x78, 0x56, 0x34, 0x12])]);
    let fields = [1, 2, 4].map(|size| Field { offset: 0, size });
    let walk = run(&plan(Nodes::List(vec![0x1000]), &fields), &memory);
    assert_eq!(walk.nodes[0].values, [Some(0x78), Some(0x5678), Some(0x1234_5678)]);
}

#[test]
fn a_pointer_size_of_4_reads_links_of_4_bytes_and_wraps_there() {
    let memory = counted(&[(0x1000, vec![0, 0x20, 0, 0]), (0x2000, vec![0; 4])]);
    let four = |start, link| Plan {
        nodes: Nodes::Chain { start, link, stop_at: None, count: 64 },
        fields: Vec::new(),
        pointer_size: 4,
    };
    let walk = run(&four(0x1000, 0), &memory);
    assert_eq!((addresses(&walk), walk.stopped), (vec![0x1000, 0x2000], Stopped::NullLink));
    let low = counted(&[(0x8, vec![0; 4])]);
    assert_eq!(run(&four(0xffff_fff8, 0x10), &low).stopped, Stopped::NullLink);
}

#[test]
fn an_interrupt_after_2_nodes_of_3() {
    let memory = counted(&[(0x1000, words(&[1, 2, 3]))]);
    let polls = Cell::new(0);
    let halt = || {
        polls.set(polls.get() + 1);
        (polls.get() > 2).then_some(Stop::Interrupted)
    };
    let plan = plan(Nodes::Array { start: 0x1000, stride: 8, count: 3 }, &[POINTER]);
    let walk = walk(&plan, &memory, &halt);
    assert_eq!((walk.nodes.len(), memory.reads.get()), (2, 2));
    assert_eq!(walk.stopped, Stopped::Halted { why: Stop::Interrupted, next: 0x1010, index: 2 });
}

#[test]
fn a_break_during_the_last_read_cut_nothing() {
    let memory = counted(&[(0x1000, words(&[1, 2]))]);
    let halt = || (memory.reads.get() >= 2).then_some(Stop::Interrupted);
    let walk = walk(&plan(Nodes::List(vec![0x1000, 0x1008]), &[POINTER]), &memory, &halt);
    assert_eq!((walk.nodes.len(), walk.stopped), (2, Stopped::Complete));
}

#[test]
fn a_read_that_ran_out_of_time_says_nothing_of_its_node() {
    let mut memory = counted(&[(0x1000, words(&[1, 2, 3]))]);
    memory.cut_after = 1;
    let fields = [POINTER, Field { offset: 4, size: 4 }];
    let walk = run(&plan(Nodes::Array { start: 0x1000, stride: 8, count: 2 }, &fields), &memory);
    assert_eq!((walk.nodes.len(), walk.unreadable), (1, 0));
    assert_eq!(walk.stopped, Stopped::Halted { why: Stop::Deadline, next: 0x1008, index: 1 });
}

#[test]
fn when_nothing_reads_the_first_failure_is_told() {
    let memory = counted(&[]);
    let walk = run(&plan(Nodes::List(vec![0x1000, 0x2000]), &[POINTER]), &memory);
    assert_eq!(walk.unreadable, 2);
    assert_eq!(walk.note.unwrap().address, 0x1000);
}

#[test]
fn a_link_counts_as_readable() {
    let memory = linked(&[(0x1000, 0)]);
    let mut plan = chain(0x1000, None, 64);
    plan.fields = vec![Field { offset: 0x800, size: 8 }];
    let walk = run(&plan, &memory);
    assert_eq!((walk.unreadable, &walk.nodes[0].values, walk.nodes[0].next), (0, &vec![None], Some(0)));
}

proptest! {
    /// Whatever is asked of whatever memory: bounded rows, bounded reads, no panic.
    #[test]
    fn any_walk_ends(
        bytes in prop::collection::vec(any::<u8>(), 0..512),
        start in any::<u64>(),
        step in any::<i64>(),
        offsets in prop::collection::vec((any::<i64>(), prop::sample::select(vec![1_u8, 2, 4, 8])), 0..16),
        pointer_size in prop::sample::select(vec![4_u8, 8]),
        count in 1_usize..2000,
        kind in 0..3,
    ) {
        let memory = counted(&[(start & 0xffff_f000, bytes)]);
        let nodes = match kind {
            0 => Nodes::List(vec![start; count]),
            1 => Nodes::Array { start, stride: step, count },
            _ => Nodes::Chain { start, link: step, stop_at: None, count },
        };
        let fields: Vec<Field> = offsets.iter().map(|(offset, size)| Field { offset: *offset, size: *size }).collect();
        let (columns, plan) = (fields.len(), Plan { nodes, fields, pointer_size });
        let walk = run(&plan, &memory);
        prop_assert!(walk.nodes.len() <= analysis_walk::MOST_NODES);
        prop_assert!(memory.reads.get() <= walk.nodes.len() * (columns + 2));
        prop_assert!(walk.nodes.iter().all(|node| node.values.len() == columns));
    }
}
