//! The inside as a finite automaton: the first version of a function, in which some of its blocks may be several.
//!
//! A state is a node of the path graph in a context: what was taken before it, as far as that matters. Its words are
//! paths, its letters edges; every path is known that it takes without an edge it has no way for, and that does not end
//! *unclear*.
//!
//! Invariants: state 0 is the graph's entry; ways lead to states of the edge's head.

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// A way from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The edge it takes.
    pub edge: DagEdgeId,
    /// Where it leads; `None` where the path ends.
    pub to: Option<usize>,
    /// Whether unknown paths end with it, too.
    pub unclear: bool,
}

/// A node in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The node.
    pub node: Node,
    /// The ways from here.
    pub ways: Vec<Way>,
}

/// The inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automaton {
    states: Vec<State>,
}

impl Automaton {
    /// Of states as the invariants have them.
    pub fn new(states: Vec<State>) -> Automaton {
        Automaton { states }
    }

    /// One state for each node; the ways are the edges inside.
    pub fn of_edges(dag: &Dag, inside: &[bool], unclear: &[bool]) -> Automaton {
        // The entry first: it changes places with node 0.
        let number = |node: Node| match node {
            n if n == dag.entry() => 0,
            Node(0) => dag.entry().index(),
            n => n.index(),
        };
        let mut states: Vec<State> = (0..dag.node_count() as u32).map(|n| State { node: Node(n), ways: Vec::new() }).collect();
        states.swap(0, dag.entry().index());
        for state in &mut states {
            let out = dag.out(state.node).iter().filter(|e| inside[e.index()]);
            state.ways = out
                .map(|&edge| {
                    let to = dag.edge(edge).to;
                    Way { edge, to: (to != dag.exit()).then(|| number(to)), unclear: unclear[edge.index()] }
                })
                .collect();
        }
        Automaton { states }
    }

    /// The states.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The way that an edge takes from a state, if that stays inside.
    pub fn way(&self, state: usize, edge: DagEdgeId) -> Option<Way> {
        self.states[state].ways.iter().copied().find(|w| w.edge == edge)
    }

    /// For each state, whether the path register has to be kept there: an edge outside or an unclear end may follow.
    pub fn needed(&self, dag: &Dag) -> Vec<bool> {
        let position = dag.positions();
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        order.sort_by_key(|s| std::cmp::Reverse(position[self.states[*s].node.index()]));
        let mut needed = vec![false; self.states.len()];
        for at in order {
            let State { node, ways } = &self.states[at];
            needed[at] = ways.len() < dag.out(*node).len() || ways.iter().any(|w| w.unclear || w.to.is_some_and(|to| needed[to]));
        }
        needed
    }

    /// A state of a node, if it has one.
    pub fn state_of(&self, node: Node) -> Option<usize> {
        self.states.iter().position(|s| s.node == node)
    }
}
