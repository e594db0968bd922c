//! Programs as far as tracing is concerned: functions with graphs, calls inside blocks, entries from outside.
//!
//! The model is described in the [module header](super). Invariants of a [`WitnessProgram`]: calls, kinds and entries name what exists;
//! nodes and edges of all functions are numbered consecutively, function after function, and these numbers are the witnesses.

use trodden_flow::graph::{Edge, Graph, Node};
use trodden_flow::indices;

/// A function, by its place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WitnessFunctionId(pub u32);

/// A node or an edge of a program whose executions are recorded: its number among the nodes, or the edges, of all functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Witness(pub u32);

indices!(WitnessFunctionId, Witness);

/// What witnesses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessKind {
    /// Nodes: breakpoints, trampolines, any probe at an address.
    Nodes,
    /// Edges: probes that are compiled in.
    Edges,
}

/// Where a witness is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WitnessSite {
    /// On a node.
    Node(WitnessFunctionId, Node),
    /// On an edge.
    Edge(WitnessFunctionId, Edge),
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A block: part of executions, can carry a witness.
    Block,
    /// The rest of a block behind a call: no part of executions, can carry a witness.
    Continuation,
    /// No code: no part of executions, carries no witness.
    Virtual,
}

/// How control passes along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessEdgeKind {
    /// At the end of the block.
    Flow,
    /// When a call of the block unwinds: to a landing pad, or to where `setjmp` returns again.
    Unwind,
    /// When a call of the block unwinds: to a landing pad that nothing passes by. The frame is not left by unwinding.
    Lands,
}

/// What code that is not known may do when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opaque {
    /// It can return.
    pub returns: bool,
    /// The run can end in it.
    pub ends_run: bool,
    /// It can unwind: throw, or `longjmp`.
    pub unwinds: bool,
    /// It can call functions that are entries from outside.
    pub calls_back: bool,
}

impl Opaque {
    /// It returns, and nothing else.
    pub const RETURNS: Opaque = Opaque { returns: true, ends_run: false, unwinds: false, calls_back: false };
    /// It unwinds.
    pub const UNWINDS: Opaque = Opaque { returns: false, ends_run: false, unwinds: true, calls_back: false };
}

/// A call: one of its callees is entered, or code that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCall {
    /// Functions of the program that may be called.
    pub callees: Vec<WitnessFunctionId>,
    /// What happens when other code is called; `None` if that cannot be.
    pub opaque: Option<Opaque>,
    /// Whether the caller's frame stays, even if nothing is left behind the call: the instruction is a call, not a jump.
    pub keeps_frame: bool,
}

impl ProgramCall {
    /// A call of one function.
    pub fn direct(callee: WitnessFunctionId) -> ProgramCall {
        ProgramCall { callees: vec![callee], opaque: None, keeps_frame: false }
    }

    /// A call of one of some functions.
    pub fn indirect(callees: Vec<WitnessFunctionId>) -> ProgramCall {
        ProgramCall { callees, opaque: None, keeps_frame: false }
    }

    /// A call of code that is not known.
    pub fn opaque(opaque: Opaque) -> ProgramCall {
        ProgramCall { callees: Vec::new(), opaque: Some(opaque), keeps_frame: false }
    }
}

/// A function.
#[derive(Clone, Debug)]
pub struct WitnessFunction {
    /// Its name, for messages.
    pub name: String,
    /// Its graph. Leaving the exit returns.
    pub graph: Graph,
    /// What its nodes are.
    pub nodes: Vec<NodeKind>,
    /// What its edges are.
    pub edges: Vec<WitnessEdgeKind>,
    /// Calls, each in a node; those of one node in the order of their execution.
    pub calls: Vec<(Node, ProgramCall)>,
}

