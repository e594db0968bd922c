//! The intermediate results of numbering schemes (`--explain`), and whether one register can separate the interesting paths.

use super::{AcyclicGraph, NamedGraph, nodes_json, number_json, signed_integer_json};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use trodden_flow::{DagEdgeId, NumberingScheme};
use trodden_selective::InterestingSet;
use trodden_selective::separation::{ThresholdSeparation, WeightedPaths, decide_separation};
use trodden_selective::steps::{PreferentialStep, preferential_steps, selective_steps};

/// Returns the steps of precise selective or preferential numbering as JSON. Fails for other schemes, and if a number is too large.
pub fn steps_json(named: &NamedGraph, acyclic: &AcyclicGraph, set: &InterestingSet, scheme: NumberingScheme) -> Result<Value> {
    match scheme {
        NumberingScheme::Pspp => selective_json(named, acyclic, &set.closed()),
        NumberingScheme::Ppp => preferential_json(named, acyclic, set),
        _ => bail!("--explain requires --scheme pspp or ppp"),
    }
}

fn end_names(named: &NamedGraph, acyclic: &AcyclicGraph, edge: DagEdgeId) -> [String; 2] {
    let edge = acyclic.dag.edge(edge);
    [edge.from, edge.to].map(|n| named.names[n.index()].clone())
}

fn selective_json(named: &NamedGraph, acyclic: &AcyclicGraph, set: &InterestingSet) -> Result<Value> {
    let dag = &acyclic.dag;
    let steps = selective_steps(dag, set)?;
    let node = |node: &trodden_flow::Node| {
        json!({
            "node": named.names[node.index()],
            "paths": number_json(steps.paths[node.index()]),
            "min": steps.least[node.index()].map(|least| signed_integer_json(least as i64)),
        })
    };
    let edge = |id: DagEdgeId| {
        let [from, to] = end_names(named, acyclic, id);
        json!({
            "from": from,
            "to": to,
            "interesting": set.has(id),
            "initial": signed_integer_json(steps.initial[id.index()]),
            "propagated": signed_integer_json(steps.moved[id.index()]),
            "absorbed": steps.absorbed.contains(&id),
        })
    };
    // Nodes are listed in the order in which the algorithm visits them.
    Ok(json!({
        "nodes": dag.order().iter().rev().map(node).collect::<Vec<_>>(),
        "edges": dag.edge_ids().map(edge).collect::<Vec<_>>(),
    }))
}

fn preferential_json(named: &NamedGraph, acyclic: &AcyclicGraph, set: &InterestingSet) -> Result<Value> {
    let dag = &acyclic.dag;
    let (steps, critical) = preferential_steps(dag, &set.paths(dag)?)?;
    let step = |step: &PreferentialStep| {
        json!({
            "edge": end_names(named, acyclic, step.edge),
            "prefix": nodes_json(named, dag, &step.prefix),
            "interval": [signed_integer_json(step.interval.0), signed_integer_json(step.interval.1)],
            "cis": signed_integer_json(step.cumulative),
            "weight": signed_integer_json(step.weight),
            "value": signed_integer_json(step.value),
        })
    };
    Ok(json!({
        "critical_nodes": critical.iter().map(|n| named.names[n.index()].as_str()).collect::<Vec<_>>(),
        "edges": steps.iter().map(step).collect::<Vec<_>>(),
    }))
}

