//! Paths across iterations: k consecutive paths of one activation as one path, counted exactly without keeping the sequence.
//!
//! Source: D. C. D'Elia and C. Demetrescu, "Ball-Larus path profiling across multiple loop iterations" (OOPSLA 2013).
//!
//! Definition. The Ball-Larus paths of an activation, calls left out, are a sequence p1 p2 ... pn: each but the first begins where a back
//! edge led, so consecutive ones are consecutive iterations, of one loop or of loops nested or following each other. A *k-iteration path*
//! is a string of k consecutive ones; with k = 1 it is a Ball-Larus path. It is counted once for each place at which it ends.
//!
//! The slab forest: each activation's sequence is cut into slabs of k - 1 paths. A trie has, for each path executed, the string
//! from the beginning of the slab before its own; that is one step down in the trie, and one count. A string of k paths lies within two
//! consecutive slabs, so it is a suffix of the string of the node where it ends, and its count is the sum of the counts of such nodes.
//!
//! Complexity: O(1) hash look-ups for a path, whatever k is; memory grows with distinct strings of two slabs, not with the execution.

use crate::compress::hashing::Mixing;
use crate::events::{Classify, EventClass, SubpathEnd};
use crate::{Grammar, SequenceError};
use std::collections::{BTreeMap, HashMap};

/// The greatest k.
pub const MOST_ITERATIONS: usize = 64;

/// The root of the trie.
const ROOT: u32 = 0;

/// Where an activation stands in a forest.
#[derive(Clone, Copy, Debug)]
pub struct ForestPosition {
    /// The string from the beginning of the slab before; [`ROOT`] in the first slab.
    long: u32,
    /// The string from the beginning of the slab.
    short: u32,
    /// Paths of the slab so far.
    paths: usize,
}

/// Counts of k-iteration paths of one function.
#[derive(Clone, Debug)]
pub struct SlabForest {
    k: usize,
    nodes: Vec<Node>,
    children: HashMap<u64, u32, Mixing>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    path: u32,
    parent: u32,
    depth: u32,
    count: u64,
}

impl SlabForest {
    /// A forest without paths, for `k` iterations.
    ///
    /// # Errors
    /// `k` is zero or above [`MOST_ITERATIONS`].
    pub fn new(k: usize) -> Result<SlabForest, SequenceError> {
        if k == 0 || k > MOST_ITERATIONS {
            return Err(SequenceError::parameter("iterations of a path", k, "1 to 64"));
        }
        let root = Node { path: 0, parent: ROOT, depth: 0, count: 0 };
        Ok(SlabForest { k, nodes: vec![root], children: HashMap::default() })
    }

    /// Where an activation begins.
    pub fn start(&self) -> ForestPosition {
        ForestPosition { long: ROOT, short: ROOT, paths: 0 }
    }

    /// The next path of an activation.
    pub fn push(&mut self, position: &mut ForestPosition, path: u32) {
        if position.paths == (self.k - 1).max(1) {
            *position = ForestPosition { long: if self.k == 1 { ROOT } else { position.short }, short: ROOT, paths: 0 };
        }
        position.short = self.child(position.short, path);
        position.paths += 1;
        if position.long != ROOT {
            position.long = self.child(position.long, path);
        }
        let ends = if position.long == ROOT { position.short } else { position.long };
        self.nodes[ends as usize].count += 1;
    }

    /// Counts of strings of exactly `length` consecutive paths, which is at most k.
    pub fn counts(&self, length: usize) -> BTreeMap<Vec<u32>, u64> {
        let mut counts = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.count > 0 && node.depth as usize >= length && length <= self.k) {
            *counts.entry(self.suffix(node, length)).or_default() += node.count;
        }
        counts
    }

    /// Nodes of the trie: what memory is used for.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn suffix(&self, node: &Node, length: usize) -> Vec<u32> {
        let up = std::iter::successors(Some(node), |node| Some(&self.nodes[node.parent as usize]));
        let mut paths: Vec<u32> = up.take(length).map(|node| node.path).collect();
        paths.reverse();
        paths
    }

    fn child(&mut self, parent: u32, path: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.children.entry(u64::from(parent) << 32 | u64::from(path)).or_insert(next);
        if child == next {
            self.nodes.push(Node { path, parent, depth: self.nodes[parent as usize].depth + 1, count: 0 });
        }
        child
    }
}

/// k-iteration paths of all functions of a sequence of events.
pub struct IterationProfile {
    k: usize,
    functions: BTreeMap<u32, SlabForest>,
    /// Ball-Larus paths as strings of subpaths, by number.
    paths: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, u32>,
    frames: Vec<Frame>,
}

#[derive(Default)]
struct Frame {
    /// Subpaths since the last back edge.
    subpaths: Vec<u64>,
    position: Option<(u32, ForestPosition)>,
}

