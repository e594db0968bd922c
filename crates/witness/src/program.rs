//! The programs that are traced: functions with graphs, calls inside blocks, and entries from outside.
//!
//! The [crate documentation](crate) describes the model. Invariants of a [`WitnessProgram`]: calls, kinds and entries refer to existing
//! functions and nodes. The nodes and edges of all functions are numbered consecutively, function by function, and these numbers are the
//! witnesses.

use trodden_flow::dense_set::DenseSet;
use trodden_flow::graph::{Edge, Graph, Node};
use trodden_flow::indices;

/// A function, identified by its index in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WitnessFunctionId(pub u32);

/// A node or an edge whose executions are recorded. Nodes (or edges) of all functions are numbered consecutively, and this is the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Witness(pub u32);

indices!(WitnessFunctionId, Witness);

/// Witnesses of one kind.
pub type WitnessSet = DenseSet<Witness>;

/// Whether witnesses are nodes or edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessKind {
    /// Nodes, which are recorded by breakpoints, trampolines or other probes at an address.
    Nodes,
    /// Edges, which are recorded by compiled-in probes.
    Edges,
}

/// The node or edge of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WitnessSite {
    /// On a node.
    Node(WitnessFunctionId, Node),
    /// On an edge.
    Edge(WitnessFunctionId, Edge),
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A block: part of executions, and can have a witness.
    Block,
    /// The rest of a block after a call: not part of executions, but can have a witness.
    Continuation,
    /// No code: not part of executions, and has no witness.
    Virtual,
}

/// How control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessEdgeKind {
    /// Taken at the end of the block.
    Flow,
    /// Taken when a call of the block unwinds: to a landing pad, or to the continuation of a `setjmp` that returns again.
    Unwind,
    /// Taken when a call of the block unwinds: to a landing pad that always catches, so that unwinding does not leave the frame.
    AlwaysCaught,
}

/// The possible behaviour of unknown code when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opaque {
    /// It can return.
    pub returns: bool,
    /// The run can end in it.
    pub ends_run: bool,
    /// True if the code can unwind, by throwing or by `longjmp`.
    pub unwinds: bool,
    /// True if the code can call functions that are external entries.
    pub calls_back: bool,
}

impl Opaque {
    /// Only returns.
    pub const RETURNS: Opaque = Opaque { returns: true, ends_run: false, unwinds: false, calls_back: false };
    /// Only unwinds.
    pub const UNWINDS: Opaque = Opaque { returns: false, ends_run: false, unwinds: true, calls_back: false };
}

/// A call: one of its callees, or unknown code, is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCall {
    /// Functions of the program that may be called.
    pub callees: Vec<WitnessFunctionId>,
    /// Possible behaviour of unknown callees; `None` if all callees are known.
    pub opaque: Option<Opaque>,
    /// Whether the caller's frame stays even if nothing remains after the call: the instruction is a call, not a jump.
    pub keeps_frame: bool,
}

impl ProgramCall {
    /// Returns a call of one function.
    pub fn direct(callee: WitnessFunctionId) -> ProgramCall {
        ProgramCall { callees: vec![callee], opaque: None, keeps_frame: false }
    }

    /// Returns a call of one of several functions.
    pub fn indirect(callees: Vec<WitnessFunctionId>) -> ProgramCall {
        ProgramCall { callees, opaque: None, keeps_frame: false }
    }

    /// Returns a call of unknown code.
    pub fn opaque(opaque: Opaque) -> ProgramCall {
        ProgramCall { callees: Vec::new(), opaque: Some(opaque), keeps_frame: false }
    }
}

/// A function that is traced.
#[derive(Clone, Debug)]
pub struct WitnessFunction {
    /// Name, for messages.
    pub name: String,
    /// Control-flow graph. Leaving the exit returns.
    pub graph: Graph,
    /// Kind of each node.
    pub nodes: Vec<NodeKind>,
    /// Kind of each edge.
    pub edges: Vec<WitnessEdgeKind>,
    /// Calls with their nodes. Calls of the same node are in the order of execution.
    pub calls: Vec<(Node, ProgramCall)>,
}

impl WitnessFunction {
    /// Returns a function without calls whose nodes are all blocks.
    pub fn new(name: impl Into<String>, graph: Graph) -> WitnessFunction {
        let (nodes, edges) = (vec![NodeKind::Block; graph.node_count()], vec![WitnessEdgeKind::Flow; graph.edge_count()]);
        WitnessFunction { name: name.into(), graph, nodes, edges, calls: Vec::new() }
    }
}

