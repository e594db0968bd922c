//! Reads executables and shared libraries: their code, its source locations, and its control flow. This crate runs no programs; the crate
//! `trodden-trace` does.
//!
//! [`Binary`] reads ELF files, [`SourceLocations`] DWARF, also from separate debug files, and [`CoreFile`] core dumps. `graph` contains
//! control-flow graphs, which `recover` builds from machine code and the compiler's [`AddressMap`]. [`ProbedImage`] and [`ProbeGraph`] are
//! for programs built with `--addresses`, in which pseudo probes mark the addresses of blocks.
#![forbid(unsafe_code)]

mod address_map;
mod address_space;
mod core_file;
mod debug_files;
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
mod split_dwarf;

pub use address_map::{AddressMap, MapBlock, MapFunction, MapFunctionProperties, MapSuccessor};
pub use address_space::{AddressSpace, Loadable, MappedFile};
pub use core_file::{CoreFile, CoreThread, FileInMemory};
pub use debug_files::set_debug_file_source;
pub use elf::{Binary, FunctionSymbol, LoadSegment, SymbolSource};
pub use error::BinaryError;
pub use names::demangle;
pub use probe_graph::{BlockConnection, NumberStep, ProbeGraph};
pub use probed_image::{CodeRange, PlacedProbe, ProbedFunction, ProbedImage};
pub use recover::recover;
pub use source::{SourceFrame, SourceLocations};
