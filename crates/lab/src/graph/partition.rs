//! `trodden-lab graph partition`: divides the paths of a graph among copies.
//!
//! Labels are those of precise selective profiling and valid for every path: no uninteresting path has the sum of an interesting path.
//! (Copies of programs use cheaper labels if uninteresting paths cannot occur.)

use super::{NamedGraph, add_cut_edges, frequencies_of, frequency_of, signed_integer_json};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::HashSet;
use trodden_console::arguments::choices::word_of_choice;
use trodden_console::arguments::partition::COPY_STRATEGY_CHOICES;
use trodden_flow::dag::Entries;
use trodden_flow::limit::cut_to_limit;
use trodden_flow::part::{Measure, Part};
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Origin};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures, tasks};

const SCHEMA_VERSION: u32 = 1;
/// Factor by which the frequencies of graphs are multiplied to become integers.
const FREQUENCY_SCALE: f64 = 1024.0;
/// Maximum scaled frequency, so that sums of many frequencies fit into 64 bits.
const MAX_FREQUENCY: f64 = (1u64 << 48) as f64;

pub struct PartitionRequest {
    pub copies: usize,
    pub strategy: PartitionStrategy,
    pub fold_again: bool,
    pub hits: Measure,
    pub explain: bool,
}

/// Divides the paths, and returns the copies as JSON. Fails if the graph is too large for `--strategy p3`, or if `explain` is set for
/// another strategy.
pub fn partition(named: &NamedGraph, request: &PartitionRequest) -> Result<Value> {
    let procedure = to_procedure(named);
    ensure!(
        request.strategy != PartitionStrategy::P3
            || !tasks::are_too_many_tasks(&procedure.dag, ProfitableProcedures::ALL.threshold(&procedure.dag, request.copies)),
        "the acyclic graph is too large for --strategy p3: it has {} edges, of which {} leave its entry. Use --strategy weighted",
        procedure.dag.edges().len(),
        procedure.dag.out(procedure.dag.entry()).len()
    );
    let options = PartitionOptions {
        copies: request.copies,
        profitable: ProfitableProcedures::ALL,
        fold_again: request.fold_again,
        measure: request.hits,
    };
    let plan = trodden_partition::plan(std::slice::from_ref(&procedure), request.strategy, &options);
    let copy = |copy: &trodden_partition::CopyPlan| {
        let none = DagEdgeSet::empty(procedure.dag.edges().len());
        let own = copy.parts.iter().flatten().next().map_or(none, |part| part.interesting.clone());
        let part = match own.is_full() {
            true => Part::whole(&procedure.dag, &procedure.frequencies, request.hits),
            false => None,
        };
        let part = part.unwrap_or_else(|| Part::selective(&procedure.dag, &own, &procedure.frequencies, request.hits));
        json!({ "interesting": interesting_edges(named, &procedure.dag, &part), "edges": edges_json(named, &procedure.dag, &part) })
    };
    let copies: Vec<Value> = plan.copies.iter().map(copy).collect();
    let strategy = word_of_choice(&COPY_STRATEGY_CHOICES, &request.strategy);
    let mut answer = json!({ "schema_version": SCHEMA_VERSION, "strategy": strategy, "copies": copies });
    if request.explain {
        ensure!(request.strategy == PartitionStrategy::P3, "--explain requires --strategy p3");
        answer["tasks"] = tasks_json(named, &procedure.dag, request);
    }
    add_cut_edges(&procedure.dag, &mut answer);
    Ok(answer)
}

