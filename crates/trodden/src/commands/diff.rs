//! `trodden diff`: compares profiles. For traces and streams, it calls other modules.

use super::{sequences, trace};
use crate::cli::DiffArguments;
use crate::output::{json_text, print_result};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_profile::{DiffOptions, diff};
use trodden_report::difference::lines::{self, LineDifference};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::{ProfileView, difference};
use trodden_stored::named;

/// Exit status if the profiles differ and `--fail` is given.
const DIFFERENT_EXIT_STATUS: u8 = 1;

pub fn run(job: &DiffArguments) -> Result<ExitCode> {
    let (before, after) = (InputKind::detect(&job.before)?, InputKind::detect(&job.after)?);
    let is_stream = |kind| matches!(kind, InputKind::StreamLogs | InputKind::EventText);
    if before != InputKind::Trace && job.sequence || is_stream(before) && is_stream(after) {
        return sequences::diff(job, (before, after));
    }
    ensure!(
        before == after,
        "cannot compare {} with {}: {} is {0}, and {} is {1}. Name two files of the same kind",
        before.noun_phrase(),
        after.noun_phrase(),
        job.before.display(),
        job.after.display()
    );
    match before {
        InputKind::Profile => diff_profiles(job),
        InputKind::Trace => trace::diff(job),
        other => Err(other.not_accepted_error(&job.before, "diff")),
    }
}

fn diff_profiles(job: &DiffArguments) -> Result<ExitCode> {
    InputKind::Profile.reject_options(&[("--ignore", !job.ignore.is_empty()), ("--thread", job.thread.is_some())])?;
    let min_change = job.min_change.unwrap_or(0.0);
    ensure!((0.0..=100.0).contains(&min_change), "--min-change must be between 0 and 100 percentage points");
    let names = (require_utf8_name(&job.before)?, require_utf8_name(&job.after)?);
    let (before, after) = (named::load_profile(names.0)?, named::load_profile(names.1)?);
    let options = DiffOptions {
        across_builds: job.across_builds,
        min_function_share: min_change / 100.0,
        report_counts: job.counts,
        ..DiffOptions::default()
    };
    let mut found = diff((names.0, &before), (names.1, &after), &options)?;
    let view = ProfileView::from_profile(&before);
    let by_lines = match job.across_builds {
        true => lines::compare(&view, &ProfileView::from_profile(&after), &mut found, &options),
        false => LineDifference::default(),
    };
    let text = || Ok(difference::text(&found, &by_lines, view.totals.instrumented, job.top));
    print_result(job.json, || json_text(&difference::json(&found, &by_lines)), text)?;
    let is_same =
        found.functions.is_empty() && by_lines.functions.is_empty() && found.only_before.is_empty() && found.only_after.is_empty();
    Ok(if job.fail && !is_same { ExitCode::from(DIFFERENT_EXIT_STATUS) } else { ExitCode::SUCCESS })
}
