//! Streams: programs that append each path to a sequence where others count it.
//!
//! Control goes through a function as before; what is counted one by one where paths end is appended instead, with two marks
//! around it: that a call of the function begins, and that it ended. Besides, where control comes to a call that may not
//! return, the path that was appended last is noted in the call's frame, to be found there when the program has crashed.
//!
//! Invariant: an edge appends the paths that end there in their order, and nothing behind that the call ended.

use super::ProbeProgram;
use super::operation::Operation;
use crate::graph::Edge;
use std::mem::take;

/// What a backend knows of the edges on which paths end, by number of edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEdges {
    /// Edges to the exit by which the call ends: its frame is no more.
    pub leaves: Vec<bool>,
    /// Edges that come to a call which may not return, or returns twice. So the nodes that they leave are not
    /// [quiet](super::BlockProperties::quiet), and no path is appended on an edge before them.
    pub calls: Vec<bool>,
}

impl ProbeProgram {
    /// Appends to the stream where it counted. For programs that count every path where it ends or, moved
    /// [early](super::early_counts), where its end is certain: no pass but that may have moved counts.
    pub fn write_stream(&mut self, edges: StreamEdges) {
        for edge in self.frame.graph.edges() {
            let counting = take(&mut self.code.operations[edge.index()]);
            let streaming = counting.iter().enumerate().flat_map(|(at, operation)| match *operation {
                Operation::Count { increment } => {
                    let restarts = counting[at..].iter().any(|o| matches!(o, Operation::Set(_)));
                    let end = if restarts { Some(edge) } else { self.end_behind(edge) };
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

    /// The edge on which a path ends that takes this one, if no other can follow: the edge itself, if it leads to the exit.
    fn end_behind(&self, edge: Edge) -> Option<Edge> {
        let graph = &self.frame.graph;
        let mut last = edge;
        // A path takes no edge twice.
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

    /// What is known of the edges, if paths are appended to a stream and not counted.
    pub fn stream(&self) -> Option<&StreamEdges> {
        self.stream.as_ref()
    }

    /// What is done where the function is entered.
    pub fn at_entry(&self) -> &'static [Operation] {
        if self.stream.is_some() { &[Operation::EnterCall] } else { &[] }
    }
}
