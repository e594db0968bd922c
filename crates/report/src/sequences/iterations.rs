//! Writes paths across loop iterations, and paths of the last branches, as text.

use super::streams;
use crate::words::plural;
use anyhow::{Result, ensure};
use std::io::{self, Write};
use trodden_analysis::sequences::{
    BranchPathDocument, EventTable, IterationDocument, IterationPattern, IterationQuery, iterations_of_copies,
};
use trodden_stored::{Folders, streams as kept};

/// Finds paths of consecutive iterations in a run that was recorded by several instrumented copies of the program. Each copy records some
/// of the functions, so all threads are analysed together. Returns `None` for other recordings. Fails if the recording cannot be read, or
/// if a parameter is out of range.
pub fn find_in_copies(wanted: &str, thread: usize, question: IterationQuery, folders: &Folders) -> Result<Option<IterationDocument>> {
    let Some(copies) = kept::list_logs_of_copies(wanted)? else { return Ok(None) };
    ensure!(thread == 0, "the threads of a run recorded by several copies of the program are analysed together. Omit --thread");
    let mut table = EventTable::default();
    let mut grammars = Vec::new();
    for logs in &copies {
        let threads = logs.iter().map(|log| streams::read_all(log, &mut table, folders)).collect::<Result<Vec<_>>>()?;
        grammars.push(threads.into_iter().flatten().collect());
    }
    iterations_of_copies(&grammars, &table, question).map(Some)
}

/// Writes paths across iterations, followed by patterns.
pub fn write(out: &mut dyn Write, document: &IterationDocument) -> io::Result<()> {
    let none = if document.paths.is_empty() { ": none" } else { "" };
    writeln!(out, "paths of {} consecutive iterations{none}", document.iterations)?;
    for row in &document.paths {
        writeln!(out, "{:>12}  {}", row.count, format_iterations(&row.iterations))?;
    }
    if let Some(others) = document.others.filter(|others| *others > 0) {
        writeln!(out, "{others:>12}  paths over iterations that the build did not know")?;
    }
    write_patterns(out, &document.patterns)
}

/// Writes patterns of repeated loop iterations.
pub fn write_patterns(out: &mut dyn Write, patterns: &[IterationPattern]) -> io::Result<()> {
    for IterationPattern { function, advice, count, percent, iterations, .. } in patterns {
        writeln!(
            out,
            "{function}: {advice} ({}, {percent:.1} %)\n{:>14}{}",
            plural(u128::from(*count), "time", "times"),
            "",
            format_iterations(iterations)
        )?;
    }
    Ok(())
}

/// Formats iterations on one line: events are separated by spaces, and iterations by `|`.
pub fn format_iterations(iterations: &[Vec<String>]) -> String {
    iterations.iter().map(|events| events.join(" ")).collect::<Vec<_>>().join("  |  ")
}

/// Writes paths that are defined by their last branches.
pub fn write_branches(out: &mut dyn Write, document: &BranchPathDocument) -> io::Result<()> {
    let paths = plural(document.distinct as u128, "path", "different paths");
    writeln!(out, "{paths} of up to {}", plural(document.branches as u128, "branch", "branches"))?;
    for row in &document.paths {
        let branches: Vec<String> = row.branches.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
        writeln!(out, "{:>12}  {}", row.count, branches.join("  "))?;
    }
    Ok(())
}
