//! The static description of a unit: everything needed to turn a path's number back into blocks, source lines and branches.
//!
//! Wire format: [postcard](https://postcard.jamesmunns.com/wire-format) of [`UnitMap`] in the order of the fields,
//! inside a [`crate::frame`]. A change of these types is a new [`MAP_VERSION`].

use crate::edge_profile::EdgeProfile;
use crate::events::EventSource;
use crate::experiment::Experiment;
use crate::line_graphs::LineGraphs;
use crate::observe::{CounterWords, InterestingWords, LabelWords, SegmentWords};
use crate::position::Position;
use crate::storage::{CountTable, Storage};
use serde::{Deserialize, Serialize};
use trodden_flow::{CutReason, Dag, DagEdge, Edge, Graph, GraphError, Node, Numbering, Origin};

/// Version of the wire format of [`UnitMap`].
pub const MAP_VERSION: u32 = 18;

/// One compilation unit: its functions, and what they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitMap {
    /// Name of the main source file as the compiler had it.
    pub source: String,
    /// Compiler and its version, from the debug information; empty if there is none.
    pub producer: String,
    /// Target triple.
    pub target: String,
    /// What was observed of the unit.
    pub experiment: Experiment,
    /// What its counters stand for.
    pub counted: CountedEvent,
    /// Options of clang by which machine code was made of the bitcode and which the bitcode does not hold (`-O2`, `-fPIC`).
    pub codegen: Vec<String>,
    /// Source files that positions name; absolute where the compiler knew the folder.
    pub files: Vec<String>,
    /// Scopes that positions name: functions and the chains of inlining that led into them.
    pub scopes: Vec<Scope>,
    /// Instrumented functions.
    pub functions: Vec<FunctionMap>,
    /// Functions with a body that are not instrumented, each with the reason.
    pub skipped: Vec<Skipped>,
    /// Functions all of whose paths are counted although only some are interesting, each with the reason.
    pub instead: Vec<Skipped>,
    /// Number of counters of the unit; each function has a range of them, and so has what its edge profile counts separately. The first
    /// [`UnitMap::words`] of them are words of memory; behind them are the paths of functions whose words are not one for each path.
    pub counters: u64,
    /// What turns the unit's paths into LLVM's edge profile, if it was built to be optimised by that.
    pub edge_profile: Option<EdgeProfile>,
    /// Functions that the unit's code calls by name.
    pub calls: Vec<Callee>,
    /// Other names of its functions, by which they may be called, as constructors of C++ are.
    pub aliases: Vec<Alias>,
    /// Its functions before the optimiser; none where the compiler's front end is not clang, or nothing is optimised.
    pub line_graphs: LineGraphs,
}

/// What the numbers of a unit's paths stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountedEvent {
    /// Paths.
    #[default]
    Paths,
    /// Edges, each as a path of its own: what copies that count edges add up to.
    Edges,
}

/// Another name of a function of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// The function, as [`FunctionMap::name`] has it.
    pub of: String,
}

/// A function, and the places of a unit where it is called by name: an indirect call names no function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callee {
    /// Its linkage name, as in [`FunctionMap::name`].
    pub name: String,
    /// Number of those places.
    pub sites: u32,
}

impl Callee {
    /// Its name as [`FunctionMap::plain_name`] has it.
    pub fn plain_name(&self) -> &str {
        plain(&self.name)
    }
}

fn plain(name: &str) -> &str {
    name.strip_prefix('\u{1}').unwrap_or(name)
}

/// A function, or one inlined into another at a call site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of the function as the source has it (not mangled).
    pub name: String,
    /// Linkage name; empty if the same.
    pub linkage_name: String,
    /// Place of its file in [`UnitMap::files`].
    pub file: u32,
    /// Line of its declaration.
    pub line: u32,
    /// Where it was inlined: the calling position, whose scope comes earlier in [`UnitMap::scopes`]. `None` for the function itself.
    pub inlined_at: Option<Position>,
}