impl WitnessFunction {
    /// A function without calls, all of whose nodes are blocks.
    pub fn new(name: impl Into<String>, graph: Graph) -> WitnessFunction {
        let (nodes, edges) = (vec![NodeKind::Block; graph.node_count()], vec![WitnessEdgeKind::Flow; graph.edge_count()]);
        WitnessFunction { name: name.into(), graph, nodes, edges, calls: Vec::new() }
    }
}

/// Where a thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStart {
    /// In a function; when it returns, the run ends.
    Main(WitnessFunctionId),
    /// Outside: functions that are external entries are called in any order, until the run ends.
    Outside,
}

/// Why functions are no program, or witnesses no witnesses of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// There is no function.
    #[error("the program has no function: give it at least the one that runs start in")]
    NoFunction,
    /// A number that no function has.
    #[error("{what} names function {function}, but there are {functions} functions (numbered from 0)")]
    NoSuchFunction {
        /// What names it.
        what: String,
        /// The number.
        function: u32,
        /// How many functions there are.
        functions: usize,
    },
    /// A call in a node that the function does not have.
    #[error("function `{function}` has a call in node {node}, but {nodes} nodes (numbered from 0)")]
    NoSuchNode {
        /// The function.
        function: String,
        /// The node.
        node: u32,
        /// How many there are.
        nodes: usize,
    },
    /// Kinds that are not as many as nodes or edges.
    #[error("function `{function}` has {given} kinds for {there_are} {of}: give one for each")]
    Kinds {
        /// The function.
        function: String,
        /// Of what.
        of: &'static str,
        /// Kinds given.
        given: usize,
        /// How many there are.
        there_are: usize,
    },
    /// A call that nothing can be called by.
    #[error("the call in node {node} of function `{function}` has no callee: name one, or say what the code that it calls can do")]
    NoCallee {
        /// The function.
        function: String,
        /// The node.
        node: u32,
    },
    /// More nodes or edges than there are numbers.
    #[error("the program has more than {most} nodes or edges: trace a part of its functions")]
    TooLarge {
        /// As many as there may be.
        most: u32,
    },
    /// A witness that there is not.
    #[error("there is no witness {witness}: the program has {there_are} {of}")]
    NoSuchWitness {
        /// Its number.
        witness: u32,
        /// How many there are.
        there_are: u32,
        /// Of what.
        of: &'static str,
    },
    /// A witness on a node without code.
    #[error("node {node} of function `{function}` is no code, so that no witness can be on it: choose a block")]
    NoCode {
        /// The function.
        function: String,
        /// The node.
        node: u32,
    },
}

/// Greatest number of nodes or edges: larger numbers have other meanings.
const MOST: u32 = 1 << 30;

/// Functions, and where threads start.
#[derive(Clone, Debug)]
pub struct WitnessProgram {
    functions: Vec<WitnessFunction>,
    start: ProgramStart,
    external: Vec<WitnessFunctionId>,
    node_base: Vec<u32>,
    edge_base: Vec<u32>,
}

impl WitnessProgram {
    /// A program. `external` are the functions that code outside may enter: callbacks, constructors, the entry of the image. They count
    /// where threads start outside, or calls may call back.
    ///
    /// # Errors
    /// Something names what there is not, or the program is too large.
    pub fn new(
        functions: Vec<WitnessFunction>,
        start: ProgramStart,
        mut external: Vec<WitnessFunctionId>,
    ) -> Result<WitnessProgram, WitnessError> {
        external.sort_unstable();
        external.dedup();
        check(&functions, start, &external)?;
        let bases = |count: &dyn Fn(&WitnessFunction) -> usize| -> Result<Vec<u32>, WitnessError> {
            let mut bases = vec![0u32];
            for function in &functions {
                let next = *bases.last().expect("it has one") as usize + count(function);
                bases.push(u32::try_from(next).ok().filter(|n| *n < MOST).ok_or(WitnessError::TooLarge { most: MOST })?);
            }
            Ok(bases)
        };
        let (node_base, edge_base) = (bases(&|f| f.graph.node_count())?, bases(&|f| f.graph.edge_count())?);
        Ok(WitnessProgram { functions, start, external, node_base, edge_base })
    }

