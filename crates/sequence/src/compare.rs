//! Compares two sequences of calls and paths: finds the first difference, or all differences, aligned by calls.
//!
//! At a difference, both sequences are in the same call frames. In each sequence, the rest of the innermost frame is a list of units, which
//! are the frame's own paths and its complete calls. The two lists are aligned (E. W. Myers, "An O(ND) difference algorithm and its
//! variations", Algorithmica 1986). Among the units that have no equal counterpart, calls of the same function are paired in order and
//! compared recursively. The comparison then continues after the frame.
//!
//! An additional iteration or a changed call is therefore one small difference. Equal ranges are skipped by fingerprint, without expanding
//! them.

use crate::events::{Classify, EventClass};
use crate::grammar::{Fingerprint, Fingerprints, Grammar, RuleFrameEffects, common_extension};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of units that are aligned at a time. If a frame has more units, the alignment is used up to its longest common run, and
/// the rest of the frame is aligned next. If there is no common run, the rest of the frame is one difference.
pub const MAX_ALIGNED_UNITS: usize = 2000;

/// Differing ranges at corresponding positions of two sequences. One of them may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceDifference {
    /// Positions in the left sequence.
    pub left: Range<u64>,
    /// Positions in the right sequence.
    pub right: Range<u64>,
    /// True if the ranges consist of units that were aligned. If false, they were not aligned and may have common parts.
    pub aligned: bool,
}

/// Returns the position of the first difference between two sequences; `None` if they are equal.
pub fn first_difference(left: &Fingerprints, right: &Fingerprints) -> Option<u64> {
    let equal = common_extension(left, 0, right, 0);
    (equal < left.grammar().len() || equal < right.grammar().len()).then_some(equal)
}

/// Returns the differences. Stops once there are at least `limit`, so there may be a few more. The differences inside the calls that a
/// frame makes come after those of the frame itself.
pub fn differences(left: &Grammar, right: &Grammar, classify: &impl Classify, limit: usize) -> Vec<SequenceDifference> {
    let mut comparison = SequenceComparison {
        left: ComparedSide { fingerprints: Fingerprints::new(left), frames: RuleFrameEffects::new(left, classify), grammar: left },
        right: ComparedSide { fingerprints: Fingerprints::new(right), frames: RuleFrameEffects::new(right, classify), grammar: right },
        limit,
        differences: Vec::new(),
    };
    comparison.compare_ranges(0..left.len(), 0..right.len());
    comparison.differences
}

struct ComparedSide<'a> {
    grammar: &'a Grammar,
    fingerprints: Fingerprints<'a>,
    frames: RuleFrameEffects<'a>,
}

/// A unit of the alignment: a path of the frame, or a complete call that the frame makes.
struct ComparedUnit {
    range: Range<u64>,
    fingerprint: Fingerprint,
    /// The `Enter` symbol of a call; `None` for a path.
    call: Option<u64>,
}

struct SequenceComparison<'a> {
    left: ComparedSide<'a>,
    right: ComparedSide<'a>,
    limit: usize,
    differences: Vec<SequenceDifference>,
}

