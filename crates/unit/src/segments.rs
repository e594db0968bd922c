//! Sets of segments ([`SegmentSet`]), which are paths across calls. A build counts the segments in a set without recording a trace.
//!
//! A *context* of a function is a chain of callers' paths that leads to it. If a set has a context, it also has all suffixes of the chain
//! as contexts, so a program can track the longest suffix of the executed chain that is a context ([`SegmentSet::context_after_call`]),
//! like the automaton of Aho and Corasick. The count of a segment is the sum over all contexts that end with its chain. Source: K. Vaswani,
//! *Efficient Online Path Profiling*, sections 3.4.1 to 3.4.5. The grammar given there leaves open what a segment is; [`SegmentSet`]
//! defines it.

mod part;

use crate::{FunctionMap, NameVersion, UnitMap};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_container::{ContentError, FileFormat, FileKind};
use trodden_flow::{CutReason, Edge, Graph};

const FORMAT: FileFormat =
    FileFormat { kind: FileKind::SEGMENTS, version: 2, remedy: "Choose a run that was recorded by `trodden record --whole-program`" };

/// Maximum depth (number of nested calls) of segments.
pub const MAX_DEPTH: u32 = 16;

/// A set of segments that a build counts.
///
/// A *segment* of depth k is a chain of at most k nested calls with the paths around them, `<f1,p1> ( <f2,p2> ( ... <fn,pn>`, where n is at
/// most k + 1:
///
/// - Each path except the last leads to a call: it ends at the block that makes the call, directly or indirectly.
/// - Each path after the first is the first path of its activation: it begins at the function's entry. The first path may begin in a loop.
/// - The last path leads to a call of its own, or is complete: it ends at a back edge, at another cut edge, or where the function is left.
///   Therefore a callee's first path is a segment once for each call that it reaches, and once more when it is complete.
/// - A tail call is a call after which the caller's path is complete.
/// - Uninstrumented functions are ignored: functions that `qsort` calls have no caller.
///
/// Later paths of a callee, which begin after a back edge, are not part of a segment. Earlier calls on the same path are not part of the
/// chain. Whether a call returns does not matter, since the segment ends before. A path that continues at a landing pad is a single path.
///
/// The last path of a segment is also a path of an intraprocedural profile. Therefore the counts of segments of depth 1, summed over
/// callers, are at most the profile's counts (calls by uninstrumented functions are missing). The call segments of the thesis
/// (`trodden-sequence`, `call_segments`) continue after the return. Call segments of depth 1, summed over all continuations after the
/// callee's first event, are the segments defined here whose last path leads to the callee's first call, or is complete without a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentSet {
    functions: Vec<SegmentFunction>,
    /// True if the build counts every pair of a context and a path, space permitting, instead of only the interesting pairs.
    counts_all_pairs: bool,
    /// Maximum growth of a unit's code by inlining and duplicating callees, in percent.
    growth: u32,
    #[serde(skip)]
    index: SegmentIndex,
}

/// Lookup tables for the rest of the set, from which they are derived. Therefore two of them always compare as equal.
#[derive(Clone, Debug, Default)]
struct SegmentIndex {
    functions: OnceCell<HashMap<(String, String, NameVersion), u32>>,
    contexts: OnceCell<HashMap<(u32, SegmentContext), u32>>,
}

impl PartialEq for SegmentIndex {
    fn eq(&self, _: &SegmentIndex) -> bool {
        true
    }
}

impl Eq for SegmentIndex {}

/// A function that occurs in the segments of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFunction {
    /// Source of its unit.
    pub unit: String,
    /// Linkage name.
    pub name: String,
    /// Other names of the function that callers use.
    pub aliases: Vec<String>,
    /// Version of the function, which distinguishes it from others with the same name.
    pub version: NameVersion,
    /// Whether the function's name is local to its unit.
    pub local: bool,
    /// Its control-flow graph.
    pub graph: Graph,
    /// Edges at which the function's paths are divided, such as back edges.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of paths.
    pub paths: u64,
    /// Number of executions of each edge; all 0 if unknown.
    pub edges: Vec<u64>,
    /// Contexts of the function, which are chains of callers. The first has number 1. Context 0 stands for any callers.
    pub contexts: Vec<SegmentContext>,
    /// Interesting segments that end in the function: pairs of context and path ID, ascending.
    pub interesting: BTreeSet<(u32, u64)>,
    /// Known numbers of executions of segments that end in the function, by the ID of the last path.
    pub executions: BTreeMap<u64, u64>,
    /// Whether segments that end in this function are counted. If not, it occurs only as a caller in segments.
    pub counts: bool,
}

