//! Matching of paths against an expression.
//!
//! The matcher goes through the places in order. For each place, it computes the blocks of the path to which the place can be assigned,
//! given the candidates for the previous place. Each place takes time linear in the path's length.

use super::{AllowedBlocksBetween, ExpressionPlace, ExpressionSequence, PathExpression, RequiredPathBegin, RequiredPathEnd};
use std::collections::HashMap;
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::paths::{PathEnd, PathStart};
use trodden_unit::{FunctionMap, SourcePosition, UnitMap};

/// A path expression, prepared for matching the paths of one function.
#[derive(Debug)]
pub struct PathMatcher<'a> {
    expression: &'a PathExpression,
    function: &'a FunctionMap,
    /// For each place in the expression, whether each block of the function belongs to it.
    places: HashMap<&'a ExpressionPlace, Vec<bool>>,
}

impl<'a> PathMatcher<'a> {
    /// Determines to which blocks of a function the expression's places belong.
    pub fn new(expression: &'a PathExpression, unit: &UnitMap, function: &'a FunctionMap) -> PathMatcher<'a> {
        let mut places = HashMap::new();
        for place in expression.patterns.iter().flatten().flat_map(all_places) {
            places.entry(place).or_insert_with(|| (0..function.blocks.len()).map(|at| is_at_block(unit, function, place, at)).collect());
        }
        PathMatcher { expression, function, places }
    }

    /// Returns the places in the expression to which no block of the function belongs.
    pub fn unmatched_places(&self) -> Vec<&'a ExpressionPlace> {
        let all = self.expression.patterns.iter().flatten().flat_map(all_places);
        all.filter(|place| !self.places[place].contains(&true)).collect()
    }

    /// Returns true if each pattern has a required place that no block of the function belongs to, so that no path can match.
    pub fn cannot_match(&self) -> bool {
        let missing = |place: &ExpressionPlace| !self.places[place].contains(&true);
        let all = |pattern: &Vec<ExpressionSequence>| pattern.iter().flat_map(|s| &s.steps).any(|(place, _)| missing(place));
        self.expression.patterns.iter().all(all)
    }

    /// Returns true if a path matches. `end` is `None` for an unfinished path, which ends at a call.
    pub fn matches(&self, blocks: &[Node], beginning: PathStart, end: Option<PathEnd>) -> bool {
        let fits = |sequence: &ExpressionSequence| {
            sequence.begin.is_none_or(|begin| self.begin_matches(begin, beginning))
                && sequence.end.is_none_or(|expected| self.end_matches(expected, end))
                && self.matches_blocks(sequence, blocks)
        };
        self.expression.patterns.iter().any(|pattern| pattern.iter().all(fits))
    }

    fn begin_matches(&self, expected: RequiredPathBegin, beginning: PathStart) -> bool {
        match (expected, beginning) {
            (RequiredPathBegin::Entry, PathStart::Entry) => true,
            (RequiredPathBegin::Head, PathStart::After(edge)) => self.is_back_edge(edge),
            _ => false,
        }
    }

    fn end_matches(&self, expected: RequiredPathEnd, end: Option<PathEnd>) -> bool {
        match (expected, end) {
            (RequiredPathEnd::Exit, Some(PathEnd::Exit(_) | PathEnd::Stop)) | (RequiredPathEnd::Call, None) => true,
            (RequiredPathEnd::Back, Some(PathEnd::Cut(edge))) => self.is_back_edge(edge),
            _ => false,
        }
    }

    fn is_back_edge(&self, edge: Edge) -> bool {
        self.function.cuts.iter().any(|(cut, reason)| *cut == edge && *reason == CutReason::Back)
    }

    fn contains(&self, place: &ExpressionPlace, block: Node) -> bool {
        self.places[place].get(block.index()).copied().unwrap_or(false)
    }

    fn is_in_any(&self, places: &[ExpressionPlace], block: Node) -> bool {
        places.iter().any(|p| self.contains(p, block))
    }

    fn matches_blocks(&self, sequence: &ExpressionSequence, blocks: &[Node]) -> bool {
        if blocks.iter().any(|b| self.is_in_any(&sequence.never, *b)) {
            return false;
        }
        let Some((first, _)) = sequence.steps.first() else {
            // The sequence has no places, so the whole path is its gap.
            return match &sequence.before {
                AllowedBlocksBetween::Nothing => true,
                AllowedBlocksBetween::Without(places) => !blocks.iter().any(|b| self.is_in_any(places, *b)),
            };
        };
        let mut at = self.first_candidates(first, &sequence.before, blocks);
        for pair in sequence.steps.windows(2) {
            at = self.next_candidates(&pair[0], &pair[1].0, &at, blocks);
        }
        let Some((_, last_gap)) = sequence.steps.last() else { return false };
        let last = |at: &[bool]| at.iter().rposition(|can| *can);
        match last_gap {
            AllowedBlocksBetween::Nothing => at.last() == Some(&true),
            // Try only the last possible position: it has the fewest blocks after it that could be excluded.
            AllowedBlocksBetween::Without(places) => last(&at).is_some_and(|p| !blocks[p + 1..].iter().any(|b| self.is_in_any(places, *b))),
        }
    }

    /// Returns, for each block of a path, whether the first place can be assigned to it.
    fn first_candidates(&self, place: &ExpressionPlace, before: &AllowedBlocksBetween, blocks: &[Node]) -> Vec<bool> {
        let mut open = true;
        let fits = |block: &Node| {
            let fits_here = open && self.contains(place, *block);
            open &= match before {
                AllowedBlocksBetween::Nothing => false,
                AllowedBlocksBetween::Without(places) => !self.is_in_any(places, *block),
            };
            fits_here
        };
        blocks.iter().map(fits).collect()
    }

    /// Returns, for each block of a path, whether a place can be assigned to it if the previous place is at one of `from`.
    fn next_candidates(
        &self,
        (before, gap): &(ExpressionPlace, AllowedBlocksBetween),
        place: &ExpressionPlace,
        from: &[bool],
        blocks: &[Node],
    ) -> Vec<bool> {
        let apart = *before == ExpressionPlace::Any || *place == ExpressionPlace::Any;
        // True if the previous place can be at an earlier block, with no excluded block in between.
        let mut reached = false;
        let fits = |(at, block): (usize, &Node)| {
            let fits_here = self.contains(place, *block) && (reached || from[at] && !apart);
            reached = match gap {
                AllowedBlocksBetween::Nothing => from[at],
                AllowedBlocksBetween::Without(places) => from[at] || reached && !self.is_in_any(places, *block),
            };
            fits_here
        };
        blocks.iter().enumerate().map(fits).collect()
    }
}

