//! Runs passes on probe programs. In builds with debug assertions, each changed program is verified.

use trodden_flow::ProbeProgram;
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::verify::{WalkBudget, verify_counts};
use trodden_flow::program::{BlockProperties, PassChoices, StreamEdges};

/// Runs the passes on a probe program. With debug assertions, it is verified before and after each pass.
pub fn run_passes(program: &mut ProbeProgram, frequencies: &Frequencies, blocks: &BlockProperties, choices: PassChoices) {
    if cfg!(debug_assertions) {
        let verified = program.run_verified_passes(frequencies, blocks, choices, &WalkBudget::default());
        verified.unwrap_or_else(|fault| panic!("{fault}"));
    } else {
        program.run_passes(frequencies, blocks, choices);
    }
}

/// Verifies a probe program, in builds with debug assertions.
pub fn verify_probe_program(program: &ProbeProgram) {
    if cfg!(debug_assertions) {
        verify_counts(program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Changes a probe program so that it appends paths to a stream instead of counting them. With debug assertions, verifies the result.
pub fn write_stream(program: &mut ProbeProgram, edges: StreamEdges) {
    program.write_stream(edges);
    verify_probe_program(program);
}