/// A context of a function: its direct caller, the context of this caller, and the caller's path up to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentContext {
    /// Index of the direct caller among the functions of the set.
    pub caller: u32,
    /// Number of the caller's own context; 0 if any context is meant.
    pub context: u32,
    /// ID of the caller's path.
    pub path: u64,
}

impl SegmentSet {
    /// Returns the functions in the set.
    pub fn functions(&self) -> &[SegmentFunction] {
        &self.functions
    }

    /// Returns the index of a function; `None` if the set does not have it.
    pub fn find_function(&self, unit: &str, name: &str, version: NameVersion) -> Option<u32> {
        let all = || (0..).zip(&self.functions).map(|(at, f)| ((f.unit.clone(), f.name.clone(), f.version), at)).collect();
        self.index.functions.get_or_init(all).get(&(unit.to_owned(), name.to_owned(), version)).copied()
    }

    /// Returns whether the set contains a function with this name, in any version.
    pub fn has_function(&self, unit: &str, name: &str) -> bool {
        self.functions.iter().any(|f| f.unit == unit && f.name == name)
    }

    /// Returns true if all pairs of a context and a path are counted, instead of only the interesting pairs.
    pub fn counts_all_pairs(&self) -> bool {
        self.counts_all_pairs
    }

    /// Returns the number of interesting segments.
    pub fn len(&self) -> usize {
        self.functions.iter().map(|f| f.interesting.len()).sum()
    }

    /// Returns whether the set has no interesting segments.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the context whose chain of callers is that of `context` without the outermost one; 0 if no caller remains.
    pub fn context_without_outermost_caller(&self, function: u32, context: u32) -> u32 {
        let Some(whole) = self.context(function, context) else { return 0 };
        match whole.context {
            0 => 0,
            outer => {
                self.find_context(function, SegmentContext { context: self.context_without_outermost_caller(whole.caller, outer), ..whole })
            }
        }
    }

    /// Returns the context of `callee` after a call by `caller`, which was in `context` and on `path`. This is the context with the longest
    /// matching chain of callers, or 0 if no chain matches.
    pub fn context_after_call(&self, caller: u32, context: u32, path: u64, callee: u32) -> u32 {
        let mut context = context;
        loop {
            let found = self.find_context(callee, SegmentContext { caller, context, path });
            if found > 0 || context == 0 {
                return found;
            }
            context = self.context_without_outermost_caller(caller, context);
        }
    }

    /// Returns the context with a number; `None` for 0 and for numbers that do not exist.
    pub fn context(&self, function: u32, context: u32) -> Option<SegmentContext> {
        self.functions[function as usize].contexts.get((context as usize).checked_sub(1)?).copied()
    }

    /// Returns all contexts whose direct caller is the given function, each with the index of its callee.
    pub fn contexts_with_caller(&self, caller: u32) -> Vec<(u32, SegmentContext)> {
        let all = (0..).zip(&self.functions);
        all.flat_map(|(callee, f)| f.contexts.iter().filter(|c| c.caller == caller).map(move |c| (callee, *c))).collect()
    }

    /// Returns the IDs of a function's paths that occur in segments.
    pub fn paths_of(&self, function: u32) -> BTreeSet<u64> {
        let last = self.functions[function as usize].interesting.iter().map(|(_, path)| *path);
        last.chain(self.contexts_with_caller(function).into_iter().map(|(_, context)| context.path)).collect()
    }

    fn find_context(&self, function: u32, context: SegmentContext) -> u32 {
        let of = |(at, f): (u32, &SegmentFunction)| -> Vec<_> { f.contexts.iter().zip(1..).map(|(c, n)| ((at, *c), n)).collect() };
        let all = || (0..).zip(&self.functions).flat_map(of).collect();
        self.index.contexts.get_or_init(all).get(&(function, context)).copied().unwrap_or(0)
    }

    /// Returns the maximum growth of a unit's code, in percent. Code grows because callees are inlined, or duplicated with the context as
    /// an additional argument.
    pub fn max_growth_percent(&self) -> u32 {
        self.growth
    }

    /// Returns the set with a different maximum growth of code, in percent.
    pub fn with_max_growth_percent(self, growth: u32) -> SegmentSet {
        SegmentSet { growth, ..self }
    }

    /// Returns the number of calls in the longest chain of callers.
    pub fn depth(&self) -> u32 {
        let lengths = self.functions.iter().flat_map(|f| &f.contexts).filter_map(|c| self.caller_chain_length(c, MAX_DEPTH));
        lengths.max().unwrap_or(0)
    }

