//! Compilers, linkers and cargo with paths counted, and what they leave behind: variants of a program are made from it.
//!
//! No environment is read here: a program fills a [`DriverContext`] once. Nothing is printed: notes go to `log`.
//!
//! | file | what |
//! |---|---|
//! | `context.rs` | the process that the drivers work in |
//! | `cc.rs`, `cc/`, `compile_step.rs` | compiler drivers; what those of all languages share |
//! | `cargo.rs`, `rust.rs` | `cargo trodden`; standing in for rustc and its linker |
//! | `build.rs`, `events.rs` | a build whose compilers are the drivers; what they did |
//! | `link.rs`, `recipe.rs` | linking; what is kept of a link |
//! | `experiment.rs` | from settings of builds to the file that the plugin reads |
//! | `variant.rs`, `variant/` | another variant of a program, without its sources |
//! | `rebuild.rs`, `frames.rs`, `properties.rs` | units compiled again from their bitcode; what they compute |
//! | `lto.rs` | whole programs optimised, then instrumented |
//! | `guided.rs`, `guided/`, `profdata.rs`, `cc/pgo.rs` | profile-guided builds; LLVM's profiles; builds that collect for them |
//! | `assets.rs`, `toolchain.rs`, `stand_ins.rs` | what trodden brings along; where LLVM is; other compilers' names |
//! | `other_programs.rs`, `store_size.rs` | running tools; how large the unit cache is |
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

pub use context::{DriverContext, Step};
