//! `trodden find`: where something was executed. Here are profiles: which of their paths run through given places? What expressions mean is
//! `trodden_analysis::expression`'s.

use crate::cli::{Color, Find};
use crate::commands::{remarks, sequences, trace};
use crate::notes::{listed, note};
use crate::output;
use crate::surroundings::source_folders;
use anyhow::{Result, bail};
use std::process::ExitCode;
use trodden_analysis::expression::Expression;
use trodden_report::found::{FoundAnswer, FoundPaths};
use trodden_report::input_kind::{InputKind, name_of};
use trodden_report::source_files;
use trodden_report::{SourceCache, View};
use trodden_stored::named;

/// Exit status with `--fail` if a path matches.
const FOUND: u8 = 1;

/// Exit status where it cannot be said whether a path matches.
const UNKNOWN: u8 = 2;

/// What to do where paths are cut.
const REMEDY: &str = "`trodden-lab with --table-slots 4096 -- instrument PROGRAM --output NEW` (or a larger --max-paths) makes a program \
    whose paths are whole; record that";

/// Looks a path expression up.
///
/// # Errors
/// The expression cannot be read, or there is no such profile, trace, function or line.
pub fn run(job: &Find, color: Color) -> Result<ExitCode> {
    match InputKind::of(&job.file)? {
        InputKind::Trace => trace::find(job),
        kind if job.events => sequences::find(job, kind),
        InputKind::Profile => in_profile(job, color),
        kind @ (InputKind::StreamLogs | InputKind::EventText) => {
            bail!("{} is {}: say what to find in it by --events", job.file.display(), kind.phrase())
        }
        other => Err(other.refused(&job.file, "find")),
    }
}

fn in_profile(job: &Find, color: Color) -> Result<ExitCode> {
    InputKind::Profile.refuse_options(&[("--thread", job.thread.is_some())])?;
    let expression: Expression = job.expression.parse()?;
    let profile = named::load(name_of(&job.file)?)?;
    let view = View::from_profile(&profile);
    let provider = source_files::sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let found = FoundPaths::new(&expression, &job.expression, &view)?;
    let top = output::most(job.top, job.json);
    let text = || Ok(found.text(&sources, &output::text_options(color, output::STEPS), top));
    output::print_found(job.json, || output::json_text(&found.json(top)), text)?;
    let open = found.open();
    if !open.is_empty() {
        let what = if found.answer() == FoundAnswer::Unknown { "a path may match" } else { "more paths may match" };
        note(format_args!("paths of {} are cut, and {what} whose pieces were counted separately: {REMEDY}", first_of(&open)));
    }
    let lacking = found.lacking();
    if found.answer() == FoundAnswer::Unknown && !lacking.is_empty() {
        note(format_args!(
            "not all executions of {} are counted, and others may match: record a build that counts all paths",
            first_of(&lacking)
        ));
    }
    remarks::report_partial(&profile);
    remarks::remarks(&view, &sources);
    Ok(match found.answer() {
        FoundAnswer::Unknown => ExitCode::from(UNKNOWN),
        FoundAnswer::Yes if job.fail => ExitCode::from(FOUND),
        FoundAnswer::Yes | FoundAnswer::No => ExitCode::SUCCESS,
    })
}

fn first_of(names: &[&str]) -> String {
    listed(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>(), 1)
}
