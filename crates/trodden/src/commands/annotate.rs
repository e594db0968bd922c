//! `trodden annotate`: a path over its source.

use super::coverage::view_of;
use super::remarks::{remarks, report_partial};
use crate::cli::{Annotate, Color};
use crate::output::{json_text, print_found, text_options};
use crate::surroundings::source_folders;
use anyhow::Result;
use std::process::ExitCode;
use trodden_report::annotate::{AnnotateRequest, annotate};
use trodden_report::source_files::sources;
use trodden_report::{Measure, SourceCache, json};
use trodden_stored::named;

/// Prints the path.
///
/// # Errors
/// There is no such profile, function or path.
pub fn run(job: &Annotate, color: Color) -> Result<ExitCode> {
    let (profile, lost) = named::recover(&job.profile)?;
    let mut view = view_of(&profile);
    view.damaged.extend(lost);
    let provider = sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    if !job.json {
        report_partial(&profile);
    }
    let request = AnnotateRequest { function: job.function.clone(), path: job.path, measure: Measure::Instructions };
    let text = || Ok(annotate(&view, &request, &sources, &text_options(color, 0))?);
    print_found(job.json, || json_text(&json::annotate(&view, &request, &sources)?), text)?;
    remarks(&view, &sources);
    Ok(ExitCode::SUCCESS)
}
