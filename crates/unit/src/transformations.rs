//! Transformation plans: code transformations of a program that were chosen from a profile, as input of a build.
//!
//! A file is a list of functions ([`FileFormat`]), identified by source file, name and [shape](crate::graph_hash). Blocks and edges are
//! given by index. Invariant: a plan does not change what the code computes, since transformations only copy, split and lay out code. A
//! plan for a different program, or for an older version, may reduce performance but does not affect correctness.

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
    /// Sets branch weights from the profile.
    Weights(BranchWeights),
    /// Copies blocks for executions that enter them over a certain edge. In the copy, the outcome of a branch is known.
    Copy(PathCopy),
    /// Copies a loop's body for its last iteration, so that the other iterations do not need the branches that detect the last one.
    LastIterations(LastIterations),
}

/// See [`Transformation::Weights`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchWeights {
    /// How often the function was called.
    pub entries: u64,
    /// Executions of each edge of its graph, by index.
    pub edges: Vec<u64>,
}

/// See [`Transformation::Copy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCopy {
    /// The edge that is redirected to the copy.
    pub entry: Edge,
    /// The copied blocks in topological order.
    pub blocks: Vec<Node>,
    /// Executions of the edges out of the blocks.
    pub weights: Vec<SplitWeights>,
}

/// Executions of an edge, divided between the copy and the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitWeights {
    /// The edge.
    pub edge: Edge,
    /// Executions in the copy.
    pub copied: u64,
    /// Executions in the original.
    pub kept: u64,
}

/// See [`Transformation::LastIterations`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastIterations {
    /// The loop's header.
    pub head: Node,
    /// The blocks with back edges to the header.
    pub latches: Vec<Node>,
}

/// The transformations of a program's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformationPlan {
    functions: BTreeMap<(String, String, u64), Vec<Transformation>>,
}

impl TransformationPlan {
    /// Adds the transformations of a function. Has no effect if the plan already contains a function with the same source file, name and
    /// shape, because a file was compiled twice.
    pub fn add(&mut self, source: &str, function: &str, shape: u64, transformations: Vec<Transformation>) {
        if let (false, Entry::Vacant(entry)) =
            (transformations.is_empty(), self.functions.entry((source.to_owned(), function.to_owned(), shape)))
        {
            entry.insert(transformations);
        }
    }

    /// Returns the transformations of a function.
    pub fn get(&self, source: &str, function: &str, shape: u64) -> &[Transformation] {
        self.functions.get(&(source.to_owned(), function.to_owned(), shape)).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the plan contains a function with this name, of any shape.
    pub fn has_function(&self, source: &str, function: &str) -> bool {
        let key = |shape: u64| (source.to_owned(), function.to_owned(), shape);
        self.functions.range(key(0)..=key(u64::MAX)).next().is_some()
    }

    /// Encodes the plan as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes a file's content. Fails if the file has a different kind or version, or is corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<TransformationPlan, ContentError> {
        FORMAT.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_survive_encoding_and_truncation_is_detected() {
        let copy =
            PathCopy { entry: Edge(3), blocks: vec![Node(2), Node(5)], weights: vec![SplitWeights { edge: Edge(4), copied: 9, kept: 0 }] };
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
