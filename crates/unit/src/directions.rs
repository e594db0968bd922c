//! Directions: what the paths of a run say should become of a program's code, from a profile to the build that carries it out.
//!
//! A file is a list of entries ([`crate::packed`]). Functions are known again by source file, name and the
//! [shape](crate::shape) of their graph, and blocks and edges by their numbers in it.
//!
//! Invariant: whatever directions say, code that was made by them does what it did. They decide what is copied, parted
//! and laid out where, not what is computed; so a file of another program, or of an older state of it, can cost time,
//! but no correctness.

use crate::packed::{pack, unpack};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use trodden_flow::{Edge, Node};

const MAGIC: [u8; 8] = *b"TRODDIR\x02";

/// Something to do with a function's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Branches are said to go the ways that they went in the run.
    Weights(Weighed),
    /// Blocks get a copy for what comes by one edge, so that a branch in them, which is decided behind that edge, has a copy of its own.
    Copy(Copy),
    /// The last rounds of a loop get a copy of the loop, so that the other rounds are without the branches that tell the last ones.
    LastRounds(LastRounds),
}

/// See [`Direction::Weights`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// How often the function was entered.
    pub entries: u64,
    /// How often each edge of its graph was taken, by the edge's number.
    pub edges: Vec<u64>,
}

/// See [`Direction::Copy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// The edge that leads to the copy.
    pub entry: Edge,
    /// The blocks; each behind those that lead to it.
    pub blocks: Vec<Node>,
    /// How often edges out of the blocks are taken.
    pub weights: Vec<Parted>,
}

/// Executions of an edge, by what comes through the copy, and by the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    /// The edge.
    pub edge: Edge,
    /// Of the copy.
    pub copied: u64,
    /// Of the original.
    pub kept: u64,
}

/// See [`Direction::LastRounds`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRounds {
    /// The loop's first block.
    pub head: Node,
    /// The blocks that lead back to it.
    pub latches: Vec<Node>,
}

/// Directions for functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    functions: BTreeMap<(String, String, u64), Vec<Direction>>,
}

/// A file that holds no directions.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a file of directions: `trodden pgo` makes them for its own use")]
pub struct NoDirections;

#[derive(Serialize, Deserialize)]
struct Function {
    source: String,
    name: String,
    shape: u64,
    directions: Vec<Direction>,
}

impl Directions {
    /// Adds what is to become of a function of a source file. Of several of one name and shape (a file compiled twice) the first decides.
    pub fn add(&mut self, source: &str, function: &str, shape: u64, directions: Vec<Direction>) {
        if let (false, Entry::Vacant(place)) =
            (directions.is_empty(), self.functions.entry((source.to_owned(), function.to_owned(), shape)))
        {
            place.insert(directions);
        }
    }

    /// What is to become of a function.
    pub fn of(&self, source: &str, function: &str, shape: u64) -> &[Direction] {
        self.functions.get(&(source.to_owned(), function.to_owned(), shape)).map_or(&[], Vec::as_slice)
    }

    /// Whether there is something for a function of that name, whatever its shape.
    pub fn knows(&self, source: &str, function: &str) -> bool {
        let key = |shape: u64| (source.to_owned(), function.to_owned(), shape);
        self.functions.range(key(0)..=key(u64::MAX)).next().is_some()
    }

    /// The content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let entry = |((source, name, shape), directions): (&(String, String, u64), &Vec<Direction>)| Function {
            source: source.clone(),
            name: name.clone(),
            shape: *shape,
            directions: directions.clone(),
        };
        let entries: Vec<Function> = self.functions.iter().map(entry).collect();
        pack(&MAGIC, &entries)
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// It is something else, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Directions, NoDirections> {
        let entries: Vec<Function> = unpack(&MAGIC, bytes).ok_or(NoDirections)?;
        let mut directions = Directions::default();
        entries.into_iter().for_each(|f| directions.add(&f.source, &f.name, f.shape, f.directions));
        Ok(directions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_survive_their_file_and_damage_is_told() {
        let copy = Copy { entry: Edge(3), blocks: vec![Node(2), Node(5)], weights: vec![Parted { edge: Edge(4), copied: 9, kept: 0 }] };
        let mut directions = Directions::default();
        directions.add(
            "a.c",
            "f",
            7,
            vec![Direction::Copy(copy), Direction::LastRounds(LastRounds { head: Node(1), latches: vec![Node(2)] })],
        );
        directions.add("a.c", "f", 7, vec![]);
        directions.add("a.c", "g", 7, vec![]);
        let found = [("a.c", 7), ("a.c", 8), ("b.c", 7)].map(|(source, shape)| directions.of(source, "f", shape).len());
        assert_eq!(found, [2, 0, 0]);
        assert!(directions.knows("a.c", "f") && !directions.knows("a.c", "g") && !directions.knows("b.c", "f"));
        let bytes = directions.to_bytes();
        assert_eq!(Directions::from_bytes(&bytes), Ok(directions));
        for end in 0..bytes.len() {
            assert_eq!(Directions::from_bytes(&bytes[..end]), Err(NoDirections), "{end} bytes of {}", bytes.len());
        }
    }
}
