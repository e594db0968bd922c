//! Which paths a user is interested in: from the graph's file or from options, as paths, as edges, or as nodes that they pass.

use super::{Acyclic, Named};
use crate::cli::Interesting;
use anyhow::{Context, Result, bail};
use trodden_flow::{CutReason, DagEdgeId, Edge, Node};
use trodden_selective::InterestingSet;

/// The set, and whether it was given at all: without, every path is of interest. Options are taken rather than what the file says.
pub fn interesting_set(named: &Named, acyclic: &Acyclic, options: &Interesting) -> Result<(InterestingSet, bool)> {
    let dag = &acyclic.dag;
    if let Some(ids) = &options.interesting {
        return Ok((InterestingSet::from_ids(dag, &acyclic.all, ids)?, true));
    }
    if let Some(edges) = &options.interesting_edges {
        if let Some(bad) = edges.iter().find(|e| **e as usize >= named.graph.edge_count()) {
            bail!("there is no edge {bad}: they are numbered from 0 to {}", named.graph.edge_count() as i64 - 1);
        }
        return Ok((over(acyclic, &edges.iter().map(|e| Edge(*e)).collect::<Vec<_>>())?, true));
    }
    if let Some(names) = &options.through {
        return Ok((through(named, acyclic, names)?, true));
    }
    match (named.interesting.is_empty(), &named.interesting_edges, named.through.is_empty()) {
        (true, None, true) => Ok((InterestingSet::all(dag), false)),
        (false, None, true) => {
            let paths = named.interesting.iter().enumerate();
            let paths = paths.map(|(i, p)| path(named, acyclic, p).with_context(|| format!("interesting path {i}")));
            Ok((InterestingSet::from_paths(dag, &acyclic.all, &paths.collect::<Result<Vec<_>>>()?)?, true))
        }
        (true, Some(edges), true) => Ok((over(acyclic, edges)?, true)),
        (true, None, false) => Ok((through(named, acyclic, &named.through)?, true)),
        _ => bail!("the graph's file has more than one of `interesting`, `interesting_edges` and `through`: leave one"),
    }
}

/// The paths that are named as a list, in its order: by their numbers, or by the graph's file.
pub fn listed_paths(named: &Named, acyclic: &Acyclic, ids: &[u64]) -> Result<Vec<Vec<DagEdgeId>>> {
    let of_id = |id: &u64| {
        let paths = acyclic.all.paths();
        acyclic
            .all
            .path(&acyclic.dag, *id)
            .with_context(|| format!("there is no path {id}: they are numbered from 0, and there are {paths}"))
    };
    let of_file = |(i, edges): (usize, &Vec<Edge>)| path(named, acyclic, edges).with_context(|| format!("interesting path {i}"));
    let paths: Vec<_> = match ids.is_empty() {
        false => ids.iter().map(of_id).collect::<Result<_>>()?,
        true => named.interesting.iter().enumerate().map(of_file).collect::<Result<_>>()?,
    };
    if paths.is_empty() {
        bail!("name the executed paths: by --interesting, or as `interesting` in the graph's file");
    }
    Ok(paths)
}

/// The edges that are named as those of paths of interest. None if these are given otherwise: by their numbers, which
/// come after cutting, or by nodes that they pass.
pub fn edges_of_interest(named: &Named, options: &Interesting) -> Vec<Edge> {
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

/// The paths over some edges, and over the dummy edges of those that are cut. What ends a path without an edge is no obstacle.
fn over(acyclic: &Acyclic, edges: &[Edge]) -> Result<InterestingSet> {
    let marked = |id: DagEdgeId| acyclic.dag.underlying(id).is_none_or(|e| edges.contains(&e));
    let marked: Vec<bool> = acyclic.dag.edge_ids().map(marked).collect();
    Ok(InterestingSet::from_edges(&acyclic.dag, &marked)?)
}

fn through(named: &Named, acyclic: &Acyclic, names: &[String]) -> Result<InterestingSet> {
    let node = |name: &String| {
        let at = named.names.iter().position(|n| n == name).with_context(|| format!("there is no node `{name}`"))?;
        Ok(Node(at as u32))
    };
    let nodes = names.iter().map(node).collect::<Result<Vec<_>>>()?;
    InterestingSet::through(&acyclic.dag, &nodes).with_context(|| format!("nodes {}", names.join(", ")))
}

/// A path of the graph as one of the DAG. It may begin with a cut edge, at whose head a path begins, and end with one.
fn path(named: &Named, acyclic: &Acyclic, edges: &[Edge]) -> Result<Vec<DagEdgeId>> {
    let (graph, dag) = (&named.graph, &acyclic.dag);
    let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { bail!("it has no edges") };
    let mut path = Vec::new();
    for (at, &edge) in edges.iter().enumerate() {
        match (dag.real(edge), dag.cut(edge)) {
            (Some(id), _) => path.push(id),
            (None, Some(cut)) if at == 0 && edges.len() > 1 && (cut.reason != CutReason::Limit || graph.from(edge) != graph.entry()) => {
                path.extend(cut.enter);
            }
            (None, Some(cut)) if at + 1 == edges.len() => path.extend(cut.leave),
            (None, Some(cut)) if cut.reason == CutReason::Limit => bail!(
                "it takes edge {}; there are 2^63 paths or more, and cutting other edges than those of interesting paths was \
                    not enough: name fewer paths",
                edge.0
            ),
            (None, Some(_)) => bail!("it takes edge {}, which is cut: paths end there", edge.0),
            (None, None) => bail!("it takes edge {}, which no path takes", edge.0),
        }
    }
    if graph.from(first) != graph.entry() && dag.cut(first).is_none() {
        bail!("it begins neither at the entry nor with a cut edge");
    }
    match dag.out(graph.to(last)) {
        // A path that ends in a node without out-edges goes on to the exit by a dummy.
        [only] if dag.cut(last).is_none() && dag.underlying(*only).is_none() => path.push(*only),
        _ if dag.cut(last).is_none() && graph.to(last) != graph.exit() => bail!("it ends neither at the exit nor with a cut edge"),
        _ => {}
    }
    Ok(path)
}
