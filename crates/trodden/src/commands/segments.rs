//! `trodden segments`: a caller's path up to a call and the callee's path after it, counted together.

use crate::cli::{Color, SegmentFormat, Segments};
use crate::commands::remarks;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_analysis::segments::{ObservedSegments, compare, named};
use trodden_profile::ImageProfile;
use trodden_profile::segments::{Segment, map};
use trodden_report::segments::{SegmentList, Segments as Shown};
use trodden_report::{Name, SourceCache, View, counted_segments, source_files};
use trodden_stored::Folders;

/// Exit status when counts differ, or when there is something untested.
const DIFFERENT: u8 = 1;

/// Shows segments, or compares them.
///
/// # Errors
/// There is no such run, or it has no segments.
pub fn run(job: &Segments, color: Color) -> Result<ExitCode> {
    let depth = job.depth.unwrap_or(1) as usize;
    let folders = folders();
    let observed = ObservedSegments::load(&job.profile, depth, &folders)?;
    if let Some(other) = &job.check {
        return check(&observed, other, job.depth.map(|depth| depth as usize), &folders);
    }
    let mut found = observed.of_depth(depth);
    let all = Shown::totals(&found);
    if job.untested {
        keep_untested(&mut found, &observed, job, (depth, &folders))?;
    }
    if let Some(name) = &job.function {
        found.retain(|(image, segment, _)| ends_in(image, segment, name));
        ensure!(!found.is_empty() || job.untested, "no segment ends in a function `{name}`");
    }
    let is_text = !job.json && job.format == SegmentFormat::Text;
    let top = trodden_report::select::limit(output::most(job.top, !is_text));
    let view = View::from_profile(&observed.profile);
    let provider = source_files::sources(&source_folders(), &observed.profile.run.directory);
    let sources = SourceCache::new(&provider);
    let kind = if job.untested { SegmentList::Untested } else { SegmentList::Executed };
    let shown = Shown::new(kind, depth, &found, &view, top, all);
    let bytes = match (job.json, job.format) {
        (true, _) | (_, SegmentFormat::Json) => {
            let mut document = shown.json();
            if observed.is_counted {
                document["counters"] = counted_segments::counters(&observed);
            }
            output::json_text(&document)?
        }
        (_, SegmentFormat::Sarif) => output::json_text(&shown.sarif(&sources))?,
        (_, SegmentFormat::Text) => output::printable_text(&shown.text(&sources, &output::text_options(color, output::STEPS))).into_bytes(),
    };
    output::write_or_print(job.output.as_deref(), &bytes)?;
    if is_text && observed.is_counted {
        counted_segments::compactness(&observed).iter().for_each(note);
    }
    remarks::remarks(&view, &sources);
    Ok(if job.fail_if_new && !found.is_empty() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}

fn ends_in(image: &ImageProfile, segment: &Segment, name: &str) -> bool {
    segment.last().is_some_and(|at| Name::from_linkage(map(image, at.function).plain_name()).is(name))
}

/// Leaves only what neither the build nor `--known` names.
fn keep_untested(
    found: &mut Vec<(&ImageProfile, Segment, u64)>,
    observed: &ObservedSegments,
    job: &Segments,
    (depth, folders): (usize, &Folders),
) -> Result<()> {
    let (mut known, _) = observed.asked(depth, false);
    ensure!(observed.is_counted || !job.known.is_empty(), "nothing says what is tested: name the tests by --known");
    for wanted in &job.known {
        known.extend(ObservedSegments::load(wanted, depth, folders)?.named(depth).into_keys());
    }
    found.retain(|(image, segment, _)| !known.contains(&named(image, segment)));
    Ok(())
}

/// Whether a program counted what another run says: of a depth, or of all that it counts.
fn check(counted: &ObservedSegments, other: &str, depth: Option<usize>, folders: &Folders) -> Result<ExitCode> {
    let all = compare(counted, other, depth, folders)?;
    for compared in &all {
        counted_segments::differences(compared).for_each(warn);
        output::print_text(&counted_segments::comparison(compared))?;
    }
    ensure!(
        all.iter().any(|compared| compared.compared > 0),
        "no segment was compared: no code of the callers makes the calls that the program was made to count"
    );
    Ok(if all.iter().all(|compared| compared.differing.is_empty()) { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}
