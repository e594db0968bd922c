//! All integration tests of this crate, in one program, which is built faster than one per file.

mod witness;
mod witness_calls;
mod witness_events;
mod witness_figures;
mod witness_placement;
mod witness_scale;
