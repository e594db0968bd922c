//! `trodden-lab graph number`: a scheme's values, probes and path numbers for a graph, verified before they are printed.

use super::interesting::{edges_of_interest, interesting_set};
use super::{AcyclicGraph, NamedGraph, add_cut_edges, cut_cycles, explain, nodes_json, number_json, signed_integer_json};
use crate::cli::GraphNumberArguments;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::{DagEdgeId, Edge, NumberingScheme, Origin};
use trodden_selective::verify::{VerifierVerdict, VerifyBudget, VerifyMethod, verify};
use trodden_selective::{Budget, Classification, NumberOptions, PathClass, RegisterPlacement, SpanSearchEnd, number as flow_number};
use trodden_selective::{InterestingSet, Labelling};

/// Default time limit of a search, in seconds.
const DEFAULT_TIME_LIMIT_S: u64 = 60;

pub fn number(named: &NamedGraph, job: &GraphNumberArguments) -> Result<Value> {
    let is_optimal = job.scheme == NumberingScheme::PppOptimal;
    let has_restarts = is_optimal || job.scheme == NumberingScheme::Ppp;
    ensure!(has_restarts || job.restarts.is_none(), "--restarts requires --scheme ppp or ppp-optimal");
    ensure!(is_optimal || job.time_limit.is_none(), "--time-limit requires --scheme ppp-optimal");
    let acyclic = cut_cycles(named, &edges_of_interest(named, &job.interesting));
    let (set, given) = interesting_set(named, &acyclic, &job.interesting)?;
    let start = Instant::now();
    let limit = Duration::from_secs(job.time_limit.unwrap_or(DEFAULT_TIME_LIMIT_S));
    let stop = || start.elapsed() >= limit;
    let options = NumberOptions {
        restarts: job.restarts.unwrap_or(NumberOptions::default().restarts),
        placement: if job.scheme == NumberingScheme::BallLarus { RegisterPlacement::Chords } else { RegisterPlacement::Cheaper },
        budget: Budget { steps: u64::MAX, stop: &stop },
    };
    let labelling = flow_number(job.scheme, &acyclic.dag, &acyclic.weights, &set, &options)?;
    let verdict = verify(&acyclic.dag, &set, &labelling, &VerifyBudget::default());
    if !verdict.is_not_refuted(job.scheme.is_exact()) {
        bail!(
            "the numbering by scheme {} is invalid ({verdict:?}), which is a bug in trodden. Please report the bug with the graph",
            job.scheme.name()
        );
    }
    let marks = PathsToMark::new(&acyclic, &set, &labelling, given)?;
    let mut answer = summary_json(&acyclic, &set, given, &labelling, &verdict, &marks)?;
    answer["edges"] = json!(edges_json(named, &acyclic, &labelling));
    answer["ids"] = json!(ids_json(named, &acyclic, &labelling, &marks, job.list));
    if job.scheme == NumberingScheme::Approximate {
        answer["separable"] = explain::separable_json(named, &acyclic, &set)?;
    }
    if job.explain {
        answer["steps"] = explain::steps_json(named, &acyclic, &set, job.scheme)?;
    }
    add_cut_edges(&acyclic.dag, &mut answer);
    Ok(answer)
}

/// The paths to mark as interesting in the output, by Ball-Larus number. If `all` is set, all paths are interesting, and none is marked.
struct PathsToMark {
    ids: Vec<u64>,
    all: bool,
}

impl PathsToMark {
    fn new(acyclic: &AcyclicGraph, set: &InterestingSet, labelling: &Labelling, given: bool) -> Result<PathsToMark> {
        if !given {
            return Ok(PathsToMark { ids: Vec::new(), all: true });
        }
        let set = if labelling.scheme.selects_edges() { set.closed() } else { set.clone() };
        // If the interesting paths are closed to a set that is too large to list, none of them is marked.
        let paths = set.paths(&acyclic.dag).unwrap_or_default();
        Ok(PathsToMark { ids: paths.iter().map(|p| acyclic.all.id(p)).collect(), all: false })
    }
}

