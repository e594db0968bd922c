//! Coverage of lines and branches as an lcov tracefile (`geninfo(1)`, section FILES).
//!
//! Counts of lines and branches are those of [`crate::lines`]: derived from paths, with inlined code counted at its own lines. If the
//! program has a coverage mapping, counts of lines are the mapping's. Branches are those of the optimised code.

use crate::escape;
use crate::lines::{FileCounts, LineCounts};
use crate::view::{Function, MappedLines};
use std::fmt::Write;

/// The name in the tracefile of a file that the compiler knew by another; `None` leaves it out.
pub type FileName<'n> = &'n dyn Fn(&str) -> Option<String>;

/// Writes a tracefile of functions.
pub fn lcov<'v, 'a: 'v>(
    functions: impl IntoIterator<Item = &'v Function<'a>>,
    mapped: &MappedLines,
    test_name: &str,
    name: FileName,
) -> String {
    let mut counts = LineCounts::from_functions(functions);
    for (file, lines) in mapped {
        counts.files.entry(file.clone()).or_default().lines = lines.clone();
    }
    let test: String = test_name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut out = String::new();
    for (file, counts) in counts.files.iter().filter(|(_, c)| !c.lines.is_empty()) {
        if let Some(file) = name(file) {
            record(&mut out, &test, &file, counts).expect("strings take whatever is written");
        }
    }
    out
}

/// Writes a tracefile of the executed lines of some functions only. A profile that has only some of the paths cannot say that a line was
/// not executed: other paths may have executed it.
pub fn executed_only(functions: &[Function], test_name: &str, name: FileName) -> String {
    let mut counts = LineCounts::from_functions(functions);
    let mut out = String::new();
    for (file, counts) in &mut counts.files {
        counts.lines.retain(|_, n| *n > 0);
        counts.functions.retain(|_, n| *n > 0);
        counts.branches.clear();
        if let Some(file) = name(file).filter(|_| !counts.lines.is_empty()) {
            record(&mut out, test_name, &file, counts).expect("strings take whatever is written");
        }
    }
    out
}

fn record(out: &mut String, test: &str, file: &str, counts: &FileCounts) -> std::fmt::Result {
    writeln!(out, "TN:{test}\nSF:{}", escape::line(file))?;
    for (line, name) in counts.functions.keys() {
        writeln!(out, "FN:{line},{}", escape::line(name))?;
    }
    for ((_, name), calls) in &counts.functions {
        writeln!(out, "FNDA:{calls},{}", escape::line(name))?;
    }
    let hit = counts.functions.values().filter(|c| **c > 0).count();
    writeln!(out, "FNF:{}\nFNH:{hit}", counts.functions.len())?;
    branches(out, counts)?;
    for (line, count) in &counts.lines {
        writeln!(out, "DA:{line},{count}")?;
    }
    let hit = counts.lines.values().filter(|c| **c > 0).count();
    writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", counts.lines.len())
}

fn branches(out: &mut String, counts: &FileCounts) -> std::fmt::Result {
    let (mut found, mut hit) = (0, 0);
    let (mut line_before, mut block) = (0, 0);
    for ((line, _column), directions) in &counts.branches {
        block = if *line == line_before { block + 1 } else { 0 };
        line_before = *line;
        for (number, taken) in directions.values().enumerate() {
            match taken.reached {
                0 => writeln!(out, "BRDA:{line},{block},{number},-")?,
                _ => writeln!(out, "BRDA:{line},{block},{number},{}", taken.taken)?,
            }
            found += 1;
            hit += usize::from(taken.taken > 0);
        }
    }
    writeln!(out, "BRF:{found}\nBRH:{hit}")
}
