//! Sets of known paths, from profiles to a build that counts all others.
//!
//! A file is a list of entries ([`crate::packed`]). Functions are known again by unit, name and
//! [shape](crate::shape) of their graph. Each comes with its cuts, so that its paths have the same identities in the build as in the profile, and
//! with the executions of its edges, so that what little is to be done is done where it costs least.

use crate::packed::{pack, unpack};
use crate::{FunctionMap, UnitMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trodden_flow::{CutReason, Edge};

/// The word for units that count unknown paths only, as in their scheme.
pub const RESIDUAL_WORD: &str = "tier=residual";

const MAGIC: [u8; 8] = *b"TRODKNW\x01";

/// Known paths of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPaths {
    functions: BTreeMap<Key, KnownFunction>,
}

/// What is known of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFunction {
    /// Where its paths are cut.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of its paths.
    pub paths: u64,
    /// Hash of the values by which they are numbered.
    pub values: u64,
    /// Identities of the known ones, ascending, with their executions.
    pub known: Vec<(u64, u64)>,
    /// Executions of its edges.
    pub edges: Vec<u64>,
}

/// Source of the unit, linkage name, shape.
type Key = (String, String, u64);

/// A function was counted in two ways, so that its paths have two identities.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the paths of function `{0}` are cut in different ways in these profiles: record all runs with programs built with the same parameters"
)]
pub struct TwoWays(pub String);

impl KnownPaths {
    /// Adds a function's executed paths and edge counts.
    ///
    /// # Errors
    /// It is there already with other cuts.
    pub fn add(
        &mut self,
        unit: &UnitMap,
        function: &FunctionMap,
        known: impl Iterator<Item = (u64, u64)>,
        edges: &[u64],
    ) -> Result<(), TwoWays> {
        let key = (unit.source.clone(), function.name.clone(), function.shape);
        let fresh = || KnownFunction {
            cuts: function.cuts.clone(),
            paths: function.counters,
            values: hash_of(&function.values),
            known: Vec::new(),
            edges: vec![0; function.edges.len()],
        };
        let entry = self.functions.entry(key).or_insert_with(fresh);
        if entry.cuts != function.cuts || entry.values != hash_of(&function.values) || entry.edges.len() != edges.len() {
            return Err(TwoWays(function.name.clone()));
        }
        entry.known.extend(known);
        entry.known.sort_unstable();
        entry.known.dedup_by(|more, kept| {
            let same = more.0 == kept.0;
            kept.1 = if same { kept.1.saturating_add(more.1) } else { kept.1 };
            same
        });
        entry.edges.iter_mut().zip(edges).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
        Ok(())
    }

    /// What is known of a function.
    pub fn of(&self, unit: &str, name: &str, shape: u64) -> Option<&KnownFunction> {
        self.functions.get(&(unit.to_owned(), name.to_owned(), shape))
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(&MAGIC, &self.functions.iter().collect::<Vec<_>>())
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// It is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<KnownPaths, NoKnownPaths> {
        let entries: Vec<(Key, KnownFunction)> = unpack(&MAGIC, bytes).ok_or(NoKnownPaths)?;
        Ok(KnownPaths { functions: entries.into_iter().collect() })
    }
}

/// Hash of the values of a numbering.
pub fn hash_of(values: &[i64]) -> u64 {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// A file that holds no known paths.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a file of known paths: make one with `trodden export known -o FILE`")]
pub struct NoKnownPaths;
