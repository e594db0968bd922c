//! Converts maps of builds that record streams, so that each event of a stream is a path ([`EventWords`]).

use crate::flow_graph::{EdgeKind, FlowEdge, FlowGraph};
use crate::map::{FunctionMap, UnitMap, graph_hash};
use crate::observe::EventWords;
use crate::storage::Storage;
use trodden_flow::Node;

impl FunctionMap {
    /// Returns the words of the function's events. `None` if the function does not record a stream, or has no more events than paths.
    pub fn event_words(&self) -> Option<&EventWords> {
        match &self.storage {
            Storage::Events(words) => Some(words),
            _ => None,
        }
    }

    /// Returns a map of the function in which each event is a path.
    #[must_use]
    pub fn with_events_as_paths(&self) -> FunctionMap {
        let Some(words) = self.event_words() else { return self.clone() };
        let mut edges: Vec<FlowEdge> = Vec::with_capacity(self.graph.edge_count() + words.calls.len());
        let mut own = self.graph.flow_edges();
        for (edge, from) in &words.calls {
            edges.extend(own.by_ref().take(edge.index().saturating_sub(edges.len())));
            edges.push(FlowEdge::new(*from, self.exit(), EdgeKind::Reach));
        }
        edges.extend(own);
        let graph = FlowGraph::new(self.blocks.len(), edges).expect("the additional edges leave blocks (`has_sound_events`)");
        let mut blocks = self.blocks.clone();
        for (block, up_to_calls) in &words.up_to_calls {
            blocks[block.index()].up_to_calls = *up_to_calls;
        }
        FunctionMap {
            shape: graph_hash(&blocks, &graph),
            first_counter: words.first_word,
            counters: words.words,
            storage: Storage::Array,
            dag: words.dag.clone(),
            values: words.values.clone(),
            cuts: self.cuts.iter().map(|(edge, reason)| (words.to_event_edge(*edge), *reason)).collect(),
            blocks,
            graph,
            ..self.clone()
        }
    }

    pub(crate) fn has_sound_events(&self, words: &EventWords) -> bool {
        let is_block = |block: Node| block.index() < self.blocks.len();
        let edges = self.graph.edge_count() + words.calls.len();
        words.calls.is_sorted_by(|a, b| a.0 < b.0)
            && words.calls.iter().all(|(edge, block)| edge.index() < edges && is_block(*block))
            && words.up_to_calls.iter().all(|(block, _)| is_block(*block))
            && words.dag.len() == words.values.len()
    }
}

impl UnitMap {
    /// Returns a map of the unit in which each event is a path ([`FunctionMap::with_events_as_paths`]).
    #[must_use]
    pub fn with_events_as_paths(&self) -> UnitMap {
        let functions = self.functions.iter().map(FunctionMap::with_events_as_paths).collect();
        UnitMap { functions, counters: self.counters_in_regions(), ..self.clone() }
    }
}
