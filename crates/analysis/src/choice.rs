//! Sets of interesting paths ([`KnownPaths`]): the most frequent paths of a profile, all paths of given functions, paths through given
//! lines, and paths that a change touches.
//!
//! Only sets that come from a profile have execution counts. All sets contain complete paths only, not prefixes that end at a call. Paths
//! are found by testing every path of a function, so functions with too many paths are rejected.

use crate::changes::{self, DiffError, file_names_match_below};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use trodden_flow::{DagEdgeId, Node};
use trodden_profile::paths::{path_blocks, path_end};
use trodden_unit::{ConflictingNumberingsError, FunctionMap, KnownPaths, MapError, UnitBlock, UnitMap};

/// Maximum number of paths of a function that are tested one by one.
const MAX_TESTED_PATHS: u64 = 1 << 20;

/// Lines of a source file. The file name may be the last components of a longer path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpan {
    /// Name of the file.
    pub file: String,
    /// The folder to which the file name is relative, if known.
    pub root: Option<String>,
    /// The lines.
    pub lines: RangeInclusive<u32>,
}

/// An element of a [`ChosenPathSequence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathWaypoint {
    /// The path enters this block directly after the block of the previous waypoint.
    Block(u32),
    /// The path enters a block with code of these lines, which may be the block of the previous waypoint or any later block.
    Place(LineSpan),
}

/// Paths of one function, given either by all blocks of a path or by source locations that the path passes in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPathSequence {
    /// The function.
    pub function: String,
    /// Either all blocks of the path, or source locations in the order in which the path passes them.
    pub waypoints: Vec<PathWaypoint>,
    /// The input line that the sequence was parsed from.
    pub text: String,
}

/// The reasons why a set of interesting paths cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// A unit map is corrupt.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Two sets of paths use different numberings of the same function.
    #[error(transparent)]
    TwoNumberings(#[from] ConflictingNumberingsError),
    /// The function has too many paths.
    #[error(
        "function `{function}` has {paths} paths, but at most {MAX_TESTED_PATHS} can be tested. Build the program with `trodden-lab with \
         --max-paths {MAX_TESTED_PATHS} -- build`"
    )]
    TooManyPaths {
        /// The function.
        function: String,
        /// The number of paths.
        paths: u64,
    },
    /// The text is not a source location.
    #[error("invalid source location `{0}`. Write FILE:LINE or FILE:FIRST-LAST")]
    NotALocation(String),
    /// The line is not a sequence.
    #[error(
        "line {line}: cannot parse `{text}` as a path. Write `FUNCTION:`, followed by block numbers or by source locations (FILE:LINE)"
    )]
    NotASequence {
        /// Line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// No path matches the sequence.
    #[error("no path of the program, from its beginning to its end, matches `{0}`")]
    NoSuchPath(String),
}

impl LineSpan {
    /// Parses `FILE:LINE` or `FILE:FIRST-LAST_RUN_NAME`.
    pub fn parse(text: &str) -> Result<LineSpan, ChoiceError> {
        let place = || {
            let (file, lines) = text.rsplit_once(':')?;
            let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
            let lines = first.parse().ok()?..=last.parse().ok()?;
            (!file.is_empty() && !lines.is_empty()).then(|| LineSpan { file: file.to_owned(), root: None, lines })
        };
        place().ok_or_else(|| ChoiceError::NotALocation(text.to_owned()))
    }

    /// Returns true if the block contains code of these lines.
    fn has_code_in(&self, map: &UnitMap, block: &UnitBlock) -> bool {
        let at = |p: &trodden_unit::SourcePosition| {
            self.lines.contains(&p.line)
                && map.files.get(p.file as usize).is_some_and(|f| file_names_match_below(self.root.as_deref(), f, &self.file))
        };
        block.positions.iter().chain(&block.branch).any(at)
    }
}

/// Returns the source lines that a unified diff changes in the new files, which are the added lines and the neighbours of removed lines.
/// File names are relative to the folder `root`, if known.
pub fn changed_places(difference: &str, root: Option<&str>) -> Result<Vec<LineSpan>, DiffError> {
    let mut places = Vec::new();
    for change in changes::parse_diff(difference)? {
        let Some(file) = change.new_name else { continue };
        let mut lines = change.new.into_iter().peekable();
        while let Some(first) = lines.next() {
            let mut last = first;
            while let Some(next) = lines.next_if(|next| next - 1 == last) {
                last = next;
            }
            places.push(LineSpan { file: file.clone(), root: root.map(str::to_owned), lines: first..=last });
        }
    }
    Ok(places)
}

