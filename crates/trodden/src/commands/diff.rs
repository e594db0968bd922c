//! `trodden diff`: two profiles, path by path.

use crate::cli::Diff;
use crate::output::{json_text, print, print_text};
use crate::profiles;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_profile::{DiffOptions, diff};
use trodden_report::{View, difference};

/// Exit status if `--fail` is given and the profiles differ.
const DIFFERENT: u8 = 1;

/// Compares, and prints what differs.
///
/// # Errors
/// There are no such profiles, or they are of different builds.
pub fn run(job: &Diff) -> Result<ExitCode> {
    ensure!((0.0..=100.0).contains(&job.min_change), "--min-change is a percentage, from 0 to 100");
    let (before, after) = (profiles::load(&job.before)?, profiles::load(&job.after)?);
    let options = DiffOptions {
        across_builds: job.across_builds,
        least_function_share: job.min_change / 100.0,
        least_count: job.min_count,
        counts: job.counts,
        ..DiffOptions::default()
    };
    let found = diff((&job.before, &before), (&job.after, &after), &options)?;
    if job.json {
        print(&json_text(&difference::json(&found))?)?;
    } else {
        let functions = View::from_profile(&before).totals.instrumented;
        print_text(&difference::text(&found, functions, job.top))?;
    }
    let differs = !found.functions.is_empty() || !found.only_before.is_empty() || !found.only_after.is_empty();
    Ok(if job.fail && differs { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}
