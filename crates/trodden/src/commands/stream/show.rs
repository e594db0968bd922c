//! `trodden stream show`: paths and calls of a thread, from any place on.

use super::event_names::EventNames;
use crate::cli::StreamShow;
use crate::notes::note;
use crate::output;
use crate::surroundings::folders;
use anyhow::{Context, Result};
use std::io::{self, BufWriter, Write};
use std::iter;
use std::process::ExitCode;
use trodden_profile::stream::{Nesting, NestingStep, Symbol};
use trodden_report::source_files;
use trodden_report::words::count;
use trodden_report::{SourceCache, View};
use trodden_sequence::Grammar;
use trodden_sequence::grammar::Frames;
use trodden_stored::maps::maps_of;
use trodden_stored::streams;

/// Prints events.
///
/// # Errors
/// There is no such thread, or its log cannot be read.
pub fn run(job: &StreamShow) -> Result<ExitCode> {
    let logs = streams::logs(&job.run)?.iter().map(|file| streams::open_log(file)).collect::<Result<Vec<_>>>()?;
    let threads: usize = logs.iter().map(|log| log.threads().len()).sum();
    let mut all = logs.iter().flat_map(|log| log.threads().iter().map(move |thread| (log, thread)));
    let none = || format!("there is no thread {}: the streams have {threads}, from 0 on", job.thread);
    let (log, thread) = all.nth(job.thread).with_context(none)?;
    let maps = maps_of(log, &folders())?;
    let view = View::from_profile(&maps.events);
    let provider = source_files::sources(&job.source, &std::env::current_dir()?.display().to_string());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.head(), &maps, &view, &sources);
    // Frames that are live at the first event are read off the grammar.
    let grammar = numbered(&log.grammar(thread)?)?;
    let effect = |symbol| Symbol::from_number(symbol).map(Symbol::effect).unwrap_or_default();
    let live = Frames::with_effects(&grammar, effect).open_calls(job.from);
    let counters = live.into_iter().filter_map(Symbol::from_number).filter_map(|symbol| match symbol {
        Symbol::Enter(counter) | Symbol::Inherited(counter) => Some(counter),
        _ => None,
    });
    let mut nesting = Nesting::within(&event_names.places, counters);
    let mut out = BufWriter::new(output::text());
    let shown = if job.count == 0 { usize::MAX } else { usize::try_from(job.count)? };
    let mut failed = None;
    let numbers = (job.from..).zip(grammar.symbols_from(job.from));
    let mut events = numbers.filter_map(|(number, symbol)| Some((number, Symbol::from_number(symbol)?)));
    for (number, symbol) in events.by_ref().take(shown) {
        let step = nesting.feed(symbol);
        if let Err(error) = line(&mut out, &event_names, number, step, nesting.frames().len()) {
            failed = Some(error);
            break;
        }
    }
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    if job.from >= grammar.len() {
        note(format_args!("there is no event from number {} on: the thread has {}", job.from, count(grammar.len().into())));
    }
    if let Some((next, _)) = events.next() {
        note(format_args!("there are more events: `--from {next}` shows the next ones, `--count 0` all"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The sequence with a place for each return, as `trodden stream find` counts events: a path that ends its frame has two, an unwinding
/// one for each frame.
fn numbered(stored: &Grammar) -> Result<Grammar> {
    /// What stands for a return: no symbol.
    const RETURN: u64 = u64::MAX;
    let numbered = stored.substituted(|number| match Symbol::from_number(number) {
        Some(Symbol::Exit(_)) => vec![number, RETURN],
        Some(Symbol::Unwound(frames)) => {
            let returns = iter::repeat_n(RETURN, frames.saturating_sub(1) as usize);
            iter::once(number).chain(returns).take(frames as usize).collect()
        }
        _ => vec![number],
    });
    Ok(numbered?)
}

fn line(out: &mut impl Write, event_names: &EventNames, number: u64, step: NestingStep, depth: usize) -> io::Result<()> {
    let indent = |depth: usize| 2 * depth.saturating_sub(1).min(40);
    match step {
        NestingStep::Entered(frame) => {
            writeln!(out, "#{number:<9} {:width$}enter   {}", "", event_names.name(frame.function), width = indent(depth))
        }
        NestingStep::Path { counter, role, depth } => {
            // As `trodden stream find` takes it.
            let function = event_names.places.path(counter).map(|(place, _)| event_names.name(place));
            let name =
                function.zip(event_names.number(counter)).map_or_else(String::new, |(function, number)| format!("{function}:{number}"));
            writeln!(
                out,
                "#{number:<9} {:width$}{:<7} {name}  {}",
                "",
                event_names.role(role),
                event_names.path(counter),
                width = indent(depth)
            )
        }
        NestingStep::Unwound(0) => Ok(()),
        NestingStep::Unwound(frames) => writeln!(out, "#{number:<9} {:width$}unwound {frames}", "", width = indent(depth)),
        NestingStep::Unknown => writeln!(out, "#{number:<9} of a unit without a map"),
    }
}