fn summary_json(
    acyclic: &AcyclicGraph,
    set: &InterestingSet,
    given: bool,
    labelling: &Labelling,
    verdict: &VerifierVerdict,
    marks: &PathsToMark,
) -> Result<Value> {
    let dag = &acyclic.dag;
    // Ball-Larus numbering has numbers for all paths, but the reported span is that of the interesting ones.
    let (spread, interesting) = match (labelling.scheme, marks.ids.first().zip(marks.ids.last())) {
        (NumberingScheme::BallLarus, Some((low, high))) => (u128::from(high - low) + 1, marks.ids.len() as u128),
        (NumberingScheme::BallLarus, None) if given => (labelling.span().width(), set.count()),
        _ => (labelling.span().width(), labelling.interesting()),
    };
    let mut answer = json!({
        "scheme": labelling.scheme.name(),
        "paths": number_json(acyclic.all.paths().into()),
        "interesting": number_json(interesting),
        "delta": spread as f64 / interesting as f64,
        "spread": number_json(spread),
        "slots": number_json(labelling.slots()),
        "probes": labelling.probes(dag),
        "labels": labelling.labels(dag),
        "placement": if labelling.placement() == RegisterPlacement::Direct { "direct" } else { "chords" },
        "aliases": match verdict.aliases {
            UninterestingPathAliases::Exact(aliases) => number_json(aliases),
            UninterestingPathAliases::Sampled { aliases, of } => json!({"drawn": of, "aliases": aliases}),
        },
        "verified": match verdict.method {
            VerifyMethod::Enumerated => json!("enumerated"),
            VerifyMethod::Searched => json!("searched"),
            VerifyMethod::Sampled(paths) => json!({"drawn": paths}),
        },
    });
    if let Some(proof) = labelling.proof() {
        answer["bound"] = number_json(proof.bound.into());
        answer["optimal"] = json!(proof.end != SpanSearchEnd::BudgetSpent);
        answer["search"] = json!({"closed_form": proof.end == SpanSearchEnd::ClosedForm, "rank": proof.rank, "steps": proof.steps});
    }
    if let Classification::Hashed(table) = labelling.classification() {
        let (multiplier, shift) = table.parameters();
        answer["hash"] = json!({"multiplier": multiplier.to_string(), "shift": shift});
    }
    Ok(answer)
}

fn edges_json(named: &NamedGraph, acyclic: &AcyclicGraph, labelling: &Labelling) -> Vec<Value> {
    let dag = &acyclic.dag;
    let one = |id: DagEdgeId| {
        let edge = dag.edge(id);
        let increments = labelling.increments(id);
        let mut row = json!({
            "edge": dag.underlying_graph_edge(id).map(|e| e.0),
            "from": named.names[edge.from.index()],
            "to": named.names[edge.to.index()],
            "value": signed_integer_json(labelling.registers()[0].values[id.index()]),
            "probe": labelling.has_probe(id),
            "probe_value": signed_integer_json(increments[0]),
        });
        if let Some(check) = labelling.registers().get(1) {
            row["check_value"] = signed_integer_json(check.values[id.index()]);
            row["check_probe_value"] = signed_integer_json(increments[1]);
        }
        if !matches!(edge.origin, Origin::Real(_)) {
            row["dummy"] = json!(true);
        }
        row
    };
    // Unused edges start at an unreachable node, or lead from the exit back to the entry.
    let unused = |e: Edge| {
        let (from, to) = (named.graph.from(e), named.graph.to(e));
        json!({
            "edge": e.0, "from": named.names[from.index()], "to": named.names[to.index()],
            "value": 0, "probe": false, "probe_value": 0, "unused": true,
        })
    };
    let used: HashSet<Edge> = dag.edge_ids().filter_map(|id| dag.underlying_graph_edge(id)).collect();
    let rest = named.graph.edges().filter(|e| !used.contains(e)).map(unused);
    dag.edge_ids().map(one).chain(rest).collect()
}

/// Lists the first paths in the order of their Ball-Larus numbers, followed by all other interesting ones.
fn ids_json(named: &NamedGraph, acyclic: &AcyclicGraph, labelling: &Labelling, marks: &PathsToMark, list: u64) -> Vec<Value> {
    let (dag, all) = (&acyclic.dag, &acyclic.all);
    let listed = 0..list.min(all.paths());
    let marked: BTreeMap<u64, ()> = marks.ids.iter().map(|id| (*id, ())).collect();
    let one = |id: u64| {
        let path = all.path(dag, id).expect("the number is below the number of paths");
        let registers = labelling.register_values(&path);
        let mut row = json!({
            "path": nodes_json(named, dag, &path),
            "edges": path.iter().map(|e| dag.underlying_graph_edge(*e).map(|e| e.0)).collect::<Vec<_>>(),
            "id": signed_integer_json(registers[0]),
        });
        let interesting = marked.contains_key(&id);
        if interesting {
            row["interesting"] = json!(true);
        }
        if labelling.scheme != NumberingScheme::BallLarus {
            row["ball_larus"] = number_json(id.into());
            if let PathClass::Known(slot) = labelling.classify(dag, registers) {
                row["slot"] = number_json(slot.into());
                if !interesting && !marks.all {
                    row["alias"] = json!(true);
                }
            }
        }
        row
    };
    let beyond = marked.keys().copied().filter(|id| *id >= listed.end);
    listed.clone().chain(beyond).map(one).collect()
}
