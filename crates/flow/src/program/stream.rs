//! Streams: programs that append each path to a sequence where others count it.
//!
//! The paths of a call are surrounded by two marks, for the beginning and the end of the call. Where control reaches a call that may not
//! return, the path that was appended last is noted in the frame, so that it can be found there after a crash.
//!
//! Invariant: an edge appends the paths that end there in order, and nothing after the end of the call.

use super::ProbeProgram;
use super::operation::Operation;
use crate::graph::Edge;
use std::mem::take;

/// What a backend knows about the edges on which paths end, by edge number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEdges {
    /// Edges to the exit that end the call.
    pub leaves: Vec<bool>,
    /// Edges to a call that may not return, or returns twice. The tails of such edges are not [quiet](super::BlockProperties::quiet), so
    /// no path is appended on an edge before them.
    pub calls: Vec<bool>,
}

impl ProbeProgram {
    /// Turns counts into appended paths. The program must count every path where it ends or, moved by the pass [early
    /// counts](super::early_counts), where its end is certain; no other pass may have moved counts.
    pub fn write_stream(&mut self, edges: StreamEdges) {
        for edge in self.frame.graph.edges() {
            let counting = take(&mut self.code.operations[edge.index()]);
            let streaming = counting.iter().enumerate().flat_map(|(at, operation)| match *operation {
                Operation::Count { increment } => {
                    let restarts = counting[at..].iter().any(|o| matches!(o, Operation::Set(_)));
                    let end = if restarts { Some(edge) } else { self.only_end_after(edge) };
                    let is = |flags: &[bool]| end.is_some_and(|e| flags[e.index()]);
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

    /// The edge on which each path ends that takes `edge`, if there is only one such edge. It is `edge` itself if that leads to the exit.
    fn only_end_after(&self, edge: Edge) -> Option<Edge> {
        let graph = &self.frame.graph;
        let mut last = edge;
        // A path takes no edge twice, so this many steps suffice.
        for _ in graph.edges() {
            if graph.to(last) == graph.exit() || (last != edge && self.frame.cut(last).is_some()) {
                return Some(last);
            }
            let mut out = self.code.live(graph.out(graph.to(last)));
            let (Some(only), None) = (out.next(), out.next()) else { return None };
            last = only;
        }
        None
    }

    /// The edge properties of a stream; `None` if the program counts its paths.
    pub fn stream(&self) -> Option<&StreamEdges> {
        self.stream.as_ref()
    }

    /// The operations at function entry.
    pub fn at_entry(&self) -> &'static [Operation] {
        if self.stream.is_some() { &[Operation::EnterCall] } else { &[] }
    }
}
