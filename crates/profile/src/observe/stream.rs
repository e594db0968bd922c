//! Translates the events of a stream to paths. A stream is the sequence of paths that a thread executed.
//!
//! A streaming program records an event at every call to a function in the same unit, even if the callee always returns. Such an event
//! denotes no counted path, so a function can have more events than paths ([`trodden_unit::EventWords`]). Every other event denotes exactly
//! one path.

use crate::counts::Counts;
use crate::model::{ImageProfile, UnitProfile};
use std::collections::HashMap;
use std::sync::Arc;
use trodden_flow::{Dag, DagEdgeId, Edge, Numbering, Origin};
use trodden_unit::{EventWords, FunctionMap, MapError};

/// Translates the stream events of one function to its path IDs.
#[derive(Debug)]
pub struct EventToPathTranslator {
    events: (Dag, Numbering),
    own: Numbering,
    /// For each edge of the acyclic graph of events, the corresponding edge of the acyclic graph of paths; `None` if there is none.
    own_edges: Vec<Option<DagEdgeId>>,
}

impl EventToPathTranslator {
    /// Creates a translator, which matches the edges of the function's graph with those of its event graph.
    pub fn new(function: &FunctionMap, words: &EventWords) -> Result<EventToPathTranslator, MapError> {
        let of_events = function.with_events_as_paths();
        let events = of_events.dag()?;
        let (dag, numbering) = (function.dag()?, of_events.numbering(&events)?);
        let by_origin: HashMap<Origin, DagEdgeId> = dag.edge_ids().map(|id| (dag.edge(id).origin, id)).collect();
        let own_edge = |edge: Edge| words.function_edge_of_event_edge(edge);
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
        Ok(EventToPathTranslator { own: function.numbering(&dag)?, own_edges, events: (events, numbering) })
    }

    /// Returns the ID of the path that an event denotes; `None` if the event was recorded at a call where no path is counted.
    pub fn path(&self, event: u64) -> Option<u64> {
        let (dag, numbering) = &self.events;
        let path: Option<Vec<DagEdgeId>> = numbering.path(dag, event)?.iter().map(|edge| self.own_edges[edge.index()]).collect();
        Some(self.own.id(&path?))
    }
}

impl ImageProfile {
    /// Returns the image with maps in which each event is a path, and without counts.
    #[must_use]
    pub fn with_events_as_paths(&self) -> ImageProfile {
        let unit =
            |unit: &UnitProfile| UnitProfile { unit: unit.unit, map: Arc::new(unit.map.with_events_as_paths()), counts: Counts::default() };
        ImageProfile { units: self.units.iter().map(unit).collect(), ..self.clone() }
    }
}

/// Translates indices of words to indices of counters. The result is `None` for events at calls where no path is counted.
pub fn translate_words(function: &FunctionMap, words: &EventWords, indices: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    let paths = EventToPathTranslator::new(function, words)?;
    let counter = |word: &u64| Some(function.first_counter.saturating_add(paths.path(word - words.first_word)?));
    Ok(indices.iter().map(counter).collect())
}
