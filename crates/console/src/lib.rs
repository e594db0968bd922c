//! Standard output, standard error and the command-line arguments that trodden's programs share. Libraries do not print: they return
//! values, write to writers that their callers pass, and report through `log`. [`notes::install_logger`] prints these reports.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod notes;
pub mod output;
pub mod program;
