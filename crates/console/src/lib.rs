//! Standard output and standard error of trodden's programs. Libraries print nothing: they return values, write to writers that they are
//! given, and report through `log`, whose messages [`notes::show_log`] shows.
//!
//! | file | what |
//! |---|---|
//! | `output.rs` | standard output, where names from outside cannot steer a terminal; result files |
//! | `notes.rs` | notes, warnings and errors on standard error |
//! | `program.rs` | how a program ends |
//! | `arguments/` | pieces of command lines that both programs have |
#![forbid(unsafe_code)]

pub mod arguments;
pub mod notes;
pub mod output;
pub mod program;
