//! Paths that samples interrupted: the recorder noted how far a thread was in its stream, and the stream says which path ended next.
//!
//! The stream of a program that was built by `trodden build --stream` has an event where a path comes to a call or ends. So the next event
//! behind a sample is of the innermost frame that is instrumented, and the path that this frame completes is the one that was executed.

use crate::source_files;
use crate::streams::EventNames;
use crate::{SourceCache, View};
use anyhow::Result;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use trodden_profile::stream::{Nesting, NestingStep, PathRole, StreamLog, Symbol, ThreadLog};
use trodden_stored::maps::{StreamMaps, maps_of};
use trodden_stored::{Folders, streams};
use trodden_waits_file::process_file::ProcessFile;
use trodden_waits_file::sample_paths::{SamplePaths, TimedPath};
use trodden_wire::waits::SampleRecord;

/// Streams of a run.
pub struct StreamPaths {
    logs: Vec<(StreamLog, StreamMaps)>,
    notes: BTreeSet<String>,
    threads: usize,
}

impl StreamPaths {
    /// The streams of a run, or in a folder.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn open(run: &str, folders: &Folders) -> Result<StreamPaths> {
        let open = |file: &std::path::PathBuf| {
            let log = streams::open_log(file)?;
            let maps = maps_of(&log, folders)?;
            Ok((log, maps))
        };
        let logs = streams::logs(run)?.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(StreamPaths { logs, notes: BTreeSet::new(), threads: 0 })
    }
}

impl SamplePaths for StreamPaths {
    fn of_samples(&mut self, process: &ProcessFile, thread: u32, samples: &[SampleRecord]) -> Result<Vec<Option<TimedPath>>> {
        let mut taken = vec![None; samples.len()];
        if samples.iter().all(|sample| sample.position == 0) {
            return Ok(taken);
        }
        let is_its = |log: &ThreadLog| log.key.process == process.number && log.key.thread == thread;
        let found: Vec<(&StreamLog, &StreamMaps, &ThreadLog)> = self
            .logs
            .iter()
            .flat_map(|(log, maps)| log.threads().iter().filter(|log| is_its(log)).map(move |thread| (log, maps, thread)))
            .collect();
        let [(log, maps, stream)] = found[..] else {
            self.notes.insert(match found.len() {
                0 => "the streams are those of another run: they lack threads of the recording, whose steps are functions".into(),
                _ => "streams of several programs have the same thread: its steps are functions".into(),
            });
            return Ok(taken);
        };
        if stream.lost > 0 {
            self.notes.insert(format!("{} events of a stream are lost: its thread's steps are functions", stream.lost));
            return Ok(taken);
        }
        if let Some(note) = follow(log, maps, stream, samples, &mut taken)? {
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

/// Goes through a thread's stream. Gives what it could not follow.
fn follow(
    log: &StreamLog,
    maps: &StreamMaps,
    stream: &ThreadLog,
    samples: &[SampleRecord],
    taken: &mut [Option<TimedPath>],
) -> Result<Option<String>> {
    let view = View::from_profile(&maps.events);
    let provider = source_files::sources(&[], ".");
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(log.head(), maps, &view, &sources);
    let mut order: Vec<usize> = (0..samples.len()).filter(|index| samples[*index].position > 0).collect();
    order.sort_by_key(|index| samples[*index].position);
    let mut walk = Walk { nesting: Nesting::new(&event_names.places), open: Vec::new(), found: Vec::new() };
    let (mut next, mut number, mut note) = (0, 0, None);
    log.visit(stream, 0, |symbol| {
        // Events that are not symbols lie beside those of exceptions: from there on numbers differ.
        if matches!(symbol, Symbol::Unwound(_)) {
            note = Some("steps behind the first exception of a thread are functions, not paths".to_owned());
            return false;
        }
        while let Some(index) = order.get(next).filter(|index| samples[**index].position <= number + 1) {
            walk.open.push((*index, None));
            next += 1;
        }
        number += 1;
        walk.feed(symbol);
        next < order.len() || !walk.open.is_empty()
    })?;
    let mut names: HashMap<u32, Rc<str>> = HashMap::new();
    for (index, counter) in walk.found {
        let Some((place, _)) = event_names.places.path(counter) else { continue };
        let lines = names.entry(counter).or_insert_with(|| event_names.path(counter).into()).clone();
        taken[index] = Some(TimedPath { function: event_names.name(place), lines });
    }
    Ok(note)
}

/// Samples that wait for the end of their path.
struct Walk<'p, 'a> {
    nesting: Nesting<'p, 'a>,
    /// Each with the depth of its frame, once an event says which it is.
    open: Vec<(usize, Option<usize>)>,
    /// Each with the counter of its path.
    found: Vec<(usize, u32)>,
}

impl Walk<'_, '_> {
    fn feed(&mut self, symbol: Symbol) {
        let NestingStep::Path { counter, role, depth } = self.nesting.feed(symbol) else { return };
        if self.open.is_empty() {
            return;
        }
        for (_, frame) in &mut self.open {
            frame.get_or_insert(depth);
        }
        // A call is in the midst of the path, unless the frame never goes on behind it.
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
