//! Measures the static analysis that divides the counting: `trodden-lab plan` on a corpus program, with and without a profile.

use super::table::{AnalysisTime, CopiesResults};
use super::{CopiesOptions, CopiesSubject};
use crate::experiments::bench::usage::{self, ProcessUsage};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use trodden_corpus::steps;

/// Measures the analysis of one program, and reports the fastest of several rounds.
pub fn measure_analysis(subject: &CopiesSubject, options: &CopiesOptions, results: &mut CopiesResults) -> Result<()> {
    let (profile, program) = (subject.profile_path(), subject.program_path());
    for (&copies, strategy) in options.copies.iter().flat_map(|copies| options.strategy.iter().map(move |s| (copies, s))) {
        for profile in [None, Some(profile.as_path())] {
            let mut fastest: Option<ProcessUsage> = None;
            let mut procedures = 0;
            for _ in 0..options.rounds {
                let (used, counted) = run_plan(&subject.trodden.with_file_name("trodden-lab"), &program, copies, strategy, profile)?;
                procedures = counted;
                fastest = Some(fastest.filter(|best| best.user_s <= used.user_s).unwrap_or(used));
            }
            let ProcessUsage { user_s, wall_s, .. } = fastest.context("--rounds must be at least 1")?;
            let row = AnalysisTime {
                program: subject.name.to_owned(),
                strategy: strategy.clone(),
                copies,
                profile: profile.is_some(),
                procedures,
                user_s,
                wall_s,
            };
            results.add_analysis(row)?;
        }
    }
    Ok(())
}

/// Runs `trodden-lab plan`. Returns its resource usage, and the number of functions.
fn run_plan(laboratory: &Path, program: &Path, copies: u32, strategy: &str, profile: Option<&Path>) -> Result<(ProcessUsage, u64)> {
    usage::run_measured(|runner| {
        let mut arguments = runner.split_whitespace();
        let mut command = Command::new(arguments.next().context("the command that measures the run is empty")?);
        command.args(arguments).arg(laboratory).arg("plan").arg(program).args([
            "--json",
            "--strategy",
            strategy,
            "--copies",
            &copies.to_string(),
        ]);
        if let Some(profile) = profile {
            command.arg("--profile").arg(profile);
        }
        let answer: serde_json::Value = serde_json::from_str(&steps::output(&mut command)?)?;
        answer["procedures"].as_u64().context("the output of `trodden-lab plan --json` lacks the number of functions")
    })
}
