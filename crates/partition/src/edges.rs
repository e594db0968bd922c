//! Edge profiles divided among copies of a program: which edges need a counter, and which copy has it.
//!
//! Sources: Knuth and Stevenson, "Optimal measurement points for program frequency counts" (1973); Ball, "Efficiently counting program
//! events with support for on-line queries" (1994). By Kirchhoff's law only the chords of a maximum spanning tree need counters. Unlike
//! labels of paths, counters of chords are independent: each chord goes to the copy with the least load, the most executed first.
//!
//! If a path ends at every edge of a graph, each path is one edge, so an edge profile is a path profile of that graph. Kirchhoff's law does
//! not hold for calls that may not return, whose edge to the exit counts the executions up to the call ([`trodden_flow::dag`]), and for
//! calls that return twice. A block with such a call is represented by two network nodes, one that is entered and one that is left. The
//! difference flows from or to the outside, as at the entry and the exit.

use super::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::dag::{CutReason, Dag, DagEdgeId, Entries, Origin};
use trodden_flow::graph::{Edge, Graph, Node};
use trodden_flow::part::{Measure, Part, PathEnds};
use trodden_flow::placement::DisjointSets;

/// Cuts paths at every edge, so that each path is a single edge. Returns the given cuts, and a cut of every other edge that does not lead
/// to the exit.
pub fn cut_at_every_edge(graph: &Graph, cuts: &[(Edge, CutReason)]) -> Vec<(Edge, CutReason)> {
    let known = |edge: Edge| cuts.iter().any(|c| c.0 == edge);
    let more = graph.edges().filter(|e| graph.to(*e) != graph.exit() && !known(*e));
    cuts.iter().copied().chain(more.map(|e| (e, CutReason::EachEdge))).collect()
}

/// Returns the acyclic graph that results from these cuts.
pub fn dag(graph: &Graph, cuts: &[(Edge, CutReason)]) -> Dag {
    Dag::new(graph, cuts, Entries::Shared)
}

/// An event that an edge profile counts: a path of one edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeEvent {
    /// The event's edges in the acyclic graph: the edge by which the block is entered (unless the block is the function's entry), and the
    /// counted edge.
    pub path: Vec<DagEdgeId>,
    /// The network node at which the event starts.
    from: Node,
    /// The network node at which the event ends.
    to: Node,
}

/// The flow network of a function. Each event is an edge of the network.
#[derive(Clone, Debug)]
pub struct EdgeFlowNetwork {
    events: Vec<EdgeEvent>,
    entry: Node,
    outside: Node,
}

/// Inconsistent counts: a node is left more often than it is entered. The field is the number of the edge into the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counts are inconsistent: the node that edge {0} leads to is left more often than it is entered")]
pub struct Unbalanced(pub u32);

impl EdgeFlowNetwork {
    /// Creates the network of a graph whose edges are all cut. `reaches` returns true for an edge that counts how often a call that may not
    /// return was reached. `returning` returns true for a block that follows a call that returns twice.
    pub fn new(graph: &Graph, dag: &Dag, reaches: impl Fn(Edge) -> bool, returning: impl Fn(Node) -> bool) -> EdgeFlowNetwork {
        let outside = dag.exit();
        let ends_by_call = |node: Node| graph.out(node).iter().any(|e| reaches(*e));
        let arrive = |node: Node| if returning(node) { outside } else { node };
        let depart = |node: Node| if returning(node) || ends_by_call(node) { outside } else { node };
        let event = |last: &DagEdgeId| {
            let edge = dag.edge(*last);
            let first = dag.incoming(edge.from).first().copied();
            let (from, to) = match edge.origin {
                Origin::Real(e) if reaches(e) => (arrive(edge.from), outside),
                Origin::Leave(e) => (depart(edge.from), arrive(graph.to(e))),
                _ => (depart(edge.from), outside),
            };
            EdgeEvent { path: first.into_iter().chain([*last]).collect(), from, to }
        };
        let events = dag.incoming(dag.exit()).iter().map(event).collect();
        EdgeFlowNetwork { events, entry: arrive(dag.entry()), outside }
    }

    /// Returns the events.
    pub fn events(&self) -> &[EdgeEvent] {
        &self.events
    }

    /// Returns the indices of the events that need a counter, given how often each event was executed.
    pub fn chord_event_indices(&self, weights: &[u64]) -> Vec<usize> {
        let mut sets = self.sets_of_nodes_joined_by_calls();
        let mut order: Vec<usize> = (0..self.events.len()).collect();
        order.sort_by_key(|at| (std::cmp::Reverse(weights[*at]), *at));
        let mut chords: Vec<usize> = order.into_iter().filter(|at| !sets.join(self.events[*at].from, self.events[*at].to)).collect();
        chords.sort_unstable();
        chords
    }

