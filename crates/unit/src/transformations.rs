//! Transformation plans: the transformations of a program's code that were chosen based on a profile, as input of a build.
//!
//! A file is a list of functions ([`FileFormat`]), which are identified by source file, name and [shape](crate::graph_hash) (a hash of the
//! graph). Blocks and edges are given by index.
//!
//! Invariant: a plan does not change what the code computes, since transformations only copy, split and lay out code. A plan for a
//! different program, or for an older version, may make the program slower, but not incorrect.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use trodden_container::{ContentError, FileFormat, FileKind};
use trodden_flow::{Edge, Node};

const FORMAT: FileFormat =
    FileFormat { kind: FileKind::TRANSFORMATIONS, version: 1, remedy: "`trodden pgo` creates such files for its own use" };

/// A transformation of a function's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transformation {
    /// Sets branch weights according to the profile.
    Weights(BranchWeights),
    /// Copies blocks for executions that enter them by a certain edge. In the copy, the outcome of a branch is known.
    Copy(PathCopy),
    /// Copies the body of a loop for the last iteration, so that the branches that detect the last iteration are not needed in the others.
    LastIterations(LastIterations),
}

/// Branch weights of a function ([`Transformation::Weights`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchWeights {
    /// Number of calls to the function.
    pub entries: u64,
    /// Number of executions of each edge of the function's graph, by index.
    pub edges: Vec<u64>,
}

/// A copy of some blocks of a function ([`Transformation::Copy`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCopy {
    /// The edge that will lead to the copy.
    pub entry: Edge,
    /// The blocks to copy, in topological order.
    pub blocks: Vec<Node>,
    /// Number of executions of the edges that leave these blocks.
    pub weights: Vec<CopyEdgeWeights>,
}

/// How often an edge is executed in the copy and in the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEdgeWeights {
    /// The edge.
    pub edge: Edge,
    /// Number of executions in the copy.
    pub copied: u64,
    /// Number of executions in the original code.
    pub kept: u64,
}

/// A copy of a loop's body for the last iteration ([`Transformation::LastIterations`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastIterations {
    /// The loop's header.
    pub head: Node,
    /// Blocks with back edges to the header.
    pub latches: Vec<Node>,
}

/// The transformations of all functions of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformationPlan {
    functions: BTreeMap<(String, String, u64), Vec<Transformation>>,
}

impl TransformationPlan {
    /// Adds the transformations of a function. Has no effect if the plan already has a function with the same source file, name and shape,
    /// which happens if a file was compiled twice.
    pub fn add(&mut self, source: &str, function: &str, shape: u64, transformations: Vec<Transformation>) {
        if let (false, Entry::Vacant(entry)) =
            (transformations.is_empty(), self.functions.entry((source.to_owned(), function.to_owned(), shape)))
        {
            entry.insert(transformations);
        }
    }

    /// Returns the transformations of a function; empty if the plan does not have it.
    pub fn get(&self, source: &str, function: &str, shape: u64) -> &[Transformation] {
        self.functions.get(&(source.to_owned(), function.to_owned(), shape)).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the plan has a function with this name, of any shape.
    pub fn has_function(&self, source: &str, function: &str) -> bool {
        let key = |shape: u64| (source.to_owned(), function.to_owned(), shape);
        self.functions.range(key(0)..=key(u64::MAX)).next().is_some()
    }

    /// Encodes the plan as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<TransformationPlan, ContentError> {
        FORMAT.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_survive_encoding_and_truncation_is_detected() {
        let copy = PathCopy {
            entry: Edge(3),
            blocks: vec![Node(2), Node(5)],
            weights: vec![CopyEdgeWeights { edge: Edge(4), copied: 9, kept: 0 }],
        };
        let mut transformations = TransformationPlan::default();
        transformations.add(
            "a.c",
            "f",
            7,
            vec![Transformation::Copy(copy), Transformation::LastIterations(LastIterations { head: Node(1), latches: vec![Node(2)] })],
        );
        transformations.add("a.c", "f", 7, vec![]);
        transformations.add("a.c", "g", 7, vec![]);
        let found = [("a.c", 7), ("a.c", 8), ("b.c", 7)].map(|(source, shape)| transformations.get(source, "f", shape).len());
        assert_eq!(found, [2, 0, 0]);
        assert!(
            transformations.has_function("a.c", "f")
                && !transformations.has_function("a.c", "g")
                && !transformations.has_function("b.c", "f")
        );
        let bytes = transformations.to_bytes();
        assert_eq!(TransformationPlan::from_bytes(&bytes), Ok(transformations));
        for end in 0..bytes.len() {
            assert!(TransformationPlan::from_bytes(&bytes[..end]).is_err(), "{end} bytes of {}", bytes.len());
        }
    }
}
