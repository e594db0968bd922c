//! `trodden find EXPRESSION`: which paths of a profile run through given places? What expressions mean is `trodden_profile::expression`'s.

use crate::cli::{Color, Find};
use crate::notes::note;
use crate::{profiles, reports};
use anyhow::Result;
use std::process::ExitCode;
use trodden_profile::expression::Expression;
use trodden_report::found::Found;
use trodden_report::{SourceCache, View};

/// Exit status with `--fail` if a path matches.
const FOUND: u8 = 1;

/// Why a place of an expression can match nothing.
pub fn nowhere_note(place: &str) -> String {
    format!("{place} is in no block of these functions: a line may have no code of its own, or the optimiser moved it")
}

/// Looks a path expression up.
///
/// # Errors
/// The expression cannot be read, or there is no such profile or function.
pub fn run(job: &Find, color: Color) -> Result<ExitCode> {
    let expression: Expression = job.expression.parse()?;
    let profile = profiles::load(&job.profile)?;
    let view = View::of(&profile);
    let provider = reports::sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let found = Found::of(&expression, &job.expression, &view)?;
    match job.json {
        true => reports::print(&reports::json_text(&found.json(job.top))?)?,
        false => reports::print(found.text(&sources, &reports::text_options(color, job.steps), job.top).as_bytes())?,
    }
    for place in found.nowhere() {
        note(nowhere_note(&place));
    }
    reports::tell_partial(&profile);
    reports::remarks(&view, &sources);
    Ok(if job.fail && found.paths() > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}
