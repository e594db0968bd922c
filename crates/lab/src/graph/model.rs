//! `trodden-lab graph model`: the numbering of a graph's paths as a probability model, and the numbers that an arithmetic
//! coder gives them under it.

use super::interesting::{edges_of_interest, interesting_set};
use super::{Acyclic, Named, acyclic, nodes_json, number_json};
use crate::cli::{Interesting, ModelScheme};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use trodden_coding::{CodingModel, Enclosure};
use trodden_flow::DagEdgeId;
use trodden_selective::InterestingSet;
use trodden_selective::preferential;

/// The model of a scheme.
pub fn model(named: &Named, scheme: ModelScheme, ids: &[u64], bits: u32, list: u64) -> Result<Value> {
    let options = Interesting { interesting: (!ids.is_empty()).then(|| ids.to_vec()), ..Interesting::default() };
    let acyclic = acyclic(named, &edges_of_interest(named, &options));
    let dag = &acyclic.dag;
    let (set, _) = interesting_set(named, &acyclic, &options)?;
    let (name, model, paths) = match scheme {
        ModelScheme::BallLarus => ("ball-larus", CodingModel::ball_larus(dag), first(&acyclic, list)),
        ModelScheme::Measured => {
            named.weights.as_ref().context("a measured model needs the graph's `weights`: give one for each edge")?;
            ("measured", CodingModel::measured(dag, &acyclic.weights)?, first(&acyclic, list))
        }
        ModelScheme::Ppp => {
            let paths = set.paths(dag)?;
            let values = preferential(dag, &paths, 0)?.values;
            ("ppp", CodingModel::preferential(dag, &values, &paths)?, paths)
        }
    };
    let interesting = if scheme == ModelScheme::Ppp { set.count() } else { InterestingSet::all(dag).count() };
    let row = |path: &Vec<DagEdgeId>| {
        json!({
            "path": nodes_json(named, dag, path),
            "edges": path.iter().map(|e| dag.underlying(*e).map(|e| e.0)).collect::<Vec<_>>(),
            "id": model.encode(path).map(|id| u128::try_from(id).map_or(Value::Null, number_json)),
            "probability": model.probability(path).to_string(),
        })
    };
    Ok(json!({
        "scheme": name,
        "paths": number_json(acyclic.all.paths().into()),
        "interesting": number_json(interesting),
        "numbers": u128::try_from(model.size().clone()).map_or(Value::Null, number_json),
        "entropy_bits": enclosure(&model.entropy(bits).rounded(bits)),
        "gamma": enclosure(&model.gamma(interesting, bits).rounded(bits)),
        "contexts": contexts(named, &acyclic, &model, scheme == ModelScheme::Ppp, list),
        "ids": paths.iter().take(usize::try_from(list).unwrap_or(usize::MAX)).map(row).collect::<Vec<_>>(),
    }))
}

/// The first paths in the order of their identities.
fn first(acyclic: &Acyclic, list: u64) -> Vec<Vec<DagEdgeId>> {
    (0..list.min(acyclic.all.paths())).filter_map(|id| acyclic.all.path(&acyclic.dag, id)).collect()
}

/// A number between two exact fractions, and about what it is.
fn enclosure(value: &Enclosure) -> Value {
    let about = |r: &trodden_coding::Rational| trodden_coding::approximate(r);
    json!({"low": value.low.to_string(), "high": value.high.to_string(), "about": about(&value.low).midpoint(about(&value.high))})
}

fn contexts(named: &Named, acyclic: &Acyclic, model: &CodingModel, prefixes: bool, list: u64) -> Vec<Value> {
    let dag = &acyclic.dag;
    let one = |context: trodden_coding::Context| {
        let edge = |(edge, (low, high)): (DagEdgeId, trodden_coding::CodingRange)| {
            json!({
                "edge": dag.underlying(edge).map(|e| e.0),
                "to": named.names[dag.edge(edge).to.index()],
                "probability": (&high - &low).to_string(),
                "range": [low.to_string(), high.to_string()],
            })
        };
        let mut row = json!({
            "node": named.names[context.node as usize],
            "edges": context.choices.into_iter().map(edge).collect::<Vec<_>>(),
        });
        if prefixes {
            row["prefix"] = nodes_json(named, dag, &context.prefix);
        }
        row
    };
    model.contexts().take(usize::try_from(list).unwrap_or(usize::MAX)).map(one).collect()
}
