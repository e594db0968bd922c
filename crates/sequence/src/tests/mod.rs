//! Tests of the algorithms against brute force on random sequences.

mod comparison;
mod compression;
mod executions;
mod hot;
mod iterations;
mod phases;
mod segments;
mod sequences;