    /// Returns whether `name` is the function's name or one of its aliases.
    pub fn is_called(&self, function: u32, name: &str) -> bool {
        let function = &self.functions[function as usize];
        function.name == name || function.aliases.iter().any(|alias| alias == name)
    }

    /// Encodes the set as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Returns whether the header of a file shows that it contains a set of segments. The file may be of any version.
    pub fn is_segment_set_file(bytes: &[u8]) -> bool {
        FORMAT.matches_kind(bytes)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<SegmentSet, ContentError> {
        FORMAT.read_checked(bytes, SegmentSet::is_sound)
    }

    fn is_sound(&self) -> bool {
        let lengths = |f: &SegmentFunction| f.contexts.iter().map(|c| self.caller_chain_length(c, MAX_DEPTH)).collect::<Option<Vec<u32>>>();
        let is_sound = |f: &SegmentFunction| {
            let paths = f.interesting.iter().all(|(c, p)| *c as usize <= f.contexts.len() && *p < f.paths);
            let flow = f.graph.edge_count() == f.edges.len() && f.executions.keys().all(|path| *path < f.paths);
            paths && flow && lengths(f).is_some() && f.cuts.iter().all(|(edge, _)| edge.index() < f.edges.len())
        };
        self.functions.iter().all(is_sound)
    }

    /// Returns the number of calls in a context's chain of callers. `None` if an index is invalid, or if the chain is longer than `max`.
    fn caller_chain_length(&self, context: &SegmentContext, max: u32) -> Option<u32> {
        let caller = self.functions.get(context.caller as usize).filter(|f| context.path < f.paths)?;
        let rest = max.checked_sub(1)?;
        match context.context {
            0 => Some(1),
            outer => Some(1 + self.caller_chain_length(caller.contexts.get(outer as usize - 1)?, rest)?),
        }
    }
}

/// Builds a [`SegmentSet`].
#[derive(Debug, Default)]
pub struct SegmentSetBuilder {
    set: SegmentSet,
    functions: HashMap<(String, String, NameVersion), u32>,
    contexts: HashMap<(u32, SegmentContext), u32>,
}

impl SegmentSetBuilder {
    /// Returns the index of a function, which is added if it is new.
    pub fn add_function(&mut self, unit: &UnitMap, function: &FunctionMap) -> u32 {
        let key = (unit.source.clone(), function.name.clone(), function.version());
        let functions = &mut self.set.functions;
        *self.functions.entry(key).or_insert_with_key(|key| {
            functions.push(SegmentFunction {
                unit: key.0.clone(),
                name: key.1.clone(),
                aliases: unit.aliases.iter().filter(|a| a.of == key.1).map(|a| a.name.clone()).collect(),
                version: key.2,
                local: function.local,
                graph: (*function.graph).clone(),
                cuts: function.cuts.clone(),
                paths: function.counters,
                edges: vec![0; function.graph.edge_count()],
                contexts: Vec::new(),
                interesting: BTreeSet::new(),
                executions: BTreeMap::new(),
                counts: true,
            });
            functions.len() as u32 - 1
        })
    }

    /// Adds executions of the segments that end with the given path.
    pub fn add_executions(&mut self, function: u32, path: u64, executions: u64) {
        let sum = self.set.functions[function as usize].executions.entry(path).or_default();
        *sum = sum.saturating_add(executions);
    }

    /// Sets the executions of edges for all functions for which `known` returns them.
    pub fn set_edge_executions(&mut self, known: impl Fn(&str, &str, NameVersion) -> Option<Vec<u64>>) {
        for function in &mut self.set.functions {
            let edges = known(&function.unit, &function.name, function.version);
            if let Some(edges) = edges.filter(|edges| edges.len() == function.edges.len()) {
                function.edges = edges;
            }
        }
    }

    /// Returns the number of a function's context, given as a chain of callers and their paths, outermost first. Adds the context and all
    /// its suffixes if they are new.
    pub fn context(&mut self, callers: &[(u32, u64)], function: u32) -> u32 {
        let Some((&(caller, path), outer)) = callers.split_last() else { return 0 };
        if callers.len() > 1 {
            self.context(&callers[1..], function);
        }
        let context = SegmentContext { caller, context: self.context(outer, caller), path };
        let contexts = &mut self.set.functions[function as usize].contexts;
        *self.contexts.entry((function, context)).or_insert_with(|| {
            contexts.push(context);
            contexts.len() as u32
        })
    }

    /// Adds an interesting segment: a chain of callers and their paths, outermost first, followed by a function and its path.
    pub fn insert(&mut self, callers: &[(u32, u64)], function: u32, path: u64) {
        let context = self.context(callers, function);
        self.set.functions[function as usize].interesting.insert((context, path));
    }