/// Where a thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPoint {
    /// Threads start in this function, whose return ends the run.
    Main(WitnessFunctionId),
    /// Threads start in code outside, which calls external entries in any order until the run ends.
    Outside,
}

/// The reason why functions do not form a program, or witnesses do not belong to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// The program has no functions.
    #[error("the program description has no functions. Add at least the function in which runs start")]
    NoFunction,
    /// An item refers to a function that does not exist.
    #[error("{what} refers to function {function}, which does not exist: there are {functions} functions, numbered from 0")]
    NoSuchFunction {
        /// The item that refers to the function.
        what: String,
        /// The number.
        function: u32,
        /// The number of functions.
        functions: usize,
    },
    /// A call is in a node that does not exist.
    #[error("function `{function}` has a call in node {node}, which does not exist: there are {nodes} nodes, numbered from 0")]
    NoSuchNode {
        /// The function.
        function: String,
        /// The node.
        node: u32,
        /// The number of nodes.
        nodes: usize,
    },
    /// The number of kinds differs from the number of nodes or edges.
    #[error("function `{function}` gives the kinds of {given} {of}, but its graph has {count} {of}")]
    Kinds {
        /// The function.
        function: String,
        /// `nodes` or `edges`.
        of: &'static str,
        /// Number of kinds.
        given: usize,
        /// Number of nodes or edges.
        count: usize,
    },
    /// A call has no callee.
    #[error("the call in node {node} of function `{function}` has no callee. Add one, or describe the unknown code")]
    NoCallee {
        /// The function.
        function: String,
        /// The node.
        node: u32,
    },
    /// There are too many nodes or edges.
    #[error("the program has more nodes or edges than can be processed ({limit}). Trace only a part of its functions")]
    TooLarge {
        /// The maximum.
        limit: u32,
    },
    /// A witness does not exist.
    #[error("witness {witness} (a watched block or edge) does not exist: there are {count} {of}, numbered from 0")]
    NoSuchWitness {
        /// Its number.
        witness: u32,
        /// Number of nodes or edges.
        count: u32,
        /// `nodes` or `edges`.
        of: &'static str,
    },
    /// A witness is on a node without code.
    #[error("node {node} of function `{function}` cannot be a witness (a watched node), because it has no code. Choose a block")]
    NoCode {
        /// The function.
        function: String,
        /// The node.
        node: u32,
    },
}

/// Maximum number of nodes or of edges. Larger numbers have other meanings.
const MAX_WITNESS_SITES: u32 = 1 << 30;

/// A program: functions, and where threads start.
#[derive(Clone, Debug)]
pub struct WitnessProgram {
    functions: Vec<WitnessFunction>,
    start: StartPoint,
    external: Vec<WitnessFunctionId>,
    node_base: Vec<u32>,
    edge_base: Vec<u32>,
}

impl WitnessProgram {
    /// Creates a program. `external` are the functions that code outside may enter, such as callbacks, constructors and the image's
    /// entry. They are used if threads start outside, or if calls may call back.
    ///
    /// # Errors
    /// There is no function, a function or node that is referred to does not exist, the number of kinds is wrong, a call has no callee, or
    /// the program is too large.
    pub fn new(
        functions: Vec<WitnessFunction>,
        start: StartPoint,
        mut external: Vec<WitnessFunctionId>,
    ) -> Result<WitnessProgram, WitnessError> {
        external.sort_unstable();
        external.dedup();
        check_references(&functions, start, &external)?;
        let bases = |count: &dyn Fn(&WitnessFunction) -> usize| -> Result<Vec<u32>, WitnessError> {
            let mut bases = vec![0u32];
            for function in &functions {
                let next = *bases.last().expect("starts with a base") as usize + count(function);
                bases.push(
                    u32::try_from(next)
                        .ok()
                        .filter(|n| *n < MAX_WITNESS_SITES)
                        .ok_or(WitnessError::TooLarge { limit: MAX_WITNESS_SITES })?,
                );
            }
            Ok(bases)
        };
        let (node_base, edge_base) = (bases(&|f| f.graph.node_count())?, bases(&|f| f.graph.edge_count())?);
        Ok(WitnessProgram { functions, start, external, node_base, edge_base })
    }

    /// Creates a program of one function that is executed once.
    ///
    /// # Errors
    /// The graph is too large.
    pub fn from_graph(graph: Graph) -> Result<WitnessProgram, WitnessError> {
        WitnessProgram::new(vec![WitnessFunction::new("main", graph)], StartPoint::Main(WitnessFunctionId(0)), Vec::new())
    }