/// A function that was not instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Linkage name.
    pub name: String,
    /// Why, for people.
    pub reason: String,
}

/// An instrumented function.
///
/// Its graph has one node for each block and, last, one for the exit. Blocks are those of the optimised code; a block
/// that calls a function which returns twice is two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionMap {
    /// Linkage name.
    pub name: String,
    /// Other units cannot name it (`static`): its name may stand for several functions of a program.
    pub local: bool,
    /// Where it is declared, if debug information says.
    pub position: Option<Position>,
    /// Hash of the graph: equal for functions of one shape.
    pub shape: u64,
    /// Digest of the code, without its source positions: functions of one shape may do different things.
    pub code: u64,
    /// Its first counter among those of the unit.
    pub first_counter: u64,
    /// Number of its counters: counter `i` counts path `i`.
    pub counters: u64,
    /// Where they are kept while the program runs.
    pub storage: Storage,
    /// Basic blocks; block 0 is the entry.
    pub blocks: Vec<UnitBlock>,
    /// Edges between blocks, and from blocks to the exit.
    pub edges: Vec<FlowEdge>,
    /// The acyclic graph whose paths are numbered.
    pub dag: Vec<DagEdge>,
    /// For each edge of `dag` its value: a path's number is the sum along it.
    pub values: Vec<i64>,
    /// Edges where paths were cut (loops, mostly), each with the reason.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Edges that close loops which are counted when they are left, by their trip count: an iteration costs no addition.
    pub by_trip_count: Vec<Edge>,
    /// What its blocks call, each callee of a block once, in the order of the blocks.
    pub calls: Vec<BlockCall>,
}

/// A call in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockCall {
    /// The block.
    pub block: Node,
    /// Linkage name of the function that is called; none: the call is indirect.
    pub callee: Option<String>,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitBlock {
    /// Number of instructions of the intermediate code (without debug records and labels).
    pub instructions: u32,
    /// Distinct source positions of its instructions in order of first occurrence.
    pub positions: Vec<Position>,
    /// How many of the positions occur up to its last call that may not return; all if it has no such call, which ends no path.
    pub up_to_calls: u32,
    /// Position of the branch that ends it, if known.
    pub branch: Option<Position>,
    /// What it is.
    pub kind: BlockKind,
}

/// What a node of a function's graph is. The nodes of the first two kinds stand in the order of the module's blocks,
/// each continuation behind the block it continues; the others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockKind {
    /// A basic block of the module.
    Code,
    /// The rest of a basic block, behind a call that returns twice.
    Continuation,
    /// A target of indirect branches to a block that has other incoming edges, too; the landing has no code.
    Landing,
    /// The dispatch block, in which all indirect branches of a function meet if there are several. It has no code and no address.
    Dispatch,
}

/// An edge of a function's graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEdge {
    /// Block it leaves.
    pub from: Node,
    /// Block it enters, or the exit.
    pub to: Node,
    /// When it is taken.
    pub kind: EdgeKind,
    /// All values of the switch that lead along it; also of a default edge whose block some cases share.
    pub cases: Vec<i64>,
}

/// When an edge is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EdgeKind {
    /// The only edge of its block.
    Always,
    /// The branch's condition is true.
    True,
    /// The branch's condition is false.
    False,
    /// The switch's value is this, or another of the edge's cases.
    Case(i64),
    /// The switch's value is none of the other edges' cases.
    Default,
    /// An indirect branch to the dispatch block, or its index among the targets.
    Indirect(u32),
    /// The call returns normally.
    Normal,
    /// The call throws.
    Unwind,
    /// The function returns.
    Return,
    /// The function ends in a call that may take its place (a tail call): on the way to the exit, or to a block that
    /// only returns what the call returned.
    TailCall,
    /// The function passes an exception on.
    Resume,
    /// The block ends without going on: a call that does not return.
    NoReturn,
    /// To the exit: the block is about to make a call that may not come back (exit, longjmp, an exception that passes
    /// through). Counts on paths that end with such an edge say how often the call was reached; how many of those did
    /// not come back follows from the paths that go on.
    Reach,
    /// A function that returns twice has returned.
    ReturnsTwice,
}

