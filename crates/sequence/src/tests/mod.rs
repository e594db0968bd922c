//! Tests of the algorithms against brute force on random sequences.

mod compression;
mod sequences;
