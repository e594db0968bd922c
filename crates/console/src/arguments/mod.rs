//! Pieces of command lines that both programs have: parsers of values, tables of words, and parameters of counting.
//!
//! | file | what |
//! |---|---|
//! | `choices.rs` | options whose values are those of a library's type |
//! | `times.rs` | times |
//! | `compression.rs` | methods of compressing sequences |
//! | `engines.rs` | who runs jobs |
//! | `partition.rs` | how paths are divided among copies |
//! | `places.rs`, `shares.rs` | names of files that are written; percentages |
//! | `parameters.rs` | how paths are counted |
//! | `simulate.rs` | what is simulated, and the model |
//! | `laboratory.rs` | choices that only the laboratory offers, and how it hands them to `trodden` |

pub mod choices;
pub mod compression;
pub mod engines;
pub mod laboratory;
pub mod parameters;
pub mod partition;
pub mod places;
pub mod shares;
pub mod simulate;
pub mod times;

pub use compression::METHODS;
pub use parameters::Parameters;