/// Returns as JSON, with a proof, whether edge values exist that give all interesting paths lower numbers than all others. `null` if there
/// are too many paths to decide.
pub fn separable_json(named: &NamedGraph, acyclic: &AcyclicGraph, set: &InterestingSet) -> Result<Value> {
    let dag = &acyclic.dag;
    let paths = |paths: &WeightedPaths| {
        let one = |(path, weight): &(Vec<DagEdgeId>, i64)| json!({"path": nodes_json(named, dag, path), "times": weight});
        paths.iter().map(one).collect::<Vec<_>>()
    };
    Ok(match decide_separation(dag, &acyclic.all, set)? {
        ThresholdSeparation::Unknown => Value::Null,
        ThresholdSeparation::Separated(values) => {
            let edge = |id: DagEdgeId| {
                let [from, to] = end_names(named, acyclic, id);
                json!({"from": from, "to": to, "value": signed_integer_json(values[id.index()])})
            };
            json!({"separable": true, "below": 0, "edges": dag.edge_ids().map(edge).collect::<Vec<_>>()})
        }
        ThresholdSeparation::Inseparable { interesting, others } => {
            json!({"separable": false, "interesting": paths(&interesting), "others": paths(&others)})
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{number, parse};
    use super::*;
    use crate::cli::GraphNumberArguments;

    fn number_with_explanation(text: &str, scheme: NumberingScheme, explain: bool) -> Value {
        number::number(&parse(text).unwrap(), &GraphNumberArguments { scheme, explain, restarts: None, ..GraphNumberArguments::default() })
            .unwrap()
    }

    /// The example of section 3.3.2 of the thesis, on figure 3.4, from node t back to node s.
    #[test]
    fn preferential_steps_match_the_thesis() {
        let text = r#"{"entry":"s","exit":"t","edges":[["s","a"],["s","b"],["a","c"],["a","b"],["b","c"],["c","d"],["c","t"],["d","t"]],
            "interesting":[["s","a","c","d","t"],["s","a","c","t"],["s","b","c","t"]]}"#;
        let steps = &number_with_explanation(text, NumberingScheme::Ppp, true)["steps"];
        assert_eq!(steps["critical_nodes"], json!(["s", "c"]));
        let of = |edge: [&str; 2], prefix: &[&str]| {
            let rows = steps["edges"].as_array().unwrap();
            let row = rows.iter().find(|r| r["edge"] == json!(edge) && r["prefix"] == json!(prefix)).unwrap();
            (row["interval"].clone(), row["cis"].as_i64().unwrap(), row["weight"].as_i64().unwrap(), row["value"].as_i64().unwrap())
        };
        assert_eq!(of(["d", "t"], &["s", "a", "c", "d"]), (json!([0, 0]), 0, 0, 0));
        assert_eq!(of(["c", "d"], &["s", "a", "c"]), (json!([0, 0]), 0, 0, 0));
        assert_eq!(of(["c", "t"], &["s", "a", "c"]), (json!([0, 0]), 1, 1, 1));
        assert_eq!(of(["c", "t"], &["s", "b", "c"]), (json!([0, 0]), 0, 0, 1));
        assert_eq!(of(["b", "c"], &["s", "b"]), (json!([1, 1]), 0, -1, -1));
        assert_eq!(of(["a", "c"], &["s", "a"]), (json!([0, 1]), 0, 0, 0));
        assert_eq!(of(["s", "b"], &["s"]), (json!([0, 0]), 2, 2, 2));
    }

    /// Two of four paths are interesting; the steps were computed by hand.
    #[test]
    fn precise_selective_steps_lead_to_the_labels() {
        let text = r#"{"entry":"s","exit":"t","edges":[["s","a"],["s","b"],["a","m"],["b","m"],["m","c"],["m","d"],["c","t"],["d","t"]],
            "interesting_edges":[0,2,4,5,6,7]}"#;
        let answer = number_with_explanation(text, NumberingScheme::Pspp, true);
        let steps = &answer["steps"];
        let node = |name: &str| {
            let row = steps["nodes"].as_array().unwrap().iter().find(|r| r["node"] == name).unwrap().clone();
            (row["paths"].as_u64().unwrap(), row["min"].as_i64())
        };
        // The paths over the uninteresting edge s-b have the numbers 0 and 1, and those over a have 2 and 3.
        assert_eq!([node("m"), node("b"), node("a"), node("s")], [(2, Some(0)), (2, None), (2, Some(0)), (4, Some(2))]);
        let labels = |key: &str| steps["edges"].as_array().unwrap().iter().map(|r| r[key].as_i64().unwrap()).collect::<Vec<_>>();
        assert_eq!(labels("initial"), [2, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(labels("propagated"), [0, 0, 2, 0, 0, 0, 0, 1]);
        for (step, edge) in steps["edges"].as_array().unwrap().iter().zip(answer["edges"].as_array().unwrap()) {
            let last = if step["interesting"] == true { step["propagated"].clone() } else { json!(0) };
            assert_eq!(edge["value"], last);
        }
    }

    #[test]
    fn figure_3_5_is_proven_inseparable() {
        let text = r#"{"entry":"s","exit":"t","edges":[["s","a"],["s","b"],["a","c"],["b","c"],["c","d"],["c","e"],["d","t"],["e","t"]],
            "interesting":[["s","a","c","e","t"],["s","b","c","d","t"]]}"#;
        let answer = number_with_explanation(text, NumberingScheme::Approximate, false);
        assert_eq!((&answer["separable"]["separable"], &answer["aliases"]), (&json!(false), &json!(0)));
        assert_eq!(answer["separable"]["others"].as_array().unwrap().len(), 2);
        assert!(number::number(&parse(text).unwrap(), &GraphNumberArguments { explain: true, ..GraphNumberArguments::default() }).is_err());
    }
}
