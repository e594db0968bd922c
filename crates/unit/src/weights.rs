//! Measured edge frequencies, by which a later build places probes on rarely executed edges.
//!
//! A file is a list of functions ([`FileFormat`]), which are identified by name and [shape](crate::graph_hash) (a hash of the graph). A
//! function whose graph has changed since the measurement has no frequencies.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trodden_container::{ContentError, FileFormat, FileKind};

const FORMAT: FileFormat = FileFormat { kind: FileKind::WEIGHTS, version: 1, remedy: "Create one with `trodden export weights -o FILE`" };

/// Number of executions of each edge, by function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionWeights {
    functions: BTreeMap<(String, u64), Vec<u64>>,
}

impl FunctionWeights {
    /// Adds the numbers of executions of a function's edges, in the order of the edges in its map. The numbers of several functions with
    /// the same name and shape, such as `static` functions of several units, are summed.
    pub fn add(&mut self, function: &str, shape: u64, edges: &[u64]) {
        let known = self.functions.entry((function.to_owned(), shape)).or_insert_with(|| vec![0; edges.len()]);
        known.iter_mut().zip(edges).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
    }

    /// Returns the number of executions of each of a function's edges. `None` if there are none for this function, or if their number is
    /// not `edges`.
    pub fn get(&self, function: &str, shape: u64, edges: usize) -> Option<&[u64]> {
        self.functions.get(&(function.to_owned(), shape)).map(Vec::as_slice).filter(|w| w.len() == edges)
    }

    /// Returns the number of executions of all edges together.
    pub fn total(&self) -> f64 {
        self.functions.values().flatten().map(|n| *n as f64).sum()
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether there is no function.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Encodes the frequencies as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
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
