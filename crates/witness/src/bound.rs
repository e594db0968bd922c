//! What every distribution costs on its most expensive machine, at least.
//!
//! Two bounds, of which the greater counts. *Loops:* take two successors of a branch that both lead back to it inside their function. The
//! profile that distinguishes them records at least once between two executions of the branch: otherwise one successor would lead to
//! whatever the other leads to. So one machine pays for the executions of both edges, less the times that the loop is entered; a
//! hot loop's cost cannot always be divided. *Sum:* the witnesses of all profiles together distinguish everything in
//! one profile, since more witnesses never distinguish less. So the machines together pay what one profile must: the exact solver's
//! result for small functions; for others the cheapest state of each of some branches that have no states in common up to their
//! postdominators. In a function that calls, or is called again, witnesses of other functions may serve; it is left out of the sum, and
//! so are recursive functions from both.
//!
//! All terms rely on the weights; loops whose weights contradict each other are left out. O(edges), and the steps of the exact solver.

use super::exact::exact;
use super::placement::{all, fewest};
use super::program::{WitnessFunctionId, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::sets::{Lists, components};
use super::structure::Structure;
use super::view::View;
use super::weights::Weights;
use std::collections::{BTreeMap, HashSet};
use trodden_flow::graph::Edge;

/// Functions with more states that can carry a witness are not solved exactly. With 0, the bounds of 45 functions each of three programs
/// are 0.3 to 3.2 % lower; with 48, the same (docs/benchmarks/constants.md).
const SMALL: usize = 24;
/// Steps of the exact solver for one function. With 500, the same bounds are 0.1 to 2.9 % lower; with 50,000, up to 1.5 % higher.
const STEPS: usize = 5_000;

/// The least that the most expensive of `machines` can cost.
pub fn bound(program: &WitnessProgram, kind: WitnessKind, weights: &Weights, machines: usize) -> f64 {
    let structure = Structure::new(Pushdown::new(program, kind));
    let (mut sum, mut loops) = (0.0, 0.0f64);
    for function in program.function_ids() {
        let alone = program.function(function).calls.is_empty() && !structure.repeated[function.index()];
        if alone {
            sum += one_profile(&View::new(&structure, kind, weights, function));
        }
        if !structure.recursive(function) {
            loops = loops.max(executions_in_loops(program, weights, function));
        }
    }
    f64::max(loops, sum / machines.max(1) as f64)
}

/// What one profile for the whole function costs at least.
fn one_profile(view: &View) -> f64 {
    if view.witness.iter().flatten().count() <= SMALL {
        let (member, proven) = exact(view, &all(view), fewest(view), STEPS);
        if proven {
            return view.sum(&member);
        }
    }
    packing(view)
}

/// Branches that have no states in common up to their postdominators: each needs a witness of its own there.
fn packing(view: &View) -> f64 {
    let postdominators = view.postdominators();
    let mut regions: Vec<(f64, HashSet<u32>)> = (0..view.branches.len()).map(|b| region(view, &postdominators, b)).collect();
    regions.sort_by(|a, b| a.1.len().cmp(&b.1.len()).then(b.0.total_cmp(&a.0)));
    let (mut used, mut sum) = (HashSet::new(), 0.0);
    for (least, region) in regions {
        if region.is_disjoint(&used) {
            sum += least;
            used.extend(region);
        }
    }
    sum
}

/// The states behind a branch before its postdominator that can carry a witness, and the cost of the cheapest.
fn region(view: &View, postdominators: &[Option<u32>], branch: usize) -> (f64, HashSet<u32>) {
    let of = &view.branches[branch];
    let (mut seen, mut work) = (HashSet::new(), of.next.clone());
    while let Some(state) = work.pop() {
        if Some(state) != postdominators[of.state as usize] && seen.insert(state) {
            work.extend(&view.next[state as usize]);
        }
    }
    seen.retain(|s| view.witness[*s as usize].is_some());
    let least = seen.iter().map(|s| view.cost[*s as usize]).fold(f64::INFINITY, f64::min);
    (if least.is_finite() { least } else { 0.0 }, seen)
}

/// For each component whether its nodes are left as often as they are entered; estimates of irreducible or endless loops are not so.
fn consistent(program: &WitnessProgram, weights: &Weights, function: WitnessFunctionId, component: &[u32]) -> Vec<bool> {
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

/// The most executions that a branch of a function has with two successors that lead back to it, less those that enter the loop.
fn executions_in_loops(program: &WitnessProgram, weights: &Weights, function: WitnessFunctionId) -> f64 {
    let graph = &program.function(function).graph;
    let pairs: Vec<(u32, u32)> = graph.edges().map(|e| (graph.from(e).0, graph.to(e).0)).collect();
    let component = components(&Lists::new(graph.node_count(), &pairs));
    let mut entered = vec![0.0; graph.node_count()];
    for edge in graph.edges() {
        let [from, to] = [graph.from(edge), graph.to(edge)].map(|n| component[n.index()]);
        entered[to as usize] += if from == to { 0.0 } else { weights.edge(program, function, edge) };
    }
    // What enters at the entry is what its edges do not bring.
    let entry = graph.entry();
    let brought: f64 = graph.incoming(entry).iter().map(|e| weights.edge(program, function, *e)).sum();
    entered[component[entry.index()] as usize] += (weights.node(program, function, entry) - brought).max(0.0);
    let consistent = consistent(program, weights, function, &component);
    let mut greatest = 0.0f64;
    for node in graph.nodes().filter(|n| consistent[component[n.index()] as usize]) {
        let own = component[node.index()];
        let mut back: BTreeMap<u32, f64> = BTreeMap::new();
        for &edge in graph.out(node).iter().filter(|e| component[graph.to(**e).index()] == own) {
            *back.entry(graph.to(edge).0).or_default() += weights.edge(program, function, edge);
        }
        let mut back: Vec<f64> = back.into_values().collect();
        back.sort_by(|a, b| b.total_cmp(a));
        if let [most, second, ..] = back[..] {
            greatest = greatest.max(most + second - entered[own as usize]);
        }
    }
    greatest
}
