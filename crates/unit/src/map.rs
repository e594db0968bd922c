//! The static description of a compilation unit, by which path IDs are translated to blocks, source lines and branches.
//!
//! Maps are encoded in [postcard](https://postcard.jamesmunns.com/wire-format) format, inside a [`crate::frame`] or a block of a stored
//! profile. Each change of these types requires a new [`MAP_VERSION`].

use crate::edge_profile::EdgeProfile;
use crate::events::EventSource;
use crate::experiment::Experiment;
use crate::flow_graph::{FlowEdge, FlowGraph};
use crate::line_graphs::LineGraphs;
use crate::observe::{CounterWords, InterestingWords, IterationWords, LabelWords, SegmentWords};
use crate::position::SourcePosition;
use crate::storage::{CountTable, Storage};
use serde::{Deserialize, Serialize};
use trodden_flow::{CutReason, Dag, Edge, Node, Numbering, Origin};

/// Version of the encoding of [`UnitMap`].
pub const MAP_VERSION: u32 = 20;

/// Description of a compilation unit: its functions, their control-flow graphs and their paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitMap {
    /// Name of the main source file, as passed to the compiler.
    pub source: String,
    /// Name and version of the compiler, from the debug information; empty if there is none.
    pub producer: String,
    /// Major version of the LLVM that generated the code and wrote the bitcode; 0 for a unit that was not compiled with a plugin.
    pub llvm: u32,
    /// Target triple.
    pub target: String,
    /// What the build observes, and how it counts.
    pub experiment: Experiment,
    /// Whether the unit's counters count paths or edges.
    pub counted: CountedEvent,
    /// clang options that affect the generated code and are not in the bitcode, such as `-O2` and `-fPIC`.
    pub codegen: Vec<String>,
    /// Source files to which positions refer, with absolute paths if the compiler knew the folder.
    pub files: Vec<String>,
    /// Scopes to which positions refer: functions, and chains of inlined calls.
    pub scopes: Vec<Scope>,
    /// Instrumented functions.
    pub functions: Vec<FunctionMap>,
    /// Functions with a body that are not instrumented, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Functions of which all paths are counted although only some are interesting, with the reasons.
    pub fully_counted: Vec<Skipped>,
    /// Number of counters of the unit: those of each function, and those for the edge profile. The first
    /// [`UnitMap::counter_words_in_regions`] of them are words in memory. The others belong to functions that count in a different way,
    /// such as in a hash table, so that a counter is not a word.
    pub counters: u64,
    /// LLVM's profile counters, and how they are computed from the unit's paths. `None` if the unit was not built for an edge profile or
    /// for coverage.
    pub edge_profile: Option<EdgeProfile>,
    /// Functions that the unit calls by name, with their numbers of call sites.
    pub calls: Vec<Callee>,
    /// Further names of the unit's functions, such as aliases of C++ constructors.
    pub aliases: Vec<Alias>,
    /// Graphs of the functions before optimisation. Empty if the front end of the compiler is not clang, or if the unit is not optimised.
    pub line_graphs: LineGraphs,
}

/// What the path IDs of a unit denote: paths, or single edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountedEvent {
    /// Paths.
    #[default]
    Paths,
    /// Edges. Each path of the map is a single edge, as in instrumented copies that count edges.
    Edges,
}

/// A further name of a unit's function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// Linkage name of the function that the alias denotes ([`FunctionMap::name`]).
    pub of: String,
}

/// A function that the unit calls by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callee {
    /// Linkage name of the function ([`FunctionMap::name`]).
    pub name: String,
    /// Number of call sites.
    pub sites: u32,
}

impl Callee {
    /// Returns the linkage name in the same form as [`FunctionMap::plain_name`].
    pub fn plain_name(&self) -> &str {
        strip_mangling_mark(&self.name)
    }
}

fn strip_mangling_mark(name: &str) -> &str {
    name.strip_prefix('\u{1}').unwrap_or(name)
}

/// A function, or a copy of a function that was inlined at a call site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of the function in the source code, not mangled.
    pub name: String,
    /// Linkage name; empty if it is the same as `name`.
    pub linkage_name: String,
    /// Index of the function's file in [`UnitMap::files`].
    pub file: u32,
    /// Line of its declaration.
    pub line: u32,
    /// Position of the call that was inlined; `None` if the scope is not inlined. The scope of the call has a lower index in
    /// [`UnitMap::scopes`].
    pub inlined_at: Option<SourcePosition>,
}

/// A function that was not instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Linkage name.
    pub name: String,
    /// The reason why it was not instrumented, as text for reports.
    pub reason: String,
}

