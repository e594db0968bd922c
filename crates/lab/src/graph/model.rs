//! `trodden-lab graph model`: a path numbering as a probability model, and the numbers that an arithmetic coder assigns to paths under it.

use super::interesting::{edges_of_interest, interesting_set, listed_paths};
use super::{AcyclicGraph, NamedGraph, cut_cycles, nodes_json, number_json};
use crate::cli::{GraphModelArguments, InterestingPathsArguments, ModelScheme};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use trodden_coding::{CodingModel, CodingStep, Enclosure};
use trodden_flow::DagEdgeId;
use trodden_selective::InterestingSet;
use trodden_selective::preferential;

/// Returns the model as JSON. Fails if it cannot be built from the graph, or if options contradict each other.
pub fn model(named: &NamedGraph, job: &GraphModelArguments) -> Result<Value> {
    let options = InterestingPathsArguments {
        interesting: (!job.interesting.is_empty()).then(|| job.interesting.clone()),
        ..InterestingPathsArguments::default()
    };
    let acyclic = cut_cycles(named, &edges_of_interest(named, &options));
    ensure!(job.scheme == ModelScheme::Executed || job.executions.is_empty(), "--executions requires --scheme executed");
    let ListedModel { name, coding, paths, interesting } = build_model(named, &acyclic, job, &options)?;
    let row = |path: &Vec<DagEdgeId>| {
        let mut row = json!({
            "path": nodes_json(named, &acyclic.dag, path),
            "edges": path.iter().map(|e| acyclic.dag.underlying_graph_edge(*e).map(|e| e.0)).collect::<Vec<_>>(),
            "id": coding.encode(path).map(|id| u128::try_from(id).map_or(Value::Null, number_json)),
            "probability": coding.probability(path).to_string(),
        });
        if job.explain {
            row["steps"] = steps_json(named, &acyclic, &coding, path);
            let decoded = coding.encode(path).and_then(|id| coding.decode(&id));
            row["decoded"] = decoded.map_or(Value::Null, |decoded| nodes_json(named, &acyclic.dag, &decoded));
        }
        row
    };
    let history = match job.scheme {
        ModelScheme::Ppp => ContextHistory::Whole,
        ModelScheme::Executed => ContextHistory::Last(job.order),
        ModelScheme::BallLarus | ModelScheme::Measured => ContextHistory::None,
    };
    Ok(json!({
        "scheme": name,
        "paths": number_json(acyclic.all.paths().into()),
        "interesting": number_json(interesting),
        "numbers": u128::try_from(coding.size().clone()).map_or(Value::Null, number_json),
        "entropy_bits": enclosure_json(&coding.entropy(job.bits).rounded(job.bits)),
        "gamma": enclosure_json(&coding.gamma(interesting, job.bits).rounded(job.bits)),
        "contexts": contexts_json(named, &acyclic, &coding, history, job.list),
        "ids": paths.iter().take(usize::try_from(job.list).unwrap_or(usize::MAX)).map(row).collect::<Vec<_>>(),
    }))
}

struct ListedModel {
    name: &'static str,
    coding: CodingModel,
    paths: Vec<Vec<DagEdgeId>>,
    interesting: u128,
}

