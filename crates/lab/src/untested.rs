//! `trodden-lab schemes` compares the schemes that find untested paths and segments. `trodden-lab hot-paths` shows whether the hot paths
//! of the tests are hot in the field.

use crate::cli::{HotPaths, Schemes};
use anyhow::Result;
use std::process::ExitCode;
use trodden_command::laboratory::{SchemeRequest, Untested, UntestedOrder, compare_schemes, hot};
use trodden_console::output::Color;

pub fn schemes(job: &Schemes, color: Color) -> Result<ExitCode> {
    let request = SchemeRequest { program: &job.program, tests: &job.tests, field: &job.field, rounds: job.rounds };
    let form = Untested {
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

pub fn hot_paths(job: &HotPaths, color: Color) -> Result<ExitCode> {
    hot(&job.profiles, &job.known, job.top as usize, job.json, color)
}
