//! The part of a program's paths that one of several instrumented copies counts. It is an input of the copy's build.
//!
//! A file ([`FileFormat`]) contains the [part](trodden_flow::part::Part) of each function that the copy counts. Units are identified as in
//! the original program. Functions in which the copy counts nothing are omitted. For each function, the file has the cut edges, so that the
//! paths are those of the original program, and the [shape](crate::graph_hash) (a hash of the graph), which the build checks.

use crate::{FunctionMap, Identity, UnitMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trodden_container::{ContentError, FileFormat, FileKind};
use trodden_flow::part::Part;
use trodden_flow::{CutReason, Edge};

const FORMAT: FileFormat = FileFormat { kind: FileKind::COPY, version: 2, remedy: "Create such files with `trodden record --copies`" };

/// The parts of all functions that a copy of a program counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionParts {
    units: BTreeMap<Identity, BTreeMap<String, FunctionPart>>,
}

/// The part of one function that a copy of a program counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionPart {
    /// Hash of the function's control-flow graph.
    pub shape: u64,
    /// Edges at which the function's paths are divided, such as back edges.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of paths that the function has in the original program.
    pub paths: u64,
    /// The paths that the copy counts, and the increments by which it counts them.
    pub part: Part,
}

impl FunctionParts {
    /// Adds the part of a function in a unit.
    pub fn add(&mut self, unit: Identity, function: &FunctionMap, part: Part) {
        let part = FunctionPart { shape: function.shape, cuts: function.cuts.clone(), paths: function.counters, part };
        self.units.entry(unit).or_default().insert(function.name.clone(), part);
    }

    /// Returns the part of a function that the copy counts; `None` if it counts none of the function's paths.
    pub fn get(&self, unit: Identity, function: &str) -> Option<&FunctionPart> {
        self.units.get(&unit)?.get(function)
    }

    /// Encodes the parts as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<FunctionParts, ContentError> {
        FORMAT.read(bytes)
    }
}

/// Returns the unit of the original program from which a unit was made; `None` if the unit does not belong to a copy of a program.
pub fn origin(map: &UnitMap) -> Option<Identity> {
    map.experiment.part().map(|part| part.origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_flow::{DagEdgeId, DagEdgeSet};

    #[test]
    fn parts_survive_encoding() {
        let first = DagEdgeSet::from_members(2, [DagEdgeId(0)]);
        let part = Part {
            interesting: first.clone(),
            values: vec![0, 1],
            increments: vec![2, 0],
            offset: -2,
            counted: first.clone(),
            ends: first,
        };
        let function = FunctionPart { shape: 7, cuts: vec![(Edge(1), CutReason::Back)], paths: 2, part };
        let unit = Identity([3; 16]);
        let parts = FunctionParts { units: BTreeMap::from([(unit, BTreeMap::from([("f".to_owned(), function.clone())]))]) };
        let read = FunctionParts::from_bytes(&parts.to_bytes()).unwrap();
        assert_eq!((read.get(unit, "f"), read.get(unit, "g"), read.get(Identity([4; 16]), "f")), (Some(&function), None, None));
        assert!(FunctionParts::from_bytes(&parts.to_bytes()[..12]).is_err());
    }
}
