//! Streams: programs that append paths to a sequence instead of counting them.
//!
//! Marks for the beginning and the end of each call surround its paths. When control reaches a call that may not return, the path that was
//! appended last is noted in the frame, so that it can be found after a crash.
//!
//! Invariant: an edge appends the paths that end there in order, and nothing after the end of the call.

use super::ProbeProgram;
use super::operation::Operation;
use crate::graph::{Edge, EdgeSet};
use std::mem::take;

/// The edges on which a call of the function ends, and the edges on which the function calls another function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEdges {
    /// Edges to the exit that end the call.
    pub leaves: EdgeSet,
    /// Edges to a call that may not return, or returns twice. The tails of such edges are not [quiet](super::BlockProperties::quiet), so
    /// no path is appended on an edge before them.
    pub calls: EdgeSet,
}

impl ProbeProgram {
    /// Replaces counts by operations that append the path to the stream. The program must count each path on its last edge or, if the pass
    /// [early counts](super::early_counts) moved the count, on an earlier edge after which only one path continues. No other pass may have
    /// moved counts.
    pub fn write_stream(&mut self, edges: StreamEdges) {
        for edge in self.frame.graph.edges() {
            let counting = take(&mut self.code.operations[edge.index()]);
            let streaming = counting.iter().enumerate().flat_map(|(at, operation)| match *operation {
                Operation::Count { increment } => {
                    let restarts = counting[at..].iter().any(|o| matches!(o, Operation::Set(_)));
                    let end = if restarts { Some(edge) } else { self.find_only_path_end_after(edge) };
                    let is = |edges: &EdgeSet| end.is_some_and(|e| edges.contains(e));
                    let note = is(&edges.calls).then_some(Operation::NoteCall);
                    let leave = is(&edges.leaves).then_some(Operation::LeaveCall);
                    [Some(Operation::Emit { increment }), note, leave].into_iter().flatten().collect()
                }
                other => vec![other],
            });
            let streaming = streaming.collect();
            self.code.operations[edge.index()] = streaming;
        }
        self.stream = Some(edges);
    }

    /// Returns the edge on which all paths that take `edge` end (`edge` itself if it leads to the exit), or `None` if they end on several
    /// edges.
    fn find_only_path_end_after(&self, edge: Edge) -> Option<Edge> {
        let graph = &self.frame.graph;
        let mut last = edge;
        // A path does not take an edge twice, so the number of steps is bounded by the number of edges.
        for _ in graph.edges() {
            if graph.to(last) == graph.exit() || (last != edge && self.frame.cut(last).is_some()) {
                return Some(last);
            }
            let mut out = self.code.live_edges(graph.out(graph.to(last)));
            let (Some(only), None) = (out.next(), out.next()) else { return None };
            last = only;
        }
        None
    }

    /// Returns the edges on which calls end, or `None` if the program counts its paths.
    pub fn stream(&self) -> Option<&StreamEdges> {
        self.stream.as_ref()
    }

    /// Returns the operations at function entry.
    pub fn operations_at_entry(&self) -> &'static [Operation] {
        if self.stream.is_some() { &[Operation::EnterCall] } else { &[] }
    }
}
