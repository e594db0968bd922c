//! All integration tests of this crate, in one program, which is built faster than one per file.

mod ball_larus;
mod dominators;
mod labels_across_calls;
#[path = "../machine/mod.rs"]
mod machine;
mod node_bounds;
#[path = "../passes/mod.rs"]
mod passes;
mod program;
mod programs;
mod residual;
mod resources;
mod verify_program;
