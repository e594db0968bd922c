//! Command-line definitions that `trodden` and `trodden-lab` share: value parsers, tables of values, and groups of options.
//!
//! | file | contents |
//! |---|---|
//! | `choices.rs` | options whose values are variants of a library's type |
//! | `times.rs` | durations |
//! | `compression.rs` | compression methods for sequences |
//! | `engines.rs` | engines that run jobs |
//! | `partition.rs` | options for dividing paths among copies |
//! | `places.rs`, `shares.rs` | names of output files; percentages |
//! | `parameters.rs` | counting options |
//! | `simulate.rs` | options of the simulation and its model |
//! | `laboratory.rs` | options of `trodden-lab with`, and how they reach `trodden` |

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

pub use compression::COMPRESSION_METHOD_CHOICES;
pub use parameters::CountingArguments;