/// An instrumented function.
///
/// Its graph has a node for each block of the optimised code, and finally a node for the exit. A block that calls a function that can
/// return twice is split into two nodes. Cuts (edges at which paths are divided) and paths refer to edges of this graph by their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionMap {
    /// Linkage name.
    pub name: String,
    /// Whether the name is local to the unit (`static`). Several functions of a program can have the same local name.
    pub local: bool,
    /// Position of the function's declaration; `None` if the debug information does not contain it.
    pub position: Option<SourcePosition>,
    /// Hash of the control-flow graph. Functions with the same graph have the same hash.
    pub shape: u64,
    /// Hash of the code, without source positions. It distinguishes functions with the same graph.
    pub code: u64,
    /// Index of the function's first counter among the unit's counters.
    pub first_counter: u64,
    /// Number of counters of the function, which is also the number of its paths. Counter `first_counter + i` counts path `i`.
    pub counters: u64,
    /// Where the function's counts are stored while the program runs.
    pub storage: Storage,
    /// Basic blocks. Block 0 is the entry.
    pub blocks: Vec<UnitBlock>,
    /// Its control-flow graph.
    pub graph: FlowGraph,
    /// Edges of the acyclic graph whose paths are numbered. Each is given by the edge of `graph` that it comes from.
    pub dag: Vec<Origin>,
    /// Value of each edge in `dag`. The ID of a path is the sum of its edges' values.
    pub values: Vec<i64>,
    /// Edges at which paths are divided, usually back edges, with the reasons.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Back edges of loops that are counted once, by trip count, when control leaves the loop.
    pub by_trip_count: Vec<Edge>,
    /// Calls in the function, in the order of the blocks. A block lists each callee only once.
    pub calls: Vec<BlockCall>,
}

/// A call in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockCall {
    /// The block.
    pub block: Node,
    /// Linkage name of the callee; `None` for an indirect call.
    pub callee: Option<String>,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitBlock {
    /// Number of IR instructions, not counting debug records and labels.
    pub instructions: u32,
    /// Source positions of the block's instructions, without duplicates, in the order of their first occurrence.
    pub positions: Vec<SourcePosition>,
    /// Number of `positions` up to the block's last call that may not return, since a path may end there. If the block has no such call,
    /// the number of all positions.
    pub up_to_calls: u32,
    /// Position of the branch at the end of the block, if known.
    pub branch: Option<SourcePosition>,
    /// Kind of the block.
    pub kind: BlockKind,
}

/// Kind of a node of a function's graph. Code and continuation nodes come first, in the order of the blocks in the LLVM module. A
/// continuation directly follows the block that it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockKind {
    /// A basic block of the LLVM module.
    Code,
    /// The rest of a basic block, after a call to a function that can return twice.
    Continuation,
    /// A block without code before a target of indirect branches. It exists if the target also has other predecessors.
    Landing,
    /// A block without code and address, which represents all indirect branches of a function if there are several: they lead to this
    /// block, and edges lead from it to the targets.
    Dispatch,
}

/// Reason why a [`FunctionMap`] is invalid.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum MapError {
    #[error("the path graph of function `{function}` is corrupt: {what}")]
    Dag { function: String, what: String },
    /// An index is out of range, or sizes do not match.
    #[error("the map of function `{function}` is corrupt: {what}")]
    Inconsistent { function: String, what: String },
}

impl UnitMap {
    /// Returns the position, followed by the positions of the calls through which its code was inlined, innermost first.
    pub fn inlined_chain(&self, position: SourcePosition) -> impl Iterator<Item = SourcePosition> {
        std::iter::successors(Some(position), |at| {
            // The scope of the call has a lower index, unless the map is corrupt. This check prevents an endless loop.
            let call = self.scopes.get(at.scope as usize)?.inlined_at?;
            (call.scope < at.scope).then_some(call)
        })
    }

    /// Returns the number of words that the unit has in each thread's region: [`UnitMap::counter_words_in_regions`] times the words per
    /// counter. `None` if the number overflows.
    pub fn words_per_region(&self) -> Option<u64> {
        let each = self.experiment.observation().observation_properties().counter_words().words_per_counter();
        self.counter_words_in_regions().checked_mul(each)
    }

    /// Returns true if the counters are followed by an equal number of words for the times of first executions
    /// ([`trodden_wire::FunctionRecord`]).
    pub fn has_times(&self) -> bool {
        self.experiment.observation().observation_properties().counter_words() == CounterWords::CountAndTime
    }

    /// Returns the event that is summed for each path in addition to counting it; `None` if no event is summed.
    pub fn events(&self) -> Option<EventSource> {
        self.experiment.events()
    }

