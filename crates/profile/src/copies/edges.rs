//! Instrumented copies that count edges instead of paths: converts maps so that each path is a single edge, and computes the counts of all
//! edges from those that were counted. [`trodden_partition::edges`] explains which edges are counted and why they determine the others.

use super::{CopiesError, CopyDivergence, CopyToProgramEdges, PartitionedProgram};
use crate::model::ImageProfile;
use std::collections::BTreeMap;
use std::sync::Arc;
use trodden_flow::{Dag, Edge, Node, Numbering};
use trodden_partition::edges::{EdgeFlowNetwork, cut_at_every_edge, dag};
use trodden_unit::{BlockKind, CountedEvent, EdgeKind, FunctionMap, Identity, MapError, Storage, UnitMap};

/// Converts a unit's map so that each path is a single edge.
pub fn map_with_edges_as_paths(map: &UnitMap) -> Result<UnitMap, MapError> {
    let mut out = UnitMap { functions: Vec::new(), counters: 0, edge_profile: None, counted: CountedEvent::Edges, ..map.clone() };
    for function in &map.functions {
        let dag = dag(&function.graph, &cut_at_every_edge(&function.graph, &function.cuts));
        let numbering = Numbering::ball_larus(&dag).map_err(|e| function.inconsistency(e.to_string()))?;
        let (first_counter, counters) = (out.counters, numbering.paths());
        out.counters += counters;
        out.functions.push(FunctionMap {
            first_counter,
            counters,
            storage: Storage::Array,
            dag: dag.origins(),
            values: numbering.values().to_vec(),
            cuts: dag.cuts().iter().map(|c| (c.edge, c.reason)).collect(),
            by_trip_count: Vec::new(),
            calls: Vec::new(),
            ..function.clone()
        });
    }
    Ok(out)
}

/// Builds the network from which the copies' counted edges are chosen, for a function of a unit that [`map_with_edges_as_paths`] converted.
pub fn build_event_network(function: &FunctionMap) -> Result<(Dag, EdgeFlowNetwork), MapError> {
    let dag = function.dag()?;
    let is_reach = |edge: Edge| function.graph.kind(edge) == EdgeKind::Reach;
    let returning = |node: Node| function.blocks.get(node.index()).is_some_and(|b| b.kind == BlockKind::Continuation);
    let network = EdgeFlowNetwork::new(&function.graph, &dag, is_reach, returning);
    Ok((dag, network))
}

/// Computes the counts of the edges that no copy counted, and adds them to `counts`. Returns a divergence if the known counts contradict
/// each other.
pub(super) fn complete_edge_counts(
    function: &FunctionMap,
    parts: &[&CopyToProgramEdges],
    counts: &mut BTreeMap<u64, u64>,
) -> Result<Option<CopyDivergence>, CopiesError> {
    let (_, network) = build_event_network(function)?;
    let ids: Vec<u64> =
        network.events().iter().map(|event| event.path.iter().map(|e| function.values[e.index()]).sum::<i64>() as u64).collect();
    let known = network.events().iter().zip(&ids).map(|(event, id)| {
        let counted = parts.iter().any(|part| part.contains(&event.path));
        counted.then(|| counts.get(id).copied().unwrap_or(0))
    });
    match network.complete_event_counts(&known.collect::<Vec<_>>()) {
        Ok(all) => {
            counts.extend(ids.into_iter().zip(all).filter(|(_, count)| *count > 0));
            Ok(None)
        }
        Err(_) => Ok(Some(CopyDivergence::Flow { function: function.name.clone(), missing: None })),
    }
}

/// Replaces the identities of an image and its units, so that edge counts are never merged with path counts of the same program.
pub fn set_edge_identities(image: &mut ImageProfile) {
    let other = |identity: Identity| Identity::from_content(format!("paths=edges {identity}").as_bytes());
    image.identity = other(image.identity);
    image.units.iter_mut().for_each(|unit| unit.unit = other(unit.unit));
}

/// Converts all maps of a program so that each path is a single edge.
pub fn program_with_edges_as_paths(program: &PartitionedProgram) -> Result<PartitionedProgram, MapError> {
    let unit = |(unit, map): &(Identity, Arc<UnitMap>)| Ok((*unit, Arc::new(map_with_edges_as_paths(map)?)));
    Ok(PartitionedProgram { units: program.units.iter().map(unit).collect::<Result<_, MapError>>()?, edges: true, ..program.clone() })
}
