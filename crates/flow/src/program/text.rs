//! Probe programs as text, for people and for golden files: one line per edge, with its operations in order.

use super::ProbeProgram;
use super::operation::Operation;
use crate::graph::{Edge, Node};
use std::fmt;

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Operation::Unreachable => write!(f, "unreachable"),
            Operation::Add(increment) => write!(f, "add {increment}"),
            Operation::Set(value) => write!(f, "set {value}"),
            Operation::Discard => write!(f, "discard"),
            Operation::Count { increment } => write!(f, "count {increment:+}"),
            Operation::CountIteration { increment, dominant } => write!(f, "count {increment:+}, dominant {}", dominant.0),
            Operation::Check { increment } => write!(f, "check {increment:+}"),
            Operation::Iterate(of) => write!(f, "iterate loop {}", of.0),
            Operation::Flush { of, partial } => write!(f, "flush loop {} {partial:+}", of.0),
            Operation::FlushDominant(dominant) => write!(f, "flush dominant {}", dominant.0),
            Operation::CountHits(hits) => write!(f, "hits {} {}", hits.labels, hits.all),
            Operation::Emit { increment } => write!(f, "emit {increment:+}"),
            Operation::NoteCall => write!(f, "note call"),
            Operation::EnterCall => write!(f, "enter call"),
            Operation::LeaveCall => write!(f, "leave call"),
        }
    }
}

impl fmt::Display for ProbeProgram {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{} paths", self.paths().numbering.paths())?;
        for (number, it) in self.loops().iter().enumerate() {
            let (head, start, increment) = (self.node_name(it.head), it.start, it.increment);
            write!(f, "loop {number}: head {head}, start {start}, increment {increment:+}")?;
            writeln!(f, "{}", it.trip_count.map_or(String::new(), |count| format!(", trip count {count}")))?;
        }
        for (number, it) in self.dominant().iter().enumerate() {
            write!(f, "dominant {number}: counter {}", it.index)?;
            match &it.in_register {
                None => writeln!(f, ", split")?,
                Some(register) => {
                    let nodes: Vec<String> = register.nodes.iter().map(|n| self.node_name(*n)).collect();
                    writeln!(f, ", in a register at {}", nodes.join(" "))?;
                }
            }
        }
        self.operations_at_entry().iter().try_for_each(|operation| writeln!(f, "entry: {operation}"))?;
        self.graph().edges().try_for_each(|edge| self.write_edge(f, edge))
    }
}

impl ProbeProgram {
    fn write_edge(&self, f: &mut fmt::Formatter, edge: Edge) -> fmt::Result {
        let operations: Vec<String> = self.operations(edge).iter().map(Operation::to_string).collect();
        let (from, to) = (self.node_name(self.graph().from(edge)), self.node_name(self.graph().to(edge)));
        writeln!(f, "{from} -> {to}: {}", if operations.is_empty() { "-".to_owned() } else { operations.join("; ") })
    }

    /// Returns a node's number in the function, with its version if the program has several.
    fn node_name(&self, node: Node) -> String {
        use super::CodeVersion;
        match self.places().map(|places| places.get(node.index())) {
            None => node.0.to_string(),
            Some(None) => "exit".to_owned(),
            Some(Some(place)) => match place.version {
                CodeVersion::Known(0) => place.node.0.to_string(),
                CodeVersion::Known(copy) => format!("{}.{copy}", place.node.0),
                CodeVersion::Instrumented => format!("{}.counted", place.node.0),
            },
        }
    }
}
