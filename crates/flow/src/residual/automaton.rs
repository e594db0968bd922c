//! The known-path region as a finite automaton over edges.
//!
//! A state is a node of the acyclic graph in a context, which summarises the edges before it. A path is known if the automaton has a
//! transition for each of its edges, and the last transition is not *unclear*.
//!
//! Invariants: state 0 is the entry; a transition leads to a state of its edge's head.

use crate::dag::{Dag, DagEdgeId, DagEdgeSet};
use crate::graph::Node;

/// A transition from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionTransition {
    /// The edge.
    pub edge: DagEdgeId,
    /// The next state, or `None` if the path ends.
    pub to: Option<usize>,
    /// Whether unknown paths may also end with this transition.
    pub unclear: bool,
}

/// A node in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    /// The node.
    pub node: Node,
    /// The transitions from this state.
    pub transitions: Vec<RegionTransition>,
}

/// The known-path region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPathAutomaton {
    /// The states, the entry first.
    pub states: Vec<RegionState>,
}

impl KnownPathAutomaton {
    /// Creates an automaton with one state for each node. Its transitions are the edges of the region.
    pub fn from_edges(dag: &Dag, region: &DagEdgeSet, unclear: &DagEdgeSet) -> KnownPathAutomaton {
        // State 0 must be the entry, so it is swapped with node 0.
        let number = |node: Node| match node {
            n if n == dag.entry() => 0,
            Node(0) => dag.entry().index(),
            n => n.index(),
        };
        let mut states: Vec<RegionState> =
            (0..dag.node_count() as u32).map(|n| RegionState { node: Node(n), transitions: Vec::new() }).collect();
        states.swap(0, dag.entry().index());
        for state in &mut states {
            let out = dag.out(state.node).iter().filter(|e| region.contains(**e));
            state.transitions = out
                .map(|&edge| {
                    let to = dag.edge(edge).to;
                    RegionTransition { edge, to: (to != dag.exit()).then(|| number(to)), unclear: unclear.contains(edge) }
                })
                .collect();
        }
        KnownPathAutomaton { states }
    }

    /// Returns the transition on an edge from a state, or `None` if the edge leaves the region.
    pub fn transition(&self, state: usize, edge: DagEdgeId) -> Option<RegionTransition> {
        self.states[state].transitions.iter().copied().find(|w| w.edge == edge)
    }

    /// Returns, for each state, whether it needs the path register, because an edge out of the region or an unclear transition may follow.
    pub fn needs_register(&self, dag: &Dag) -> Vec<bool> {
        let position = dag.topological_positions();
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

    /// Returns the first state of a node, or `None` if the node has no state.
    pub fn first_state_of_node(&self, node: Node) -> Option<usize> {
        self.states.iter().position(|s| s.node == node)
    }
}
