//! What one of several copies of a program counts, from a plan of all copies to the build of one.
//!
//! A file is a list of entries ([`FileFormat`]): for each unit, known by the identity it had in the program that is
//! divided, the copy's [part](trodden_flow::part::Part) of each function in which it counts anything. Functions
//! come with their cuts, so that paths are those of the program that is divided, and with the [shape](crate::shape) of
//! their graph, to be sure that it is the same.

use crate::{FunctionMap, Identity, UnitMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trodden_container::{FileFormat, FileKind, WrongContent};
use trodden_flow::part::Part;
use trodden_flow::{CutReason, Edge};

const FORMAT: FileFormat = FileFormat { kind: FileKind::COPY, version: 1, remedy: "`trodden record --copies` makes such files" };

/// A copy's parts of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionParts {
    units: BTreeMap<Identity, BTreeMap<String, FunctionPart>>,
}

/// A copy's part of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionPart {
    /// Hash of the function's graph.
    pub shape: u64,
    /// Where its paths are cut.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of all its paths.
    pub paths: u64,
    /// What the copy does.
    pub part: Part,
}

impl FunctionParts {
    /// Adds a function of a unit.
    pub fn add(&mut self, unit: Identity, function: &FunctionMap, part: Part) {
        let part = FunctionPart { shape: function.shape, cuts: function.cuts.clone(), paths: function.counters, part };
        self.units.entry(unit).or_default().insert(function.name.clone(), part);
    }

    /// The part of a function of a unit; `None` if the copy counts nothing there.
    pub fn of(&self, unit: Identity, function: &str) -> Option<&FunctionPart> {
        self.units.get(&unit)?.get(function)
    }

    /// The content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// The file is of another kind, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<FunctionParts, WrongContent> {
        FORMAT.read(bytes)
    }
}

/// The unit of which a copy's unit was made; `None` if it is no copy's.
pub fn origin(map: &UnitMap) -> Option<Identity> {
    map.experiment.part().map(|part| part.origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_from_a_file() {
        let flags = vec![true, false];
        let part = Part {
            interesting: flags.clone(),
            values: vec![0, 1],
            increments: vec![2, 0],
            offset: -2,
            counted: flags.clone(),
            ends: flags,
        };
        let function = FunctionPart { shape: 7, cuts: vec![(Edge(1), CutReason::Back)], paths: 2, part };
        let unit = Identity([3; 16]);
        let parts = FunctionParts { units: BTreeMap::from([(unit, BTreeMap::from([("f".to_owned(), function.clone())]))]) };
        let read = FunctionParts::from_bytes(&parts.to_bytes()).unwrap();
        assert_eq!((read.of(unit, "f"), read.of(unit, "g"), read.of(Identity([4; 16]), "f")), (Some(&function), None, None));
        assert!(FunctionParts::from_bytes(&parts.to_bytes()[..12]).is_err());
    }
}
