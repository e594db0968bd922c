//! Divides a set of segments into parts, one for each instrumented copy of a program. A pair of a context and a path has the same count in
//! its part as in the whole set.
//!
//! A part contains some paths of each function, in all contexts of these paths. Its contexts are numbered again from 1. It has a context C
//! if
//! - a segment of the part ends in C, or
//! - C is a suffix of a context of the part, or the caller's own context in one (so that the part has all suffixes), or
//! - a context of the part is a suffix of C (otherwise, the longer chain would be counted as the shorter one).

use super::{SegmentContext, SegmentFunction, SegmentIndex, SegmentSet};
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::{Dag, Numbering, Origin, Plan};

impl SegmentFunction {
    /// Returns the function's acyclic graph and the numbering of its paths; `None` if the data is corrupt.
    pub fn numbered_paths(&self) -> Option<(Dag, Numbering)> {
        let entries = [Entries::Shared, Entries::PerEdge];
        entries.into_iter().find_map(|entries| Plan::cut_and_number_if_same_count(&self.graph, &self.cuts, entries, self.paths))
    }

    /// Returns the number of paths that begin at the entry, which are those with the lowest IDs. `None` if the data is corrupt.
    pub fn count_first_paths(&self) -> Option<u64> {
        let (dag, numbering) = self.numbered_paths()?;
        let later = dag.out(dag.entry()).iter().filter(|e| matches!(dag.edge(**e).origin, Origin::Enter(_)));
        Some(later.map(|e| numbering.values()[e.index()] as u64).min().unwrap_or(self.paths))
    }
}

impl SegmentSet {
    /// Returns the part of the set that counts only paths for which `counted` returns true. The arguments of `counted` are the function's
    /// index and the path ID. The part counts only interesting segments, even if the set counts all pairs.
    pub fn part(&self, counted: impl Fn(u32, u64) -> bool) -> SegmentSet {
        let mut functions = self.functions.clone();
        for (number, function) in (0..).zip(&mut functions) {
            function.interesting.retain(|(_, path)| counted(number, *path));
            function.executions.retain(|path, _| counted(number, *path));
            function.counts = !function.interesting.is_empty();
        }
        let needed = self.contexts_needed_for_segments(&functions);
        let renumbered: Vec<BTreeMap<u32, u32>> =
            needed.iter().map(|contexts| contexts.iter().copied().zip(1..).chain([(0, 0)]).collect()).collect();
        for (number, function) in functions.iter_mut().enumerate() {
            let own = &renumbered[number];
            function.interesting = function.interesting.iter().map(|(context, path)| (own[context], *path)).collect();
            let kept = needed[number].iter().map(|context| function.contexts[*context as usize - 1]);
            let kept = kept.map(|c| SegmentContext { context: renumbered[c.caller as usize][&c.context], ..c });
            function.contexts = kept.collect();
        }
        SegmentSet { functions, counts_all_pairs: false, growth: self.growth, index: SegmentIndex::default() }
    }

    /// Returns the set with explicit interesting segments: if the set counts all pairs, each pair whose path begins at the entry becomes
    /// one. Functions with more than `max` such pairs are not changed.
    pub fn with_all_pairs_as_segments(&self, max: u64) -> SegmentSet {
        if !self.counts_all_pairs {
            return self.clone();
        }
        let mut functions = self.functions.clone();
        for function in functions.iter_mut().filter(|f| !f.contexts.is_empty()) {
            let contexts = function.contexts.len() as u32;
            let Some(paths) = function.count_first_paths().filter(|paths| paths.saturating_mul(contexts.into()) <= max) else { continue };
            function.interesting = (1..=contexts).flat_map(|context| (0..paths).map(move |path| (context, path))).collect();
        }
        SegmentSet { functions, counts_all_pairs: false, growth: self.growth, index: SegmentIndex::default() }
    }

