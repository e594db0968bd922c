//! Translates stream events to paths.
//!
//! A stream has an event at every call of a function in the same unit, even if the callee always returns, so a function can have more
//! events than paths ([`trodden_unit::EventWords`]). All other events denote one path each, with the same edges in both graphs.

use crate::counts::Counts;
use crate::model::{ImageProfile, UnitProfile};
use std::collections::HashMap;
use std::sync::Arc;
use trodden_flow::{Dag, DagEdgeId, Edge, Numbering, Origin};
use trodden_unit::{EventWords, FunctionMap, MapError};

/// Translates the events of a function to its paths.
#[derive(Debug)]
pub struct EventPaths {
    events: (Dag, Numbering),
    own: Numbering,
    /// For each edge of the events' acyclic graph, the corresponding edge of the function's own acyclic graph; `None` if there is none.
    own_edges: Vec<Option<DagEdgeId>>,
}

impl EventPaths {
    /// Matches a function's edges with the edges of its event graph.
    pub fn new(function: &FunctionMap, words: &EventWords) -> Result<EventPaths, MapError> {
        let of_events = function.with_event_paths();
        let events = of_events.dag()?;
        let (dag, numbering) = (function.dag()?, of_events.numbering(&events)?);
        let by_origin: HashMap<Origin, DagEdgeId> = dag.edge_ids().map(|id| (dag.edge(id).origin, id)).collect();
        let own_edge = |edge: Edge| words.own_edge(edge);
        let own_edges = events.edge_ids().map(|id| {
            let origin = match events.edge(id).origin {
                Origin::Real(e) => own_edge(e).map(Origin::Real),
                Origin::Enter(e) => own_edge(e).map(Origin::Enter),
                Origin::Leave(e) => own_edge(e).map(Origin::Leave),
                Origin::Stop(node) => Some(Origin::Stop(node)),
            };
            let missing = || function.inconsistency("its events are on an edge that it does not have".to_owned());
            origin.map(|origin| by_origin.get(&origin).copied().ok_or_else(missing)).transpose()
        });
        let own_edges = own_edges.collect::<Result<Vec<_>, _>>()?;
        Ok(EventPaths { own: function.numbering(&dag)?, own_edges, events: (events, numbering) })
    }

    /// Returns the path ID that an event denotes; `None` if the event was recorded at a call at which no path is counted.
    pub fn path(&self, event: u64) -> Option<u64> {
        let (dag, numbering) = &self.events;
        let path: Option<Vec<DagEdgeId>> = numbering.path(dag, event)?.iter().map(|edge| self.own_edges[edge.index()]).collect();
        Some(self.own.id(&path?))
    }
}

impl ImageProfile {
    /// Returns the image without counts. Its maps are converted so that each event is a path.
    #[must_use]
    pub fn with_event_paths(&self) -> ImageProfile {
        let unit =
            |unit: &UnitProfile| UnitProfile { unit: unit.unit, map: Arc::new(unit.map.with_event_paths()), counts: Counts::default() };
        ImageProfile { units: self.units.iter().map(unit).collect(), ..self.clone() }
    }
}

/// Translates indices of words to counters; `None` for events at calls at which no path is counted.
pub fn translate_words(function: &FunctionMap, words: &EventWords, indices: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    let paths = EventPaths::new(function, words)?;
    let counter = |word: &u64| Some(function.first_counter.saturating_add(paths.path(word - words.first_word)?));
    Ok(indices.iter().map(counter).collect())
}
