//! Reads the logs of programs built with `--stream`. Each thread becomes a sequence of events with explicit function entries and exits.
//!
//! A log has no symbol for a return. Instead, it marks paths that leave their frame, and has a symbol with the number of frames that an
//! exception or `longjmp` unwound. Here each of these frames gets a `leave` event. A path that reaches a call also has an earlier event for
//! its part up to the call (the prefix convention). Symbols are substituted in the stored grammars without expanding them, which takes
//! O(items) rather than O(events).

use crate::streams::EventNames;
use crate::words::plural;
use crate::{ProfileView, SourceCache, source_files};
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::path::Path;
use trodden_analysis::sequences::{EventTable, PathEvent};
use trodden_profile::stream::{FunctionIndex, PathRole, StreamLog, StreamSymbol, ThreadLog};
use trodden_sequence::Grammar;
use trodden_sequence::events::{CallRecordingConvention, SubpathEnd};
use trodden_stored::maps::load_maps;
use trodden_stored::{Folders, streams as kept};

/// Reads the sequence of one thread. Threads are numbered from 0 over all logs of the run. Fails if the run has no streams or too few
/// threads.
pub fn read(wanted: &str, thread: usize, table: &mut EventTable, folders: &Folders) -> Result<(CallRecordingConvention, Grammar)> {
    let mut before = 0;
    for file in kept::find_logs(wanted)? {
        let log = kept::open_log(&file)?;
        if let Some(found) = log.threads().get(thread - before) {
            return Ok((CallRecordingConvention::Prefixes, read_thread(&log, found, table, folders)?));
        }
        before += log.threads().len();
        if thread < before {
            break;
        }
    }
    ensure!(before > 0, "the streams of `{wanted}` contain no threads");
    let threads = plural(before as u128, "thread", "threads");
    anyhow::bail!("the streams of `{wanted}` contain only {threads}. Pass --thread with a number from 0 to {}", before - 1)
}

pub fn read_all(file: &Path, table: &mut EventTable, folders: &Folders) -> Result<Vec<Grammar>> {
    let log = kept::open_log(file)?;
    log.threads().iter().map(|thread| read_thread(&log, thread, table, folders)).collect()
}

fn read_thread(log: &StreamLog, thread: &ThreadLog, table: &mut EventTable, folders: &Folders) -> Result<Grammar> {
    let maps = load_maps(log, folders)?;
    let view = ProfileView::from_profile(&maps.events);
    let provider = source_files::sources(&[], &folders.current_text());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.header(), &maps, &view, &sources);
    let mut reader = SequenceReader { event_names: &event_names, table, functions: HashMap::new(), unknown: 0 };
    let stored = log.grammar(thread)?;
    let grammar = stored
        .with_symbols_replaced(|number| StreamSymbol::from_number(number).map_or_else(Vec::new, |symbol| reader.replace_symbol(symbol)))?;
    if thread.lost > 0 {
        let lost = plural(thread.lost.into(), "event of the thread was", "events of the thread were");
        log::warn!("{lost} lost, so the events before and after each gap are treated as consecutive");
    }
    if reader.unknown > 0 {
        let events = plural(reader.unknown.into(), "different event", "different events");
        log::warn!(
            "skipping {events} of compilation units whose maps (blocks and paths) are missing. Set TRODDEN_CACHE to the unit cache of the \
             build, or rebuild the program"
        );
    }
    Ok(grammar)
}

struct SequenceReader<'r, 'a> {
    event_names: &'r EventNames<'a>,
    table: &'r mut EventTable,
    functions: HashMap<FunctionIndex, u32>,
    /// Number of different symbols that belong to units without a map.
    unknown: u64,
}

impl SequenceReader<'_, '_> {
    fn replace_symbol(&mut self, symbol: StreamSymbol) -> Vec<u64> {
        match symbol {
            StreamSymbol::Unwound(frames) => vec![self.table.leave_symbol(); frames as usize],
            StreamSymbol::Path(counter) | StreamSymbol::Exit(counter) => {
                let (Some((place, _)), Some(role)) = (self.event_names.places.path(counter), self.event_names.places.path_role(counter))
                else {
                    self.unknown += 1;
                    return Vec::new();
                };
                let function = self.function_number(place);
                let path = self.path_symbol(counter, role, function);
                let leave = matches!(symbol, StreamSymbol::Exit(_)).then(|| self.table.leave_symbol());
                std::iter::once(path).chain(leave).collect()
            }
            StreamSymbol::Enter(counter) | StreamSymbol::Inherited(counter) => {
                let Some((place, _)) = self.event_names.places.path(counter) else {
                    self.unknown += 1;
                    return Vec::new();
                };
                let function = self.function_number(place);
                vec![self.table.enter_symbol(function)]
            }
        }
    }

    fn function_number(&mut self, place: FunctionIndex) -> u32 {
        if let Some(number) = self.functions.get(&place) {
            return *number;
        }
        // The key distinguishes functions with the same name in different units, but is the same in all runs of a program.
        let key = format!("{}:{}", self.event_names.places.unit_map(place).source, self.event_names.places.function(place).name);
        let number = self.table.intern_function_with_key(&key, &self.event_names.function_name(place));
        self.functions.insert(place, number);
        number
    }

    fn path_symbol(&mut self, counter: u32, role: PathRole, function: u32) -> u64 {
        let (end, is_prefix) = match role {
            PathRole::Call => (SubpathEnd::Call, true),
            // After a call that does not return, only `longjmp` can continue the frame, and it starts a different path.
            PathRole::Continues | PathRole::DoesNotReturn => (SubpathEnd::BackEdge, false),
            PathRole::Leaves => (SubpathEnd::Return, false),
        };
        let number = self.event_names.path_number(counter).unwrap_or_default();
        let blocks = self.event_names.places.decode(counter).map(|(_, walk)| walk.blocks).unwrap_or_default();
        let names: Vec<u64> = blocks.iter().map(|block| self.table.intern_block(function, &block.index().to_string())).collect();
        let event = PathEvent { function, end, is_prefix, source: Some(self.event_names.describe_path(counter)) };
        self.table.intern_path(&event, &number, |_| names)
    }
}
