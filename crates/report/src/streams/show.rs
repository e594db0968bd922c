//! Paths and calls of a thread, from any place on (`trodden stream show`).

use super::event_names::EventNames;
use crate::{SourceCache, View, source_files};
use anyhow::{Context, Result};
use std::io::{self, Write};
use std::iter;
use std::path::PathBuf;
use trodden_profile::stream::{Nesting, NestingStep, Symbol};
use trodden_sequence::Grammar;
use trodden_sequence::grammar::Frames;
use trodden_stored::maps::maps_of;
use trodden_stored::{Folders, streams as kept};

/// Which events of which thread are written.
pub struct EventRange<'a> {
    /// The number of the thread among those of all logs.
    pub thread: usize,
    /// The number of the first event.
    pub from: u64,
    /// So many events; 0 for all.
    pub count: u64,
    /// Where source files are, if they have moved.
    pub source: &'a [PathBuf],
}

/// What was not written.
#[derive(Clone, Copy, Debug)]
pub struct RemainingEvents {
    /// The first event after those that were written.
    pub next: Option<u64>,
    /// The number of events of the thread, if there are none from the first wanted one on.
    pub length: Option<u64>,
}

/// Writes events of a thread of a run.
///
/// # Errors
/// There is no such thread, its log cannot be read, or as of the writer.
pub fn write_events(run: &str, range: &EventRange, folders: &Folders, out: &mut dyn Write) -> Result<RemainingEvents> {
    let logs = kept::logs(run)?.iter().map(|file| kept::open_log(file)).collect::<Result<Vec<_>>>()?;
    let threads: usize = logs.iter().map(|log| log.threads().len()).sum();
    let mut all = logs.iter().flat_map(|log| log.threads().iter().map(move |thread| (log, thread)));
    let none = || format!("there is no thread {}: the streams have {threads}, from 0 on", range.thread);
    let (log, thread) = all.nth(range.thread).with_context(none)?;
    let maps = maps_of(log, folders)?;
    let view = View::from_profile(&maps.events);
    let provider = source_files::sources(range.source, &folders.current_text());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.head(), &maps, &view, &sources);
    // Frames that are live at the first event are read off the grammar.
    let grammar = numbered(&log.grammar(thread)?)?;
    let effect = |symbol| Symbol::from_number(symbol).map(Symbol::effect).unwrap_or_default();
    let live = Frames::with_effects(&grammar, effect).open_calls(range.from);
    let counters = live.into_iter().filter_map(Symbol::from_number).filter_map(|symbol| match symbol {
        Symbol::Enter(counter) | Symbol::Inherited(counter) => Some(counter),
        _ => None,
    });
    let mut nesting = Nesting::within(&event_names.places, counters);
    let shown = if range.count == 0 { usize::MAX } else { usize::try_from(range.count)? };
    let numbers = (range.from..).zip(grammar.symbols_from(range.from));
    let mut events = numbers.filter_map(|(number, symbol)| Some((number, Symbol::from_number(symbol)?)));
    for (number, symbol) in events.by_ref().take(shown) {
        let step = nesting.feed(symbol);
        line(out, &event_names, number, step, nesting.frames().len())?;
    }
    let length = (range.from >= grammar.len()).then(|| grammar.len());
    Ok(RemainingEvents { next: events.next().map(|(next, _)| next), length })
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

fn line(out: &mut dyn Write, event_names: &EventNames, number: u64, step: NestingStep, depth: usize) -> io::Result<()> {
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
