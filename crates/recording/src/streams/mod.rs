//! Streams of paths and calls of programs built with `--stream`: taken while programs run, kept as logs.
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | whole programs, flight recorders, files that were left |
//! | `recorder.rs` | stream files to logs, while programs run |
//!
//! Where they are kept: [`trodden_stored::place`].

pub mod record;
pub mod recorder;
