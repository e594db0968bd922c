//! Compression methods for sequences of paths.

use super::choices::ArgumentChoice;
use trodden_sequence::CompressionMethod;

/// Compression methods, by name.
pub const COMPRESSION_METHOD_CHOICES: [ArgumentChoice<CompressionMethod>; 4] = [
    (CompressionMethod::Sequitur, "sequitur", "Sequitur: no digram occurs twice, each rule is used at least twice"),
    (CompressionMethod::RePair, "re-pair", "Re-Pair: replace the most frequent pair by a rule, repeatedly"),
    (CompressionMethod::LocallyConsistent, "locally-consistent", "Split into blocks at local minima of hashes"),
    (CompressionMethod::Phrases, "phrases", "Split into content-defined phrases, and run Sequitur on them: fast"),
];
