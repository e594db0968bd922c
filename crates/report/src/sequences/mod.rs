//! Sequences of paths and calls: recordings of runs with names and sources, and what was found in them, as lines, JSON and pages.
//!
//! | file | what |
//! |---|---|
//! | `open.rs`, `streams.rs` | opening a recording; recordings of runs |
//! | `answers.rs`, `iterations.rs`, `phases.rs` | answers as lines |
//! | `in_report.rs` | what reports and advice of a recorded stream say besides counts |
//! | `phases_page.rs` | the chart of phases |

mod answers;
pub mod in_report;
pub mod iterations;
mod open;
pub mod phases;
pub mod phases_page;
mod source_lines;
mod streams;

pub use answers::{write_differences, write_found, write_hot, write_segments};
pub use open::{RecordedThread, open, open_into};
pub use source_lines::write_sources;