    /// A program of one function that is executed once.
    ///
    /// # Errors
    /// The graph is too large.
    pub fn from_graph(graph: Graph) -> Result<WitnessProgram, WitnessError> {
        WitnessProgram::new(vec![WitnessFunction::new("main", graph)], ProgramStart::Main(WitnessFunctionId(0)), Vec::new())
    }

    /// All functions, by number.
    pub fn functions(&self) -> &[WitnessFunction] {
        &self.functions
    }

    /// A function.
    pub fn function(&self, function: WitnessFunctionId) -> &WitnessFunction {
        &self.functions[function.index()]
    }

    /// The numbers of all functions.
    pub fn function_ids(&self) -> impl Iterator<Item = WitnessFunctionId> + use<> {
        (0..self.functions.len() as u32).map(WitnessFunctionId)
    }

    /// Where threads start.
    pub fn start(&self) -> ProgramStart {
        self.start
    }

    /// The functions that code outside may enter.
    pub fn external(&self) -> &[WitnessFunctionId] {
        &self.external
    }

    /// How many nodes, or edges, all functions have.
    pub fn witness_count(&self, kind: WitnessKind) -> usize {
        *self.bases(kind).last().expect("it has one") as usize
    }

    /// The witness on a node.
    pub fn node_witness(&self, function: WitnessFunctionId, node: Node) -> Witness {
        Witness(self.node_base[function.index()] + node.0)
    }

    /// The witness on an edge.
    pub fn edge_witness(&self, function: WitnessFunctionId, edge: Edge) -> Witness {
        Witness(self.edge_base[function.index()] + edge.0)
    }

    /// Where a witness is.
    pub fn site(&self, kind: WitnessKind, witness: Witness) -> WitnessSite {
        let function = self.function_of(kind, witness);
        let place = witness.0 - self.bases(kind)[function.index()];
        match kind {
            WitnessKind::Nodes => WitnessSite::Node(function, Node(place)),
            WitnessKind::Edges => WitnessSite::Edge(function, Edge(place)),
        }
    }

    /// The function of a witness.
    pub fn function_of(&self, kind: WitnessKind, witness: Witness) -> WitnessFunctionId {
        WitnessFunctionId(self.bases(kind).partition_point(|base| *base <= witness.0) as u32 - 1)
    }

    pub(super) fn check_witness(&self, kind: WitnessKind, witness: Witness) -> Result<(), WitnessError> {
        if witness.index() >= self.witness_count(kind) {
            let of = if kind == WitnessKind::Nodes { "nodes" } else { "edges" };
            return Err(WitnessError::NoSuchWitness { witness: witness.0, there_are: self.witness_count(kind) as u32, of });
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

fn check(functions: &[WitnessFunction], start: ProgramStart, external: &[WitnessFunctionId]) -> Result<(), WitnessError> {
    if functions.is_empty() {
        return Err(WitnessError::NoFunction);
    }
    let known = |id: WitnessFunctionId, what: &dyn Fn() -> String| match id.index() < functions.len() {
        true => Ok(()),
        false => Err(WitnessError::NoSuchFunction { what: what(), function: id.0, functions: functions.len() }),
    };
    if let ProgramStart::Main(main) = start {
        known(main, &|| "the start".into())?;
    }
    external.iter().try_for_each(|e| known(*e, &|| "the list of external entries".into()))?;
    for function in functions {
        let name = || function.name.clone();
        let kinds =
            [("nodes", function.nodes.len(), function.graph.node_count()), ("edges", function.edges.len(), function.graph.edge_count())];
        if let Some(&(of, given, there_are)) = kinds.iter().find(|(_, given, there_are)| given != there_are) {
            return Err(WitnessError::Kinds { function: name(), of, given, there_are });
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
