//! Writes the results of queries about event sequences as text: occurrences, hot subpaths, segments and differences.

use super::source_lines::write_sources;
use crate::words::plural;
use std::io::{self, Write};
use trodden_analysis::sequences::{FoundEvents, HotQuery, HotSubpaths, MAX_EVENTS_PER_DIFFERENCE, SequenceDifferences, SequenceSegments};

/// Writes the positions of the found events, each with the calls that were active there.
pub fn write_found(out: &mut dyn Write, document: &FoundEvents) -> io::Result<()> {
    writeln!(out, "{}", plural(document.occurrences.into(), "occurrence", "occurrences"))?;
    for found in &document.found {
        writeln!(out, "{:>12}  in {}", found.position, format_calls(&found.open_calls))?;
    }
    Ok(())
}

/// Writes hot subpaths, each with the percentage of paths that it covers and its frequency.
pub fn write_hot(out: &mut dyn Write, question: &HotQuery, document: &HotSubpaths) -> io::Result<()> {
    writeln!(
        out,
        "{} executed; a subpath of {} to {} is hot if it covers at least {}",
        plural(document.paths.into(), "path", "paths"),
        question.shortest,
        plural(question.longest as u128, "path", "paths"),
        plural(document.threshold.into(), "path", "paths")
    )?;
    for row in &document.subpaths {
        writeln!(out, "{:>6.2} %  {:>10} x  {}", row.percent, row.frequency, row.events.join("  "))?;
    }
    write_sources(out, &document.sources)
}

/// Writes segments, each with its number of executions.
pub fn write_segments(out: &mut dyn Write, document: &SequenceSegments) -> io::Result<()> {
    let times = plural(document.executed.into(), "time", "times");
    writeln!(out, "{} different {} of depth {}, executed {times}", document.distinct, document.kind, document.depth)?;
    document.segments.iter().try_for_each(|row| writeln!(out, "{:>12}  {}", row.count, row.events.join("  ")))?;
    write_sources(out, &document.sources)
}

/// Writes the differences between two sequences, with the events on both sides.
pub fn write_differences(out: &mut dyn Write, document: &SequenceDifferences) -> io::Result<()> {
    match document.first_difference {
        None => writeln!(out, "the sequences are equal")?,
        Some(position) => writeln!(out, "common prefix: {}", plural(position.into(), "event", "events"))?,
    }
    for (number, row) in (1..).zip(&document.differences) {
        let aligned = if row.aligned { "" } else { " (too many units to align)" };
        writeln!(out, "{number}. in {}{aligned}", format_calls(&row.open_calls))?;
        for (name, side) in [("left ", &row.left), ("right", &row.right)] {
            let more = if side.end - side.start > MAX_EVENTS_PER_DIFFERENCE { " ..." } else { "" };
            writeln!(out, "   {name} {}..{}  {}{more}", side.start, side.end, side.events.join("  "))?;
        }
    }
    write_sources(out, &document.sources)
}

/// Formats active calls, outermost first: `main > f > g`.
fn format_calls(open: &[String]) -> String {
    open.iter().map(|call| call.trim_start_matches("enter ")).collect::<Vec<_>>().join(" > ")
}
