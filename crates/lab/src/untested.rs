//! `trodden-lab schemes` compares the schemes that find untested paths and segments. `trodden-lab hot-paths` shows whether the hot paths
//! of the tests are hot in the field.

use crate::cli::{HotPathsArguments, SchemesArguments};
use anyhow::Result;
use std::process::ExitCode;
use trodden_command::laboratory::{
    SchemeComparisonRequest, UntestedArguments, UntestedOrder, compare_schemes, show_field_counts_of_hot_paths,
};
use trodden_console::output::Color;

pub fn schemes(job: &SchemesArguments, color: Color) -> Result<ExitCode> {
    let request = SchemeComparisonRequest { program: &job.program, tests: &job.tests, field: &job.field, rounds: job.rounds };
    let form = UntestedArguments {
        profiles: Vec::new(),
        known: Vec::new(),
        function: None,
        top: None,
        by: Some(UntestedOrder::Count),
        fail: job.fail,
        json: job.json,
        sarif: None,
        lcov: None,
    };
    compare_schemes(&request, &form, color)
}

pub fn hot_paths(job: &HotPathsArguments, color: Color) -> Result<ExitCode> {
    show_field_counts_of_hot_paths(&job.profiles, &job.known, job.top as usize, job.json, color)
}
