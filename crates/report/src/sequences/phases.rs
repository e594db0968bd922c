//! Phases as lines: a letter for each interval.

use std::io::{self, Write};
use trodden_analysis::sequences::PhaseDocument;

/// Phases of so many intervals are drawn as letters in one line.
const LINE: usize = 100;

/// Writes phases as lines.
///
/// # Errors
/// As of the writer.
pub fn write(out: &mut dyn Write, document: &PhaseDocument) -> io::Result<()> {
    writeln!(out, "intervals of {} paths", document.interval)?;
    let kinds = [("paths", Some(&document.by_paths)), ("basic blocks", document.by_blocks.as_ref())];
    for (name, found) in kinds.into_iter().filter_map(|(name, found)| Some((name, found?))) {
        writeln!(out, "\nby {name}: {} phases, {} changes", found.phases.len(), found.changes.len())?;
        for line in found.of_interval.chunks(LINE) {
            writeln!(out, "  {}", line.iter().map(|phase| letter(*phase)).collect::<String>())?;
        }
        for (number, phase) in found.phases.iter().enumerate() {
            let hot: Vec<String> = phase.hot.iter().map(|(label, share)| format!("{label} {share:.1} %")).collect();
            writeln!(
                out,
                "  {}  {:>5} intervals, like number {}: {}",
                letter(number),
                phase.intervals,
                phase.representative,
                hot.join(", ")
            )?;
        }
    }
    if document.by_blocks.is_none() {
        writeln!(out, "\nThe events do not name blocks: there is nothing to compare with.")?;
    }
    Ok(())
}

/// A letter for a phase, for text.
pub fn letter(phase: usize) -> char {
    (b'A' + (phase % 26) as u8) as char
}
