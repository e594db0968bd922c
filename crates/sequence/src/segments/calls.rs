//! Call segments. Each has at most 4 k + 1 symbols, because each call in it adds at most four: `Enter`, the callee's first subpath,
//! `Leave`, and the subpath after the call. The segments are found among the short strings at boundaries between grammar items. Time and
//! memory are O(items x k).

use super::{MAX_SEGMENT_DEPTH, SymbolStringCounts};
use crate::SequenceError;
use crate::crossing::BoundaryTexts;
use crate::events::{CallRecordingConvention, Classify, EventClass, SubpathEnd, classify_terminals};
use crate::grammar::Grammar;
use std::collections::HashMap;

/// Counts the call segments of depth `k`, as defined by the example in Vaswani's section 3.4.2. Each executed call starts one segment,
/// which begins with the subpath that ends at the call. If there is no such subpath, the segment begins with the call's `Enter`; under
/// [`CallRecordingConvention::Subpaths`], the call then starts none. A segment ends before call k + 1, nested or not, after a subpath that
/// ends at a back edge, or before its first frame is left. Calls to functions that record no events count towards `k`, but start no
/// segment. `k` must be from 1 to [`MAX_SEGMENT_DEPTH`].
pub fn call_segments(
    grammar: &Grammar,
    classify: &impl Classify,
    convention: CallRecordingConvention,
    k: usize,
) -> Result<SymbolStringCounts, SequenceError> {
    if k == 0 || k > MAX_SEGMENT_DEPTH {
        return Err(SequenceError::invalid_parameter("depth of call segments", k, "1 to 100"));
    }
    let classes = classify_terminals(grammar, classify);
    let class = |terminal: u32| classes[terminal as usize];
    // One more symbol before the segment is needed, to determine whether a subpath led to the call.
    let length = 4 * k + 2;
    let mut counts: HashMap<Vec<u32>, u64> = HashMap::new();
    let mut count_segment = |before: Option<u32>, window: &[u32], occurrences: u64| {
        if let Some(end) = find_segment_end(before, window, convention, k, &class) {
            *counts.entry(window[..end].to_vec()).or_default() += occurrences;
        }
    };
    BoundaryTexts::new(grammar, length).for_each(length, |text, occurrences| count_segment(Some(text[0]), &text[1..], occurrences));
    // The start and the end of the sequence need separate treatment: the first symbol has no predecessor, and the last windows are shorter.
    let head: Vec<u32> = grammar.terminal_ids(grammar.root(), 0).take(length - 1).map(|t| t.0).collect();
    count_segment(None, &head, 1);
    let first = grammar.len().saturating_sub(length as u64 - 1);
    let tail: Vec<u32> = grammar.terminal_ids(grammar.root(), first).map(|t| t.0).collect();
    (1..tail.len()).for_each(|start| count_segment(Some(tail[start - 1]), &tail[start..], 1));
    Ok(counts.into_iter().map(|(segment, count)| (segment.iter().map(|t| grammar.terminals()[*t as usize]).collect(), count)).collect())
}

/// Computes the call segments from the supergraph paths of the same depth. This is possible because the segment of a call that the root
/// makes lies within one supergraph path. The converse does not hold, because the events before a segment's call are not part of the
/// segment.
pub fn call_segments_in_paths(
    paths: &SymbolStringCounts,
    classify: &impl Classify,
    convention: CallRecordingConvention,
    k: usize,
) -> SymbolStringCounts {
    let mut counts = SymbolStringCounts::new();
    for (path, count) in paths {
        let mut depth = starting_call_depth(path, classify);
        for (start, symbol) in path.iter().enumerate() {
            let before = start.checked_sub(1).map(|before| &path[before]);
            if depth == 0
                && let Some(end) = find_segment_end(before.copied(), &path[start..], convention, k, &|symbol| classify.class(symbol))
            {
                *counts.entry(path[start..start + end].to_vec()).or_default() += count;
            }
            depth += depth_change(classify.class(*symbol));
        }
    }
    counts
}

/// Returns the depth below the root at which a supergraph path begins. It is positive if the path begins in a callee and returns.
fn starting_call_depth(path: &[u64], classify: &impl Classify) -> i64 {
    let depths = path.iter().scan(0, |depth, symbol| {
        *depth += depth_change(classify.class(*symbol));
        Some(*depth)
    });
    -depths.min().unwrap_or(0).min(0)
}

fn depth_change(class: EventClass) -> i64 {
    match class {
        EventClass::Enter => 1,
        EventClass::Leave => -1,
        EventClass::Subpath { .. } => 0,
    }
}

/// Returns the length of the segment at the start of `window`; `None` if no segment begins there. `before` is the preceding symbol.
fn find_segment_end<T: Copy>(
    before: Option<T>,
    window: &[T],
    convention: CallRecordingConvention,
    k: usize,
    class: &impl Fn(T) -> EventClass,
) -> Option<usize> {
    let ends_at_call = |class| matches!(class, EventClass::Subpath { end: SubpathEnd::Call, .. });
    let at = |place: usize| window.get(place).map(|symbol| class(*symbol));
    let leads_to_call = |place: usize| at(place).is_some_and(ends_at_call);
    let led_to = before.is_some_and(|symbol| ends_at_call(class(symbol)));
    let begins = match (convention, at(0)?) {
        (CallRecordingConvention::Subpaths | CallRecordingConvention::Prefixes, EventClass::Subpath { .. }) => {
            leads_to_call(0) && at(1) == Some(EventClass::Enter)
        }
        (CallRecordingConvention::Prefixes, EventClass::Enter) => !led_to,
        (CallRecordingConvention::WholePaths, EventClass::Enter) => true,
        _ => false,
    };
    if !begins {
        return None;
    }
    let (mut calls, mut depth, mut place) = (0, 0, 0);
    while let Some(class) = at(place) {
        match class {
            EventClass::Enter => {
                calls += 1;
                depth += 1;
            }
            EventClass::Leave if depth == 0 => break,
            EventClass::Leave => depth -= 1,
            // Two consecutive subpaths, without `Enter` and `Leave` between them, mean that the callee recorded no events.
            EventClass::Subpath { .. } if place > 0 && leads_to_call(place - 1) => calls += 1,
            EventClass::Subpath { .. } => {}
        }
        if calls > k {
            break;
        }
        place += 1;
        if matches!(class, EventClass::Subpath { end: SubpathEnd::BackEdge, .. }) {
            break;
        }
    }
    Some(place)
}
