//! `trodden segments`: a caller's path up to a call and the callee's path behind it, counted together.
//!
//! | file | what |
//! |---|---|
//! | `callees.rs` | which functions a path may call |
//! | `observed.rs` | the segments of runs |
//! | `select.rs` | those that a build is to count (`trodden instrument --segments`) |
//! | `variant.rs` | whether the build counts them |

mod callees;
mod observed;
mod select;
mod variant;

pub use observed::{NamedPath, ObservedSegments, named};
pub use select::{asked, tested};
pub use variant::check_variant;

use crate::cli::{Color, SegmentFormat, Segments};
use crate::commands::remarks;
use crate::notes::{note, warn};
use crate::output;
use anyhow::{Result, ensure};
use observed::NamedCounts;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use trodden_profile::ImageProfile;
use trodden_profile::segments::{CountedSegments, FunctionCounters, Segment, map, unit};
use trodden_report::segments::{SegmentList, Segments as Shown};
use trodden_report::source_files;
use trodden_report::words::plural;
use trodden_report::{Name, SourceCache, View};

/// Exit status when counts differ, or when there is something untested.
const DIFFERENT: u8 = 1;
/// Differences that are named.
const NAMED: usize = 10;

/// Shows segments, or compares them.
///
/// # Errors
/// There is no such run, or it has no segments.
pub fn run(job: &Segments, color: Color) -> Result<ExitCode> {
    let depth = job.depth.unwrap_or(1) as usize;
    let observed = ObservedSegments::load(&job.profile, depth)?;
    if let Some(other) = &job.check {
        return check(&observed, other, job.depth.map(|depth| depth as usize));
    }
    let mut found = observed.of_depth(depth);
    let all = Shown::totals(&found);
    if job.untested {
        keep_untested(&mut found, &observed, job, depth)?;
    }
    if let Some(name) = &job.function {
        found.retain(|(image, segment, _)| ends_in(image, segment, name));
        ensure!(!found.is_empty() || job.untested, "no segment ends in a function `{name}`");
    }
    let is_text = !job.json && job.format == SegmentFormat::Text;
    let top = trodden_report::select::limit(output::most(job.top, !is_text));
    let view = View::from_profile(&observed.profile);
    let provider = source_files::sources(&job.source, &observed.profile.run.directory);
    let sources = SourceCache::new(&provider);
    let kind = if job.untested { SegmentList::Untested } else { SegmentList::Executed };
    let shown = Shown::new(kind, depth, &found, &view, top, all);
    let bytes = match (job.json, job.format) {
        (true, _) | (_, SegmentFormat::Json) => {
            let mut document = shown.json();
            if observed.is_counted {
                document["counters"] = counters(&observed);
            }
            output::json_text(&document)?
        }
        (_, SegmentFormat::Sarif) => output::json_text(&shown.sarif(&sources))?,
        (_, SegmentFormat::Text) => output::printable_text(&shown.text(&sources, &output::text_options(color, job.steps))).into_bytes(),
    };
    output::write_or_print(job.output.as_deref(), &bytes)?;
    if is_text && observed.is_counted {
        compactness(&observed);
    }
    remarks::remarks(&view, &sources);
    Ok(if job.fail_if_new && !found.is_empty() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}

fn ends_in(image: &ImageProfile, segment: &Segment, name: &str) -> bool {
    segment.last().is_some_and(|at| Name::from_linkage(map(image, at.function).plain_name()).is(name))
}

/// Leaves only what neither the build nor `--known` names.
fn keep_untested(found: &mut Vec<(&ImageProfile, Segment, u64)>, observed: &ObservedSegments, job: &Segments, depth: usize) -> Result<()> {
    let (mut known, _) = observed.asked(depth, false);
    ensure!(observed.is_counted || !job.known.is_empty(), "nothing says what is tested: name the tests by --known");
    for wanted in &job.known {
        known.extend(ObservedSegments::load(wanted, depth)?.named(depth).into_keys());
    }
    found.retain(|(image, segment, _)| !known.contains(&named(image, segment)));
    Ok(())
}

/// How many counters each function has for how many segments (figure 3.20 of the thesis).
fn counters(observed: &ObservedSegments) -> Value {
    let of = |(image, found): (&ImageProfile, &CountedSegments)| -> Vec<Value> {
        let function = |of: &FunctionCounters| {
            json!({
                "function": Name::from_linkage(map(image, of.function).plain_name()).full,
                "file": unit(image, of.function).source,
                "counters": of.words,
                "interesting": of.interesting,
                "inlined": of.inlined,
                "duplicated": of.duplicated,
            })
        };
        found.counters.iter().map(function).collect()
    };
    Value::Array(observed.profile.images.iter().zip(&observed.images).flat_map(of).collect())
}

/// Says how many counters there are for how many segments, and how callees learn their contexts.
fn compactness(observed: &ObservedSegments) {
    let all = || observed.images.iter().flat_map(|f| &f.counters);
    let (words, interesting) = all().fold((0, 0), |sum, of| (sum.0 + of.words, sum.1 + of.interesting));
    let (inlined, duplicated) = all().fold((0u64, 0u64), |sum, of| (sum.0 + u64::from(of.inlined), sum.1 + u64::from(of.duplicated)));
    let others: u64 = observed.images.iter().map(|f| f.others).sum();
    note(format_args!(
        "{} for {}; paths of callees were counted {} in contexts that are not interesting",
        plural(words.into(), "counter", "counters"),
        plural(interesting.into(), "interesting segment", "interesting segments"),
        plural(others.into(), "time", "times")
    ));
    if inlined + duplicated > 0 {
        let copies = plural(duplicated.into(), "call is of a copy", "calls are of copies");
        note(format_args!("{} inlined, {copies} (--growth)", plural(inlined.into(), "call is", "calls are")));
    }
}

/// Whether a program counted what another run says: of a depth, or of all that it counts.
fn check(counted: &ObservedSegments, other: &str, depth: Option<usize>) -> Result<ExitCode> {
    ensure!(counted.is_counted, "the run to check was not made by a program that counts segments (`trodden instrument --segments`)");
    let deepest = counted.deepest();
    ensure!(deepest > 0, "the program was made to count no segment: there is nothing to compare");
    if let Some(depth) = depth {
        ensure!(depth <= deepest, "--depth {depth}: the program counts segments of depth {deepest} at most: there is nothing to compare");
    }
    let expected = ObservedSegments::load(other, depth.unwrap_or(deepest))?;
    let (mut compared, mut differing) = (0, 0);
    for each in depth.map_or(1..=deepest, |depth| depth..=depth) {
        let (asked, unplaced) = counted.asked(each, depth.is_none());
        let checked: BTreeSet<&Vec<NamedPath>> = asked.difference(&unplaced).collect();
        if checked.is_empty() && unplaced.is_empty() {
            continue;
        }
        compared += checked.len();
        differing += compare(&checked, (&counted.named(each), &expected.named(each)), each, unplaced.len())?;
    }
    ensure!(compared > 0, "no segment was compared: no code of the callers makes the calls that the program was made to count");
    Ok(if differing == 0 { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// Compares segments of a depth, found and expected ones; gives how many are counted differently.
fn compare(checked: &BTreeSet<&Vec<NamedPath>>, counts: (&NamedCounts, &NamedCounts), depth: usize, left_out: usize) -> Result<usize> {
    let of = |counts: &NamedCounts, segment: &[NamedPath]| counts.get(segment).copied().unwrap_or(0);
    let (found, expected) = counts;
    let differing: Vec<&Vec<NamedPath>> = checked.iter().copied().filter(|s| of(found, s) != of(expected, s)).collect();
    for segment in differing.iter().take(NAMED) {
        let words: Vec<String> = segment.iter().map(|(_, name, path)| format!("{}:{path}", Name::from_linkage(name).short)).collect();
        warn(format_args!("{} was counted {} times, and executed {}", words.join(" > "), of(found, segment), of(expected, segment)));
    }
    let executions: u128 = checked.iter().map(|s| u128::from(of(expected, s))).sum();
    output::print_text(&format!(
        "{} of depth {depth} compared, executed {}: {} counted differently; {} left out, since no code of the caller makes the call\n",
        plural(checked.len() as u128, "segment", "segments"),
        plural(executions, "time", "times"),
        plural(differing.len() as u128, "is", "are"),
        plural(left_out as u128, "is", "are"),
    ))?;
    Ok(differing.len())
}