    /// Returns disjoint sets of nodes. The outside and the entry are in the same set, because calls to the function have no counter of
    /// their own.
    fn sets_of_nodes_joined_by_calls(&self) -> DisjointSets {
        let most = self.events.iter().flat_map(|e| [e.from.0, e.to.0]).chain([self.entry.0, self.outside.0]).max().unwrap_or(0);
        let mut sets = DisjointSets::new(most as usize + 1);
        sets.join(self.outside, self.entry);
        sets
    }

    /// Computes the counts of all events from those of the chords. Counts that are given for other events are not changed.
    ///
    /// # Errors
    /// Fails if a count would be negative, or if the chords do not determine it.
    pub fn complete_event_counts(&self, counted: &[Option<u64>]) -> Result<Vec<u64>, Unbalanced> {
        let mut counts: Vec<Option<i128>> = counted.iter().map(|c| c.map(i128::from)).collect();
        // The last entry is the number of calls to the function.
        counts.push(None);
        let ends: Vec<(Node, Node)> = self.events.iter().map(|e| (e.from, e.to)).chain([(self.outside, self.entry)]).collect();
        let mut at_place = std::collections::BTreeMap::<Node, Vec<usize>>::new();
        for (at, (from, to)) in ends.iter().enumerate().filter(|(_, (from, to))| from != to) {
            [from, to].into_iter().filter(|place| **place != self.outside).for_each(|place| at_place.entry(*place).or_default().push(at));
        }
        let mut open: Vec<Node> = at_place.keys().copied().collect();
        while let Some(place) = open.pop() {
            let unknown: Vec<usize> = at_place[&place].iter().copied().filter(|at| counts[*at].is_none()).collect();
            let [only] = unknown[..] else { continue };
            let balance: i128 =
                at_place[&place].iter().filter_map(|at| Some(if ends[*at].1 == place { counts[*at]? } else { -counts[*at]? })).sum();
            counts[only] = Some(if ends[only].1 == place { -balance } else { balance });
            let other = if ends[only].1 == place { ends[only].0 } else { ends[only].1 };
            open.extend(at_place.contains_key(&other).then_some(other));
        }
        let all = counts.iter().take(self.events.len()).zip(&self.events);
        all.map(|(count, event)| count.and_then(|c| u64::try_from(c).ok()).ok_or(Unbalanced(event.path[event.path.len() - 1].0))).collect()
    }
}

/// Distributes the events that need counters over copies. All edges of the procedures must be cut.
pub fn plan(procedures: &[Procedure], networks: &[EdgeFlowNetwork], copies: usize) -> PartitionPlan {
    let copies = copies.max(1);
    let weight = |at: usize, event: &EdgeEvent| procedures[at].frequencies[event.path[event.path.len() - 1].index()];
    let mut chords: Vec<(u64, usize, usize)> = Vec::new();
    for (at, network) in networks.iter().enumerate() {
        let weights: Vec<u64> = network.events.iter().map(|e| weight(at, e)).collect();
        chords.extend(network.chord_event_indices(&weights).into_iter().map(|event| (weights[event], at, event)));
    }
    chords.sort_by_key(|(weight, at, event)| (std::cmp::Reverse(*weight), *at, *event));
    let mut loads = vec![0u64; copies];
    let mut groups = vec![vec![Vec::<usize>::new(); procedures.len()]; copies];
    for (weight, at, event) in chords {
        // All chords of a procedure that are never executed go to the same copy.
        let least = if weight == 0 { at % copies } else { (0..copies).min_by_key(|c| loads[*c]).unwrap_or(0) };
        loads[least] += weight;
        groups[least][at].push(event);
    }
    let part = |(at, events): (usize, &Vec<usize>)| {
        let dag = &procedures[at].dag;
        let ends = PathEnds::from_dag(dag);
        let end = |event: &usize| networks[at].events[*event].path.iter().copied().find(|e| ends.edges().contains(e));
        let ends: Vec<DagEdgeId> = events.iter().filter_map(end).collect();
        // Labels on ends cost nothing, and no other labels are needed. Edges that were never executed also get a weight, so that they get
        // no labels.
        let frequencies: Vec<u64> = procedures[at].frequencies.iter().map(|n| n.saturating_add(1)).collect();
        (!ends.is_empty()).then(|| Part::counting_paths_with_ends(dag, &ends, &frequencies, Measure::All))
    };
    let copies = groups.iter().map(|own| CopyPlan { parts: own.iter().enumerate().map(part).collect() }).collect();
    PartitionPlan { copies, profitable: 0 }
}
