//! Standard output, standard error and the command-line arguments that trodden's programs share. Libraries print nothing: they return
//! values, write to writers that their callers pass, and report through `log`; [`notes::show_log`] prints these messages.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod notes;
pub mod output;
pub mod program;
