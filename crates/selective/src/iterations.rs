//! Numbers of paths over iterations: up to K paths of one activation, each of which follows the previous one through a cut edge.
//!
//! The paths in them are interesting and have precise selective labels (Afraz, Saha and Kanade, "P3", ESEC/FSE 2015, algorithm 1), so no
//! other path has the same sum of labels as an interesting path. A *context word* holds the classes of the activation's last K - 1 paths,
//! the most recent one in the lowest bits. A path's class is its sum plus one; 0 means that there is no such path yet. Where a path is
//! counted, the context word and the path's class together are the *key* of the path over iterations. At a cut edge, the lower K - 1
//! classes of the key become the next context word. One register is therefore enough for any K.

use std::collections::BTreeMap;
use trodden_flow::DagEdgeSet;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::numbering::Numbering;
use trodden_flow::part::precise_selective_labels;

/// A numbering of one function's paths over iterations.
#[derive(Clone, Debug)]
pub struct IterationNumbering {
    /// The edges on interesting paths.
    pub interesting: DagEdgeSet,
    /// The label of each edge.
    pub labels: Vec<i64>,
    /// Number of bits of a class.
    pub class_bits: u32,
    /// K, the maximum number of paths in a path over iterations.
    pub iterations: u32,
    /// Maps a key to the index of its path over iterations.
    pub keys: BTreeMap<u64, usize>,
}

/// The reason why paths over iterations cannot be numbered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IterationNumberingError {
    /// A number does not belong to any path of the function, or a path over iterations is empty or longer than K paths.
    #[error("the paths over iterations belong to a different version of the function. Record their run again with the current program")]
    NoPath,
    /// The classes of K paths do not fit into a word.
    #[error(
        "its paths over {iterations} iterations would need keys of {bits} bits, but a key has 64 bits. Count paths over fewer iterations"
    )]
    TooLong {
        /// K, the requested number of iterations.
        iterations: u32,
        /// Number of bits that a key would need.
        bits: u32,
    },
}

impl IterationNumbering {
    /// Numbers paths over `iterations` iterations. Each is a list of 1 to `iterations` path numbers in the order of execution. A list with
    /// fewer than `iterations` numbers is the beginning of an activation.
    pub fn new(
        (dag, numbering): (&Dag, &Numbering),
        iterations: u32,
        paths: &[Vec<u64>],
    ) -> Result<IterationNumbering, IterationNumberingError> {
        let mut edges: BTreeMap<u64, Vec<DagEdgeId>> = BTreeMap::new();
        for path in paths.iter().flatten() {
            edges.insert(*path, numbering.path(dag, *path).ok_or(IterationNumberingError::NoPath)?);
        }
        let marked = DagEdgeSet::from_members(dag.edges().len(), edges.values().flatten().copied());
        let interesting = dag.edges_on_marked_paths(|edge| marked.contains(edge));
        let labels = precise_selective_labels(dag, &interesting);
        let (_, greatest) = dag.min_and_max_sums_to_exit(|edge| Some(labels[edge.index()]))[dag.entry().index()].unwrap_or_default();
        let class_bits = u128::BITS - (greatest.unsigned_abs() + 1).leading_zeros();
        let bits = class_bits.saturating_mul(iterations);
        if bits > u64::BITS {
            return Err(IterationNumberingError::TooLong { iterations, bits });
        }
        let mut numbered = IterationNumbering { interesting, labels, class_bits, iterations, keys: BTreeMap::new() };
        for (index, path) in paths.iter().enumerate() {
            if path.is_empty() || path.len() > iterations as usize {
                return Err(IterationNumberingError::NoPath);
            }
            let key = path.iter().fold(0, |context, path| numbered.key(numbered.next_context(context), numbered.sum(&edges[path])));
            numbered.keys.insert(key, index);
        }
        Ok(numbered)
    }

    /// Returns the sum of a path's labels.
    pub fn sum(&self, path: &[DagEdgeId]) -> i64 {
        path.iter().map(|edge| self.labels[edge.index()]).sum()
    }

    /// Returns the key of a path with label sum `sum` after the context word `context`.
    pub fn key(&self, context: u64, sum: i64) -> u64 {
        context << self.class_bits | (sum + 1) as u64
    }

    /// Returns the mask that selects the next path's context word from a key.
    pub fn context_mask(&self) -> u64 {
        (1 << (self.class_bits * (self.iterations - 1))) - 1
    }

    /// Returns the context word that follows the path with this key.
    pub fn next_context(&self, key: u64) -> u64 {
        key & self.context_mask()
    }
}
