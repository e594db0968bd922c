//! Real programs: fetching, building and running them, for the tasks of maintainers (`xtask`) and the experiments of the laboratory.
//!
//! | file | what |
//! |---|---|
//! | `corpus.rs`, `input.rs` | the programs of `corpus/`, and their inputs |
//! | `variant.rs`, `kinds.rs` | ways to build them |
//! | `oracle.rs`, `interesting.rs` | the oracles on them; builds that count interesting paths |
//! | `packages.rs` | what has to be installed |
//! | `steps.rs` | running commands so that one sees what is done |
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
pub use input::Input;
pub use kinds::Trained;
pub use variant::Variant;