/// A loop, or several, whose iterations repeat a pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedPattern {
    /// The paths, in order, as strings of subpaths; the smallest rotation.
    pub paths: Vec<Vec<u64>>,
    /// k-iteration paths that go on with the pattern.
    pub count: u64,
    /// All k-iteration paths that contain a path of the pattern.
    pub of: u64,
}

impl IterationProfile {
    /// A profile of nothing, for `k` iterations.
    ///
    /// # Errors
    /// `k` is zero or above [`MOST_ITERATIONS`].
    pub fn new(k: usize) -> Result<IterationProfile, SequenceError> {
        SlabForest::new(k)?;
        Ok(IterationProfile { k, functions: BTreeMap::new(), paths: Vec::new(), numbers: HashMap::new(), frames: vec![Frame::default()] })
    }

    /// The profile of a sequence.
    ///
    /// # Errors
    /// As of [`IterationProfile::new`].
    pub fn from_grammar(grammar: &Grammar, classify: &impl Classify, k: usize) -> Result<IterationProfile, SequenceError> {
        let mut profile = IterationProfile::new(k)?;
        for symbol in grammar.symbols() {
            profile.push(symbol, classify.class(symbol))?;
        }
        Ok(profile)
    }

    /// What follows is another sequence: of another thread, or another copy of the program.
    pub fn begin(&mut self) {
        self.frames = vec![Frame::default()];
    }

    /// The next event.
    ///
    /// # Errors
    /// As of [`IterationProfile::new`].
    pub fn push(&mut self, symbol: u64, class: EventClass) -> Result<(), SequenceError> {
        match class {
            EventClass::Enter => self.frames.push(Frame::default()),
            EventClass::Leave => {
                self.frames.pop();
                if self.frames.is_empty() {
                    self.frames.push(Frame::default());
                }
            }
            EventClass::Subpath { function, end } => return self.subpath(symbol, function, end),
        }
        Ok(())
    }

    fn subpath(&mut self, symbol: u64, function: u32, end: SubpathEnd) -> Result<(), SequenceError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        frame.subpaths.push(symbol);
        if end == SubpathEnd::Call {
            return Ok(());
        }
        let subpaths = std::mem::take(&mut frame.subpaths);
        let next = self.paths.len() as u32;
        let path = *self.numbers.entry(subpaths).or_insert_with_key(|subpaths| {
            self.paths.push(subpaths.clone());
            next
        });
        if !self.functions.contains_key(&function) {
            self.functions.insert(function, SlabForest::new(self.k)?);
        }
        if let Some(forest) = self.functions.get_mut(&function) {
            let mut position = frame.position.filter(|(of, _)| *of == function).map_or_else(|| forest.start(), |(_, position)| position);
            forest.push(&mut position, path);
            frame.position = (end == SubpathEnd::BackEdge).then_some((function, position));
        }
        Ok(())
    }

    /// Functions that have paths.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &SlabForest)> {
        self.functions.iter().map(|(function, forest)| (*function, forest))
    }

    /// The subpaths of a path.
    pub fn path(&self, number: u32) -> &[u64] {
        &self.paths[number as usize]
    }

    /// Patterns of `period` different paths that at least `share` of the k-iteration paths with one of them go on with; k is at least twice
    /// the period. "Every second iteration takes the other side" is a pattern of period 2.
    pub fn repeated_patterns(&self, function: u32, period: usize, share: f64) -> Vec<RepeatedPattern> {
        if period < 2 || self.k < 2 * period {
            return Vec::new();
        }
        let counts = self.functions.get(&function).map(|forest| forest.counts(self.k)).unwrap_or_default();
        let mut patterns: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for (string, count) in counts.iter().filter(|(string, _)| has_smallest_period(string, period)) {
            *patterns.entry(smallest_rotation(&string[..period])).or_default() += count;
        }
        let of = |pattern: &[u32]| counts.iter().filter(|(s, _)| s.iter().any(|p| pattern.contains(p))).map(|(_, n)| n).sum::<u64>();
        patterns
            .into_iter()
            .map(|(pattern, count)| (of(&pattern), pattern, count))
            .filter(|(of, _, count)| *count as f64 >= share * *of as f64)
            .map(|(of, pattern, count)| {
                let paths = pattern.iter().map(|path| self.path(*path).to_vec()).collect();
                RepeatedPattern { paths, count, of }
            })
            .collect()
    }
}

fn has_smallest_period(string: &[u32], period: usize) -> bool {
    let repeats = |period: usize| (period..string.len()).all(|place| string[place] == string[place - period]);
    repeats(period) && !(1..period).any(repeats)
}

fn smallest_rotation(string: &[u32]) -> Vec<u32> {
    let rotations = (0..string.len()).map(|start| string[start..].iter().chain(&string[..start]).copied().collect::<Vec<_>>());
    rotations.min().unwrap_or_default()
}
