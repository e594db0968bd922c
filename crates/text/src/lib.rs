//! Text for people: numbers, times and commands in words ([`words`]), demangled names of functions ([`names`]), and escaping for terminals
//! ([`escape`]).
#![forbid(unsafe_code)]

pub mod escape;
pub mod names;
pub mod words;
