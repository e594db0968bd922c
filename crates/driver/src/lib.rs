//! Drivers for compilers, linkers and cargo that instrument programs. They also store what is needed to link differently instrumented
//! variants of a program later.
//!
//! Callers pass the environment as a [`DriverContext`]. Nothing is printed: messages go to `log`.
//!
//! | file | contents |
//! |---|---|
//! | `context.rs` | the environment of the process |
//! | `cc.rs`, `cc/`, `compile_step.rs` | compiler drivers, and what those of all languages share |
//! | `cargo.rs`, `rust.rs` | `cargo trodden`, and the wrapper and linker for rustc |
//! | `build.rs`, `events.rs` | builds that use the drivers as compilers, and the log of what the drivers did |
//! | `link.rs`, `recipe.rs` | linking, and the recipes of links |
//! | `experiment.rs` | conversion of settings to the file that the plugin reads |
//! | `variant.rs`, `variant/` | variants of a program, made without its sources |
//! | `rebuild.rs`, `frames.rs`, `properties.rs` | recompilation of units from bitcode, and their properties |
//! | `lto.rs` | instrumentation of whole programs after link-time optimisation |
//! | `guided.rs`, `guided/`, `profdata.rs`, `cc/pgo.rs` | profile-guided builds, LLVM's profile formats, and its counters |
//! | `assets.rs`, `toolchain.rs`, `stand_ins.rs` | files of trodden, tools of LLVM, and names of other compilers |
//! | `other_programs.rs`, `store_size.rs` | running other programs; size and pruning of the unit cache |
#![forbid(unsafe_code)]

pub mod assets;
pub mod build;
pub mod cargo;
pub mod cc;
pub mod compile_step;
mod context;
mod events;
pub mod experiment;
mod frames;
pub mod guided;
mod link;
mod lto;
pub mod other_programs;
pub mod profdata;
pub mod properties;
pub mod rebuild;
pub mod recipe;
pub mod rust;
pub mod stand_ins;
pub mod store_size;
pub mod toolchain;
pub mod variant;

pub use context::{DriverContext, ProgressCallback};
