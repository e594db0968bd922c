//! All integration tests of this crate, in one program, which is built faster than one per file.

mod call_stack;
mod predictors;
mod software_numbering;