impl SequenceComparison<'_> {
    /// Compares two ranges that begin in the same frame. Calls can be deeply nested, so the function uses an explicit stack instead of
    /// recursion.
    fn compare_ranges(&mut self, left: Range<u64>, right: Range<u64>) {
        let mut open = vec![(left, right)];
        while let Some((left, right)) = open.pop() {
            if self.differences.len() >= self.limit {
                return;
            }
            let limit = (left.end - left.start).min(right.end - right.start);
            let equal = common_extension(&self.left.fingerprints, left.start, &self.right.fingerprints, right.start).min(limit);
            let (from_left, from_right) = (left.start + equal, right.start + equal);
            if from_left == left.end && from_right == right.end {
                continue;
            }
            let end_left = self.left.frames.frame_end(from_left).min(left.end);
            let end_right = self.right.frames.frame_end(from_right).min(right.end);
            // What follows the frame is pushed before the frame's contents, so that it is compared after them.
            if (end_left, end_right) != (left.end, right.end) {
                open.push((end_left..left.end, end_right..right.end));
            }
            let mut inner = self.align_units_of_frames(from_left..end_left, from_right..end_right);
            inner.reverse();
            open.extend(inner);
        }
    }

    /// Aligns the rest of a frame and records the units that differ. Returns pairs of ranges that remain to be compared.
    fn align_units_of_frames(&mut self, left: Range<u64>, right: Range<u64>) -> Vec<(Range<u64>, Range<u64>)> {
        let (a, b) = (self.left.first_units_of_range(left.clone()), self.right.first_units_of_range(right.clone()));
        let keys = |units: &[ComparedUnit]| units.iter().map(|unit| unit.fingerprint).collect::<Vec<_>>();
        let mut operations = capture_diff_slices(Algorithm::Myers, &keys(&a), &keys(&b));
        let start = |units: &[ComparedUnit], index: usize, end: u64| units.get(index).map_or(end, |unit| unit.range.start);
        let mut rest = None;
        if !do_units_reach(&a, left.end) || !do_units_reach(&b, right.end) {
            let equal = |operation: &DiffOp| if matches!(operation, DiffOp::Equal { .. }) { operation.old_range().len() } else { 0 };
            let anchor = (0..operations.len()).rev().max_by_key(|index| equal(&operations[*index]));
            let Some(anchor) = anchor.filter(|index| equal(&operations[*index]) > 0) else {
                self.differences.push(SequenceDifference { left, right, aligned: false });
                return Vec::new();
            };
            let (old, new) = (operations[anchor].old_range(), operations[anchor].new_range());
            rest = Some((start(&a, old.start, left.end)..left.end, start(&b, new.start, right.end)..right.end));
            operations.truncate(anchor);
        }
        let mut inner = Vec::new();
        for operation in operations.iter().filter(|operation| !matches!(operation, DiffOp::Equal { .. })) {
            let (old, new) = (operation.old_range(), operation.new_range());
            let at = (start(&a, old.start, left.end), start(&b, new.start, right.end));
            self.pair_calls_of_same_function(&a[old], &b[new], at, &mut inner);
        }
        inner.extend(rest);
        inner
    }

    /// Pairs calls of the same function among the units without an equal counterpart, and records the units between the pairs as
    /// differences.
    fn pair_calls_of_same_function(
        &mut self,
        left: &[ComparedUnit],
        right: &[ComparedUnit],
        at: (u64, u64),
        inner: &mut Vec<(Range<u64>, Range<u64>)>,
    ) {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, call) in right.iter().enumerate().filter_map(|(place, unit)| Some((place, unit.call?))) {
            places.entry(call).or_default().push(place);
        }
        let (mut left_at, mut right_at, mut position) = (0, 0, at);
        for (place, unit) in left.iter().enumerate() {
            let Some(partners) = unit.call.and_then(|call| places.get(&call)) else { continue };
            let Some(&partner) = partners.get(partners.partition_point(|partner| *partner < right_at)) else { continue };
            self.push_difference(&left[left_at..place], &right[right_at..partner], position);
            let (a, b) = (&unit.range, &right[partner].range);
            inner.push((a.start + 1..a.end, b.start + 1..b.end));
            (left_at, right_at, position) = (place + 1, partner + 1, (a.end, b.end));
        }
        self.push_difference(&left[left_at..], &right[right_at..], position);
    }

    fn push_difference(&mut self, left: &[ComparedUnit], right: &[ComparedUnit], at: (u64, u64)) {
        if left.is_empty() && right.is_empty() {
            return;
        }
        let range = |units: &[ComparedUnit], at: u64| units.first().map_or(at, |u| u.range.start)..units.last().map_or(at, |u| u.range.end);
        self.differences.push(SequenceDifference { left: range(left, at.0), right: range(right, at.1), aligned: true });
    }
}

fn do_units_reach(units: &[ComparedUnit], end: u64) -> bool {
    units.len() < MAX_ALIGNED_UNITS || units.last().is_some_and(|unit| unit.range.end >= end)
}

impl ComparedSide<'_> {
    /// Returns the first [`MAX_ALIGNED_UNITS`] units of a range within one frame.
    fn first_units_of_range(&self, range: Range<u64>) -> Vec<ComparedUnit> {
        let mut units = Vec::new();
        let mut at = range.start;
        while at < range.end && units.len() < MAX_ALIGNED_UNITS {
            let is_call = self.frames.class_at(at) == Some(EventClass::Enter);
            let end = if is_call { (self.frames.frame_end(at + 1) + 1).min(range.end) } else { at + 1 };
            let call = is_call.then(|| self.grammar.at(at)).flatten();
            units.push(ComparedUnit { range: at..end, fingerprint: self.fingerprints.range(at, end), call });
            at = end;
        }
        units
    }
}
