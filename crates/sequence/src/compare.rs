//! Two sequences compared: where they first differ, and what each did that the other did not, aligned by calls.
//!
//! From a difference on, both sequences are in the same frames, since all before was equal. What each executes in the innermost frame to
//! its end is a list of units: paths of that frame, and whole calls. The lists are aligned (E. W. Myers, "An O(ND) difference algorithm
//! and its variations", Algorithmica 1986); of what is left over, calls of the same function stand for each other, in order, and are
//! compared in turn. Behind the frame the comparison goes on. So one more iteration or one changed call is one small difference, however
//! long the execution is.
//!
//! Equal stretches, calls among them, are known by their fingerprints ([`crate::grammar::Fingerprints`]) and never expanded. Of a long
//! frame, [`MOST_UNITS`] units are aligned at a time, up to the longest stretch that both have; from there the comparison
//! goes on. If they have none in common, the rest of the frame is one difference.

use crate::events::{Classify, EventClass};
use crate::grammar::{Fingerprint, Fingerprints, Frames, Grammar, common_extension};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::HashMap;
use std::ops::Range;

/// The most units of a frame that are aligned at a time.
pub const MOST_UNITS: usize = 2000;

/// Stretches of two sequences that stand in the same place and differ. One of them may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceDifference {
    /// Positions in the left sequence.
    pub left: Range<u64>,
    /// Positions in the right sequence.
    pub right: Range<u64>,
    /// Whether units were aligned; if not, the stretches may have equal parts.
    pub aligned: bool,
}

/// The position at which two sequences first differ, which is the same in both; `None` if they are equal.
pub fn first_difference(left: &Fingerprints, right: &Fingerprints) -> Option<u64> {
    let equal = common_extension(left, 0, right, 0);
    (equal < left.grammar().len() || equal < right.grammar().len()).then_some(equal)
}

/// The differences, at most `most`, in order.
pub fn differences(left: &Grammar, right: &Grammar, classify: &impl Classify, most: usize) -> Vec<SequenceDifference> {
    let mut comparison = Comparison {
        left: Side { fingerprints: Fingerprints::new(left), frames: Frames::new(left, classify), grammar: left },
        right: Side { fingerprints: Fingerprints::new(right), frames: Frames::new(right, classify), grammar: right },
        most,
        differences: Vec::new(),
    };
    comparison.compare(0..left.len(), 0..right.len());
    comparison.differences
}

struct Side<'a> {
    grammar: &'a Grammar,
    fingerprints: Fingerprints<'a>,
    frames: Frames<'a>,
}

/// A path of a frame, or a whole call.
struct Unit {
    stretch: Range<u64>,
    fingerprint: Fingerprint,
    /// The `Enter` symbol of a call.
    call: Option<u64>,
}

struct Comparison<'a> {
    left: Side<'a>,
    right: Side<'a>,
    most: usize,
    differences: Vec<SequenceDifference>,
}

impl Comparison<'_> {
    /// Compares two stretches that begin in the same frame. Work to do is kept in a list, since calls nest deeply.
    fn compare(&mut self, left: Range<u64>, right: Range<u64>) {
        let mut open = vec![(left, right)];
        while let Some((left, right)) = open.pop() {
            if self.differences.len() >= self.most {
                return;
            }
            let most = (left.end - left.start).min(right.end - right.start);
            let equal = common_extension(&self.left.fingerprints, left.start, &self.right.fingerprints, right.start).min(most);
            let (from_left, from_right) = (left.start + equal, right.start + equal);
            if from_left == left.end && from_right == right.end {
                continue;
            }
            let end_left = self.left.frames.frame_end(from_left).min(left.end);
            let end_right = self.right.frames.frame_end(from_right).min(right.end);
            // Behind the frame; taken up when the frame's own differences are done.
            if (end_left, end_right) != (left.end, right.end) {
                open.push((end_left..left.end, end_right..right.end));
            }
            let mut inner = self.align(from_left..end_left, from_right..end_right);
            inner.reverse();
            open.extend(inner);
        }
    }

    /// Differences of the rest of a frame: whole units at once, and pairs of stretches that are still to be compared.
    fn align(&mut self, left: Range<u64>, right: Range<u64>) -> Vec<(Range<u64>, Range<u64>)> {
        let (a, b) = (self.left.units(left.clone()), self.right.units(right.clone()));
        let keys = |units: &[Unit]| units.iter().map(|unit| unit.fingerprint).collect::<Vec<_>>();
        let mut operations = capture_diff_slices(Algorithm::Myers, &keys(&a), &keys(&b));
        let start = |units: &[Unit], index: usize, end: u64| units.get(index).map_or(end, |unit| unit.stretch.start);
        let mut rest = None;
        if !reaches(&a, left.end) || !reaches(&b, right.end) {
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
            self.pair(&a[old], &b[new], at, &mut inner);
        }
        inner.extend(rest);
        inner
    }

    /// Units that are not equal: calls of the same function are pairs, what lies between pairs differs.
    fn pair(&mut self, left: &[Unit], right: &[Unit], at: (u64, u64), inner: &mut Vec<(Range<u64>, Range<u64>)>) {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, call) in right.iter().enumerate().filter_map(|(place, unit)| Some((place, unit.call?))) {
            places.entry(call).or_default().push(place);
        }
        let (mut left_at, mut right_at, mut position) = (0, 0, at);
        for (place, unit) in left.iter().enumerate() {
            let Some(partners) = unit.call.and_then(|call| places.get(&call)) else { continue };
            let Some(&partner) = partners.get(partners.partition_point(|partner| *partner < right_at)) else { continue };
            self.note(&left[left_at..place], &right[right_at..partner], position);
            let (a, b) = (&unit.stretch, &right[partner].stretch);
            inner.push((a.start + 1..a.end, b.start + 1..b.end));
            (left_at, right_at, position) = (place + 1, partner + 1, (a.end, b.end));
        }
        self.note(&left[left_at..], &right[right_at..], position);
    }

    fn note(&mut self, left: &[Unit], right: &[Unit], at: (u64, u64)) {
        if left.is_empty() && right.is_empty() {
            return;
        }
        let stretch = |units: &[Unit], at: u64| units.first().map_or(at, |u| u.stretch.start)..units.last().map_or(at, |u| u.stretch.end);
        self.differences.push(SequenceDifference { left: stretch(left, at.0), right: stretch(right, at.1), aligned: true });
    }
}

/// Whether the units are all of a stretch that ends there.
fn reaches(units: &[Unit], end: u64) -> bool {
    units.len() < MOST_UNITS || units.last().is_some_and(|unit| unit.stretch.end >= end)
}

impl Side<'_> {
    /// The first units of a stretch of one frame.
    fn units(&self, stretch: Range<u64>) -> Vec<Unit> {
        let mut units = Vec::new();
        let mut at = stretch.start;
        while at < stretch.end && units.len() < MOST_UNITS {
            let is_call = self.frames.class_at(at) == Some(EventClass::Enter);
            let end = if is_call { (self.frames.frame_end(at + 1) + 1).min(stretch.end) } else { at + 1 };
            let call = is_call.then(|| self.grammar.at(at)).flatten();
            units.push(Unit { stretch: at..end, fingerprint: self.fingerprints.stretch(at, end), call });
            at = end;
        }
        units
    }
}
