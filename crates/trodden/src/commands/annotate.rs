//! `trodden annotate`: shows the source of a function with one path marked.

use super::coverage::create_view;
use super::remarks::{note_inexact, report_missing};
use crate::cli::{Annotate, Color};
use crate::output::{json_text, print_result, text_options};
use crate::rust_sources::sources;
use crate::surroundings::source_folders;
use anyhow::Result;
use std::process::ExitCode;
use trodden_report::annotate::{AnnotateRequest, annotate};
use trodden_report::{PathMeasure, SourceCache, json};
use trodden_stored::named;

pub fn run(job: &Annotate, color: Color) -> Result<ExitCode> {
    let (profile, lost) = named::recover(&job.profile)?;
    let mut view = create_view(&profile);
    view.corrupt.extend(lost);
    let provider = sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    if !job.json {
        note_inexact(&profile);
    }
    let request = AnnotateRequest { function: job.function.clone(), path: job.path, measure: PathMeasure::Instructions };
    let text = || Ok(annotate(&view, &request, &sources, &text_options(color, 0))?);
    print_result(job.json, || json_text(&json::annotate(&view, &request, &sources)?), text)?;
    report_missing(&view, &sources);
    Ok(ExitCode::SUCCESS)
}
