//! Builds that record streams: the sequence of paths and calls in all functions, or in the functions of a set.
//!
//! A stream also has an event at each call that always returns, if the unit defines the callee. Counting builds do not count the path up to
//! such a call, so these events are not part of a function's path numbering. Therefore events have a graph and a numbering of their own
//! ([`EventWords`]). The graph of events is the function's graph with an additional [`Reach`](crate::EdgeKind::Reach) edge for each block
//! that makes such a call. It is cut at the same edges.

use super::interesting::{self, InterestingPaths};
use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties, Observe};
use crate::Identity;
use crate::experiment::{FeatureRelation, FeatureRule, RequestedFeature, Settings, SettingsFile, stored_input_identity};
use serde::{Deserialize, Serialize};
use trodden_flow::{Edge, Node, Origin};

/// The sequence of paths and calls that each thread executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathStream {
    /// File of a set of functions that are recorded; `None` if all functions are.
    pub functions: Option<Identity>,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--stream (observe=stream)",
    observes: "the sequence of all paths and calls, from which counts follow",
    conflict_remedy: None,
    is_requested,
    read: |settings| {
        let functions = stored_input_identity("interesting", &settings.interesting)?;
        Ok(Some(Observation::PathStream(PathStream { functions })))
    },
    restricted_by: &[&interesting::KIND],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected {
        reason: "a stream contains all paths of the functions that --interesting selects",
        remedy: "omit --scheme",
    },
    tables: FeatureAdmission::Rejected { reason: "a stream has no counters", remedy: "omit --table-slots" },
    shared_counters: FeatureAdmission::Rejected { reason: "each thread writes a stream of its own", remedy: "omit --threads" },
    rules: &[FeatureRule {
        one: RequestedFeature { spelling: "--flight-recorder (recorder=PATTERN)", is_requested: |settings| settings.recorder.is_some() },
        relation: FeatureRelation::Needs,
        other: RequestedFeature { spelling: "--stream (observe=stream)", is_requested },
        reason: "the flight recorder keeps the end of a stream",
        remedy: "add --stream",
    }],
};

fn is_requested(settings: &Settings) -> bool {
    settings.observe == Some(Observe::Stream)
}

impl ObservationProperties for PathStream {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Stream);
        settings.interesting = self.functions.map(SettingsFile::Stored);
    }

    /// All paths of the functions in the set are numbered as in other builds.
    fn interesting_paths(&self) -> Option<InterestingPaths> {
        self.functions.map(|set| InterestingPaths { set, numbering: None, time_limit_s: 0 })
    }
}

/// Words of a function that records a stream, one for each path of its event graph. They do not exist in memory: the program writes their
/// addresses to the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWords {
    /// Index of the word for the first path of the event graph among the unit's words.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// Additional edges of the event graph, given by their index in this graph, each with the block that makes the call. Ascending by edge.
    pub calls: Vec<(Edge, Node)>,
    /// Blocks whose [`up_to_calls`](crate::UnitBlock::up_to_calls) has a different value in the event graph, with this value.
    pub up_to_calls: Vec<(Node, u32)>,
    /// The edges of the acyclic graph of events, in the same form as [`FunctionMap::dag`](crate::FunctionMap::dag).
    pub dag: Vec<Origin>,
    /// The value of each edge in `dag`, from which the numbers of events are computed.
    pub values: Vec<i64>,
}

impl EventWords {
    /// Returns the range of the function's words in the unit.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Returns whether an edge of the event graph is one of the additional edges.
    pub fn is_call(&self, edge: Edge) -> bool {
        self.calls.binary_search_by_key(&edge, |call| call.0).is_ok()
    }

    /// Returns the edge of the function's graph that corresponds to an edge of the event graph; `None` for an additional edge.
    pub fn function_edge_of_event_edge(&self, edge: Edge) -> Option<Edge> {
        let before = self.calls.partition_point(|call| call.0 < edge);
        (!self.is_call(edge)).then(|| Edge(edge.0 - before as u32))
    }

    /// Returns the edge of the event graph that corresponds to an edge of the function's graph.
    pub fn event_edge_of_function_edge(&self, own: Edge) -> Edge {
        self.calls.iter().fold(own, |edge, call| if call.0 <= edge { Edge(edge.0 + 1) } else { edge })
    }
}
