//! A thread's paths and calls, starting with a given event, for `trodden show`.

use super::event_names::EventNames;
use crate::words::plural;
use crate::{ProfileView, SourceCache, source_files};
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{self, Write};
use std::iter;
use std::path::PathBuf;
use trodden_profile::stream::{CallNesting, NestingStep, StreamSymbol};
use trodden_sequence::Grammar;
use trodden_sequence::grammar::RuleFrameEffects;
use trodden_stored::maps::load_maps;
use trodden_stored::{Folders, streams as kept};

const SCHEMA_VERSION: u32 = 1;

/// Which events to write, and how.
pub struct ShownEvents<'a> {
    /// Index of the thread over all logs of the run.
    pub thread: usize,
    /// Number of the first event.
    pub from: u64,
    /// Maximum number of events; 0 writes all.
    pub count: u64,
    /// True for JSON, false for text.
    pub json: bool,
    /// Folders that are searched for moved source files.
    pub source: &'a [PathBuf],
}

/// Tells what follows the events that were written.
#[derive(Clone, Copy, Debug)]
pub struct RemainingEvents {
    /// Number of the event after the last written event; `None` if there are no more events.
    pub next: Option<u64>,
    /// Number of events in the thread if the requested range starts after the last one; otherwise `None`.
    pub length: Option<u64>,
}

/// Writes events from one thread of a run. Fails if the run does not have the thread.
pub fn write_events(run: &str, range: &ShownEvents, folders: &Folders, out: &mut dyn Write) -> Result<RemainingEvents> {
    let logs = kept::find_logs(run)?.iter().map(|file| kept::open_log(file)).collect::<Result<Vec<_>>>()?;
    let threads: usize = logs.iter().map(|log| log.threads().len()).sum();
    let mut all = logs.iter().flat_map(|log| log.threads().iter().map(move |thread| (log, thread)));
    let none = || {
        let threads = plural(threads as u128, "thread", "threads");
        format!("the run has no thread {}: its streams have {threads}, numbered from 0", range.thread)
    };
    let (log, thread) = all.nth(range.thread).with_context(none)?;
    let maps = load_maps(log, folders)?;
    let view = ProfileView::from_profile(&maps.events);
    let provider = source_files::sources(range.source, &folders.current_text());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.header(), &maps, &view, &sources);
    // The frames that are active at the first event are computed from the grammar, without expanding it.
    let grammar = insert_return_events(&log.grammar(thread)?)?;
    let effect = |symbol| StreamSymbol::from_number(symbol).map(StreamSymbol::frame_effect).unwrap_or_default();
    let live = RuleFrameEffects::from_frame_effects(&grammar, effect).open_calls(range.from);
    let counters = live.into_iter().filter_map(StreamSymbol::from_number).filter_map(|symbol| match symbol {
        StreamSymbol::Enter(counter) | StreamSymbol::Inherited(counter) => Some(counter),
        _ => None,
    });
    let mut nesting = CallNesting::with_live_frames(&event_names.places, counters);
    let shown = if range.count == 0 { usize::MAX } else { usize::try_from(range.count)? };
    let numbers = (range.from..).zip(grammar.symbols_from(range.from));
    let mut separator = "";
    if range.json {
        let (thread, image) = (range.thread, serde_json::to_string(&log.header().image_path.to_string_lossy())?);
        write!(out, r#"{{"schema_version":{SCHEMA_VERSION},"image":{image},"thread":{thread},"events":["#)?;
    }
    let mut events = numbers.filter_map(|(number, symbol)| Some((number, StreamSymbol::from_number(symbol)?)));
    for (number, symbol) in events.by_ref().take(shown) {
        let step = nesting.feed_symbol(symbol);
        let Some(event) = shown_event(&event_names, number, step, nesting.frames().len()) else { continue };
        if range.json {
            write!(out, "{separator}\n{}", serde_json::to_string(&event)?)?;
            separator = ",";
        } else {
            event.write(out)?;
        }
    }
    if range.json {
        writeln!(out, "\n]}}")?;
    }
    let length = (range.from >= grammar.len()).then(|| grammar.len());
    Ok(RemainingEvents { next: events.next().map(|(next, _)| next), length })
}

/// Inserts return events, so that events have the same numbers as in `trodden find --events`. A path that leaves its frame is followed by
/// one return event, and an unwinding is replaced by one for each frame.
fn insert_return_events(stored: &Grammar) -> Result<Grammar> {
    /// Represents a return. No stream symbol has this number.
    const RETURN_SYMBOL: u64 = u64::MAX;
    let numbered = stored.with_symbols_replaced(|number| match StreamSymbol::from_number(number) {
        Some(StreamSymbol::Exit(_)) => vec![number, RETURN_SYMBOL],
        Some(StreamSymbol::Unwound(frames)) => {
            let returns = iter::repeat_n(RETURN_SYMBOL, frames.saturating_sub(1) as usize);
            iter::once(number).chain(returns).take(frames as usize).collect()
        }
        _ => vec![number],
    });
    Ok(numbered?)
}

#[derive(Serialize)]
struct ShownEvent {
    number: u64,
    /// One of `enter`, `call`, `path`, `stop`, `exit` and `unwound`; `unknown` for a unit without a map.
    kind: &'static str,
    /// Number of active frames, including the event's own frame.
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The path in the syntax of `trodden find --events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The path's lines, and how it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<usize>,
}

/// Converts a step through a stream to an event for output. Returns `None` for an unwinding that removes no frames.
fn shown_event(event_names: &EventNames, number: u64, step: NestingStep, live: usize) -> Option<ShownEvent> {
    let event = ShownEvent { number, kind: "unknown", depth: live, function: None, path: None, lines: None, frames: None };
    Some(match step {
        NestingStep::Entered(frame) => ShownEvent { kind: "enter", function: Some(event_names.function_name(frame.function)), ..event },
        NestingStep::Path { counter, role, depth } => {
            let function = event_names.places.path(counter).map(|(place, _)| event_names.function_name(place));
            let path = function.as_ref().zip(event_names.path_number(counter)).map(|(function, number)| format!("{function}:{number}"));
            ShownEvent {
                kind: event_names.role_name(role),
                depth,
                function,
                path,
                lines: Some(event_names.describe_path(counter)),
                ..event
            }
        }
        NestingStep::Unwound(0) => return None,
        NestingStep::Unwound(frames) => ShownEvent { kind: "unwound", frames: Some(frames), ..event },
        NestingStep::Unknown => event,
    })
}

impl ShownEvent {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (number, width) = (self.number, 2 * self.depth.saturating_sub(1).min(40));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match (self.kind, self.frames) {
            ("unknown", _) => writeln!(out, "#{number:<9} in a unit without a map"),
            (_, Some(frames)) => writeln!(out, "#{number:<9} {:width$}unwound {frames}", ""),
            ("enter", _) => writeln!(out, "#{number:<9} {:width$}enter   {}", "", text(&self.function)),
            (kind, _) => writeln!(out, "#{number:<9} {:width$}{kind:<7} {}  {}", "", text(&self.path), text(&self.lines)),
        }
    }
}