/// Lists the tasks of strategy p3, each with its probes before labels are moved along edges, and with the probes that it shares with other
/// tasks.
fn tasks_json(named: &NamedGraph, dag: &Dag, request: &PartitionRequest) -> Value {
    let sets = tasks::tasks(dag, ProfitableProcedures::ALL.threshold(dag, request.copies), request.fold_again);
    let even = vec![1; dag.edges().len()];
    let part = |set: &DagEdgeSet| match set.is_full() {
        true => Part::whole(dag, &even, Measure::Labels),
        false => Some(Part::selective(dag, set, &even, Measure::Labels)),
    };
    let parts: Vec<Part> = sets.iter().filter_map(part).collect();
    let probes = |part: &Part| dag.edge_ids().filter(|e| part.increments[e.index()] != 0).collect::<HashSet<DagEdgeId>>();
    let probes: Vec<HashSet<DagEdgeId>> = parts.iter().map(probes).collect();
    let ends = |e: DagEdgeId| [dag.edge(e).from, dag.edge(e).to].map(|n| named.names[n.index()].as_str());
    let one = |(at, part): (usize, &Part)| {
        let others = || (0..parts.len()).filter(|other| *other != at);
        let shared = |e: &DagEdgeId| probes[at].contains(e) && others().any(|other| probes[other].contains(e));
        json!({
            "interesting": interesting_edges(named, dag, part),
            "cost": part.labels(),
            "probes": dag.edge_ids().filter(|e| probes[at].contains(e)).map(ends).collect::<Vec<_>>(),
            "shared_probes": dag.edge_ids().filter(shared).map(ends).collect::<Vec<_>>(),
        })
    };
    json!(parts.iter().enumerate().map(one).collect::<Vec<_>>())
}

fn to_procedure(named: &NamedGraph) -> Procedure {
    let graph = &named.graph;
    let frequencies = frequencies_of(named);
    let dag = cut_to_limit(graph, &[], &frequencies, i64::MAX as u64, Entries::PerEdge).dag;
    let all: Vec<f64> = dag.edge_ids().map(|id| frequency_of(&dag, &frequencies, id)).collect();
    let max = all.iter().copied().fold(1.0, f64::max);
    let scale = FREQUENCY_SCALE.min(MAX_FREQUENCY / max);
    let frequencies = all.iter().map(|frequency| (frequency * scale).round() as u64).collect();
    Procedure { dag, frequencies, paths: Vec::new(), call_sites: Some(1), unit: 0 }
}

fn interesting_edges(named: &NamedGraph, dag: &Dag, part: &Part) -> Vec<[String; 2]> {
    let ends = part.interesting.iter().map(|edge| [dag.edge(edge).from, dag.edge(edge).to]);
    ends.map(|ends| ends.map(|n| named.names[n.index()].clone())).collect()
}

