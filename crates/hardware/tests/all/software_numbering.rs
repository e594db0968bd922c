//! Checks that a detector without a length limit finds the same paths as a software numbering of the control flow graph.
//!
//! Random programs consist of one procedure with consecutive blocks. A block ends with a conditional branch, a jump, an indirect jump, a
//! return, or nothing. An interpreter passes the branches to the detector. The oracle sees only the sequence of blocks. It removes the
//! edges at which the detector's paths end (those of backward branches, taken or not, and of indirect jumps), and then numbers paths as
//! Ball and Larus do (MICRO 1996). Each removed edge is a separate exit. Paths must correspond one to one, with equal counts.

use std::collections::BTreeMap;
use trodden_hardware::{
    Address, BranchKind, CompletedPath, Detector, DetectorParameters, EventCounts, MappingPreset, OperationMapping, PathDescriptor,
    RetiredBranch, StreamEvent,
};

/// A random number generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

#[derive(Clone, Debug)]
enum BlockEnd {
    Straight,
    Conditional(usize),
    Jump(usize),
    Indirect(Vec<usize>),
    Return,
}

const BLOCK_SIZE: u64 = 16;

fn block_address(block: usize) -> u64 {
    0x1000 + block as u64 * BLOCK_SIZE
}

fn random_program(random: &mut Random) -> Vec<BlockEnd> {
    let number = 3 + random.below(14) as usize;
    let mut ends: Vec<BlockEnd> = (0..number - 1)
        .map(|at| {
            let mut any = || random.below(number as u64) as usize;
            let (one, two) = (any(), any());
            match random.below(10) {
                0 => BlockEnd::Straight,
                1 => BlockEnd::Jump(one),
                2 => BlockEnd::Indirect(vec![one, two]),
                3 => BlockEnd::Return,
                // A conditional branch to the next block would have two paths by descriptor, but only one by block sequence.
                _ if one == at + 1 => BlockEnd::Straight,
                _ => BlockEnd::Conditional(one),
            }
        })
        .collect();
    ends.push(BlockEnd::Return);
    ends
}

/// Executes a program. Returns, for each step, the block, whether the path ends with that block, and the branch that the block retires, if
/// any.
fn execute(ends: &[BlockEnd], random: &mut Random) -> Vec<(usize, bool, Option<RetiredBranch>)> {
    let mut steps = Vec::new();
    let mut at = 0;
    for _ in 0..400 {
        let place = block_address(at) + BLOCK_SIZE - 2;
        let branch = |kind, target: u64, is_taken| RetiredBranch {
            address: Address(place),
            target: Address(target),
            fall_through: Address(place + 2),
            kind,
            is_taken,
            instructions: 4,
            stack: None,
        };
        let (next, is_cut, retired) = match &ends[at] {
            BlockEnd::Straight => (at + 1, false, None),
            BlockEnd::Conditional(target) => {
                let is_taken = random.below(2) == 0;
                let next = if is_taken { *target } else { at + 1 };
                (next, *target <= at, Some(branch(BranchKind::Conditional, block_address(*target), is_taken)))
            }
            BlockEnd::Jump(target) => (*target, *target <= at, Some(branch(BranchKind::Jump, block_address(*target), true))),
            BlockEnd::Indirect(targets) => {
                let next = targets[random.below(targets.len() as u64) as usize];
                (next, true, Some(branch(BranchKind::IndirectJump, block_address(next), true)))
            }
            // The procedure returns and is called again.
            BlockEnd::Return => (0, true, Some(branch(BranchKind::Return, 0x100, true))),
        };
        steps.push((at, is_cut, retired));
        at = next;
    }
    steps
}

/// Returns, for each block, the number of paths that start there, and the Ball-Larus increment of each edge at which paths do not end.
fn number_paths(ends: &[BlockEnd]) -> Vec<(u64, BTreeMap<usize, u64>)> {
    let mut numbers: Vec<(u64, BTreeMap<usize, u64>)> = vec![(1, BTreeMap::new()); ends.len()];
    for at in (0..ends.len()).rev() {
        let successors: Vec<usize> = match &ends[at] {
            BlockEnd::Straight => vec![at + 1],
            BlockEnd::Conditional(target) if *target > at + 1 => vec![at + 1, *target],
            BlockEnd::Jump(target) if *target > at => vec![*target],
            _ => vec![],
        };
        if matches!(&ends[at], BlockEnd::Conditional(target) if *target <= at) {
            // Both outcomes of the branch end the path, so two paths start here.
            numbers[at].0 = 2;
            continue;
        }
        let mut sum = 0;
        let mut edges = BTreeMap::new();
        for next in successors {
            edges.insert(next, sum);
            sum += numbers[next].0;
        }
        numbers[at] = (sum.max(1), edges);
    }
    numbers
}