fn build_model(
    named: &NamedGraph,
    acyclic: &AcyclicGraph,
    job: &GraphModelArguments,
    options: &InterestingPathsArguments,
) -> Result<ListedModel> {
    let dag = &acyclic.dag;
    let all = |name, coding| ListedModel {
        name,
        coding,
        paths: take_first_paths(acyclic, job.list),
        interesting: InterestingSet::all(dag).count(),
    };
    Ok(match job.scheme {
        ModelScheme::BallLarus => all("ball-larus", CodingModel::ball_larus(dag)),
        ModelScheme::Measured => {
            named.weights.as_ref().context("--scheme measured needs `weights` in the graph file, one for each edge")?;
            all("measured", CodingModel::from_weights(dag, &acyclic.weights)?)
        }
        ModelScheme::Ppp => {
            let (set, _) = interesting_set(named, acyclic, options)?;
            let paths = set.paths(dag)?;
            let values = preferential(dag, &paths, 0)?.values;
            ListedModel { name: "ppp", coding: CodingModel::preferential(dag, &values, &paths)?, paths, interesting: set.count() }
        }
        ModelScheme::Executed => {
            let paths = listed_paths(named, acyclic, &job.interesting)?;
            let given = job.executions.len();
            ensure!(
                given == 0 || given == paths.len(),
                "--executions needs one value for each interesting path: expected {}, found {given}",
                paths.len()
            );
            let executions = (0..paths.len()).map(|at| job.executions.get(at).copied().unwrap_or(1));
            let executed: Vec<(Vec<DagEdgeId>, u64)> = paths.iter().cloned().zip(executions).collect();
            let coding = CodingModel::from_executed_paths(dag, job.order, &executed)?;
            // The list also has paths that were not executed, but that the model composes of parts of executed ones.
            let interesting = paths.iter().collect::<BTreeSet<_>>().len() as u128;
            ListedModel { name: "executed", coding, paths: take_first_paths(acyclic, job.list), interesting }
        }
    })
}

/// Lists the encoding steps of a path: the range of each edge in its context, and the remaining interval of numbers.
fn steps_json(named: &NamedGraph, acyclic: &AcyclicGraph, coding: &CodingModel, path: &[DagEdgeId]) -> Value {
    let step = |step: CodingStep| {
        let edge = acyclic.dag.edge(step.edge);
        json!({
            "from": named.names[edge.from.index()],
            "to": named.names[edge.to.index()],
            "range": [step.range.0.to_string(), step.range.1.to_string()],
            "interval": [step.interval.0.to_string(), step.interval.1.to_string()],
        })
    };
    coding.encoding_steps(path).map_or(Value::Null, |steps| steps.into_iter().map(step).collect())
}

/// Returns the first paths in the order of their Ball-Larus numbers.
fn take_first_paths(acyclic: &AcyclicGraph, list: u64) -> Vec<Vec<DagEdgeId>> {
    (0..list.min(acyclic.all.paths())).filter_map(|id| acyclic.all.path(&acyclic.dag, id)).collect()
}

/// Formats a number as exact lower and upper bounds and an approximate value.
fn enclosure_json(value: &Enclosure) -> Value {
    let about = |r: &trodden_coding::Rational| trodden_coding::nearest_f64(r);
    json!({"low": value.low.to_string(), "high": value.high.to_string(), "about": about(&value.low).midpoint(about(&value.high))})
}

/// The part of the path before a node on which the node's edge probabilities depend.
#[derive(Clone, Copy)]
enum ContextHistory {
    None,
    /// The given number of last edges.
    Last(usize),
    Whole,
}

fn contexts_json(named: &NamedGraph, acyclic: &AcyclicGraph, model: &CodingModel, history: ContextHistory, list: u64) -> Vec<Value> {
    let dag = &acyclic.dag;
    let one = |context: trodden_coding::CodingModelContext| {
        let edge = |(edge, (low, high)): (DagEdgeId, trodden_coding::CodingRange)| {
            json!({
                "edge": dag.underlying_graph_edge(edge).map(|e| e.0),
                "to": named.names[dag.edge(edge).to.index()],
                "probability": (&high - &low).to_string(),
                "range": [low.to_string(), high.to_string()],
            })
        };
        let mut row = json!({
            "node": named.names[context.node as usize],
            "edges": context.choices.into_iter().map(edge).collect::<Vec<_>>(),
        });
        match history {
            ContextHistory::None => {}
            ContextHistory::Whole => row["prefix"] = nodes_json(named, dag, &context.prefix),
            ContextHistory::Last(order) => {
                let prefix = &context.prefix[context.prefix.len().saturating_sub(order)..];
                let from = prefix.iter().map(|edge| dag.edge(*edge).from.index());
                row["after"] = json!(from.map(|node| named.names[node].as_str()).collect::<Vec<_>>());
            }
        }
        row
    };
    model.contexts().take(usize::try_from(list).unwrap_or(usize::MAX)).map(one).collect()
}
