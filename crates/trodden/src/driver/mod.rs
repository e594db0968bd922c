//! Compilers, linkers and cargo with paths counted, and what they leave behind: variants of a program are made from it.
//!
//! | file | what |
//! |---|---|
//! | `cc.rs`, `cc/`, `compile_step.rs` | compiler drivers; what those of all languages share |
//! | `cargo.rs`, `rust.rs` | `cargo trodden`; standing in for rustc's linker |
//! | `link.rs`, `recipe.rs` | linking; what is kept of a link |
//! | `experiment.rs` | from settings of builds to the file that the plugin reads |
//! | `rebuild.rs`, `frames.rs`, `properties.rs` | units compiled again from their bitcode; what they compute |
//! | `lto.rs` | whole programs optimised, then instrumented |
//! | `profdata.rs`, `cc/pgo.rs` | LLVM's profiles; builds that collect for them |
//! | `events.rs` | what the drivers of a build did |
//! | `assets.rs`, `toolchain.rs`, `stand_ins.rs` | what trodden brings along; where LLVM is; other compilers' names |

pub mod assets;
pub mod cargo;
pub mod cc;
pub mod compile_step;
pub mod events;
pub mod experiment;
pub mod frames;
pub mod link;
pub mod lto;
pub mod other_programs;
pub mod profdata;
pub mod properties;
pub mod rebuild;
pub mod recipe;
pub mod rust;
pub mod stand_ins;
pub mod toolchain;
