//! Tests interprocedural segments with the example of section 3.4.2, and against naive counts on random executions.

use super::executions::{LEAVE, class, enter, random_execution, subpath};
use crate::CompressionMethod;
use crate::events::CallRecordingConvention::{self, Prefixes, Subpaths, WholePaths};
use crate::events::SubpathEnd::{BackEdge, Call, Return};
use crate::events::{EventClass, SubpathEnd};
use crate::segments::{SymbolStringCounts, call_segments, call_segments_in_paths, supergraph_paths};

#[test]
fn example_of_section_3_4_2_has_four_segments() {
    let [p1, p2, p3] = [(1, 1), (2, 2), (3, 3)].map(|(f, p)| subpath(f, p, Call));
    let [p4, p5, p6] = [(4, BackEdge), (5, BackEdge), (6, Return)].map(|(p, end)| subpath(4, p, end));
    let (p7, p8, p9, p10) = (subpath(3, 7, Call), subpath(5, 8, Return), subpath(3, 9, Return), subpath(2, 10, Return));
    let open = enter;
    let events = [open(1), p1, open(2), p2, open(3), p3, open(4), p4, p5, p6, LEAVE, p7, open(5), p8, LEAVE, p9, LEAVE, p10, LEAVE, LEAVE];
    let expected: SymbolStringCounts =
        [(vec![p1, open(2), p2], 1), (vec![p2, open(3), p3], 1), (vec![p3, open(4), p4], 1), (vec![p7, open(5), p8, LEAVE, p9], 1)].into();
    for method in CompressionMethod::ALL {
        let grammar = method.compress(events).unwrap();
        assert_eq!(call_segments(&grammar, &class, Subpaths, 1).unwrap(), expected);
        let paths = supergraph_paths(&grammar, &class, 1).unwrap();
        assert_eq!(call_segments_in_paths(&paths.counts, &class, Subpaths, 1), expected);
        // In the supergraph of f3, the rest of f4 and the events that follow in f3 are one path.
        assert_eq!(paths.counts[&vec![p6, LEAVE, p7, open(5), p8, LEAVE, p9]], 1);
    }
}

fn subpath_end(symbol: u64) -> Option<SubpathEnd> {
    match class(symbol) {
        EventClass::Subpath { end, .. } => Some(end),
        _ => None,
    }
}

/// Counts the segments by following the one that begins at each call, event by event.
fn naive_call_segments(events: &[u64], convention: CallRecordingConvention, k: usize) -> SymbolStringCounts {
    let mut counts = SymbolStringCounts::new();
    for call in (0..events.len()).filter(|at| class(events[*at]) == EventClass::Enter) {
        let led_to = call > 0 && subpath_end(events[call - 1]) == Some(Call);
        let start = match convention {
            Subpaths if !led_to => continue,
            Subpaths | Prefixes if led_to => call - 1,
            _ => call,
        };
        let (mut frames, mut spanned) = (vec![()], 0);
        let mut segment = Vec::new();
        for (at, event) in events.iter().enumerate().skip(start) {
            let silent_call = at > start && subpath_end(events[at - 1]) == Some(Call) && subpath_end(*event).is_some();
            spanned += usize::from(silent_call || class(*event) == EventClass::Enter);
            match class(*event) {
                EventClass::Enter => frames.push(()),
                EventClass::Leave => drop(frames.pop()),
                EventClass::Subpath { .. } => {}
            }
            if frames.is_empty() || spanned > k {
                break;
            }
            segment.push(*event);
            if subpath_end(*event) == Some(BackEdge) {
                break;
            }
        }
        *counts.entry(segment).or_default() += 1;
    }
    counts
}

/// Counts supergraph paths by simulating all activations. Each activation sees its own events and those of up to k frames below it.
fn naive_supergraph_paths(events: &[u64], k: usize) -> (SymbolStringCounts, Vec<Vec<u64>>) {
    let mut counts = SymbolStringCounts::new();
    let mut roots: Vec<(Vec<u64>, bool)> = vec![Default::default()];
    let mut complete = |(path, is_own): (Vec<u64>, bool)| {
        if is_own {
            *counts.entry(path).or_default() += 1;
        }
    };
    let see = |roots: &mut [(Vec<u64>, bool)], event: u64, deepest: usize| {
        for (distance, (path, is_own)) in roots.iter_mut().rev().enumerate().take(deepest) {
            path.push(event);
            *is_own |= distance == 0;
        }
    };
    for event in events {
        match class(*event) {
            EventClass::Enter => {
                see(&mut roots, *event, k);
                roots.push(Default::default());
            }
            EventClass::Leave => {
                complete(roots.pop().unwrap());
                see(&mut roots, *event, k);
            }
            EventClass::Subpath { end, .. } => {
                see(&mut roots, *event, k + 1);
                if end == BackEdge {
                    roots.iter_mut().rev().take(k + 1).for_each(|root| complete(std::mem::take(root)));
                }
            }
        }
    }
    (counts, roots.into_iter().filter(|root| root.1).map(|root| root.0).collect())
}

#[test]
fn segments_match_the_expanded_sequence() {
    let mut segments = 0;
    for seed in 0..250 {
        let mut events = random_execution(seed, 200);
        events.truncate(if seed % 3 == 0 { events.len() * 2 / 3 } else { events.len() });
        for method in CompressionMethod::ALL {
            let grammar = method.compress(events.iter().copied()).unwrap();
            for k in 0..4 {
                let paths = supergraph_paths(&grammar, &class, k).unwrap();
                let (counts, unfinished) = naive_supergraph_paths(&events, k);
                assert_eq!((&paths.counts, &paths.unfinished, paths.unbegun), (&counts, &unfinished, 0), "seed {seed}, depth {k}");
                if k == 0 {
                    continue;
                }
                for convention in [Subpaths, WholePaths, Prefixes] {
                    let found = call_segments(&grammar, &class, convention, k).unwrap();
                    assert_eq!(found, naive_call_segments(&events, convention, k), "seed {seed}, depth {k}, {convention:?}");
                    segments += found.len();
                    let mut with_unfinished = paths.counts.clone();
                    paths.unfinished.iter().for_each(|path| *with_unfinished.entry(path.clone()).or_default() += 1);
                    assert_eq!(
                        call_segments_in_paths(&with_unfinished, &class, convention, k),
                        found,
                        "seed {seed}, depth {k}, {convention:?}"
                    );
                }
            }
        }
    }
    assert!(segments > 3_000);
}

#[test]
fn paths_that_began_before_the_sequence_are_counted_separately() {
    let events = [subpath(1, 1, Return), LEAVE, subpath(2, 2, Return), LEAVE];
    let grammar = CompressionMethod::Sequitur.compress(events).unwrap();
    let paths = supergraph_paths(&grammar, &class, 0).unwrap();
    // The first frame that the sequence leaves is taken for the thread's own frame.
    assert_eq!((paths.counts.len(), paths.unfinished.len(), paths.unbegun), (1, 0, 1));
    assert!(supergraph_paths(&grammar, &class, 1000).is_err());
    assert!(call_segments(&grammar, &class, Subpaths, 0).is_err());
}
