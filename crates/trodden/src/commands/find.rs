//! `trodden find`: finds paths in a profile that match an expression. For traces and streams, it calls other modules.
//! `trodden_analysis::expression` defines the expressions.

use crate::cli::{Color, FindArguments};
use crate::commands::{remarks, sequences, trace};
use crate::notes::{list_names, note};
use crate::output;
use crate::rust_sources;
use crate::surroundings::source_folders;
use anyhow::{Result, bail};
use std::process::ExitCode;
use trodden_analysis::expression::PathExpression;
use trodden_report::found::{ExpressionAnswer, ExpressionMatches};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::{ProfileView, SourceCache};
use trodden_stored::named;

/// Exit status if `--fail` is given and a path matches.
const FOUND_EXIT_STATUS: u8 = 1;

/// Exit status if `--fail` is given and it is unknown whether a path matches.
const UNKNOWN_EXIT_STATUS: u8 = 2;

/// Advice for functions with so many paths that numbering splits them at some edges ("cut edges"). A match that crosses such an edge is
/// missed.
const CUT_EDGE_ADVICE: &str = "Record a variant with whole paths, made by `trodden-lab with --table-slots 4096 -- instrument PROGRAM \
    --output NEW` (or with a larger --max-paths)";

pub fn run(job: &FindArguments, color: Color) -> Result<ExitCode> {
    match InputKind::detect(&job.file)? {
        InputKind::Trace => trace::find(job),
        kind if job.events => sequences::find(job, kind),
        InputKind::Profile => find_in_profile(job, color),
        kind @ (InputKind::StreamLogs | InputKind::EventText) => {
            bail!("{} is {}. To find a sequence of events in it, add --events", job.file.display(), kind.noun_phrase())
        }
        other => Err(other.not_accepted_error(&job.file, "find")),
    }
}

fn find_in_profile(job: &FindArguments, color: Color) -> Result<ExitCode> {
    InputKind::Profile.reject_options(&[("--thread", job.thread.is_some())])?;
    let expression: PathExpression = job.expression.parse()?;
    let profile = named::load_profile(require_utf8_name(&job.file)?)?;
    let view = ProfileView::from_profile(&profile);
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let found = ExpressionMatches::new(&expression, &job.expression, &view)?;
    let top = output::max_results(job.top, job.json);
    let text = || Ok(found.text(&sources, &output::text_options(color, output::DEFAULT_STEPS), top));
    output::print_result(job.json, || output::json_text(&found.json(top)), text)?;
    let undecided = found.undecided_functions();
    if !undecided.is_empty() {
        let what = if found.answer() == ExpressionAnswer::Unknown { "a path may match" } else { "more paths may match" };
        note(format_args!(
            "paths of {} are cut into pieces that were counted separately, so {what}. {CUT_EDGE_ADVICE}",
            quote_first_of_names(&undecided)
        ));
    }
    let incomplete = found.incompletely_counted_functions();
    if found.answer() == ExpressionAnswer::Unknown && !incomplete.is_empty() {
        note(format_args!(
            "some executions of {} were not counted, and these may match. Record a build that counts all paths",
            quote_first_of_names(&incomplete)
        ));
    }
    remarks::warn_of_inexact_counts(&profile);
    remarks::warn_of_missing_sources(&view, &sources);
    Ok(match found.answer() {
        ExpressionAnswer::Unknown => ExitCode::from(UNKNOWN_EXIT_STATUS),
        ExpressionAnswer::Yes if job.fail => ExitCode::from(FOUND_EXIT_STATUS),
        ExpressionAnswer::Yes | ExpressionAnswer::No => ExitCode::SUCCESS,
    })
}

fn quote_first_of_names(names: &[&str]) -> String {
    list_names(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>(), 1)
}