/// Counts the complete paths, identified by their first block and their Ball-Larus number.
fn count_by_software(ends: &[BlockEnd], steps: &[(usize, bool, Option<RetiredBranch>)]) -> BTreeMap<(usize, u64), u64> {
    let numbers = number_paths(ends);
    let mut counts = BTreeMap::new();
    let (mut start, mut number) = (0, 0);
    for (at, pair) in steps.iter().enumerate() {
        let Some(next) = steps.get(at + 1).map(|s| s.0) else { break };
        if pair.1 {
            number += u64::from(pair.2.is_some_and(|b| b.kind == BranchKind::Conditional && b.is_taken));
            *counts.entry((start, number)).or_default() += 1;
            (start, number) = (next, 0);
        } else {
            number += numbers[pair.0].1[&next];
        }
    }
    counts
}

fn count_by_detector(steps: &[(usize, bool, Option<RetiredBranch>)], mapping: OperationMapping) -> BTreeMap<PathDescriptor, u64> {
    let mut detector = Detector::new(DetectorParameters { length_limit: 64, ..DetectorParameters::published(mapping) }).unwrap();
    let mut counts = BTreeMap::new();
    let mut emit = |completed: &CompletedPath| *counts.entry(completed.path).or_default() += 1;
    let none = EventCounts::default();
    let call = RetiredBranch {
        address: Address(0xfe),
        target: Address(block_address(0)),
        fall_through: Address(0x100),
        kind: BranchKind::Call,
        is_taken: true,
        instructions: 1,
        stack: None,
    };
    detector.process_event(&StreamEvent::Begin(Address(0xf0)), &none, &mut emit);
    detector.process_branch(&call, &none, &mut emit);
    for (_, _, branch) in &steps[..steps.len() - 1] {
        let Some(branch) = branch else { continue };
        detector.process_branch(branch, &none, &mut emit);
        if branch.kind == BranchKind::Return {
            detector.process_branch(&call, &none, &mut emit);
        }
    }
    counts
}

#[test]
fn paths_correspond_one_to_one() {
    let mut random = Random(7);
    for number in 0..3000 {
        let ends = random_program(&mut random);
        let steps = execute(&ends, &mut random);
        let expected = count_by_software(&ends, &steps);
        let found = count_by_detector(&steps, OperationMapping::preset(MappingPreset::BallLarus, 1));
        assert_eq!(found.len(), expected.len(), "program {number}: {ends:?}");
        // Both sides have found the same number of paths, so it suffices that each descriptor's Ball-Larus number has the same count.
        let numbers = number_paths(&ends);
        for (path, count) in &found {
            let start = ((path.start.0 - 0x1000) / BLOCK_SIZE) as usize;
            let number = ball_larus_number(&ends, &numbers, start, path);
            assert_eq!(expected.get(&(start, number)), Some(count), "program {number}: {path:?} of {ends:?}");
        }
    }
}

/// Returns the Ball-Larus number of a descriptor's path.
fn ball_larus_number(ends: &[BlockEnd], numbers: &[(u64, BTreeMap<usize, u64>)], start: usize, path: &PathDescriptor) -> u64 {
    let mut outcomes = path.outcomes();
    let (mut at, mut number) = (start, 0);
    loop {
        let next = match &ends[at] {
            BlockEnd::Straight => at + 1,
            BlockEnd::Conditional(target) => match outcomes.next() {
                Some(true) if *target > at => *target,
                Some(false) if *target > at => at + 1,
                outcome => return number + u64::from(outcome == Some(true)),
            },
            BlockEnd::Jump(target) if *target > at => {
                assert_eq!(outcomes.next(), Some(true));
                *target
            }
            _ => return number,
        };
        number += numbers[at].1[&next];
        at = next;
    }
}