    /// Returns all functions, by number.
    pub fn functions(&self) -> &[WitnessFunction] {
        &self.functions
    }

    /// Returns a function.
    pub fn function(&self, function: WitnessFunctionId) -> &WitnessFunction {
        &self.functions[function.index()]
    }

    /// Returns the numbers of all functions.
    pub fn function_ids(&self) -> impl Iterator<Item = WitnessFunctionId> + use<> {
        (0..self.functions.len() as u32).map(WitnessFunctionId)
    }

    /// Returns where threads start.
    pub fn start(&self) -> StartPoint {
        self.start
    }

    /// Returns the functions that code outside may enter.
    pub fn external(&self) -> &[WitnessFunctionId] {
        &self.external
    }

    /// Returns the number of nodes, or of edges, of all functions.
    pub fn witness_count(&self, kind: WitnessKind) -> usize {
        *self.bases(kind).last().expect("there is a base") as usize
    }

    /// Returns the witness on a node.
    pub fn node_witness(&self, function: WitnessFunctionId, node: Node) -> Witness {
        Witness(self.node_base[function.index()] + node.0)
    }

    /// Returns the witness on an edge.
    pub fn edge_witness(&self, function: WitnessFunctionId, edge: Edge) -> Witness {
        Witness(self.edge_base[function.index()] + edge.0)
    }

    /// Returns the node or edge of a witness.
    pub fn site(&self, kind: WitnessKind, witness: Witness) -> WitnessSite {
        let function = self.function_of(kind, witness);
        let place = witness.0 - self.bases(kind)[function.index()];
        match kind {
            WitnessKind::Nodes => WitnessSite::Node(function, Node(place)),
            WitnessKind::Edges => WitnessSite::Edge(function, Edge(place)),
        }
    }

    /// Returns the function of a witness.
    pub fn function_of(&self, kind: WitnessKind, witness: Witness) -> WitnessFunctionId {
        WitnessFunctionId(self.bases(kind).partition_point(|base| *base <= witness.0) as u32 - 1)
    }

    pub(super) fn check_witness(&self, kind: WitnessKind, witness: Witness) -> Result<(), WitnessError> {
        if witness.index() >= self.witness_count(kind) {
            let of = if kind == WitnessKind::Nodes { "nodes" } else { "edges" };
            return Err(WitnessError::NoSuchWitness { witness: witness.0, count: self.witness_count(kind) as u32, of });
        }
        match self.site(kind, witness) {
            WitnessSite::Node(f, node) if self.function(f).nodes[node.index()] == NodeKind::Virtual => {
                Err(WitnessError::NoCode { function: self.function(f).name.clone(), node: node.0 })
            }
            _ => Ok(()),
        }
    }

    fn bases(&self, kind: WitnessKind) -> &[u32] {
        match kind {
            WitnessKind::Nodes => &self.node_base,
            WitnessKind::Edges => &self.edge_base,
        }
    }
}

fn check_references(functions: &[WitnessFunction], start: StartPoint, external: &[WitnessFunctionId]) -> Result<(), WitnessError> {
    if functions.is_empty() {
        return Err(WitnessError::NoFunction);
    }
    let known = |id: WitnessFunctionId, what: &dyn Fn() -> String| match id.index() < functions.len() {
        true => Ok(()),
        false => Err(WitnessError::NoSuchFunction { what: what(), function: id.0, functions: functions.len() }),
    };
    if let StartPoint::Main(main) = start {
        known(main, &|| "the start".into())?;
    }
    external.iter().try_for_each(|e| known(*e, &|| "the list of external entries".into()))?;
    for function in functions {
        let name = || function.name.clone();
        let kinds =
            [("nodes", function.nodes.len(), function.graph.node_count()), ("edges", function.edges.len(), function.graph.edge_count())];
        if let Some(&(of, given, count)) = kinds.iter().find(|(_, given, count)| given != count) {
            return Err(WitnessError::Kinds { function: name(), of, given, count });
        }
        for (node, call) in &function.calls {
            if node.index() >= function.nodes.len() {
                return Err(WitnessError::NoSuchNode { function: name(), node: node.0, nodes: function.nodes.len() });
            }
            let nothing = call.opaque.is_none_or(|o| !(o.returns || o.ends_run || o.unwinds || o.calls_back));
            if call.callees.is_empty() && nothing {
                return Err(WitnessError::NoCallee { function: name(), node: node.0 });
            }
            call.callees.iter().try_for_each(|c| known(*c, &|| format!("a call in function `{}`", function.name)))?;
        }
    }
    Ok(())
}
