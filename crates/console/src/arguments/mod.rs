//! Pieces of command lines that both programs have: parsers of values, tables of words, and parameters of counting.
//!
//! | file | what |
//! |---|---|
//! | `choices.rs` | options whose values are those of a library's type |
//! | `times.rs` | times |
//! | `partition.rs` | how paths are divided among copies |
//! | `parameters.rs` | how paths are counted |
//! | `laboratory.rs` | choices that only the laboratory offers, and how it hands them to `trodden` |

pub mod choices;
pub mod laboratory;
pub mod parameters;
pub mod partition;
pub mod times;

pub use parameters::Parameters;

use choices::Choice;
use trodden_sequence::CompressionMethod;

/// A method of compression.
pub const METHODS: [Choice<CompressionMethod>; 4] = [
    (CompressionMethod::Sequitur, "sequitur", "Digrams are unique, rules are used twice"),
    (CompressionMethod::RePair, "re-pair", "The most frequent pair becomes a rule, again and again"),
    (CompressionMethod::LocallyConsistent, "locally-consistent", "Blocks by local minima of hashes"),
    (CompressionMethod::Phrases, "phrases", "Phrases that end where their content says so, and Sequitur's grammar of them: fast"),
];
