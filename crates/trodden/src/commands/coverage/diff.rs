//! `trodden coverage diff`: which lines and paths only one of two profiles has.

use super::mapping_of;
use crate::cli::CoverageDiff;
use crate::output::{json_text, print};
use anyhow::Result;
use std::process::ExitCode;
use trodden_coverage::Lines;
use trodden_coverage::diff::{CoverageDifference, NamedCoverage};
use trodden_stored::named;

/// Exit status if the second lacks a line.
const EXCEEDED: u8 = 1;

/// Compares two profiles.
///
/// # Errors
/// As of [`mapping_of`]; they are of different builds.
pub fn run(job: &CoverageDiff) -> Result<ExitCode> {
    let (before, after) = (named::load(&job.before)?, named::load(&job.after)?);
    let mappings = [mapping_of(&before, &job.files)?, mapping_of(&after, &job.files)?];
    let (first, second) = (Lines::from_mapping(&mappings[0])?, Lines::from_mapping(&mappings[1])?);
    let difference = CoverageDifference::new(
        &NamedCoverage { name: &job.before, profile: &before, lines: &first },
        &NamedCoverage { name: &job.after, profile: &after, lines: &second },
    )?;
    match job.json {
        true => print(&json_text(&difference.json())?)?,
        false => print(difference.text().as_bytes())?,
    }
    mappings.iter().for_each(|mapping| mapping.note_caveats(false));
    Ok(if job.fail && difference.is_less() { ExitCode::from(EXCEEDED) } else { ExitCode::SUCCESS })
}
