//! `trodden segments`: counts segments, that is, pairs of a caller's path up to a call and the path that the callee then takes.

use crate::cli::{Color, SegmentsArguments};
use crate::commands::{remarks, sequences};
use crate::notes::note;
use crate::output;
use crate::rust_sources;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_analysis::segments::{ObservedSegments, names_of_segment_paths};
use trodden_profile::ImageProfile;
use trodden_profile::segments::{Segment, function_map};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::segments::{SegmentList, SegmentRanking};
use trodden_report::{DemangledName, ProfileView, SourceCache, counted_segments};
use trodden_stored::Folders;

/// Exit status if a segment is shown and `--fail` is given.
const FOUND_EXIT_STATUS: u8 = 1;

pub fn run(job: &SegmentsArguments, color: Color) -> Result<ExitCode> {
    let kind = InputKind::detect(&job.file)?;
    if kind == InputKind::EventText || job.thread.is_some() {
        return sequences::segments(job, kind);
    }
    ensure!(matches!(kind, InputKind::Profile | InputKind::StreamLogs), kind.not_accepted_error(&job.file, "segments"));
    let (depth, is_untested) = (job.depth as usize, !job.known.is_empty());
    let folders = folders();
    let observed = ObservedSegments::load(require_utf8_name(&job.file)?, depth, &folders)?;
    let mut found = observed.segments_of_depth(depth);
    let all = SegmentRanking::count_segments_and_executions(&found);
    if is_untested {
        remove_known_segments(&mut found, &observed, job, (depth, &folders))?;
    }
    if let Some(name) = &job.function {
        found.retain(|(image, segment, _)| segment_ends_in(image, segment, name));
        ensure!(!found.is_empty() || is_untested, "no segment (path across calls) ends in a function named `{name}`");
    }
    let is_text = !job.json && job.sarif.is_none();
    let top = trodden_report::select::limit(output::max_results(job.top, !is_text));
    let view = ProfileView::from_profile(&observed.profile);
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), &observed.profile.run.directory);
    let sources = SourceCache::new(&provider);
    let kind = if is_untested { SegmentList::Untested } else { SegmentList::Executed };
    let shown = SegmentRanking::new(kind, depth, &found, &view, top, all);
    if let Some(file) = &job.sarif {
        output::write_report(file, &output::json_text(&shown.sarif(&sources))?, "the segments are")?;
    } else if job.json {
        let mut document = shown.json();
        if observed.is_counted {
            document["counters"] = counted_segments::segment_counters_json(&observed);
        }
        output::print(&output::json_text(&document)?)?;
    } else {
        output::print_text(&shown.text(&sources, &output::text_options(color, output::DEFAULT_STEPS)))?;
    }
    if is_text && observed.is_counted {
        counted_segments::summarise_counters(&observed).iter().for_each(note);
    }
    remarks::warn_of_missing_sources(&view, &sources);
    Ok(if job.fail && !found.is_empty() { ExitCode::from(FOUND_EXIT_STATUS) } else { ExitCode::SUCCESS })
}

fn segment_ends_in(image: &ImageProfile, segment: &Segment, name: &str) -> bool {
    segment.last().is_some_and(|path| DemangledName::from_linkage(function_map(image, path.function).plain_name()).matches(name))
}

/// Removes segments that are known from the build or from `--known`.
fn remove_known_segments(
    found: &mut Vec<(&ImageProfile, Segment, u64)>,
    observed: &ObservedSegments,
    job: &SegmentsArguments,
    (depth, folders): (usize, &Folders),
) -> Result<()> {
    let (mut known, _) = observed.requested_and_uncountable(depth, false);
    for name in &job.known {
        known.extend(ObservedSegments::load(name, depth, folders)?.counts_by_name(depth).into_keys());
    }
    found.retain(|(image, segment, _)| !known.contains(&names_of_segment_paths(image, segment)));
    Ok(())
}
