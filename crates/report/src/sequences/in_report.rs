//! Sections for reports and advice that summarise a recorded stream: paths across loop iterations, paths of the last branches, and phases.
//!
//! Only the thread with the most events is analysed. To count iterations, the compressed sequence is expanded, so only its first
//! [`MAX_ANALYSED_SYMBOLS`] symbols are used.

use super::phases_page::{escape_html, render_strips};
use super::source_lines::write_sources;
use super::{iterations, streams};
use crate::advice::sarif::AlternatingIterations;
use crate::words::{count, plural};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use trodden_analysis::sequences::{
    BranchPathDocument, EventTable, IterationPattern, IterationQuery, OpenedSequence, PhaseDocument, document_iterations, document_phases,
    last_branches,
};
use trodden_profile::stream::StreamLog;
use trodden_stored::place::streams_folder_of;
use trodden_stored::{Folders, streams as kept};
use trodden_text::words::reasons;

/// Number of consecutive iterations that form a path across iterations.
const ITERATIONS_PER_PATH: usize = 4;
/// Number of branches in a path that consists of the last branches before some point.
const BRANCHES_PER_PATH: usize = 4;
const MAX_SHOWN_PATTERNS: usize = 5;
/// A pattern is reported only if at least this percentage of the paths across iterations that contain a part of the pattern repeat it.
const MIN_REPETITION_PERCENT: f64 = 90.0;
/// Maximum number of symbols of a sequence in which iterations are counted.
const MAX_ANALYSED_SYMBOLS: u64 = 20_000_000;
const MAX_PHASES: usize = 10;

/// The compressed event sequence of the thread with the most events in a run.
pub struct BusiestThread {
    opened: OpenedSequence,
    number: usize,
    threads: usize,
}

/// Loads the sequence of the thread with the most events. Returns `None` if the run has no streams, and also, with a warning, if they
/// cannot be read.
pub fn load_busiest_thread(wanted: &str, folders: &Folders) -> Option<BusiestThread> {
    let logs = kept::list_logs_of_run(wanted)?;
    let beside = streams_folder_of(Path::new(wanted)).to_string_lossy().into_owned();
    match open_busiest_thread(if Path::new(wanted).exists() { &beside } else { wanted }, &logs, folders) {
        Ok(sequence) => sequence,
        Err(error) => {
            log::warn!(
                "cannot read the run's streams, so the report does not show the order of paths: {}",
                reasons(error.chain().map(ToString::to_string))
            );
            None
        }
    }
}

fn open_busiest_thread(wanted: &str, logs: &[PathBuf], folders: &Folders) -> Result<Option<BusiestThread>> {
    let mut events = Vec::new();
    for log in logs {
        events.extend(StreamLog::open(log)?.threads().iter().map(|thread| thread.events));
    }
    let Some((number, _)) = (0..).zip(&events).max_by_key(|(number, events)| (**events, std::cmp::Reverse(*number))) else {
        return Ok(None);
    };
    let mut table = EventTable::default();
    let (convention, grammar) = streams::read(wanted, number, &mut table, folders)?;
    Ok(Some(BusiestThread { opened: OpenedSequence { table, convention, grammar }, number, threads: events.len() }))
}

impl BusiestThread {
    fn iteration_query(&self) -> IterationQuery {
        IterationQuery {
            iterations: ITERATIONS_PER_PATH,
            share: MIN_REPETITION_PERCENT,
            top: MAX_SHOWN_PATTERNS,
            max_symbols: MAX_ANALYSED_SYMBOLS,
        }
    }

    /// Returns all patterns of repeated loop iterations.
    pub fn patterns(&self) -> Result<Vec<IterationPattern>> {
        Ok(document_iterations(&self.opened, IterationQuery { top: 0, ..self.iteration_query() })?.patterns)
    }

    fn heading(&self) -> String {
        let length = self.opened.grammar.len();
        let of = if self.threads > 1 { format!(" of thread {} of {}", self.number, self.threads) } else { String::new() };
        let part = if length > MAX_ANALYSED_SYMBOLS {
            format!("; iterations of the first {} only", count(MAX_ANALYSED_SYMBOLS.into()))
        } else {
            String::new()
        };
        format!("sequence{of}: {}{part}", plural(length.into(), "event", "events"))
    }

