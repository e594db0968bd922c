//! Selection of the interesting paths by options or by the graph file: as paths, as edges, or as nodes that they pass through.

use super::{AcyclicGraph, NamedGraph};
use crate::cli::InterestingPathsArguments;
use anyhow::{Context, Result, bail};
use trodden_flow::{CutReason, DagEdgeId, DagEdgeSet, Edge, Node};
use trodden_selective::InterestingSet;

/// Returns the interesting paths, and whether the user selected them. Options override the file. If neither selects paths, all paths are
/// interesting.
pub fn interesting_set(named: &NamedGraph, acyclic: &AcyclicGraph, options: &InterestingPathsArguments) -> Result<(InterestingSet, bool)> {
    let dag = &acyclic.dag;
    if let Some(ids) = &options.interesting {
        return Ok((InterestingSet::from_ids(dag, &acyclic.all, ids)?, true));
    }
    if let Some(edges) = &options.interesting_edges {
        if let Some(bad) = edges.iter().find(|e| **e as usize >= named.graph.edge_count()) {
            bail!("no edge has number {bad}: edges are numbered from 0 to {}", named.graph.edge_count() as i64 - 1);
        }
        return Ok((paths_over(acyclic, &edges.iter().map(|e| Edge(*e)).collect::<Vec<_>>())?, true));
    }
    if let Some(names) = &options.through {
        return Ok((paths_through(named, acyclic, names)?, true));
    }
    match (named.interesting.is_empty(), &named.interesting_edges, named.through.is_empty()) {
        (true, None, true) => Ok((InterestingSet::all(dag), false)),
        (false, None, true) => {
            let paths = named.interesting.iter().enumerate();
            let paths = paths
                .map(|(i, p)| to_dag_path(named, acyclic, p).with_context(|| format!("invalid interesting path {i} (counted from 0)")));
            Ok((InterestingSet::from_paths(dag, &acyclic.all, &paths.collect::<Result<Vec<_>>>()?)?, true))
        }
        (true, Some(edges), true) => Ok((paths_over(acyclic, edges)?, true)),
        (true, None, false) => Ok((paths_through(named, acyclic, &named.through)?, true)),
        _ => bail!("the graph file has more than one of `interesting`, `interesting_edges` and `through`. Keep only one"),
    }
}

/// Returns the paths with the numbers `ids` or, if there are none, the paths that the graph file lists.
pub fn listed_paths(named: &NamedGraph, acyclic: &AcyclicGraph, ids: &[u64]) -> Result<Vec<Vec<DagEdgeId>>> {
    let by_id = |id: &u64| {
        let paths = acyclic.all.paths();
        acyclic.all.path(&acyclic.dag, *id).with_context(|| format!("no path has number {id}: there are {paths} paths, numbered from 0"))
    };
    let from_file = |(i, edges): (usize, &Vec<Edge>)| {
        to_dag_path(named, acyclic, edges).with_context(|| format!("invalid interesting path {i} (counted from 0)"))
    };
    let paths: Vec<_> = match ids.is_empty() {
        false => ids.iter().map(by_id).collect::<Result<_>>()?,
        true => named.interesting.iter().enumerate().map(from_file).collect::<Result<_>>()?,
    };
    if paths.is_empty() {
        bail!("the executed paths are missing. List them with --interesting, or as `interesting` in the graph file");
    }
    Ok(paths)
}

/// Returns the edges of `--interesting-edges` or, without options, the edges that the graph file marks, directly or as parts of interesting
/// paths. Empty if other options select the paths, because these refer to paths of the graph after cutting.
pub fn edges_of_interest(named: &NamedGraph, options: &InterestingPathsArguments) -> Vec<Edge> {
    match (&options.interesting, &options.interesting_edges, &options.through) {
        (None, None, None) => {
            let mut edges: Vec<Edge> = named.interesting.iter().flatten().copied().collect();
            edges.extend(named.interesting_edges.iter().flatten());
            edges
        }
        (None, Some(edges), _) => edges.iter().map(|e| Edge(*e)).collect(),
        _ => Vec::new(),
    }
}

/// Returns the paths that take only the given edges. Dummy edges are allowed if they replace a given edge that was cut, or if they end a
/// path without replacing any edge.
fn paths_over(acyclic: &AcyclicGraph, edges: &[Edge]) -> Result<InterestingSet> {
    let marked = |id: DagEdgeId| acyclic.dag.underlying_graph_edge(id).is_none_or(|e| edges.contains(&e));
    let marked = DagEdgeSet::from_fn(acyclic.dag.edges().len(), marked);
    Ok(InterestingSet::from_edges(&acyclic.dag, &marked)?)
}

fn paths_through(named: &NamedGraph, acyclic: &AcyclicGraph, names: &[String]) -> Result<InterestingSet> {
    let node = |name: &String| {
        let at = named.names.iter().position(|n| n == name).with_context(|| format!("node `{name}` does not exist"))?;
        Ok(Node(at as u32))
    };
    let nodes = names.iter().map(node).collect::<Result<Vec<_>>>()?;
    InterestingSet::through(&acyclic.dag, &nodes).with_context(|| format!("cannot select the paths through nodes {}", names.join(", ")))
}

/// Converts a path of the graph to a path of the DAG. The path may begin or end with a cut edge, because paths begin and end there.
fn to_dag_path(named: &NamedGraph, acyclic: &AcyclicGraph, edges: &[Edge]) -> Result<Vec<DagEdgeId>> {
    let (graph, dag) = (&named.graph, &acyclic.dag);
    let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { bail!("the path has no edges") };
    let mut path = Vec::new();
    for (at, &edge) in edges.iter().enumerate() {
        match (dag.real(edge), dag.cut(edge)) {
            (Some(id), _) => path.push(id),
            (None, Some(cut)) if at == 0 && edges.len() > 1 && (cut.reason != CutReason::Limit || graph.from(edge) != graph.entry()) => {
                path.extend(cut.enter);
            }
            (None, Some(cut)) if at + 1 == edges.len() => path.extend(cut.leave),
            (None, Some(cut)) if cut.reason == CutReason::Limit => bail!(
                "the path takes edge {}, which was cut because there are 2^63 paths or more, so no path continues over it. Select fewer \
                 interesting paths",
                edge.0
            ),
            (None, Some(_)) => {
                bail!("the path continues over edge {}, but this edge is cut, so paths end there. End the path at this edge", edge.0)
            }
            (None, None) => bail!("the path takes edge {}, which is on no path from entry to exit", edge.0),
        }
    }
    if graph.from(first) != graph.entry() && dag.cut(first).is_none() {
        bail!("the path must begin at the entry or with a cut edge");
    }
    match dag.out(graph.to(last)) {
        // The path ends at a node without out-edges, from which a dummy edge leads to the exit.
        [only] if dag.cut(last).is_none() && dag.underlying_graph_edge(*only).is_none() => path.push(*only),
        _ if dag.cut(last).is_none() && graph.to(last) != graph.exit() => bail!("the path must end at the exit or with a cut edge"),
        _ => {}
    }
    Ok(path)
}
