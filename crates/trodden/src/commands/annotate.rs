//! `trodden annotate`: shows the source of a function with one path marked.

use super::coverage::create_view;
use super::remarks::{warn_of_inexact_counts, warn_of_missing_sources};
use crate::cli::{AnnotateArguments, Color};
use crate::output::{json_text, print_result, text_options};
use crate::rust_sources::read_project_or_toolchain_source;
use crate::surroundings::source_folders;
use anyhow::Result;
use std::process::ExitCode;
use trodden_report::annotate::{AnnotateRequest, annotate};
use trodden_report::{PathMeasure, SourceCache, json};
use trodden_stored::named;

pub fn run(job: &AnnotateArguments, color: Color) -> Result<ExitCode> {
    let (profile, lost) = named::recover_profile(&job.profile)?;
    let mut view = create_view(&profile);
    view.corrupt.extend(lost);
    let provider = read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    if !job.json {
        warn_of_inexact_counts(&profile);
    }
    let request = AnnotateRequest { function: job.function.clone(), path: job.path, measure: PathMeasure::Instructions };
    let text = || Ok(annotate(&view, &request, &sources, &text_options(color, 0))?);
    print_result(job.json, || json_text(&json::annotate(&view, &request, &sources)?), text)?;
    warn_of_missing_sources(&view, &sources);
    Ok(ExitCode::SUCCESS)
}
