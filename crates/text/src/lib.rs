//! Text for people: numbers, times and commands in words, demangled names of functions, and names made fit for terminals.
//!
//! | file | what |
//! |---|---|
//! | `words.rs` | numbers, times and commands in words |
//! | `names.rs` | demangled and short names of functions |
//! | `escape.rs` | text from outside made fit for a terminal |
#![forbid(unsafe_code)]

pub mod escape;
pub mod names;
pub mod words;
