//! Traces of other tools: read whole, then merged in order of time through the analysis.
//!
//! | file | what |
//! |---|---|
//! | `import/perf.rs` | text of `perf script` or `perf sched script` with the scheduler's events |
//! | `import/ctf.rs` | traces of LTTng and others in the Common Trace Format, through Debian's `babeltrace2`, or its text |
//! | `import/scheduler.rs` | the scheduler's events, of both |
//! | `import/chrome.rs` | Chrome trace JSON, with flow events |
//! | `import/otf2.rs` | OTF2 archives, through Debian's `otf2-print` |
//!
//! What a trace lacks is said, never guessed.

mod chrome;
pub mod ctf;
mod otf2;
mod perf;
mod scheduler;

pub use chrome::SLICE;
pub use otf2::read_text as read_otf2_text;
pub use perf::is_header_alone;

use crate::blocks::BlockNames;
use crate::codes::CodeLocation;
use crate::replay::{LocationName, Replayed, ReportOptions, options};
use crate::timeline::{Activity, Bar, Timeline};
use anyhow::{Result, bail};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::path::Path;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::{Analysis, AnalysisOptions, Call, CodeId, LocationId, LocationState, ProcessId};

/// Maximum size of a text, in bytes: it is in memory as a whole.
const MAX_TEXT: u64 = 4 << 30;

/// A trace.
#[derive(Default)]
pub(crate) struct Imported {
    pub locations: Vec<ImportedLocation>,
    pub names: BlockNames,
    pub notes: Vec<String>,
    /// It is a trace of its format, whether or not it has an event.
    pub is_recognised: bool,
}

impl Imported {
    /// A trace of a known format in which there are none.
    fn without_events(note: &str) -> Imported {
        Imported { is_recognised: true, notes: vec![note.to_owned()], ..Imported::default() }
    }
}

/// A thread of a trace.
pub(crate) struct ImportedLocation {
    pub name: LocationName,
    pub process: ProcessId,
    pub begin_ns: u64,
    /// In order of time.
    pub events: Vec<ImportedEvent>,
}

/// An event of a thread.
#[derive(Clone, Debug)]
pub(crate) struct ImportedEvent {
    pub time_ns: u64,
    pub what: What,
}

/// What it is.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Up to here the thread executed this.
    Run(CodeId, LocationState),
    Enter(Call, CodeId),
    Exit(Call),
}

/// Reads a whole file, of at most so many bytes when decompressed.
pub type Decompress = fn(&Path, u64) -> Result<Vec<u8>>;

/// Analyses a trace of another tool.
///
/// # Errors
/// It is of no known kind, or damaged; the message names the place.
pub fn report(path: &Path, asked: &ReportOptions, decompressed: Decompress) -> Result<Replayed> {
    let imported = read(path, decompressed)?;
    if imported.locations.is_empty() && !imported.is_recognised {
        bail!("{}: the trace has no thread", path.display());
    }
    let mut replayed = pass(&imported, options(asked, None), asked.timeline);
    for (function, percent) in &asked.what_if {
        let codes: HashSet<CodeId> =
            imported.names.codes.iter().filter(|(_, code)| code.path.contains(function)).map(|(id, _)| id).collect();
        if codes.is_empty() {
            bail!("--what-if {function}: no code of the trace is in a function of that name");
        }
        let answer = pass(&imported, options(asked, Some((codes, 1.0 - percent / 100.0))), false);
        replayed.answers.push((function.clone(), *percent, answer.outcome.what_if_ns));
    }
    replayed.names = imported.names;
    Ok(replayed)
}

/// How a file of `perf record` begins.
const PERF_DATA: &[u8] = b"PERFILE2";

/// Whether a line of a text is an event by which the scheduler's traces are recognised.
pub fn is_scheduler_line(line: &str) -> bool {
    line.contains("sched_switch:")
}