fn edges_json(named: &NamedGraph, dag: &Dag, part: &Part) -> Vec<Value> {
    let one = |id: DagEdgeId| {
        let (edge, increment) = (dag.edge(id), part.increments[id.index()]);
        let mut row = json!({
            "edge": dag.underlying_graph_edge(id).map(|e| e.0),
            "from": named.names[edge.from.index()],
            "to": named.names[edge.to.index()],
            "interesting": part.interesting.contains(id),
            "value": signed_integer_json(part.values[id.index()]),
            "probe": increment != 0,
            "probe_value": signed_integer_json(increment),
        });
        if !matches!(edge.origin, Origin::Real(_)) {
            row["dummy"] = json!(true);
        }
        row
    };
    dag.edge_ids().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE_GRAPH: &str = r#"{"entry":"s","exit":"t","edges":[["s","a"],["s","b"],["a","c"],["b","c"],
        ["c","d"],["c","t"],["d","t"],["a","t"]],
        "weights":[60,40,50,40,30,60,30,10]}"#;

    fn partition_example(strategy: PartitionStrategy, copies: usize) -> Vec<Value> {
        let named = super::super::parse(EXAMPLE_GRAPH).unwrap();
        let request = PartitionRequest { copies, strategy, fold_again: false, hits: Measure::All, explain: false };
        let answer = partition(&named, &request).unwrap();
        assert_eq!(answer["schema_version"], 1);
        answer["copies"].as_array().unwrap().clone()
    }

    /// Paths as lists of edge numbers.
    const EXAMPLE_PATHS: [&[usize]; 5] = [&[0, 7], &[0, 2, 5], &[0, 2, 4, 6], &[1, 3, 5], &[1, 3, 4, 6]];

    #[test]
    fn every_path_has_a_unique_sum_in_some_copy() {
        for strategy in [PartitionStrategy::Sbl, PartitionStrategy::Pbl, PartitionStrategy::P3, PartitionStrategy::Weighted] {
            for number in [1, 2, 3, 9] {
                let copies = partition_example(strategy, number);
                assert_eq!(copies.len(), number);
                let mut known = HashSet::new();
                for copy in &copies {
                    let interesting: HashSet<(String, String)> =
                        serde_json::from_value::<Vec<(String, String)>>(copy["interesting"].clone()).unwrap().into_iter().collect();
                    let edge = |at: usize, key: &str| copy["edges"][at][key].clone();
                    let inside = |path: &[usize]| {
                        path.iter().all(|e| {
                            interesting.contains(&(edge(*e, "from").as_str().unwrap().into(), edge(*e, "to").as_str().unwrap().into()))
                        })
                    };
                    let sum = |path: &[usize], key: &str| path.iter().map(|e| edge(*e, key).as_i64().unwrap()).sum::<i64>();
                    for path in EXAMPLE_PATHS.into_iter().filter(|p| inside(p)) {
                        known.insert(path);
                        for key in ["value", "probe_value"] {
                            assert!(
                                EXAMPLE_PATHS.iter().all(|other| *other == path || sum(other, key) != sum(path, key)),
                                "{strategy:?}: {path:?}"
                            );
                        }
                    }
                }
                assert_eq!(known.len(), EXAMPLE_PATHS.len(), "{strategy:?} in {number}");
            }
        }
    }

    #[test]
    fn graph_too_large_for_p3_is_rejected_with_an_alternative() {
        let edges = (0..60_000).flat_map(|at| [Some([at, at + 1]), (at % 2 == 0).then_some([at, at + 2])]).flatten();
        let edges: Vec<[String; 2]> = edges.map(|e| e.map(|n: u32| n.to_string())).collect();
        let text = json!({ "entry": "0", "exit": "60000", "edges": edges }).to_string();
        let named = super::super::parse(&text).unwrap();
        let request =
            PartitionRequest { copies: 2, strategy: PartitionStrategy::P3, fold_again: false, hits: Measure::All, explain: false };
        let error = partition(&named, &request).unwrap_err().to_string();
        assert!(error.contains("edges") && error.contains("Use --strategy weighted"), "{error}");
    }

    /// Four of the five diamonds in figure 1 of the paper, as two chains. They are four tasks (example 3) that share no probes.
    #[test]
    fn tasks_are_listed_with_their_costs() {
        let rows = [("v4", "v10", "v7"), ("v15", "v21", "v18")].iter().flat_map(|(from, to, shared)| {
            [(*from, *shared), (*shared, *to)].into_iter().flat_map(|(a, d)| {
                let arm = |name: &str| [[a.to_owned(), format!("{a}{name}")], [format!("{a}{name}"), d.to_owned()]];
                [arm("l"), arm("r")].concat()
            })
        });
        let others = "entry v1 v1 v2 v1 v12 v2 v3 v2 v4 v10 exit v3 v11 v11 exit v12 v13 v12 v14 v13 v11 v14 v15 v21 exit";
        let others: Vec<String> = others.split(' ').map(str::to_owned).collect();
        let edges: Vec<[String; 2]> = others.chunks(2).map(|e| [e[0].clone(), e[1].clone()]).chain(rows).collect();
        let named = super::super::parse(&json!({"entry": "entry", "exit": "exit", "edges": edges}).to_string()).unwrap();
        let request = |strategy| PartitionRequest { copies: 4, strategy, fold_again: false, hits: Measure::Labels, explain: true };
        let answer = partition(&named, &request(PartitionStrategy::P3)).unwrap();
        let tasks = answer["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 4);
        for task in tasks {
            assert_eq!(task["cost"].as_u64().unwrap() as usize, task["probes"].as_array().unwrap().len());
            assert_eq!(task["shared_probes"], json!([]));
        }
        assert!(partition(&named, &request(PartitionStrategy::Pbl)).is_err());
    }

    #[test]
    fn weighted_strategies_use_both_copies() {
        let used = |strategy| partition_example(strategy, 2).iter().filter(|c| !c["interesting"].as_array().unwrap().is_empty()).count();
        assert_eq!(
            (used(PartitionStrategy::Sbl), used(PartitionStrategy::Pbl), used(PartitionStrategy::P3), used(PartitionStrategy::Weighted)),
            (1, 1, 2, 2)
        );
    }
}
