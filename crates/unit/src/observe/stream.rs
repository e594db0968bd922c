//! The sequence of paths and calls, of all functions or of those that a set names; counts follow from it.
//!
//! A stream has an event where control comes to a call of a function that the unit defines, though that call always returns. Counting
//! builds have no such prefixes, so they have no part in the function's path numbers. The graph of the events is the function's with one
//! more [`Reach`](crate::EdgeKind::Reach) edge for each block that makes such a call, cut at the same edges; its paths have numbers of
//! their own ([`EventWords`]).

use super::interesting::{self, InterestingPaths};
use super::{Admission, Kind, Observation, Observe, Observed};
use crate::Identity;
use crate::experiment::{Choice, Relation, Rule, Settings, SettingsFile, identity};
use serde::{Deserialize, Serialize};
use trodden_flow::{DagEdge, Edge, Node};

/// The sequence of paths and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathStream {
    /// The file of paths whose functions it is of; `None`: it is of all.
    pub functions: Option<Identity>,
}

pub(super) static KIND: Kind = Kind {
    option: "--stream (observe=stream)",
    observes: "the sequence of all paths and calls, from which counts follow",
    apart: None,
    is_asked: is_asked_for,
    read: |settings| {
        let functions = identity("interesting", &settings.interesting)?;
        Ok(Some(Observation::PathStream(PathStream { functions })))
    },
    restricted_by: &[&interesting::KIND],
    numberings: &[],
    other_numberings: Admission::Refused {
        reason: "a stream has all paths of the functions that --interesting names",
        remedy: "leave --scheme out",
    },
    tables: Admission::Refused { reason: "a stream has no counters", remedy: "leave --table-slots out" },
    shared_counters: Admission::Refused { reason: "each thread writes a stream of its own", remedy: "leave --threads out" },
    rules: &[Rule {
        one: Choice { spelling: "--flight-recorder (recorder=PATTERN)", is_made: |settings| settings.recorder.is_some() },
        relation: Relation::Needs,
        other: Choice { spelling: "--stream (observe=stream)", is_made: is_asked_for },
        reason: "it keeps the end of a stream",
        remedy: "build with --stream, too",
    }],
};

fn is_asked_for(settings: &Settings) -> bool {
    settings.observe == Some(Observe::Stream)
}

impl Observed for PathStream {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Stream);
        settings.interesting = self.functions.map(SettingsFile::Stored);
    }

    /// A stream says which path it was by the number of all builds.
    fn interesting(&self) -> Option<InterestingPaths> {
        self.functions.map(|set| InterestingPaths { set, numbering: None, time_limit_s: 0 })
    }
}

/// The words of a function of a stream build: one for each path of the graph of its events. No memory is behind them; their addresses are
/// what the program writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWords {
    /// The unit's word of the first path.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// The edges that the graph of the events has besides, by their numbers there, each with the block whose call it stands for; ascending.
    pub calls: Vec<(Edge, Node)>,
    /// Blocks with such a call behind which the block's code may not be executed: what is [`up_to_calls`](crate::UnitBlock::up_to_calls) of
    /// them there.
    pub up_to_calls: Vec<(Node, u32)>,
    /// The acyclic graph of the events' paths.
    pub dag: Vec<DagEdge>,
    /// For each edge of it its value.
    pub values: Vec<i64>,
}

impl EventWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Whether an edge of the graph of the events is none of the function's.
    pub fn is_call(&self, edge: Edge) -> bool {
        self.calls.binary_search_by_key(&edge, |call| call.0).is_ok()
    }

    /// The function's edge that is this one of the graph of the events; `None` if the function has no such edge.
    pub fn own_edge(&self, edge: Edge) -> Option<Edge> {
        let before = self.calls.partition_point(|call| call.0 < edge);
        (!self.is_call(edge)).then(|| Edge(edge.0 - before as u32))
    }

    /// The edge of the graph of the events that is this one of the function's.
    pub fn edge_of_events(&self, own: Edge) -> Edge {
        self.calls.iter().fold(own, |edge, call| if call.0 <= edge { Edge(edge.0 + 1) } else { edge })
    }
}
