//! Tests of builds, coverage and suites.

mod coverage;
mod coverage_ends;
mod coverage_marks;
mod coverage_programs;
mod lines;
mod llvm_versions;
mod pgo;
#[path = "../place/mod.rs"]
mod place;
mod platform;
mod rust;
mod rust_workspace;
mod suite;
mod units;
mod untested;