/// Parses sequences, one per line: `FUNCTION: 0 1 4` or `FUNCTION: a.c:10 a.c:12-14`. Empty lines and lines that start with `#` are
/// ignored.
pub fn parse_sequences(text: &str) -> Result<Vec<ChosenPathSequence>, ChoiceError> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || ChoiceError::NotASequence { line: number + 1, text: line.to_owned() };
        // A function name may contain colons, but not a colon followed by a space.
        let (function, rest) = line.rsplit_once(": ").ok_or_else(wrong)?;
        let waypoint = |word: &str| match word.parse() {
            Ok(block) => Ok(PathWaypoint::Block(block)),
            Err(_) => LineSpan::parse(word).map(PathWaypoint::Place),
        };
        let waypoints = rest.split_whitespace().map(waypoint).collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
        let blocks = waypoints.iter().filter(|w| matches!(w, PathWaypoint::Block(_))).count();
        if waypoints.is_empty() || (blocks > 0 && blocks < waypoints.len()) {
            return Err(wrong());
        }
        all.push(ChosenPathSequence { function: function.to_owned(), waypoints, text: line.to_owned() });
    }
    Ok(all)
}

/// Returns all complete paths of the functions for which `included` returns true.
pub fn all_paths_of(units: &[&UnitMap], included: impl Fn(&FunctionMap) -> bool) -> Result<KnownPaths, ChoiceError> {
    collect_paths(units, |_, function| included(function).then_some(|_: &[Node]| true))
}

/// Returns all complete paths with a block that contains code of at least one of the places.
pub fn paths_with_block_in_any(units: &[&UnitMap], places: &[LineSpan]) -> Result<KnownPaths, ChoiceError> {
    collect_paths(units, |map, function| {
        let marked = find_nodes(function, |block| places.iter().any(|p| p.has_code_in(map, block)));
        (!marked.is_empty()).then_some(move |path: &[Node]| path.iter().any(|n| marked.contains(n)))
    })
}

/// Returns all complete paths that have, for each of the places, a block with code of the place. The order of the blocks does not matter.
pub fn paths_with_blocks_in_all(units: &[&UnitMap], places: &[LineSpan]) -> Result<KnownPaths, ChoiceError> {
    collect_paths(units, |map, function| {
        let marked: Vec<HashSet<Node>> = places.iter().map(|p| find_nodes(function, |block| p.has_code_in(map, block))).collect();
        let possible = !marked.is_empty() && marked.iter().all(|m| !m.is_empty());
        possible.then_some(move |path: &[Node]| marked.iter().all(|m| path.iter().any(|n| m.contains(n))))
    })
}

/// Returns the complete paths that match at least one of the sequences. `has_name` decides whether a function has a given name. A sequence
/// that no path matches is an error.
pub fn paths_matching(
    units: &[&UnitMap],
    sequences: &[ChosenPathSequence],
    has_name: impl Fn(&FunctionMap, &str) -> bool,
) -> Result<KnownPaths, ChoiceError> {
    let mut all = KnownPaths::default();
    for sequence in sequences {
        let found = collect_paths(units, |map, function| {
            has_name(function, &sequence.function)
                .then_some(move |path: &[Node]| matches_waypoints(map, function, path, &sequence.waypoints))
        })?;
        if found.is_empty() {
            return Err(ChoiceError::NoSuchPath(sequence.text.clone()));
        }
        all.merge(found)?;
    }
    Ok(all)
}

/// Reduces a set to its `how_many` most frequent paths.
pub fn keep_most_frequent(set: &mut KnownPaths, how_many: usize) {
    let mut all = rank_by_frequency(set);
    all.truncate(how_many);
    retain_paths(set, &all);
}

/// Reduces a set to the most frequent paths that together make up a share (0 to 1) of all executions.
pub fn keep_most_frequent_share(set: &mut KnownPaths, share: f64) {
    let mut all = rank_by_frequency(set);
    let total: u128 = all.iter().map(|p| u128::from(p.0)).sum();
    let mut sum = 0u128;
    let enough = all.iter().position(|p| {
        sum += u128::from(p.0);
        sum as f64 >= share * total as f64
    });
    all.truncate(enough.map_or(all.len(), |at| at + 1));
    retain_paths(set, &all);
}

/// Count, unit, function and number of a path.
type PathCandidate = (u64, String, String, u64);

fn rank_by_frequency(set: &KnownPaths) -> Vec<PathCandidate> {
    let paths = set.functions().flat_map(|(unit, name, f)| f.known.iter().map(move |(id, n)| (*n, unit.to_owned(), name.to_owned(), *id)));
    let mut all: Vec<PathCandidate> = paths.collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (&a.1, &a.2, a.3).cmp(&(&b.1, &b.2, b.3))));
    all
}