    /// Returns, for each function, the numbers of the contexts that are needed to count the interesting segments.
    fn contexts_needed_for_segments(&self, functions: &[SegmentFunction]) -> Vec<BTreeSet<u32>> {
        let mut needed = vec![BTreeSet::new(); functions.len()];
        let interesting = (0..).zip(functions).flat_map(|(f, function)| function.interesting.iter().map(move |(context, _)| (f, *context)));
        let mut work: Vec<(u32, u32)> = interesting.collect();
        while let Some((number, context)) = work.pop() {
            let Some(known) = self.context(number, context).filter(|_| needed[number as usize].insert(context)) else { continue };
            work.push((known.caller, known.context));
            work.push((number, self.context_without_outermost_caller(number, context)));
            let longer = 1..=self.functions[number as usize].contexts.len() as u32;
            work.extend(
                longer.filter(|longer| self.context_without_outermost_caller(number, *longer) == context).map(|longer| (number, longer)),
            );
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{caller_chain_of, create_builder, longest_context};
    use super::*;
    use trodden_flow::{CutReason, Edge, Graph, Node};

    /// Returns the context in which a set counts a path after a sequence of calls, as a chain of callers. `None` if the set does not count
    /// it.
    fn context_that_counts_path(set: &SegmentSet, chain: &[(u32, u64)], (callee, path): (u32, u64)) -> Option<Vec<(u32, u64)>> {
        let mut context = 0;
        for (at, (function, path)) in chain.iter().enumerate() {
            let to = chain.get(at + 1).map_or(callee, |next| next.0);
            context = set.context_after_call(*function, context, *path, to);
        }
        set.functions[callee as usize].interesting.contains(&(context, path)).then(|| caller_chain_of(set, callee, context))
    }

    /// The parts together contain each segment once. After any sequence of calls, a part counts a path in the same context as the whole set
    /// does.
    #[test]
    fn parts_count_what_the_set_counts() {
        let mut builder = create_builder(3);
        builder.insert(&[(0, 1), (1, 2)], 2, 5);
        builder.insert(&[(1, 3), (1, 2)], 2, 6);
        builder.insert(&[(1, 2)], 2, 5);
        builder.insert(&[(2, 4), (0, 1), (1, 2)], 2, 0);
        builder.insert(&[(0, 7)], 1, 1);
        builder.insert(&[(2, 3)], 0, 4);
        let set = builder.finish(false);
        let parts: Vec<SegmentSet> = (0..3).map(|own| set.part(|_, path| path % 3 == own)).collect();
        assert!(parts.iter().all(SegmentSet::is_sound));
        assert_eq!(parts.iter().map(SegmentSet::len).sum::<usize>(), set.len());
        assert!(parts.iter().all(|part| !part.is_empty()));
        let steps = [(0, 1), (0, 7), (1, 2), (1, 3), (2, 4), (2, 3)];
        let mut counted = 0;
        for chain in (0..steps.len().pow(3)).map(|at| [steps[at / 36], steps[at / 6 % 6], steps[at % 6]]) {
            for (callee, path) in (0..3).flat_map(|callee| (0..8).map(move |path| (callee, path))) {
                let whole = context_that_counts_path(&set, &chain, (callee, path));
                let found: Vec<_> = parts.iter().filter_map(|part| context_that_counts_path(part, &chain, (callee, path))).collect();
                assert_eq!(found, Vec::from_iter(whole.clone()), "{chain:?} to path {path} of {callee}");
                counted += usize::from(whole.is_some_and(|context| context.len() > 1));
            }
        }
        assert!(counted > 10, "{counted}");
    }

    #[test]
    fn part_omits_contexts_without_segments() {
        let mut builder = create_builder(3);
        builder.insert(&[(0, 1), (1, 2)], 2, 5);
        builder.insert(&[(0, 3)], 2, 6);
        builder.insert(&[(0, 7)], 1, 1);
        let set = builder.finish(false);
        let part = set.part(|number, path| (number, path) == (2, 6));
        assert_eq!(part.functions.iter().map(|f| f.contexts.len()).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(part.functions[2].interesting, BTreeSet::from([(1, 6)]));
        let part = set.part(|number, path| (number, path) == (2, 5));
        assert_eq!(longest_context(&part, &[(0, 1), (1, 2)], 2), [(0, 1), (1, 2)]);
        assert_eq!(part.functions[1].contexts.len(), 1, "the caller's own context");
        assert!(!part.functions[1].counts && part.functions[2].counts);
    }

    /// The function is a loop with a branch. Half of its paths begin at the function's entry.
    #[test]
    fn all_pairs_become_explicit_segments() {
        let mut builder = create_builder(2);
        builder.context(&[(0, 0)], 1);
        let mut set = builder.finish(true);
        let edges = [(0, 1), (1, 2), (1, 2), (2, 1), (2, 3)];
        let function = &mut set.functions[1];
        function.graph = Graph::new(4, Node(0), Node(3), edges.map(|(from, to)| (Node(from), Node(to))).to_vec()).unwrap();
        function.cuts = vec![(Edge(3), CutReason::Back)];
        (function.paths, function.edges) = (8, vec![0; edges.len()]);
        assert_eq!(function.count_first_paths(), Some(4));
        assert_eq!(set.with_all_pairs_as_segments(4).functions[1].interesting, (0..4).map(|path| (1, path)).collect());
        assert!(set.with_all_pairs_as_segments(3).functions[1].interesting.is_empty());
    }
}
