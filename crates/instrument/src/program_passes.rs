//! Changes of probe programs. With debug assertions, each changed program is verified.

use trodden_flow::ProbeProgram;
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::verify::{WalkBudget, verify_counts};
use trodden_flow::program::{BlockProperties, PassChoices, StreamEdges};

/// Runs the passes on a program. With debug assertions, verifies it before and after each pass.
pub fn run_passes(program: &mut ProbeProgram, frequencies: &Frequencies, blocks: &BlockProperties, choices: PassChoices) {
    if cfg!(debug_assertions) {
        let verified = program.run_verified_passes(frequencies, blocks, choices, &WalkBudget::default());
        verified.unwrap_or_else(|fault| panic!("{fault}"));
    } else {
        program.run_passes(frequencies, blocks, choices);
    }
}

/// With debug assertions, verifies a program.
pub fn verify(program: &ProbeProgram) {
    if cfg!(debug_assertions) {
        verify_counts(program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Makes a program append paths to a stream instead of counting them. With debug assertions, verifies it.
pub fn write_stream(program: &mut ProbeProgram, edges: StreamEdges) {
    program.write_stream(edges);
    verify(program);
}
