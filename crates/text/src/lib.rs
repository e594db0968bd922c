//! Formats text for users: numbers, times and commands ([`words`]), demangled function names ([`names`]), and escaping for terminals
//! ([`escape`]).
#![forbid(unsafe_code)]

pub mod escape;
pub mod names;
pub mod words;
