//! Executions of programs that count nothing: followed by ptrace(2), or recorded by others. The only crate that knows of ptrace.
//!
//! | file | what |
//! |---|---|
//! | `programs.rs` | every program that a command runs, with its processes, its arguments and how it ended |
//! | `perf_script.rs` | the text of `perf script`: branches, mappings, ends of threads |
//! | `branch_import/` | path profiles of programs of the tier `addresses`, from branches that hardware recorded |
//! | `sources/` | retired branches for the model of the hardware path profiler: programs under QEMU, recordings |
//! | `system.rs` | the system calls |

mod branch_import;
pub mod perf_script;
mod programs;
pub mod sources;
mod system;

pub use branch_import::{BranchImport, ImportError, import};
pub use programs::{Event, Follow, Program, ProgramId, TraceError, follow};
