//! Recordings of programs built with `--stream`: the logs of a run, as bracketed sequences of one thread.
//!
//! A log has no event for a return: a path says by its role that its frame is left, and frames that an exception or `longjmp` unwound
//! follow from the depths of frames ([`Nesting`]). Here each frame that goes has its `leave`. Before a call the path up to there is an
//! event, and the whole path another when it ends: the convention of prefixes.

use super::recording::{EventTable, PathEvent, Recording, RecordingWriter};
use crate::commands::stream::{files, told};
use crate::notes::warn;
use crate::sources;
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::path::Path;
use trodden_profile::stream::{FunctionPlace, Nesting, PathRole, Step, StreamLog, ThreadLog};
use trodden_report::{SourceCache, View};
use trodden_sequence::events::{Convention, SubpathEnd};
use trodden_sequence::{Method, WindowLimits};

/// Whether a file is a log of streams.
pub fn is_log(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == files::LOG)
}

/// Reads one thread, by its place among those of all logs.
///
/// # Errors
/// There are no streams, or they cannot be read.
pub fn read(wanted: &str, thread: usize, method: Method, limits: WindowLimits, table: &mut EventTable) -> Result<Recording> {
    let mut before = 0;
    for file in files::logs(wanted)? {
        let log = StreamLog::open(&file)?;
        if let Some(found) = log.threads().get(thread - before) {
            let mut writer = RecordingWriter::new(method, limits);
            read_thread(&log, found, &mut writer, table)?;
            return writer.finish(Convention::Prefixes);
        }
        before += log.threads().len();
        if thread < before {
            break;
        }
    }
    ensure!(before > 0, "the streams of `{wanted}` have no thread");
    anyhow::bail!("the streams of `{wanted}` have {before} threads: --thread takes 0 to {}", before - 1)
}

fn read_thread(log: &StreamLog, thread: &ThreadLog, writer: &mut RecordingWriter, table: &mut EventTable) -> Result<()> {
    let profile = told::maps(log.head())?;
    let view = View::of(&profile);
    let provider = sources::sources(&[], &std::env::current_dir()?.display().to_string());
    let sources = SourceCache::new(&provider);
    let told = told::Told::new(log.head(), &profile, &view, &sources);
    let number = writer.thread(&format!("{}/{}", thread.key.process, thread.key.thread))?;
    let mut reader = Reader { told: &told, table, functions: HashMap::new(), paths: HashMap::new(), unknown: 0 };
    let mut nesting = Nesting::new(&told.places, true);
    let mut failure = None;
    log.visit(thread, 0, |event| {
        let open = nesting.frames().len();
        let step = nesting.feed(event);
        let taken = reader.symbols(step, open, nesting.frames().len());
        let pushed = taken.into_iter().try_for_each(|symbol| writer.push(number, symbol));
        pushed.map_err(|error| failure = Some(error)).is_ok()
    })?;
    failure.map_or(Ok(()), Err)?;
    if thread.lost > 0 {
        warn(format_args!("{} events of the thread were lost: what lies on both sides of a gap is taken for neighbours", thread.lost));
    }
    if reader.unknown > 0 {
        warn(format_args!("{} events are of units without a map, and left out", reader.unknown));
    }
    Ok(())
}

struct Reader<'r, 'a> {
    told: &'r told::Told<'a>,
    table: &'r mut EventTable,
    functions: HashMap<FunctionPlace, u32>,
    paths: HashMap<u32, u64>,
    /// Events that nothing is known of.
    unknown: u64,
}

impl Reader<'_, '_> {
    /// The symbols of a step that changed the number of frames.
    fn symbols(&mut self, step: Step, open_before: usize, open_now: usize) -> Vec<u64> {
        match step {
            Step::Entered(frame) => {
                let function = self.function(frame.function);
                vec![self.table.enter(function)]
            }
            Step::Unwound(frames) => vec![self.table.leave(); frames],
            Step::Unknown => {
                self.unknown += 1;
                Vec::new()
            }
            Step::Path { counter, role, depth } => {
                let Some((place, _)) = self.told.places.path(counter) else { return Vec::new() };
                // Frames that went without a word, or one that was not seen to begin.
                let mut symbols = vec![self.table.leave(); open_before.saturating_sub(depth)];
                let function = self.function(place);
                if depth > open_before {
                    symbols.push(self.table.enter(function));
                }
                symbols.push(self.path(counter, role, function));
                symbols.extend(vec![self.table.leave(); depth - open_now]);
                symbols
            }
        }
    }

    fn function(&mut self, place: FunctionPlace) -> u32 {
        if let Some(number) = self.functions.get(&place) {
            return *number;
        }
        // Functions of one name in different units are different; in two runs of a program they are the same.
        let key = format!("{}:{}", self.told.places.unit(place).source, self.told.places.function(place).name);
        let number = self.table.function_with_key(&key, &self.told.name(place));
        self.functions.insert(place, number);
        number
    }

    fn path(&mut self, counter: u32, role: PathRole, function: u32) -> u64 {
        if let Some(symbol) = self.paths.get(&counter) {
            return *symbol;
        }
        let (end, is_prefix) = match role {
            PathRole::Call => (SubpathEnd::Call, true),
            // Where a path stops at a call that does not return, the frame goes on only by `longjmp`, with another path.
            PathRole::Goes | PathRole::Stops => (SubpathEnd::BackEdge, false),
            PathRole::Leaves => (SubpathEnd::Return, false),
        };
        let id = self.told.places.path(counter).map_or(0, |(_, id)| id);
        let blocks = self.told.places.walk(counter).map(|(_, walk)| walk.blocks).unwrap_or_default();
        let names: Vec<u64> = blocks.iter().map(|block| self.table.block(function, &block.index().to_string())).collect();
        let event = PathEvent { function, end, is_prefix, source: Some(self.told.path(counter)) };
        let symbol = self.table.path(&event, &id.to_string(), |_| names);
        self.paths.insert(counter, symbol);
        symbol
    }
}
