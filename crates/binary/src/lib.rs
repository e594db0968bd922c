//! Executables and shared libraries as files: what their code is, where it comes from, how control flows through it.
//!
//! Nothing here runs a program; that is the crate `trodden-trace`.
//!
//! | file | what |
//! |---|---|
//! | `elf.rs` | [`Binary`]: segments, code, functions' symbols, build id |
//! | `headerless.rs` | section headers rebuilt for files without |
//! | `source.rs` | [`SourceLocations`]: DWARF, from the file or a debug file of its own; lines with their inline chain |
//! | `names.rs` | symbols' names as the source has them |
//! | `instruction.rs` | what an instruction does to control flow |
//! | `address_space.rs` | [`AddressSpace`]: which file lies where in the memory of a process |
//! | `address_map.rs` | the compiler's map of blocks, `.llvm_bb_addr_map` |
//! | `graph.rs` | control-flow graphs of functions, and what is uncertain in them |
//! | `linked.rs` | graphs of a program and of some of its libraries as one |
//! | `recover/` | graphs from machine code, unwind tables and relocations |
//! | `core_file.rs` | [`CoreFile`]: where the threads of an ended process were |
//! | `pseudo_probes.rs`, `probed_image.rs`, `probe_graph.rs` | programs of the tier `addresses`: blocks, paths between them |
#![forbid(unsafe_code)]

mod address_map;
mod address_space;
mod core_file;
mod elf;
mod error;
pub mod graph;
mod headerless;
pub mod instruction;
pub mod linked;
mod names;
mod probe_graph;
mod probed_image;
mod pseudo_probes;
mod recover;
mod source;

pub use address_map::{AddressMap, MapBlock, MapFunction, MapProperties, MapSuccessor};
pub use address_space::{AddressSpace, Loadable, MappedFile};
pub use core_file::{CoreFile, CoreThread, FileInMemory};
pub use elf::{Binary, FunctionSymbol, LoadSegment, SymbolSource};
pub use error::BinaryError;
pub use names::demangled;
pub use probe_graph::{Connection, NumberStep, ProbeGraph};
pub use probed_image::{CodeRange, ProbeAt, ProbedFunction, ProbedImage};
pub use recover::recover;
pub use source::{SourceFrame, SourceLocations};
