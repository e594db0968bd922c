//! A lower bound on the cost of the most expensive machine, for all ways to distribute witnesses among machines. It is the maximum of two
//! bounds.

use super::exact::find_cheapest_set_exactly;
use super::placement::{find_cheapest_set_by_elimination, require_all};
use super::program::{WitnessFunctionId, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::sets::{Adjacency, components};
use super::structure::PushdownStructure;
use super::view::StateGraph;
use super::weights::Weights;
use std::collections::{BTreeMap, HashSet};
use trodden_flow::graph::Edge;

/// Maximum number of states that can have a witness in a function for which the exact solver is used. If this is 0, the bounds of 45
/// functions of each of three benchmark programs are 0.3 to 3.2% lower; if it is 48, they are the same (docs/benchmarks/constants.md).
const MAX_EXACT_STATES: usize = 24;
/// Step limit of the exact solver for a function. If this is 500, the same bounds are 0.1 to 2.9% lower; if it is 50,000, up to 1.5%
/// higher.
const MAX_BOUND_SEARCH_STEPS: usize = 5_000;

/// Returns a lower bound on the cost of the most expensive of `machines` machines.
///
/// *Loops:* Two successors of a branch may both lead back to the branch inside the function. The profile that distinguishes them records at
/// least one symbol between two executions of the branch. So the cost of one machine is at least the number of executions of both edges
/// minus the number of entries into the loop.
///
/// *Sum:* Additional witnesses never distinguish less, so the witnesses of all profiles together would also suffice in a single profile.
/// All machines together therefore have at least the cost of the cheapest single profile. For small functions, the exact solver computes
/// this cost; for others, it is bounded by the sum of the cheapest states of branches whose regions up to their postdominators are
/// disjoint. The sum excludes functions with calls and functions that are called repeatedly, because witnesses of other functions may
/// distinguish their branches.
///
/// Both bounds exclude recursive functions. All terms depend on the weights. Loops with contradictory weights are excluded. O(branches x
/// edges) for each function, plus the steps of the exact solver.
pub fn min_cost_of_slowest_machine(program: &WitnessProgram, kind: WitnessKind, weights: &Weights, machines: usize) -> f64 {
    let structure = PushdownStructure::new(Pushdown::new(program, kind));
    let (mut sum, mut loops) = (0.0, 0.0f64);
    for function in program.function_ids() {
        let alone = program.function(function).calls.is_empty() && !structure.repeated[function.index()];
        if alone {
            sum += min_cost_of_single_profile(&StateGraph::new(&structure, kind, weights, function));
        }
        if !structure.is_recursive(function) {
            loops = loops.max(min_cost_of_loops(program, weights, function));
        }
    }
    f64::max(loops, sum / machines.max(1) as f64)
}

fn min_cost_of_single_profile(view: &StateGraph) -> f64 {
    if view.witness.iter().flatten().count() <= MAX_EXACT_STATES {
        let (member, proven) =
            find_cheapest_set_exactly(view, &require_all(view), find_cheapest_set_by_elimination(view), MAX_BOUND_SEARCH_STEPS);
        if proven {
            return view.sum(&member);
        }
    }
    min_cost_of_disjoint_regions(view)
}

/// Returns the sum of the costs of the cheapest states of branches whose regions are disjoint, because each region needs a witness.
fn min_cost_of_disjoint_regions(view: &StateGraph) -> f64 {
    let postdominators = view.postdominators();
    let mut regions: Vec<(f64, HashSet<u32>)> =
        (0..view.branches.len()).map(|b| cheapest_cost_and_region_of_branch(view, &postdominators, b)).collect();
    regions.sort_by(|a, b| a.1.len().cmp(&b.1.len()).then(b.0.total_cmp(&a.0)));
    let (mut used, mut sum) = (HashSet::new(), 0.0);
    for (cheapest, region) in regions {
        if region.is_disjoint(&used) {
            sum += cheapest;
            used.extend(region);
        }
    }
    sum
}

/// Returns the states between a branch and its postdominator that can have a witness, and the cost of the cheapest (0 if there are none).
fn cheapest_cost_and_region_of_branch(view: &StateGraph, postdominators: &[Option<u32>], branch: usize) -> (f64, HashSet<u32>) {
    let of = &view.branches[branch];
    let (mut seen, mut work) = (HashSet::new(), of.next.clone());
    while let Some(state) = work.pop() {
        if Some(state) != postdominators[of.state as usize] && seen.insert(state) {
            work.extend(&view.next[state as usize]);
        }
    }
    seen.retain(|s| view.witness[*s as usize].is_some());
    let cheapest = seen.iter().map(|s| view.cost[*s as usize]).fold(f64::INFINITY, f64::min);
    (if cheapest.is_finite() { cheapest } else { 0.0 }, seen)
}

/// Returns, for each strongly connected component, whether the weights into each of its nodes equal the weights out of the node, apart from
/// calls and returns at the function's entry and exit. They can differ for estimates of irreducible or endless loops.
fn find_components_with_consistent_weights(
    program: &WitnessProgram,
    weights: &Weights,
    function: WitnessFunctionId,
    component: &[u32],
) -> Vec<bool> {
    let graph = &program.function(function).graph;
    let mut consistent = vec![true; graph.node_count()];
    for node in graph.nodes() {
        let sum = |edges: &[Edge]| edges.iter().map(|e| weights.edge(program, function, *e)).sum::<f64>();
        let (into, out) = (sum(graph.incoming(node)), sum(graph.out(node)));
        let equal = (into - out).abs() <= 1e-6 * into.max(out);
        let at_end = (node == graph.entry() && into <= out) || (node == graph.exit() && into >= out);
        consistent[component[node.index()] as usize] &= equal || at_end;
    }
    consistent
}

/// Returns the loop bound: the maximum, over all branches with at least two successors that lead back to the branch, of the number of
/// executions of the edges to the two most frequent of them, minus the number of entries into the loop.
fn min_cost_of_loops(program: &WitnessProgram, weights: &Weights, function: WitnessFunctionId) -> f64 {
    let graph = &program.function(function).graph;
    let pairs: Vec<(u32, u32)> = graph.edges().map(|e| (graph.from(e).0, graph.to(e).0)).collect();
    let component = components(&Adjacency::new(graph.node_count(), &pairs));
    let mut entered = vec![0.0; graph.node_count()];
    for edge in graph.edges() {
        let [from, to] = [graph.from(edge), graph.to(edge)].map(|n| component[n.index()]);
        entered[to as usize] += if from == to { 0.0 } else { weights.edge(program, function, edge) };
    }
    // The number of calls to the function is the number of executions of the entry node that its in-edges do not explain.
    let entry = graph.entry();
    let from_edges: f64 = graph.incoming(entry).iter().map(|e| weights.edge(program, function, *e)).sum();
    entered[component[entry.index()] as usize] += (weights.node(program, function, entry) - from_edges).max(0.0);
    let consistent = find_components_with_consistent_weights(program, weights, function, &component);
    let mut max = 0.0f64;
    for node in graph.nodes().filter(|n| consistent[component[n.index()] as usize]) {
        let own = component[node.index()];
        let mut back: BTreeMap<u32, f64> = BTreeMap::new();
        for &edge in graph.out(node).iter().filter(|e| component[graph.to(**e).index()] == own) {
            *back.entry(graph.to(edge).0).or_default() += weights.edge(program, function, edge);
        }
        let mut back: Vec<f64> = back.into_values().collect();
        back.sort_by(|a, b| b.total_cmp(a));
        if let [first, second, ..] = back[..] {
            max = max.max(first + second - entered[own as usize]);
        }
    }
    max
}