    /// Returns the number of counters that are words in memory, in the region of each thread. The other counters belong to functions that
    /// count in a different way, so that a counter is not a word.
    pub fn counter_words_in_regions(&self) -> u64 {
        let separate = self.functions.iter().filter(|f| f.has_separate_words());
        separate.fold(self.counters, |words, f| words.saturating_sub(f.counters))
    }
}

/// Returns the number of distinct functions. A function that is in several units of an image, such as an inline function, is counted once.
pub fn count_distinct_functions<'m>(functions: impl IntoIterator<Item = &'m FunctionMap>) -> usize {
    let mut names = std::collections::HashSet::new();
    // Local functions are different functions even if they have the same name.
    functions.into_iter().filter(|f| f.local || names.insert(f.name.as_str())).count()
}

/// Computes the hash of a function's code for [`FunctionMap::code`].
pub fn code_hash(code: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(code)
}

/// Computes the hash of a control-flow graph and its blocks for [`FunctionMap::shape`]. Source positions are ignored.
pub fn graph_hash(blocks: &[UnitBlock], graph: &FlowGraph) -> u64 {
    let kinds: Vec<(u32, BlockKind)> = blocks.iter().map(|b| (b.instructions, b.kind)).collect();
    let edges: Vec<FlowEdge> = graph.flow_edges().collect();
    let bytes = postcard::to_allocvec(&(kinds, edges)).expect("maps are plain data");
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

impl FunctionMap {
    /// Returns the hashes of graph and code, which distinguish the function from others with the same name.
    pub fn version(&self) -> crate::NameVersion {
        crate::NameVersion { shape: self.shape, code: self.code }
    }

    /// Returns the hash table in which the function counts; `None` if it counts in a different way.
    pub fn table(&self) -> Option<CountTable> {
        match &self.storage {
            Storage::Table(table) => Some(*table),
            _ => None,
        }
    }

    /// Returns the words that count the function's interesting paths; `None` if it counts all paths alike.
    pub fn interesting_words(&self) -> Option<&InterestingWords> {
        match &self.storage {
            Storage::Interesting(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts, if they are indexed by sums of labels; otherwise `None`.
    pub fn label_words(&self) -> Option<&LabelWords> {
        match &self.storage {
            Storage::Labels(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts segments (paths across calls); `None` if it does not count segments.
    pub fn segment_words(&self) -> Option<&SegmentWords> {
        match &self.storage {
            Storage::Segments(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts paths over iterations; `None` if it does not count these.
    pub fn iteration_words(&self) -> Option<&IterationWords> {
        match &self.storage {
            Storage::Iterations(words) => Some(words),
            _ => None,
        }
    }

    /// Returns whether the function's words do not correspond to its paths one to one. If so, its counters are numbered after all words of
    /// the unit.
    pub fn has_separate_words(&self) -> bool {
        !matches!(self.storage, Storage::Array)
    }

    /// Returns whether some paths of the function are not counted, so that the executions of its blocks are unknown.
    pub fn is_partial(&self) -> bool {
        self.storage.is_partial()
    }

    /// Returns the range of the counters that count executions whose path is unknown.
    pub fn unattributed(&self) -> std::ops::Range<u64> {
        self.storage.unattributed()
    }

    /// Returns the exit node.
    pub fn exit(&self) -> Node {
        Node(self.blocks.len() as u32)
    }

    /// Builds the acyclic graph whose paths are counted. Fails if the stored edges do not form an acyclic graph, or if they do not match
    /// the function's graph and values.
    pub fn dag(&self) -> Result<Dag, MapError> {
        let wrong = |what: String| MapError::Dag { function: self.name.clone(), what };
        if self.graph.node_count() != self.blocks.len() + 1 {
            return Err(wrong(format!("the graph has {} nodes for {} blocks", self.graph.node_count(), self.blocks.len())));
        }
        if self.values.len() != self.dag.len() {
            return Err(wrong(format!("it has {} values for {} edges", self.values.len(), self.dag.len())));
        }
        Dag::from_origins(&self.graph, &self.dag, &self.cuts).map_err(wrong)
    }

    /// Builds the path numbering of the function's acyclic graph. Fails if the values of the edges do not number the paths.
    pub fn numbering(&self, dag: &Dag) -> Result<Numbering, MapError> {
        Numbering::from_values(dag, &self.values).map_err(|what| self.inconsistency(what))
    }

    /// Returns an error that reports an inconsistency in this map.
    pub fn inconsistency(&self, what: String) -> MapError {
        MapError::Inconsistent { function: self.name.clone(), what }
    }

    /// Returns the linkage name, still mangled, but without LLVM's `\x01` prefix for names to which the platform must not add its own
    /// prefix.
    pub fn plain_name(&self) -> &str {
        strip_mangling_mark(&self.name)
    }
}
