//! the known-path region as a finite automaton: the original code of a function, in which some of its blocks may be several.
//!
//! A state is a node of the path graph in a context: what was taken before it, as far as that matters. Its words are
//! paths, its letters edges; every path is known that it takes without an edge it has no transition for, and that does not end
//! *unclear*.
//!
//! Invariants: state 0 is the graph's entry; transitions lead to states of the edge's head.

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// A transition from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionTransition {
    /// The edge it takes.
    pub edge: DagEdgeId,
    /// Where it leads; `None` where the path ends.
    pub to: Option<usize>,
    /// Whether unknown paths end with it, too.
    pub unclear: bool,
}

/// A node in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    /// The node.
    pub node: Node,
    /// The transitions from here.
    pub transitions: Vec<RegionTransition>,
}

/// the known-path region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automaton {
    /// The states, as the invariants have them.
    pub states: Vec<RegionState>,
}

impl Automaton {
    /// One state for each node; the transitions are the edges of the region.
    pub fn from_edges(dag: &Dag, region: &[bool], unclear: &[bool]) -> Automaton {
        // The entry first: it changes places with node 0.
        let number = |node: Node| match node {
            n if n == dag.entry() => 0,
            Node(0) => dag.entry().index(),
            n => n.index(),
        };
        let mut states: Vec<RegionState> =
            (0..dag.node_count() as u32).map(|n| RegionState { node: Node(n), transitions: Vec::new() }).collect();
        states.swap(0, dag.entry().index());
        for state in &mut states {
            let out = dag.out(state.node).iter().filter(|e| region[e.index()]);
            state.transitions = out
                .map(|&edge| {
                    let to = dag.edge(edge).to;
                    RegionTransition { edge, to: (to != dag.exit()).then(|| number(to)), unclear: unclear[edge.index()] }
                })
                .collect();
        }
        Automaton { states }
    }

    /// The transition on an edge from a state, if that stays in the region.
    pub fn transition(&self, state: usize, edge: DagEdgeId) -> Option<RegionTransition> {
        self.states[state].transitions.iter().copied().find(|w| w.edge == edge)
    }

    /// For each state, whether the path register has to be kept there: an edge outside or an unclear end may follow.
    pub fn needed(&self, dag: &Dag) -> Vec<bool> {
        let position = dag.positions();
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        order.sort_by_key(|s| std::cmp::Reverse(position[self.states[*s].node.index()]));
        let mut needed = vec![false; self.states.len()];
        for at in order {
            let RegionState { node, transitions } = &self.states[at];
            needed[at] =
                transitions.len() < dag.out(*node).len() || transitions.iter().any(|w| w.unclear || w.to.is_some_and(|to| needed[to]));
        }
        needed
    }

    /// A state of a node, if it has one.
    pub fn state_of(&self, node: Node) -> Option<usize> {
        self.states.iter().position(|s| s.node == node)
    }
}
