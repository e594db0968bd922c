//! Paths across loop iterations: k consecutive Ball-Larus paths of one activation of a function are counted as one path, exactly and
//! without storing the sequence.
//!
//! Source: D. C. D'Elia and C. Demetrescu, "Ball-Larus path profiling across multiple loop iterations" (OOPSLA 2013). The paths of an
//! activation form a sequence, without the paths of its callees. The sequence is split into slabs of k - 1 paths. For each executed path, a
//! trie contains the string from the start of the previous slab up to this path, and the string's node holds a count. A string of k paths
//! is within two consecutive slabs, so it is a suffix of some nodes' strings. Its count is the sum of those nodes' counts. Each executed
//! path takes O(1) hash look-ups, whatever k is.

use crate::compress::hashing::BuildSymbolHasher;
use crate::events::{Classify, EventClass, SubpathEnd};
use crate::{Grammar, SequenceError};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of consecutive iterations.
pub const MAX_ITERATIONS: usize = 64;

const ROOT_NODE: u32 = 0;

/// The position of an activation in the trie of its function.
#[derive(Clone, Copy, Debug)]
pub struct TriePosition {
    /// Node of the string from the start of the previous slab up to now; [`ROOT_NODE`] in the first slab.
    long: u32,
    /// Node of the string from the start of the current slab up to now.
    short: u32,
    /// Number of paths in the current slab so far.
    paths: usize,
}

/// The trie that counts the k-iteration paths of one function.
#[derive(Clone, Debug)]
pub struct IterationPathTrie {
    k: usize,
    nodes: Vec<IterationNode>,
    children: HashMap<u64, u32, BuildSymbolHasher>,
}

#[derive(Clone, Copy, Debug)]
struct IterationNode {
    path: u32,
    parent: u32,
    depth: u32,
    count: u64,
}

impl IterationPathTrie {
    /// Creates an empty trie for `k` iterations. `k` must be from 1 to [`MAX_ITERATIONS`].
    pub fn new(k: usize) -> Result<IterationPathTrie, SequenceError> {
        if k == 0 || k > MAX_ITERATIONS {
            return Err(SequenceError::invalid_parameter("iterations of a path", k, "1 to 64"));
        }
        let root = IterationNode { path: 0, parent: ROOT_NODE, depth: 0, count: 0 };
        Ok(IterationPathTrie { k, nodes: vec![root], children: HashMap::default() })
    }

    /// Returns the position at the start of an activation.
    pub fn start(&self) -> TriePosition {
        TriePosition { long: ROOT_NODE, short: ROOT_NODE, paths: 0 }
    }

    /// Records the next path of an activation, whose position is `position`.
    pub fn push(&mut self, position: &mut TriePosition, path: u32) {
        if position.paths == (self.k - 1).max(1) {
            *position = TriePosition { long: if self.k == 1 { ROOT_NODE } else { position.short }, short: ROOT_NODE, paths: 0 };
        }
        position.short = self.find_or_add_child(position.short, path);
        position.paths += 1;
        if position.long != ROOT_NODE {
            position.long = self.find_or_add_child(position.long, path);
        }
        let ends = if position.long == ROOT_NODE { position.short } else { position.long };
        self.nodes[ends as usize].count += 1;
    }

    /// Returns the number of executions of each string of exactly `length` consecutive paths. Returns no counts if `length` exceeds k.
    pub fn counts(&self, length: usize) -> BTreeMap<Vec<u32>, u64> {
        let mut counts = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.count > 0 && node.depth as usize >= length && length <= self.k) {
            *counts.entry(self.suffix(node, length)).or_default() += node.count;
        }
        counts
    }

    /// Returns the number of trie nodes, to which the memory is proportional.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn suffix(&self, node: &IterationNode, length: usize) -> Vec<u32> {
        let up = std::iter::successors(Some(node), |node| Some(&self.nodes[node.parent as usize]));
        let mut paths: Vec<u32> = up.take(length).map(|node| node.path).collect();
        paths.reverse();
        paths
    }

    fn find_or_add_child(&mut self, parent: u32, path: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.children.entry(u64::from(parent) << 32 | u64::from(path)).or_insert(next);
        if child == next {
            self.nodes.push(IterationNode { path, parent, depth: self.nodes[parent as usize].depth + 1, count: 0 });
        }
        child
    }
}