    /// Returns the finished set. If `counts_all_pairs`, all pairs of a context and a path are counted, instead of only the interesting
    /// pairs.
    pub fn finish(self, counts_all_pairs: bool) -> SegmentSet {
        SegmentSet { counts_all_pairs, ..self.set }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_container::FileError;
    use trodden_flow::Node;

    pub fn create_builder(functions: usize) -> SegmentSetBuilder {
        let function = |number: usize| SegmentFunction {
            unit: "u.c".into(),
            name: format!("f{number}"),
            aliases: Vec::new(),
            version: NameVersion::default(),
            local: false,
            graph: Graph::new(2, Node(0), Node(1), Vec::new()).unwrap(),
            cuts: Vec::new(),
            paths: 8,
            edges: Vec::new(),
            contexts: Vec::new(),
            interesting: BTreeSet::new(),
            executions: BTreeMap::new(),
            counts: true,
        };
        let set = SegmentSet { functions: (0..functions).map(function).collect(), ..SegmentSet::default() };
        SegmentSetBuilder { set, ..SegmentSetBuilder::default() }
    }

    pub fn caller_chain_of(set: &SegmentSet, callee: u32, context: u32) -> Vec<(u32, u64)> {
        let (mut function, mut context, mut chain) = (callee, context, Vec::new());
        while let Some(c) = set.context(function, context) {
            chain.insert(0, (c.caller, c.path));
            (function, context) = (c.caller, c.context);
        }
        chain
    }

    /// Finds the longest suffix of a chain of calls that is a context, by trying all suffixes.
    pub fn longest_context(set: &SegmentSet, chain: &[(u32, u64)], callee: u32) -> Vec<(u32, u64)> {
        let contexts = 1..=set.functions[callee as usize].contexts.len() as u32;
        let all: Vec<Vec<(u32, u64)>> = contexts.map(|context| caller_chain_of(set, callee, context)).collect();
        let found = (0..chain.len()).find(|from| all.contains(&chain[*from..].to_vec()));
        found.map_or(Vec::new(), |from| chain[from..].to_vec())
    }

    #[test]
    fn target_is_the_longest_suffix_that_is_a_context() {
        let mut builder = create_builder(3);
        builder.insert(&[(0, 1), (1, 2)], 2, 5);
        builder.insert(&[(1, 3), (1, 2)], 2, 5);
        builder.insert(&[(2, 4), (0, 1), (1, 2)], 2, 0);
        builder.insert(&[(0, 7)], 1, 1);
        let set = builder.finish(false);
        assert!(set.is_sound() && SegmentSet::from_bytes(&set.to_bytes()) == Ok(set.clone()));
        // All sequences of three calls, followed by each function as the callee.
        let steps = [(0, 1), (0, 7), (1, 2), (1, 3), (2, 4)];
        let mut compared = 0;
        for first in steps {
            for second in steps {
                for third in steps {
                    for callee in 0..3 {
                        let chain = [first, second, third];
                        let mut context = 0;
                        for (at, (function, path)) in chain.iter().enumerate() {
                            let to = chain.get(at + 1).map_or(callee, |next| next.0);
                            context = set.context_after_call(*function, context, *path, to);
                        }
                        let expected = longest_context(&set, &chain, callee);
                        let length = set.context(callee, context).map_or(0, |c| set.caller_chain_length(&c, MAX_DEPTH).unwrap());
                        assert_eq!(length as usize, expected.len(), "{chain:?} to {callee}");
                        compared += usize::from(length > 1);
                    }
                }
            }
        }
        assert!(compared > 10, "{compared}");
    }

    #[test]
    fn invalid_references_are_rejected() {
        let mut builder = create_builder(2);
        builder.insert(&[(0, 1)], 1, 5);
        let set = builder.finish(false);
        let changed = |change: &dyn Fn(&mut SegmentSet)| {
            let mut set = set.clone();
            change(&mut set);
            SegmentSet::from_bytes(&set.to_bytes()).map(drop).map_err(|wrong| wrong.error)
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|set| set.functions[1].contexts[0].caller = 2), Err(FileError::Inconsistent));
        assert_eq!(changed(&|set| set.functions[1].contexts[0].path = 8), Err(FileError::Inconsistent));
        assert_eq!(
            changed(&|set| set.functions[1].contexts[0] = SegmentContext { caller: 1, context: 1, path: 0 }),
            Err(FileError::Inconsistent)
        );
        assert_eq!(
            changed(&|set| {
                set.functions[1].interesting.insert((2, 0));
            }),
            Err(FileError::Inconsistent)
        );
    }
}
