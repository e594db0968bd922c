//! The static description of a unit, which translates path IDs to blocks, source lines and branches.
//!
//! Wire format: [`UnitMap`] in [postcard](https://postcard.jamesmunns.com/wire-format) encoding, inside a [`crate::frame`]. Each change of
//! these types requires a new [`MAP_VERSION`].

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

/// Version of the wire format of [`UnitMap`].
pub const MAP_VERSION: u32 = 20;

/// Description of a compilation unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitMap {
    /// Name of the main source file, as it was passed to the compiler.
    pub source: String,
    /// Compiler and its version, from the debug information; empty if there is none.
    pub producer: String,
    /// Major version of the LLVM that generated the code and wrote the bitcode; 0 for a unit that no plugin has compiled.
    pub llvm: u32,
    /// Target triple.
    pub target: String,
    /// What the build observes, and how it counts.
    pub experiment: Experiment,
    /// Whether its counters count paths or edges.
    pub counted: CountedEvent,
    /// clang options that affect the generated code but are not in the bitcode (`-O2`, `-fPIC`).
    pub codegen: Vec<String>,
    /// The source files that positions refer to; absolute paths if the compiler knew the folder.
    pub files: Vec<String>,
    /// The scopes that positions refer to: functions, and chains of inlined calls.
    pub scopes: Vec<Scope>,
    /// Instrumented functions.
    pub functions: Vec<FunctionMap>,
    /// Functions with a body that are not instrumented, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Functions in which all paths are counted although only some are interesting, with the reasons.
    pub fully_counted: Vec<Skipped>,
    /// Number of counters of the unit. Each function has a range of counters, and the edge profile has further ones. The first
    /// [`UnitMap::counters_in_regions`] counters are in memory. The others belong to functions whose words do not correspond to paths one
    /// to one.
    pub counters: u64,
    /// LLVM's counters and how they are computed from the unit's paths; `None` if the unit was not built for an edge profile or coverage.
    pub edge_profile: Option<EdgeProfile>,
    /// Functions that the unit's code calls by name.
    pub calls: Vec<Callee>,
    /// Additional names of its functions, such as the aliases of C++ constructors.
    pub aliases: Vec<Alias>,
    /// Graphs of its functions before optimisation; empty if the compiler's front end is not clang, or the unit is not optimised.
    pub line_graphs: LineGraphs,
}

/// Whether a unit's path IDs denote paths or single edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountedEvent {
    /// Paths.
    #[default]
    Paths,
    /// Edges: each path is a single edge, as in copies that count edges.
    Edges,
}

/// A further name of a unit's function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// Linkage name of the function ([`FunctionMap::name`]).
    pub of: String,
}

/// A function that the unit calls by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callee {
    /// Its linkage name ([`FunctionMap::name`]).
    pub name: String,
    /// Number of call sites.
    pub sites: u32,
}

impl Callee {
    /// Returns the linkage name as in [`FunctionMap::plain_name`].
    pub fn plain_name(&self) -> &str {
        strip_mangling_mark(&self.name)
    }
}

fn strip_mangling_mark(name: &str) -> &str {
    name.strip_prefix('\u{1}').unwrap_or(name)
}

/// A function, or a function that is inlined at a call site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of the function in the source, not mangled.
    pub name: String,
    /// Linkage name; empty if it is the same as `name`.
    pub linkage_name: String,
    /// Index of its file in [`UnitMap::files`].
    pub file: u32,
    /// Line of its declaration.
    pub line: u32,
    /// Position of the inlined call; `None` if the function is not inlined. The call's scope is earlier in [`UnitMap::scopes`].
    pub inlined_at: Option<SourcePosition>,
}

/// A function that was not instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Linkage name.
    pub name: String,
    /// The reason, as text for reports.
    pub reason: String,
}

