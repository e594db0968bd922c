//! The pushdown automaton of a program: small states, each with at most one witness and exactly one action.
//!
//! When a state is entered, its witness is recorded and its block becomes part of the execution; then its action follows. Nodes, edges (if
//! they are witnesses), calls and choices are states. Two functions are added: `outside`, which calls external entries any number of times,
//! and the root, which calls the function in which the run starts and then ends the run. One pass over the program: O(nodes + edges +
//! callees).

use super::automaton::{AutomatonState, AutomatonStateData, StateAction, StateRole};
use super::lower;
use super::program::{WitnessFunctionId, WitnessKind, WitnessProgram};
use trodden_flow::graph::{Edge, Node};

/// The automaton of a program.
#[derive(Clone, Debug)]
pub struct Pushdown {
    states: Vec<AutomatonStateData>,
    entries: Vec<AutomatonState>,
    nodes: Vec<Vec<AutomatonState>>,
    root: AutomatonState,
    kind: WitnessKind,
    first_edges: Vec<u32>,
}

impl Pushdown {
    /// Builds the automaton of a program with witnesses of a kind.
    pub fn new(program: &WitnessProgram, kind: WitnessKind) -> Pushdown {
        let lowered = lower::lower_program(program, kind);
        let root = *lowered.entries.last().expect("the root was added");
        let first_edges = program.function_ids().map(|f| program.edge_witness(f, Edge(0)).0).collect();
        Pushdown { states: lowered.states, entries: lowered.entries, nodes: lowered.nodes, root, kind, first_edges }
    }

    /// Returns the edge that a state represents; `None` if the state does not represent an edge.
    pub fn edge(&self, state: AutomatonState) -> Option<Edge> {
        let data = self.state(state);
        let witness = data.witness.filter(|_| data.role == StateRole::Edge)?;
        Some(Edge(witness.0 - self.first_edges[data.function.index()]))
    }

    /// Returns whether witnesses are nodes or edges.
    pub fn kind(&self) -> WitnessKind {
        self.kind
    }

    /// Returns the number of states.
    pub fn state_count(&self) -> usize {
        self.states.len()
    }

    /// Returns all states.
    pub fn states(&self) -> impl Iterator<Item = AutomatonState> + use<> {
        (0..self.states.len() as u32).map(AutomatonState)
    }

    /// Returns the data of a state.
    pub fn state(&self, state: AutomatonState) -> &AutomatonStateData {
        &self.states[state.index()]
    }

    /// Returns the state in which runs start.
    pub fn root(&self) -> AutomatonState {
        self.root
    }

    /// Returns the number of functions, including the added ones.
    pub fn function_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the state in which a function is entered.
    pub fn entry(&self, function: WitnessFunctionId) -> AutomatonState {
        self.entries[function.index()]
    }

    /// Returns the state in which a node is entered.
    pub fn node(&self, function: WitnessFunctionId, node: Node) -> AutomatonState {
        self.nodes[function.index()][node.index()]
    }

    /// Calls `visit` with each state to which control can pass from `state` inside the function: the successors of a choice, and after a
    /// call the states that follow its return and its unwinding.
    pub fn for_each_next(&self, state: AutomatonState, mut visit: impl FnMut(AutomatonState)) {
        match &self.state(state).action {
            StateAction::Choose(next) => next.iter().for_each(|s| visit(*s)),
            StateAction::Call { after, unwound, .. } => {
                visit(*after);
                visit(*unwound);
            }
            StateAction::Return | StateAction::Unwind | StateAction::End => {}
        }
    }
}
