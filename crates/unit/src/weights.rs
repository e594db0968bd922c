//! Measured edge frequencies. They let a later build place probes on rarely executed edges.
//!
//! A file is a list of functions ([`FileFormat`]), identified by name and [shape](crate::graph_hash). If a function's graph has changed
//! since the measurement, it has no weights.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trodden_container::{ContentError, FileFormat, FileKind};

const FORMAT: FileFormat = FileFormat { kind: FileKind::WEIGHTS, version: 1, remedy: "Create one with `trodden export weights -o FILE`" };

/// Edge executions by function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionWeights {
    functions: BTreeMap<(String, u64), Vec<u64>>,
}

impl FunctionWeights {
    /// Adds a function's edge counts, in the order of its map's edges. Sums the counts of functions with the same name and shape, such as
    /// `static` functions of several units.
    pub fn add(&mut self, function: &str, shape: u64, edges: &[u64]) {
        let known = self.functions.entry((function.to_owned(), shape)).or_insert_with(|| vec![0; edges.len()]);
        known.iter_mut().zip(edges).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
    }

    /// Returns a function's edge counts; `None` if the function has no weights, or does not have `edges` edges.
    pub fn get(&self, function: &str, shape: u64, edges: usize) -> Option<&[u64]> {
        self.functions.get(&(function.to_owned(), shape)).map(Vec::as_slice).filter(|w| w.len() == edges)
    }

    /// Returns the sum of all edges' executions.
    pub fn total(&self) -> f64 {
        self.functions.values().flatten().map(|n| *n as f64).sum()
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Encodes the weights as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes a file's content. Fails if the file has a different kind or version, or is corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<FunctionWeights, ContentError> {
        FORMAT.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_survive_encoding_and_truncation_is_detected() {
        let mut weights = FunctionWeights::default();
        weights.add("f", 1, &[1, 2, u64::MAX]);
        weights.add("f", 1, &[1, 0, 1]);
        weights.add("f", 2, &[7]);
        assert_eq!(weights.get("f", 1, 3), Some(&[2, 2, u64::MAX][..]));
        assert_eq!((weights.get("f", 1, 2), weights.get("g", 1, 3)), (None, None));
        let bytes = weights.to_bytes();
        assert_eq!(FunctionWeights::from_bytes(&bytes), Ok(weights));
        for end in 0..bytes.len() {
            assert!(FunctionWeights::from_bytes(&bytes[..end]).is_err(), "{end} bytes of {}", bytes.len());
        }
        assert!(FunctionWeights::from_bytes(b"something else").is_err());
    }
}
