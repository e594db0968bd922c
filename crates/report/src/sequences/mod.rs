//! Reports on sequences of paths and calls: reads recordings, names their events, and writes the results of analyses as text, JSON and
//! pages.

mod answers;
pub mod in_report;
pub mod iterations;
mod open;
pub mod phases;
pub mod phases_page;
mod source_lines;
mod streams;

pub use answers::{write_differences, write_found, write_hot, write_segments};
pub use open::{ThreadChoice, open, open_into};
pub use source_lines::write_sources;