/// The k-iteration paths of all functions in a sequence of events.
pub struct IterationProfile {
    k: usize,
    functions: BTreeMap<u32, IterationPathTrie>,
    /// For each number of a Ball-Larus path, the path as a string of subpaths.
    paths: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, u32>,
    frames: Vec<ActivationFrame>,
}

#[derive(Default)]
struct ActivationFrame {
    /// The subpaths that were executed since the last back edge.
    subpaths: Vec<u64>,
    position: Option<(u32, TriePosition)>,
}

/// A sequence of paths that consecutive iterations of a loop repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedPattern {
    /// The repeated paths, each as a string of subpaths. Of all rotations of the pattern, the smallest is stored.
    pub paths: Vec<Vec<u64>>,
    /// Number of k-iteration paths that repeat the pattern.
    pub count: u64,
    /// Number of k-iteration paths that contain a path of the pattern.
    pub of: u64,
}

impl IterationProfile {
    /// Creates an empty profile for `k` iterations. `k` must be from 1 to [`MAX_ITERATIONS`].
    pub fn new(k: usize) -> Result<IterationProfile, SequenceError> {
        IterationPathTrie::new(k)?;
        Ok(IterationProfile {
            k,
            functions: BTreeMap::new(),
            paths: Vec::new(),
            numbers: HashMap::new(),
            frames: vec![ActivationFrame::default()],
        })
    }

    /// Computes the profile of a sequence.
    pub fn from_grammar(grammar: &Grammar, classify: &impl Classify, k: usize) -> Result<IterationProfile, SequenceError> {
        let mut profile = IterationProfile::new(k)?;
        for symbol in grammar.symbols() {
            profile.push(symbol, classify.class(symbol))?;
        }
        Ok(profile)
    }

    /// Starts the sequence of another thread, or of another instrumented copy of the program.
    pub fn begin(&mut self) {
        self.frames = vec![ActivationFrame::default()];
    }

    /// Records the next event.
    pub fn push(&mut self, symbol: u64, class: EventClass) -> Result<(), SequenceError> {
        match class {
            EventClass::Enter => self.frames.push(ActivationFrame::default()),
            EventClass::Leave => {
                self.frames.pop();
                if self.frames.is_empty() {
                    self.frames.push(ActivationFrame::default());
                }
            }
            EventClass::Subpath { function, end } => return self.push_subpath(symbol, function, end),
        }
        Ok(())
    }

    fn push_subpath(&mut self, symbol: u64, function: u32, end: SubpathEnd) -> Result<(), SequenceError> {
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
            self.functions.insert(function, IterationPathTrie::new(self.k)?);
        }
        if let Some(forest) = self.functions.get_mut(&function) {
            let mut position = frame.position.filter(|(of, _)| *of == function).map_or_else(|| forest.start(), |(_, position)| position);
            forest.push(&mut position, path);
            frame.position = (end == SubpathEnd::BackEdge).then_some((function, position));
        }
        Ok(())
    }

    /// Returns the functions that have paths, with their tries.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &IterationPathTrie)> {
        self.functions.iter().map(|(function, forest)| (*function, forest))
    }

    /// Returns the subpaths of a path, given its number.
    pub fn path(&self, number: u32) -> &[u64] {
        &self.paths[number as usize]
    }

    /// Returns the patterns of `period` distinct paths that loop iterations repeat; alternation between two paths has period 2. A pattern
    /// is returned if it is repeated by at least `share` (0 to 1) of the k-iteration paths that contain one of its paths. Returns none
    /// unless the period is at least 2 and k at least twice the period.
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