/// An instrumented function.
///
/// Its graph has a node for each block of the optimised code, followed by a node for the exit. A block that calls a function that returns
/// twice is split into two nodes. Cuts and paths refer to edges of this graph by their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionMap {
    /// Linkage name.
    pub name: String,
    /// Whether the name is local to the unit (`static`). Several functions of a program may then have this name.
    pub local: bool,
    /// Position of its declaration; `None` if it is not in the debug information.
    pub position: Option<SourcePosition>,
    /// Hash of the graph, equal for functions of the same shape.
    pub shape: u64,
    /// Hash of the code without source positions, which distinguishes functions of the same shape.
    pub code: u64,
    /// Index of its first counter among the unit's counters.
    pub first_counter: u64,
    /// Number of its counters, which is also the number of its paths. Counter `first_counter + i` counts path `i`.
    pub counters: u64,
    /// Where its counts are stored while the program runs.
    pub storage: Storage,
    /// Basic blocks; block 0 is the entry.
    pub blocks: Vec<UnitBlock>,
    /// Its control-flow graph.
    pub graph: FlowGraph,
    /// The edges of the acyclic graph whose paths are numbered, each given by its corresponding edge of `graph`.
    pub dag: Vec<Origin>,
    /// The value of each edge of `dag`. A path's ID is the sum of its edges' values.
    pub values: Vec<i64>,
    /// Edges at which paths are cut, usually back edges, with the reasons.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Back edges of loops whose iterations are counted together, by trip count, when the loop is left.
    pub by_trip_count: Vec<Edge>,
    /// Calls in its blocks, in the order of the blocks. Each callee is listed once per block.
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
    /// Number of IR instructions, excluding debug records and labels.
    pub instructions: u32,
    /// Distinct source positions of its instructions, in order of first occurrence.
    pub positions: Vec<SourcePosition>,
    /// Number of positions up to the block's last call that may not return, because a path may end there. Without such a call, all
    /// positions are included.
    pub up_to_calls: u32,
    /// Position of the branch at its end, if known.
    pub branch: Option<SourcePosition>,
    /// Kind of the block.
    pub kind: BlockKind,
}

/// Kind of a node of a function's graph. Code and continuation nodes come first, in the order of the module's blocks; each continuation
/// directly follows the block that it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockKind {
    /// A basic block of the module.
    Code,
    /// The rest of a basic block after a call that returns twice.
    Continuation,
    /// A block without code that precedes a target of indirect branches if the target also has other incoming edges.
    Landing,
    /// A block without code and address at which all indirect branches of a function meet, if there are several.
    Dispatch,
}

/// Reason why a [`FunctionMap`] is invalid.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum MapError {
    #[error("the path graph of function `{function}` is corrupt: {what}")]
    Dag { function: String, what: String },
    /// Indices are out of range, or sizes do not match.
    #[error("the map of function `{function}` is corrupt: {what}")]
    Inconsistent { function: String, what: String },
}

impl UnitMap {
    /// Returns a position, followed by the positions of the calls through which its code was inlined, innermost first.
    pub fn inlined_chain(&self, position: SourcePosition) -> impl Iterator<Item = SourcePosition> {
        std::iter::successors(Some(position), |at| {
            // In an intact map, a scope refers to an earlier one.
            let call = self.scopes.get(at.scope as usize)?.inlined_at?;
            (call.scope < at.scope).then_some(call)
        })
    }

    /// Returns the number of words of the unit in each thread's region: [`UnitMap::counters_in_regions`] times the words per counter.
    /// `None` if this overflows.
    pub fn words(&self) -> Option<u64> {
        let each = self.experiment.observation().observed().words().words_per_counter();
        self.counters_in_regions().checked_mul(each)
    }

    /// Returns true if the counters are followed by equally many times of first executions ([`trodden_wire::FunctionRecord`]).
    pub fn has_times(&self) -> bool {
        self.experiment.observation().observed().words() == CounterWords::CountAndTime
    }

    /// Returns the event that is summed for each path, in addition to its count.
    pub fn events(&self) -> Option<EventSource> {
        self.experiment.events()
    }

