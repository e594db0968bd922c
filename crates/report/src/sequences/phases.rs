//! Phases of an execution as text, with a letter for each interval.

use crate::words::plural;
use std::io::{self, Write};
use trodden_analysis::sequences::PhaseDocument;

const LINE_LENGTH: usize = 100;

/// Writes phases as text.
pub fn write(out: &mut dyn Write, document: &PhaseDocument) -> io::Result<()> {
    writeln!(out, "intervals of {}", plural(document.interval.into(), "path", "paths"))?;
    let kinds = [("paths", Some(&document.by_paths)), ("basic blocks", document.by_blocks.as_ref())];
    for (name, found) in kinds.into_iter().filter_map(|(name, found)| Some((name, found?))) {
        let phases = plural(found.phases.len() as u128, "phase", "phases");
        writeln!(out, "\nby {name}: {phases}, {}", plural(found.changes.len() as u128, "change", "changes"))?;
        for line in found.phase_of_interval.chunks(LINE_LENGTH) {
            writeln!(out, "  {}", line.iter().map(|phase| phase_letter(*phase)).collect::<String>())?;
        }
        for (number, phase) in found.phases.iter().enumerate() {
            let hot: Vec<String> = phase.hot.iter().map(|(label, share)| format!("{label} {share:.1} %")).collect();
            writeln!(
                out,
                "  {}  {:>5} {}, represented by number {}: {}",
                phase_letter(number),
                phase.intervals,
                if phase.intervals == 1 { "interval" } else { "intervals" },
                phase.representative,
                hot.join(", ")
            )?;
        }
    }
    if document.by_blocks.is_none() {
        writeln!(out, "\nThe events do not name blocks, so there are no phases by basic blocks.")?;
    }
    Ok(())
}

/// Returns the letter for a phase. After Z, letters repeat from A.
pub fn phase_letter(phase: usize) -> char {
    (b'A' + (phase % 26) as u8) as char
}