fn all_places(sequence: &ExpressionSequence) -> impl Iterator<Item = &ExpressionPlace> {
    fn excluded_places(gap: &AllowedBlocksBetween) -> std::slice::Iter<'_, ExpressionPlace> {
        match gap {
            AllowedBlocksBetween::Nothing => [].iter(),
            AllowedBlocksBetween::Without(places) => places.iter(),
        }
    }
    let steps = sequence.steps.iter().flat_map(|(place, gap)| std::iter::once(place).chain(excluded_places(gap)));
    excluded_places(&sequence.before).chain(steps).chain(&sequence.never)
}

fn is_at_block(unit: &UnitMap, function: &FunctionMap, place: &ExpressionPlace, at: usize) -> bool {
    let block = &function.blocks[at];
    let mut chains = block.positions.iter().chain(&block.branch).flat_map(|p| unit.inlined_chain(*p));
    match place {
        ExpressionPlace::Any => true,
        ExpressionPlace::Block(number) => *number as usize == at,
        ExpressionPlace::Lines { file: Some(file), first, last } => {
            let of_file =
                |p: &SourcePosition| unit.files.get(p.file as usize).is_some_and(|name| crate::changes::file_names_match(name, file));
            chains.any(|p| (*first..=*last).contains(&p.line) && of_file(&p))
        }
        ExpressionPlace::Lines { file: None, first, last } => {
            let own = |p: &SourcePosition| function.position.is_none_or(|f| f.file == p.file);
            chains.any(|p| (*first..=*last).contains(&p.line) && own(&p))
        }
        ExpressionPlace::Inlined(name) => chains.any(|p| {
            let scope = unit.scopes.get(p.scope as usize);
            scope.is_some_and(|s| s.inlined_at.is_some() && (s.name == *name || s.linkage_name == *name))
        }),
    }
}