    /// Returns the number of counters that are in regions. The others belong to functions whose words do not correspond to paths one to
    /// one.
    pub fn counters_in_regions(&self) -> u64 {
        let separate = self.functions.iter().filter(|f| f.has_separate_words());
        separate.fold(self.counters, |words, f| words.saturating_sub(f.counters))
    }
}

/// Counts distinct functions. A function that is in several units of an image, such as an inline function, counts once.
pub fn count_distinct_functions<'m>(functions: impl IntoIterator<Item = &'m FunctionMap>) -> usize {
    let mut names = std::collections::HashSet::new();
    // Local functions with the same name are different functions.
    functions.into_iter().filter(|f| f.local || names.insert(f.name.as_str())).count()
}

/// Computes [`FunctionMap::code`].
pub fn code_hash(code: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(code)
}

/// Computes a hash of a graph and its blocks, without source positions ([`FunctionMap::shape`]).
pub fn graph_hash(blocks: &[UnitBlock], graph: &FlowGraph) -> u64 {
    let kinds: Vec<(u32, BlockKind)> = blocks.iter().map(|b| (b.instructions, b.kind)).collect();
    let edges: Vec<FlowEdge> = graph.flow_edges().collect();
    let bytes = postcard::to_allocvec(&(kinds, edges)).expect("maps are plain data");
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

impl FunctionMap {
    /// Returns the hashes that distinguish the function from others with the same name.
    pub fn version(&self) -> crate::NameVersion {
        crate::NameVersion { shape: self.shape, code: self.code }
    }

    /// Returns the hash table in which the function counts. `None` if it does not use one.
    pub fn table(&self) -> Option<CountTable> {
        match &self.storage {
            Storage::Table(table) => Some(*table),
            _ => None,
        }
    }

    /// Returns the words of the function's interesting paths. `None` if it counts all paths.
    pub fn interesting(&self) -> Option<&InterestingWords> {
        match &self.storage {
            Storage::Interesting(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts by sums of labels. `None` if it counts differently.
    pub fn label_words(&self) -> Option<&LabelWords> {
        match &self.storage {
            Storage::Labels(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts segments. `None` if it counts paths.
    pub fn segment_words(&self) -> Option<&SegmentWords> {
        match &self.storage {
            Storage::Segments(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words in which the function counts paths over iterations. `None` if it counts paths.
    pub fn iteration_words(&self) -> Option<&IterationWords> {
        match &self.storage {
            Storage::Iterations(words) => Some(words),
            _ => None,
        }
    }

    /// Returns whether the function's words do not correspond to paths one to one. Its counters then come after all words of the unit.
    pub fn has_separate_words(&self) -> bool {
        !matches!(self.storage, Storage::Array)
    }

    /// Returns whether some of its paths are not counted, so that the executions of its blocks are unknown.
    pub fn is_partial(&self) -> bool {
        self.storage.is_partial()
    }

    /// Returns the range of the counters for executions with an unknown path.
    pub fn unattributed(&self) -> std::ops::Range<u64> {
        self.storage.unattributed()
    }

    /// Returns the exit node.
    pub fn exit(&self) -> Node {
        Node(self.blocks.len() as u32)
    }

    /// Builds the acyclic graph whose paths are counted. Fails if the stored edges do not form an acyclic graph, or do not match the
    /// function's graph and values.
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

    /// Builds the path numbering of the function's acyclic graph. Fails if the edges' values are not a numbering of the paths.
    pub fn numbering(&self, dag: &Dag) -> Result<Numbering, MapError> {
        Numbering::from_values(dag, &self.values).map_err(|what| self.inconsistency(what))
    }

    /// Returns the error for an inconsistency in this map.
    pub fn inconsistency(&self, what: String) -> MapError {
        MapError::Inconsistent { function: self.name.clone(), what }
    }

    /// Returns the linkage name without LLVM's `\x01` prefix, which marks names that must not be mangled. Not demangled.
    pub fn plain_name(&self) -> &str {
        strip_mangling_mark(&self.name)
    }
}
