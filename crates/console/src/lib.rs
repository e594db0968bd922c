//! Standard output, standard error and shared command line arguments of trodden's programs. Libraries print nothing: they return values,
//! write to the writers that they are given, and report through `log`, whose messages [`notes::show_log`] shows.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod notes;
pub mod output;
pub mod program;