fn retain_paths(set: &mut KnownPaths, kept: &[PathCandidate]) {
    let kept: HashSet<(&str, &str, u64)> = kept.iter().map(|(_, unit, name, id)| (unit.as_str(), name.as_str(), *id)).collect();
    set.retain(|unit, name, path, _| kept.contains(&(unit, name, path)));
}

fn find_nodes(function: &FunctionMap, is: impl Fn(&UnitBlock) -> bool) -> HashSet<Node> {
    (0u32..).zip(&function.blocks).filter(|(_, block)| is(block)).map(|(n, _)| Node(n)).collect()
}

fn matches_waypoints(map: &UnitMap, function: &FunctionMap, path: &[Node], waypoints: &[PathWaypoint]) -> bool {
    if let Some(PathWaypoint::Block(_)) = waypoints.first() {
        let included = waypoints.iter().filter_map(|w| match w {
            PathWaypoint::Block(block) => Some(Node(*block)),
            PathWaypoint::Place(_) => None,
        });
        return path.iter().copied().eq(included);
    }
    let mut remaining = waypoints.iter().peekable();
    for node in path {
        let block = &function.blocks[node.index()];
        while remaining.next_if(|w| matches!(w, PathWaypoint::Place(place) if place.has_code_in(map, block))).is_some() {}
    }
    remaining.peek().is_none()
}

/// Collects the complete paths that pass the test of their function. Functions for which `test_of` returns `None` are skipped.
fn collect_paths<'a, T: Fn(&[Node]) -> bool>(
    units: &[&'a UnitMap],
    test_of: impl Fn(&'a UnitMap, &'a FunctionMap) -> Option<T>,
) -> Result<KnownPaths, ChoiceError> {
    let mut set = KnownPaths::default();
    for map in units {
        for function in &map.functions {
            let Some(test) = test_of(map, function) else { continue };
            let paths = paths_that_pass(function, &test)?;
            if !paths.is_empty() {
                set.add(map, function, paths.into_iter().map(|id| (id, 0)), &vec![0; function.graph.edge_count()])?;
            }
        }
    }
    Ok(set)
}

fn paths_that_pass(function: &FunctionMap, test: &dyn Fn(&[Node]) -> bool) -> Result<Vec<u64>, ChoiceError> {
    if function.counters > MAX_TESTED_PATHS {
        return Err(ChoiceError::TooManyPaths { function: function.name.clone(), paths: function.counters });
    }
    let dag = function.dag()?;
    let numbering = function.numbering(&dag)?;
    let is_included = |path: &Vec<DagEdgeId>| path_end(function, &dag, path).is_some() && test(&path_blocks(&dag, path));
    Ok((0..function.counters).filter(|id| numbering.path(&dag, *id).is_some_and(|p| is_included(&p))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_yields_lines_of_new_files() {
        let text = "diff --git a/x.c b/x.c\n--- a/x.c\n+++ b/src/x.c\n@@ -3,3 +5,4 @@ int f\n-a\n+b\n c\n+++ d\n e\n@@ -20,2 +21,0 \
            @@\n-c\n-c\n@@ -30 +28 @@\n-c\n+d\n\
                    --- a/gone.c\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n--- old.c\t2020\n+++ new.c\t2021\n@@ -0,0 +1,2 @@\n+x\n+y\n";
        let place = |file: &str, lines| LineSpan { file: file.into(), root: None, lines };
        let places = [place("src/x.c", 5..=5), place("src/x.c", 7..=7), place("src/x.c", 21..=22), place("src/x.c", 28..=28)];
        assert_eq!(changed_places(text, None).unwrap(), [&places[..], &[place("new.c", 1..=2)]].concat());
        assert!(changed_places("hello", None).is_err());
    }

    #[test]
    fn sequences_are_all_blocks_or_all_places() {
        let read = parse_sequences("# none\n\nns::f(int): 0 2 3\ng: a.c:10 b/a.c:12-14\n").unwrap();
        assert_eq!(
            read[0],
            ChosenPathSequence {
                function: "ns::f(int)".into(),
                waypoints: [0, 2, 3].map(PathWaypoint::Block).to_vec(),
                text: "ns::f(int): 0 2 3".into()
            }
        );
        assert_eq!(read[1].waypoints[1], PathWaypoint::Place(LineSpan { file: "b/a.c".into(), root: None, lines: 12..=14 }));
        for wrong in ["f", "f: ", "f: 0 a.c:3", "f: x"] {
            assert!(matches!(parse_sequences(wrong), Err(ChoiceError::NotASequence { line: 1, .. })), "{wrong}");
        }
    }
}
