//! Methods for compressing sequences of paths.

use super::choices::Choice;
use trodden_sequence::CompressionMethod;

/// The methods that can be chosen.
pub const METHODS: [Choice<CompressionMethod>; 4] = [
    (CompressionMethod::Sequitur, "sequitur", "Digrams are unique, rules are used twice"),
    (CompressionMethod::RePair, "re-pair", "The most frequent pair becomes a rule, again and again"),
    (CompressionMethod::LocallyConsistent, "locally-consistent", "Blocks by local minima of hashes"),
    (CompressionMethod::Phrases, "phrases", "Phrases that end where their content says so, and Sequitur's grammar of them: fast"),
];