    fn find_branch_paths(&self) -> Option<BranchPathDocument> {
        last_branches(&self.opened, BRANCHES_PER_PATH, MAX_SHOWN_PATTERNS, MAX_ANALYSED_SYMBOLS).ok()
    }

    /// Writes paths across iterations, and paths of the last branches, as text.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        let found = document_iterations(&self.opened, self.iteration_query())?;
        writeln!(out, "\n{}; `trodden-lab patterns` shows more", self.heading())?;
        iterations::write(out, &found)?;
        if let Some(branches) = self.find_branch_paths() {
            iterations::write_branches(out, &branches)?;
        }
        write_sources(out, &found.sources)?;
        Ok(())
    }

    /// Returns paths across iterations, paths of the last branches, and phases as JSON, for a report.
    pub fn json(&self) -> Result<Value> {
        let whole = IterationQuery { top: 0, ..self.iteration_query() };
        Ok(serde_json::json!({
            "thread": self.number,
            "threads": self.threads,
            "events": self.opened.grammar.len(),
            "events_examined": self.opened.grammar.len().min(MAX_ANALYSED_SYMBOLS),
            "iterations": document_iterations(&self.opened, whole)?,
            "last_branches": last_branches(&self.opened, BRANCHES_PER_PATH, 0, MAX_ANALYSED_SYMBOLS).ok(),
            "phases": document_phases(&self.opened, MAX_PHASES)?,
        }))
    }

    /// Renders phases and patterns as a section of an HTML page.
    pub fn page(&self) -> Result<String> {
        let phases: PhaseDocument = document_phases(&self.opened, MAX_PHASES)?;
        let found = document_iterations(&self.opened, self.iteration_query())?;
        let mut page = format!(
            "<details class=\"sequence\" open><summary>Phases: {} by paths, {} by basic blocks <span class=\"faint\">{}, \
             intervals of {} paths</span></summary><div class=\"sequence-body\">{}",
            phases.by_paths.phases.len(),
            phases.by_blocks.as_ref().map_or_else(|| "none".into(), |b| b.phases.len().to_string()),
            escape_html(&self.heading()),
            count(phases.interval.into()),
            render_strips(&phases)
        );
        if !found.patterns.is_empty() {
            page.push_str("<h2>Alternating iterations</h2><table><tr><th>function<th>times<th>pattern");
        }
        for pattern in &found.patterns {
            let _ = write!(
                page,
                "<tr><td><code>{}</code><td class=\"n\">{}<td><code>{}</code><br>{}",
                escape_html(&pattern.function),
                count(pattern.count.into()),
                escape_html(&iterations::format_iterations(&pattern.iterations)),
                escape_html(&pattern.advice)
            );
        }
        if !found.patterns.is_empty() {
            page.push_str("</table>");
        }
        page.push_str("</div></details>");
        Ok(page)
    }
}

/// Writes the repeated patterns of loop iterations for `trodden advise`.
pub fn write_advice(out: &mut dyn Write, patterns: &[IterationPattern]) -> io::Result<()> {
    if patterns.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nalternating iterations (from the run's stream)")?;
    iterations::write_patterns(out, patterns)
}

/// Converts the repeated patterns of loop iterations to results of a SARIF log.
pub fn alternating_iterations(patterns: &[IterationPattern]) -> Vec<AlternatingIterations<'_>> {
    let turns = |pattern: &'_ IterationPattern| -> (String, Value) {
        let times = plural(pattern.count.into(), "time", "times");
        let text = format!(
            "In {}, {} ({times}, {:.1} %): {}.",
            pattern.function,
            pattern.advice,
            pattern.percent,
            iterations::format_iterations(&pattern.iterations)
        );
        (text, serde_json::json!({ "count": pattern.count, "percent": pattern.percent, "iterations": pattern.iterations }))
    };
    patterns
        .iter()
        .map(|pattern| (pattern, turns(pattern)))
        .map(|(p, (text, properties))| AlternatingIterations { function: &p.function, text, properties })
        .collect()
}
