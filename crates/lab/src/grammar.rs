//! `trodden-lab grammar`: compares the compression methods on one recording.
//!
//! Times are processor times of a single run, and vary from run to run.

use crate::cli;
use anyhow::Result;
use nix::time::ClockId;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;
use trodden_command::laboratory::folders;
use trodden_console::output;
use trodden_report::sequences::ThreadChoice;
use trodden_report::words::plural;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits, WindowWriter};

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct GrammarDocument {
    schema_version: u32,
    events: u64,
    distinct: usize,
    methods: Vec<GrammarRow>,
}

#[derive(Serialize)]
struct GrammarRow {
    method: &'static str,
    windows: usize,
    items: usize,
    rules: usize,
    /// Length of the longest chain of rules in any window of the compressed sequence.
    depth: usize,
    bytes: usize,
    bytes_per_million_events: f64,
    ns_per_event: f64,
}

pub fn run(job: &cli::GrammarArguments) -> Result<ExitCode> {
    let input = ThreadChoice { thread: job.thread, method: job.method };
    let opened = trodden_report::sequences::open(&job.recording, input, &folders())?;
    let limits = WindowLimits { max_held: job.held as usize, ..WindowLimits::default() };
    let rows = CompressionMethod::ALL.into_iter().map(|method| compress(&opened.grammar, method, limits)).collect::<Result<_>>()?;
    let document = GrammarDocument {
        schema_version: SCHEMA_VERSION,
        events: opened.grammar.len(),
        distinct: opened.grammar.terminals().len(),
        methods: rows,
    };
    let mut out = output::text_or_json_writer(job.json);
    if job.json {
        out.write_all(&output::json_text(&document)?)?;
    } else {
        document.write(&mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl GrammarDocument {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}, {} of them distinct", plural(self.events.into(), "event", "events"), self.distinct)?;
        writeln!(
            out,
            "{:<20}{:>8}{:>11}{:>10}{:>8}{:>12}{:>18}{:>10}",
            "method", "windows", "items", "rules", "depth", "bytes", "bytes/10^6 events", "ns/event"
        )?;
        for row in &self.methods {
            writeln!(
                out,
                "{:<20}{:>8}{:>11}{:>10}{:>8}{:>12}{:>18.0}{:>10.0}",
                row.method, row.windows, row.items, row.rules, row.depth, row.bytes, row.bytes_per_million_events, row.ns_per_event
            )?;
        }
        Ok(())
    }
}

fn compress(grammar: &Grammar, method: CompressionMethod, limits: WindowLimits) -> Result<GrammarRow> {
    let begin = processor_time()?;
    let mut writer = WindowWriter::new(method, limits)?;
    let mut windows = Vec::new();
    for symbol in grammar.symbols() {
        windows.extend(writer.push(symbol)?);
    }
    windows.extend(writer.close()?);
    let elapsed_ns = (processor_time()? - begin).as_nanos() as f64;
    let mut bytes = Vec::new();
    windows.iter().try_for_each(|window| window.write(&mut bytes))?;
    let statistics: Vec<_> = windows.iter().map(|window| window.grammar.statistics()).collect();
    let events = grammar.len().max(1) as f64;
    Ok(GrammarRow {
        method: method.name(),
        windows: windows.len(),
        items: statistics.iter().map(|s| s.items).sum(),
        rules: statistics.iter().map(|s| s.rules).sum(),
        depth: statistics.iter().map(|s| s.depth).max().unwrap_or(0),
        bytes: bytes.len(),
        bytes_per_million_events: bytes.len() as f64 * 1e6 / events,
        ns_per_event: elapsed_ns / events,
    })
}

fn processor_time() -> Result<Duration> {
    Ok(ClockId::CLOCK_THREAD_CPUTIME_ID.now()?.into())
}
