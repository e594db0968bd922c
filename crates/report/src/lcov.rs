//! Line and branch coverage as an LCOV tracefile (`geninfo(1)`, section FILES).
//!
//! Line and branch counts are derived from paths ([`crate::lines`]). Inlined code counts at its own lines. If the program has a coverage
//! mapping, line counts come from the mapping, but branches are still counted in the optimised code.

use crate::escape;
use crate::lines::{FileCounts, LineCounts};
use crate::view::{Function, MappedLines};
use std::fmt::Write;

/// Maps a file name in debug information to the name in the tracefile; `None` omits the file.
pub type FileRenamer<'n> = &'n dyn Fn(&str) -> Option<String>;

/// Writes a tracefile for the given functions. A file's line counts come from `mapped` if it has the file.
pub fn write_lcov<'v, 'a: 'v>(
    functions: impl IntoIterator<Item = &'v Function<'a>>,
    mapped: &MappedLines,
    test_name: &str,
    name: FileRenamer,
) -> String {
    let mut counts = LineCounts::from_functions(functions);
    for (file, lines) in mapped {
        counts.files.entry(file.clone()).or_default().lines = lines.clone();
    }
    let test: String = test_name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut out = String::new();
    for (file, counts) in counts.files.iter().filter(|(_, c)| !c.lines.is_empty()) {
        if let Some(file) = name(file) {
            write_record(&mut out, &test, &file, counts).expect("writing to a string cannot fail");
        }
    }
    out
}

/// Writes a tracefile without the lines that were not executed. It suits a profile that contains only some of the paths, because other
/// paths may have executed those lines.
pub fn write_executed_lines(functions: &[Function], test_name: &str, name: FileRenamer) -> String {
    let mut counts = LineCounts::from_functions(functions);
    let mut out = String::new();
    for (file, counts) in &mut counts.files {
        counts.lines.retain(|_, n| *n > 0);
        counts.functions.retain(|_, n| *n > 0);
        counts.branches.clear();
        if let Some(file) = name(file).filter(|_| !counts.lines.is_empty()) {
            write_record(&mut out, test_name, &file, counts).expect("writing to a string cannot fail");
        }
    }
    out
}

fn write_record(out: &mut String, test: &str, file: &str, counts: &FileCounts) -> std::fmt::Result {
    writeln!(out, "TN:{test}\nSF:{}", escape::escape_line(file))?;
    for (line, name) in counts.functions.keys() {
        writeln!(out, "FN:{line},{}", escape::escape_line(name))?;
    }
    for ((_, name), calls) in &counts.functions {
        writeln!(out, "FNDA:{calls},{}", escape::escape_line(name))?;
    }
    let hit = counts.functions.values().filter(|c| **c > 0).count();
    writeln!(out, "FNF:{}\nFNH:{hit}", counts.functions.len())?;
    write_branches(out, counts)?;
    for (line, count) in &counts.lines {
        writeln!(out, "DA:{line},{count}")?;
    }
    let hit = counts.lines.values().filter(|c| **c > 0).count();
    writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", counts.lines.len())
}

fn write_branches(out: &mut String, counts: &FileCounts) -> std::fmt::Result {
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
