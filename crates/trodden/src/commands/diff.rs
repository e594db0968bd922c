//! `trodden diff`: two profiles, path by path.

use crate::cli::Diff;
use crate::output::{json_text, print_found};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_profile::{DiffOptions, diff};
use trodden_report::{View, difference};
use trodden_stored::named;

/// Exit status if `--fail` is given and the profiles differ.
const DIFFERENT: u8 = 1;

/// Compares, and prints what differs.
///
/// # Errors
/// There are no such profiles, or they are of different builds.
pub fn run(job: &Diff) -> Result<ExitCode> {
    ensure!((0.0..=100.0).contains(&job.min_change), "--min-change is a percentage, from 0 to 100");
    let (before, after) = (named::load(&job.before)?, named::load(&job.after)?);
    let options = DiffOptions {
        across_builds: job.across_builds,
        least_function_share: job.min_change / 100.0,
        least_count: job.min_count,
        counts: job.counts,
        ..DiffOptions::default()
    };
    let found = diff((&job.before, &before), (&job.after, &after), &options)?;
    let text = || Ok(difference::text(&found, View::from_profile(&before).totals.instrumented, job.top));
    print_found(job.json, || json_text(&difference::json(&found)), text)?;
    let differs = !found.functions.is_empty() || !found.only_before.is_empty() || !found.only_after.is_empty();
    Ok(if job.fail && differs { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}