/// Why a [`FunctionMap`] makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Edges that name blocks that do not exist.
    #[error("the graph of function `{function}` is damaged: {source}")]
    Graph {
        /// The function.
        function: String,
        /// What is wrong.
        source: GraphError,
    },
    /// The acyclic graph is none.
    #[error("the path graph of function `{function}` is damaged: {what}")]
    Dag {
        /// The function.
        function: String,
        /// What is wrong.
        what: String,
    },
    /// Indices out of range, sizes that do not match.
    #[error("the map of function `{function}` is damaged: {what}")]
    Inconsistent {
        /// The function.
        function: String,
        /// What is wrong.
        what: String,
    },
}

impl UnitMap {
    /// A position, and the calls by which its code was inlined, the innermost first.
    pub fn inlined_chain(&self, position: Position) -> impl Iterator<Item = Position> {
        std::iter::successors(Some(position), |at| {
            // A scope refers to an earlier one; otherwise the map is damaged.
            let call = self.scopes.get(at.scope as usize)?.inlined_at?;
            (call.scope < at.scope).then_some(call)
        })
    }

    /// Words of memory that the unit has in each thread's region: one for each counter, but for functions that count
    /// elsewhere; several where events are summed up; two where it is noted when they were counted first; none where blocks are only
    /// marked. `None` if they are more than can be.
    pub fn words(&self) -> Option<u64> {
        let each = self.experiment.observation().observed().words().each();
        self.counters_in_regions().checked_mul(each)
    }

    /// Whether behind the counters there are as many words for when each was counted first
    /// ([`trodden_wire::FunctionRecord`]): of the residual tier.
    pub fn has_times(&self) -> bool {
        self.experiment.observation().observed().words() == CounterWords::CountAndTime
    }

    /// What is summed up for each path besides its count, if anything.
    pub fn events(&self) -> Option<EventSource> {
        self.experiment.events()
    }

    /// How many of its counters are in regions; those behind them are of paths that are counted in words that are not one for each path.
    pub fn counters_in_regions(&self) -> u64 {
        let elsewhere = self.functions.iter().filter(|f| f.counts_elsewhere());
        elsewhere.fold(self.counters, |words, f| words.saturating_sub(f.counters))
    }
}

/// How many functions these are: one that several units of an image have a copy of, such as an inline function, is one.
pub fn distinct<'m>(functions: impl IntoIterator<Item = &'m FunctionMap>) -> usize {
    let mut names = std::collections::HashSet::new();
    // A local name may stand for several functions.
    functions.into_iter().filter(|f| f.local || names.insert(f.name.as_str())).count()
}

/// Digest of code: see [`FunctionMap::code`].
pub fn digest(code: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(code)
}