fn read(path: &Path, decompressed: Decompress) -> Result<Imported> {
    if path.extension().is_some_and(|e| e == "otf2") {
        return otf2::read(path);
    }
    if path.is_dir() {
        return ctf::read_trace(path);
    }
    let bytes = decompressed(path, MAX_TEXT)?;
    if bytes.starts_with(PERF_DATA) {
        bail!("{0} is the data of perf: give trodden its text, `perf script -i {0} > trace.txt`", path.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.trim_start().chars().next() {
        _ if ctf::is_text(&text) => ctf::read(path, &text),
        Some('{' | '[') => chrome::read(path, &text),
        _ if is_scheduler_line(&text) => perf::read(path, &text),
        _ if perf::is_header_alone(&text) => Ok(Imported::without_events("the recording of perf has no events")),
        _ => bail!(
            "{}: neither a recording (a folder), nor an OTF2 archive (.otf2), Chrome trace JSON, or text of `perf script` or \
                `babeltrace2` with sched_switch events",
            path.display()
        ),
    }
}

/// The code of a stack of names.
pub fn code(names: &mut BlockNames, path: &[&str], call: Option<&'static str>, file: &str, line: u32) -> CodeId {
    let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
    let id = names.codes.id(CodeLocation { path, calls: Vec::new(), file: file.to_owned(), call, call_line: line, taken: None });
    if call.is_none() {
        names.codes.weigh(id, line, 1);
    }
    id
}

fn pass(imported: &Imported, options: AnalysisOptions, is_wanted: bool) -> Replayed {
    let mut analysis = Analysis::new(options);
    let mut timeline = Timeline { is_wanted, ..Timeline::default() };
    let origin_ns = imported.locations.iter().map(|l| l.begin_ns).min().unwrap_or(0);
    let start = CodeId(0);
    let mut queue: BinaryHeap<Reverse<(u64, bool, usize)>> = BinaryHeap::new();
    let mut cursors: Vec<Cursor> = Vec::new();
    for (index, location) in imported.locations.iter().enumerate() {
        let id = LocationId(index as u32);
        analysis.start(id, location.process, location.begin_ns - origin_ns, None, start);
        let mut cursor = Cursor { at: 0, time_ns: location.begin_ns, blocks: Vec::new(), open: None };
        cursor.skip_runs(location, id, origin_ns, &mut timeline);
        queue.push(cursor.key(location, index));
        cursors.push(cursor);
    }
    let mut calls = 0;
    while let Some(Reverse((time_ns, _, index))) = queue.pop() {
        let (location, cursor, id) = (&imported.locations[index], &mut cursors[index], LocationId(index as u32));
        let Some(ImportedEvent { what, .. }) = location.events.get(cursor.at) else {
            analysis.end(id, cursor.time_ns - origin_ns, &cursor.blocks, start);
            continue;
        };
        calls += u64::from(matches!(what, What::Enter(..)));
        cursor.take(what, id, time_ns - origin_ns, &mut analysis, &mut timeline);
        cursor.time_ns = time_ns;
        cursor.at += 1;
        cursor.skip_runs(location, id, origin_ns, &mut timeline);
        queue.push(cursor.key(location, index));
    }
    Replayed {
        outcome: analysis.finish(),
        names: BlockNames::default(),
        locations: imported.locations.iter().map(|l| l.name.clone()).collect(),
        uncovered: BTreeMap::new(),
        notes: imported.notes.clone(),
        timeline,
        calls,
        answers: Vec::new(),
    }
}

/// Where the merge is in a location.
struct Cursor {
    at: usize,
    time_ns: u64,
    blocks: Vec<TimeBlock>,
    open: Option<(u64, CodeId)>,
}

impl Cursor {
    /// Takes an event in, at a time since the origin.
    fn take(&mut self, what: &What, id: LocationId, now_ns: u64, analysis: &mut Analysis, timeline: &mut Timeline) {
        match what {
            What::Enter(call, code) => {
                analysis.enter(id, now_ns, &self.blocks, call, *code);
                self.blocks.clear();
                self.open = Some((now_ns, *code));
            }
            What::Exit(call) => {
                let waits = analysis.exit(id, now_ns, call);
                if let Some((enter_ns, code)) = self.open.take() {
                    timeline.call(id, code, (enter_ns, now_ns), &waits);
                }
            }
            What::Run(..) => {}
        }
    }

    /// Collects what is executed up to the next call.
    fn skip_runs(&mut self, location: &ImportedLocation, id: LocationId, origin_ns: u64, timeline: &mut Timeline) {
        while let Some(ImportedEvent { time_ns, what: What::Run(code, state) }) = location.events.get(self.at) {
            let ns = time_ns.saturating_sub(self.time_ns);
            self.blocks.push(TimeBlock { code: *code, state: *state, ns });
            let activity = if *state == LocationState::Computing { Activity::Computing } else { Activity::Communicating };
            timeline.add(Bar { location: id, from_ns: self.time_ns - origin_ns, ns, code: *code, activity });
            self.time_ns = self.time_ns.max(*time_ns);
            self.at += 1;
        }
    }

    /// When the next call begins or ends; after the last one, when the location ends.
    fn key(&self, location: &ImportedLocation, index: usize) -> Reverse<(u64, bool, usize)> {
        // An event that lies before its predecessor is the analysis's to diagnose, at the location's present.
        let next = location.events.get(self.at).map(|event| (event.time_ns.max(location.begin_ns), matches!(event.what, What::Exit(_))));
        let (time_ns, is_end) = next.unwrap_or((self.time_ns, true));
        Reverse((time_ns, is_end, index))
    }
}
