//! Tests of everything that is counted: paths, segments, sequences, samples and events.

mod branches;
mod copies;
mod copies_faults;
mod copies_iterations;
mod copies_path_sets;
mod counting;
mod counts;
mod events;
mod experiment;
mod field;
mod interesting;
mod isolate;
mod last;
mod other_variant;
mod paths;
#[path = "../place/mod.rs"]
mod place;
mod reproducible;
mod residual;
mod sample;
mod sample_processes;
mod segments;
mod segments_callers;
mod segments_cut;
mod segments_random;
mod sequences;
mod simulate;
mod simulate_frames;
mod stream;
mod stream_journal;
mod tomography;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../../report/tests/support/webdriver.rs"]
mod webdriver;