/// Hash of a graph: what its blocks and edges are, without source positions.
pub fn shape(blocks: &[UnitBlock], edges: &[FlowEdge]) -> u64 {
    let kinds: Vec<(u32, BlockKind)> = blocks.iter().map(|b| (b.instructions, b.kind)).collect();
    let bytes = postcard::to_allocvec(&(kinds, edges)).expect("maps are plain data");
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

impl FunctionMap {
    /// By what a function is known again.
    pub fn version(&self) -> crate::NameVersion {
        crate::NameVersion { shape: self.shape, code: self.code }
    }

    /// The table in which it counts, if it does.
    pub fn table(&self) -> Option<CountTable> {
        match &self.storage {
            Storage::Table(table) => Some(*table),
            Storage::Array | Storage::Interesting(_) | Storage::Labels(_) | Storage::Segments(_) | Storage::Events(_) => None,
        }
    }

    /// The words of the interesting paths, if it counts only such.
    pub fn interesting(&self) -> Option<&InterestingWords> {
        match &self.storage {
            Storage::Interesting(words) => Some(words),
            Storage::Array | Storage::Table(_) | Storage::Labels(_) | Storage::Segments(_) | Storage::Events(_) => None,
        }
    }

    /// The words in which it counts by sums of labels, if it does.
    pub fn label_words(&self) -> Option<&LabelWords> {
        match &self.storage {
            Storage::Labels(words) => Some(words),
            Storage::Array | Storage::Interesting(_) | Storage::Table(_) | Storage::Segments(_) | Storage::Events(_) => None,
        }
    }

    /// The words in which it counts segments, if it does.
    pub fn segment_words(&self) -> Option<&SegmentWords> {
        match &self.storage {
            Storage::Segments(words) => Some(words),
            Storage::Array | Storage::Interesting(_) | Storage::Table(_) | Storage::Labels(_) | Storage::Events(_) => None,
        }
    }

    /// Whether its words of memory are not one for each path: its counters then lie behind all words of the unit.
    pub fn counts_elsewhere(&self) -> bool {
        !matches!(self.storage, Storage::Array)
    }

    /// Whether some of its paths are left out: then what is known of the others says nothing of how often its blocks were executed.
    pub fn is_partial(&self) -> bool {
        self.storage.is_partial()
    }

    /// The counters of executions whose path is not known, as a range.
    pub fn unattributed(&self) -> std::ops::Range<u64> {
        self.storage.unattributed()
    }

    /// The node that stands for the exit.
    pub fn exit(&self) -> Node {
        Node(self.blocks.len() as u32)
    }

    /// The function's control-flow graph.
    ///
    /// # Errors
    /// An edge names a block that does not exist.
    pub fn graph(&self) -> Result<Graph, MapError> {
        let edges = self.edges.iter().map(|e| (e.from, e.to)).collect();
        Graph::new(self.blocks.len() as u32 + 1, Node(0), self.exit(), edges)
            .map_err(|source| MapError::Graph { function: self.name.clone(), source })
    }

    /// The acyclic graph whose paths the counters count.
    ///
    /// # Errors
    /// The stored edges are no such graph, or do not match the function's edges and values.
    pub fn dag(&self) -> Result<Dag, MapError> {
        let wrong = |what: String| MapError::Dag { function: self.name.clone(), what };
        if self.values.len() != self.dag.len() {
            return Err(wrong(format!("{} values for {} edges", self.values.len(), self.dag.len())));
        }
        let named = |edge: &DagEdge| match edge.origin {
            Origin::Real(e) | Origin::Enter(e) | Origin::Leave(e) => Some(e),
            Origin::Stop(_) => None,
        };
        let cuts = self.cuts.iter().map(|(edge, _)| *edge);
        if let Some(bad) = self.dag.iter().filter_map(named).chain(cuts).find(|e| e.index() >= self.edges.len()) {
            return Err(wrong(format!("edge {} does not exist", bad.0)));
        }
        Dag::from_edges(self.blocks.len() as u32 + 1, Node(0), self.exit(), self.dag.clone()).map_err(wrong)
    }

    /// The numbering of the paths of its acyclic graph.
    ///
    /// # Errors
    /// The values on its edges number no paths.
    pub fn numbering(&self, dag: &Dag) -> Result<Numbering, MapError> {
        Numbering::from_values(dag, &self.values).map_err(|what| self.inconsistent(what))
    }

    /// That this map is damaged.
    pub fn inconsistent(&self, what: String) -> MapError {
        MapError::Inconsistent { function: self.name.clone(), what }
    }

    /// Name of the function for people: without mangling where that can be undone. Demangling is the reader's job; this is the raw name
    /// without the `\u{1}` that says to LLVM not to touch it.
    pub fn plain_name(&self) -> &str {
        plain(&self.name)
    }
}
