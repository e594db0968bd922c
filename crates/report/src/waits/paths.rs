//! Finds the paths that samples interrupted. A sample contains the position that its thread had reached in its recorded stream.
//!
//! If a program is built with `trodden build --stream`, its stream has an event whenever a path reaches a call or ends. So the first event
//! after a sample belongs to the innermost instrumented frame, and the path that this frame completes is the one that the sample
//! interrupted.

use crate::source_files;
use crate::streams::EventNames;
use crate::words::plural;
use crate::{ProfileView, SourceCache};
use anyhow::Result;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use trodden_profile::stream::{CallNesting, NestingStep, PathRole, StreamLog, StreamSymbol, ThreadLog};
use trodden_stored::maps::{StreamMaps, load_maps};
use trodden_stored::{Folders, streams};
use trodden_waits_file::process_file::ProcessFile;
use trodden_waits_file::sample_paths::{SamplePaths, TimedPath};
use trodden_wire::waits::SampleRecord;

/// The streams of a run. The paths that samples interrupted are looked up in them.
pub struct StreamPaths {
    logs: Vec<(StreamLog, StreamMaps)>,
    notes: BTreeSet<String>,
    threads: usize,
}

impl StreamPaths {
    /// Opens the streams of a run or a folder. Fails if there are none.
    pub fn open(run: &str, folders: &Folders) -> Result<StreamPaths> {
        let open = |file: &std::path::PathBuf| {
            let log = streams::open_log(file)?;
            let maps = load_maps(&log, folders)?;
            Ok((log, maps))
        };
        let logs = streams::find_logs(run)?.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(StreamPaths { logs, notes: BTreeSet::new(), threads: 0 })
    }
}

impl SamplePaths for StreamPaths {
    fn find_paths(&mut self, process: &ProcessFile, thread: u32, samples: &[SampleRecord]) -> Result<Vec<Option<TimedPath>>> {
        let mut taken = vec![None; samples.len()];
        if samples.iter().all(|sample| sample.position == 0) {
            return Ok(taken);
        }
        let is_same_thread = |log: &ThreadLog| log.key.process == process.number && log.key.thread == thread;
        let found: Vec<(&StreamLog, &StreamMaps, &ThreadLog)> = self
            .logs
            .iter()
            .flat_map(|(log, maps)| log.threads().iter().filter(|log| is_same_thread(log)).map(move |thread| (log, maps, thread)))
            .collect();
        let [(log, maps, stream)] = found[..] else {
            self.notes.insert(match found.len() {
                0 => "the streams have no events of some recorded threads, so the steps of these threads are shown as functions. \
                        Name the streams of this run"
                    .into(),
                _ => "several streams contain the same thread, so its steps are shown as functions".into(),
            });
            return Ok(taken);
        };
        if stream.lost > 0 {
            let lost = plural(stream.lost.into(), "event was", "events were");
            self.notes.insert(format!("{lost} lost in a stream, so the steps of its thread are shown as functions"));
            return Ok(taken);
        }
        if let Some(note) = find_paths(log, maps, stream, samples, &mut taken)? {
            self.notes.insert(note);
        }
        self.threads += 1;
        Ok(taken)
    }

    fn is_unused(&self) -> bool {
        self.threads == 0
    }

    fn notes(&self) -> &BTreeSet<String> {
        &self.notes
    }
}

/// Finds the paths of a thread's samples in the thread's stream. Returns a note if some could not be found.
fn find_paths(
    log: &StreamLog,
    maps: &StreamMaps,
    stream: &ThreadLog,
    samples: &[SampleRecord],
    taken: &mut [Option<TimedPath>],
) -> Result<Option<String>> {
    let view = ProfileView::from_profile(&maps.events);
    let provider = source_files::sources(&[], ".");
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.header(), maps, &view, &sources);
    let mut order: Vec<usize> = (0..samples.len()).filter(|index| samples[*index].position > 0).collect();
    order.sort_by_key(|index| samples[*index].position);
    let mut walk = SampleWalk { nesting: CallNesting::new(&event_names.places), open: Vec::new(), found: Vec::new() };
    let (mut next, mut number, mut note) = (0, 0, None);
    log.visit(stream, 0, |symbol| {
        // An exception causes events that have no symbol. After it, stream positions can no longer be converted to symbol numbers.
        if matches!(symbol, StreamSymbol::Unwound(_)) {
            note = Some("steps after the first exception of a thread are shown as functions, not paths".to_owned());
            return false;
        }
        while let Some(index) = order.get(next).filter(|index| samples[**index].position <= number + 1) {
            walk.open.push((*index, None));
            next += 1;
        }
        number += 1;
        walk.feed_symbol(symbol);
        next < order.len() || !walk.open.is_empty()
    })?;
    let mut names: HashMap<u32, Rc<str>> = HashMap::new();
    for (index, counter) in walk.found {
        let Some((place, _)) = event_names.places.path(counter) else { continue };
        let lines = names.entry(counter).or_insert_with(|| event_names.describe_path(counter).into()).clone();
        taken[index] = Some(TimedPath { function: event_names.function_name(place), lines });
    }
    Ok(note)
}

/// The state of a walk through a stream: samples whose paths have not ended yet, and paths that were found.
struct SampleWalk<'p, 'a> {
    nesting: CallNesting<'p, 'a>,
    /// Indices of samples, each with the call depth of its frame; `None` until the first event after the sample.
    open: Vec<(usize, Option<usize>)>,
    /// Indices of samples, each with the counter of its path.
    found: Vec<(usize, u32)>,
}

impl SampleWalk<'_, '_> {
    fn feed_symbol(&mut self, symbol: StreamSymbol) {
        let NestingStep::Path { counter, role, depth } = self.nesting.feed_symbol(symbol) else { return };
        if self.open.is_empty() {
            return;
        }
        for (_, frame) in &mut self.open {
            frame.get_or_insert(depth);
        }
        // The path continues after the call.
        if role == PathRole::Call {
            return;
        }
        let found = &mut self.found;
        self.open.retain(|(index, frame)| {
            let is_over = frame.is_some_and(|frame| frame >= depth);
            if is_over && *frame == Some(depth) {
                found.push((*index, counter));
            }
            !is_over
        });
    }
}
