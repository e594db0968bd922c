//! Published ways to spend less on path profiles than all paths cost, to measure against. They are not what trodden is for.
//!
//! | scheme | source | what is lost |
//! |---|---|---|
//! | [`targeted`] | Joshi, Bond, Zilles (CGO 2004) | paths with a rarely taken edge; functions whose paths an edge profile determines |
//! | [`practical`] | Bond, McKinley (CGO 2005) | paths with an edge that is rare in the whole program |
//! | [`structural`] | Yasue, Suganuma, Komatsu, Nakatani (JILP 2003) | how paths go on across the borders of loops |
//!
//! The first two leave edges out ([`cold`]): they need measured frequencies, and their profiles are partial. What is
//! counted of the third is exact.

pub mod cold;
pub mod structural;

use crate::dag::{CutReason, Dag, DagEdgeId};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph};
use crate::numbering::Numbering;
use crate::plan::{Plan, PlanOptions};
use cold::{Left, leave_out};

/// An edge that is taken less often than this share of its block's executions is cold, locally.
const LOCALLY_COLD: f64 = 0.05;
/// An edge that is taken less often than this share of all executions of edges in the program is cold, globally.
/// Published: 0.1 % of the program's paths; a path has some ten edges.
const GLOBALLY_COLD: f64 = 1e-4;
/// By how much the global share grows where there are too many paths still, and how often.
const GROWTH: f64 = 1.5;
const MOST_STEPS: usize = 80;

/// Targeted path profiling: edges that are cold locally are left out, where they have been measured at all. Probes are on chords.
/// `aside` names edges that are no part of the function's flow.
pub fn targeted(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, aside: &[bool], options: &PlanOptions) -> Plan {
    let cold = |e: Edge| frequencies.edge(e) < LOCALLY_COLD * frequencies.node(graph.from(e));
    let left = Left { aside: aside.to_vec(), cold: graph.edges().map(cold).collect() };
    leave_out(graph, forced, frequencies, &left, options)
}

/// Practical path profiling: edges that are cold in the whole program, of whose edges `all` executions were measured,
/// are left out; if too many paths are left, more of them. The hottest edge out of each block has the value 0.
pub fn practical(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    aside: &[bool],
    all: f64,
    options: &PlanOptions,
) -> Plan {
    let options = PlanOptions { hot_first: true, chords: false, ..options.clone() };
    let mut threshold = GLOBALLY_COLD * all;
    let most = graph.edges().map(|e| frequencies.edge(e)).fold(0.0, f64::max);
    for _ in 0..MOST_STEPS {
        let left = Left { aside: aside.to_vec(), cold: graph.edges().map(|e| frequencies.edge(e) < threshold).collect() };
        let uncut = PlanOptions { max_paths: i64::MAX as u64, ..options.clone() };
        let plan = leave_out(graph, forced, frequencies, &left, &uncut);
        if plan.numbering.paths() <= options.max_paths {
            return plan;
        }
        if threshold * GROWTH > most {
            return leave_out(graph, forced, frequencies, &left, &options);
        }
        threshold *= GROWTH;
    }
    leave_out(graph, forced, frequencies, &Left { aside: aside.to_vec(), cold: vec![false; graph.edge_count()] }, &options)
}

/// Structural path profiling: paths of each loop apart.
pub fn structural(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Plan {
    Plan::ball_larus(graph, &structural::cuts(graph, forced), frequencies, options)
}

/// Whether an edge profile determines how often each path is taken: each has an edge that no other has ("obvious" paths).
pub fn is_obvious(dag: &Dag, numbering: &Numbering) -> bool {
    let mut to = vec![0u64; dag.node_count()];
    to[dag.entry().index()] = 1;
    for &node in dag.order() {
        for &edge in dag.out(node) {
            let head = dag.edge(edge).to.index();
            to[head] = to[head].saturating_add(to[node.index()]);
        }
    }
    let alone = |id: &DagEdgeId| to[dag.edge(*id).from.index()] == 1 && numbering.paths_from(dag.edge(*id).to) == 1;
    let mut told: Vec<u64> = Vec::new();
    for edge in dag.edge_ids().filter(alone) {
        told.push(only_path(dag, numbering, edge));
    }
    told.sort();
    told.dedup();
    told.len() as u64 == numbering.paths()
}

/// The number of the only path through an edge.
fn only_path(dag: &Dag, numbering: &Numbering, edge: DagEdgeId) -> u64 {
    let mut path = vec![edge];
    let mut node = dag.edge(edge).from;
    while let Some(&into) = dag.incoming(node).first() {
        path.push(into);
        node = dag.edge(into).from;
    }
    let mut node = dag.edge(edge).to;
    while let Some(&out) = dag.out(node).first() {
        path.push(out);
        node = dag.edge(out).to;
    }
    numbering.id(&path)
}
