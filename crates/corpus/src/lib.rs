//! Fetches, builds and runs real-world programs, for maintenance tasks (`xtask`) and for the experiments of `trodden-lab`.
//!
//! | file | what |
//! |---|---|
//! | `corpus.rs`, `input.rs` | the programs of `corpus/`, and their inputs |
//! | `variant.rs`, `kinds.rs` | ways to build them |
//! | `oracle.rs`, `interesting.rs` | checking their profiles with the oracles; builds that count interesting paths |
//! | `packages.rs` | the Debian packages that they need |
//! | `steps.rs` | running and logging commands, locating the repository |
#![forbid(unsafe_code)]

mod corpus;
mod input;
pub mod interesting;
mod kinds;
pub mod oracle;
pub mod packages;
pub mod steps;
mod variant;

pub use corpus::{Corpus, script};
pub use input::CorpusInput;
pub use kinds::TrainingRuns;
pub use variant::CorpusVariant;
