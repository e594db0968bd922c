//! Importers for traces from other tools. A trace is read completely, and then passed to the analysis in chronological order.
//!
//! | file | contents |
//! |---|---|
//! | `import/perf.rs` | text of `perf script` or `perf sched script` with scheduler events |
//! | `import/ctf.rs` | traces of LTTng and others in the Common Trace Format, read by `babeltrace2` |
//! | `import/scheduler.rs` | conversion of scheduler events from both formats |
//! | `import/chrome.rs` | Chrome trace JSON with flow events |
//! | `import/otf2.rs` | OTF2 archives, read by `otf2-print` |

mod chrome;
pub mod ctf;
mod otf2;
mod perf;
mod scheduler;

pub use chrome::WAITING_SLICE_CALL_NAME;
pub use otf2::check_otf2_text as read_otf2_text;
pub use perf::is_only_header;

use crate::blocks::RecordedCodeNames;
use crate::codes::CodeStackLocation;
use crate::replay::{AnalysedRecording, NamedLocation, ReportOptions, analysis_options};
use crate::timeline::{BarActivity, Timeline, TimelineBar};
use anyhow::{Result, bail};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::path::Path;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::{Analysis, AnalysisOptions, Call, CodeId, LocationId, LocationState, ProcessId};

/// Maximum size of a trace in bytes. It is limited because the entire trace is held in memory.
const MAX_TEXT_BYTES: u64 = 4 << 30;

#[derive(Default)]
pub(crate) struct ImportedTrace {
    pub locations: Vec<ImportedLocation>,
    pub names: RecordedCodeNames,
    pub notes: Vec<String>,
    /// Whether the trace is in a known format. This may be true for a trace without events.
    pub is_recognised: bool,
}

impl ImportedTrace {
    /// Creates a trace in a known format that has no events.
    fn empty_trace(note: &str) -> ImportedTrace {
        ImportedTrace { is_recognised: true, notes: vec![note.to_owned()], ..ImportedTrace::default() }
    }
}

pub(crate) struct ImportedLocation {
    pub name: NamedLocation,
    pub process: ProcessId,
    pub begin_ns: u64,
    /// Events in chronological order.
    pub events: Vec<ImportedEvent>,
}

#[derive(Clone, Debug)]
pub(crate) struct ImportedEvent {
    pub time_ns: u64,
    pub kind: EventKind,
}

#[derive(Clone, Debug)]
pub(crate) enum EventKind {
    /// Since its previous event, the thread has executed this code in the given state.
    Run(CodeId, LocationState),
    Enter(Call, CodeId),
    Exit(Call),
}

/// A function that reads a file and decompresses it if necessary. It fails if the content has more than the given number of bytes.
pub type Decompress = fn(&Path, u64) -> Result<Vec<u8>>;

/// Analyses a trace from another tool.
///
/// # Errors
/// The format is unknown, the trace is corrupt, or a function for which a prediction is requested is not in the trace.
pub fn analyse_trace(path: &Path, report_options: &ReportOptions, decompressed: Decompress) -> Result<AnalysedRecording> {
    let imported = read_trace(path, decompressed)?;
    if imported.locations.is_empty() && !imported.is_recognised {
        bail!("{}: the trace has no threads", path.display());
    }
    let mut replayed = analyse_imported_trace_once(&imported, analysis_options(report_options, None), report_options.has_timeline);
    for (function, percent) in &report_options.what_if {
        let codes: HashSet<CodeId> =
            imported.names.codes.iter().filter(|(_, code)| code.path.contains(function)).map(|(id, _)| id).collect();
        if codes.is_empty() {
            bail!("--what-if names function {function}, but the trace has no such function");
        }
        let answer = analyse_imported_trace_once(&imported, analysis_options(report_options, Some((codes, 1.0 - percent / 100.0))), false);
        replayed.predictions.push((function.clone(), *percent, answer.outcome.what_if_ns));
    }
    replayed.names = imported.names;
    Ok(replayed)
}

const PERF_DATA_MAGIC: &[u8] = b"PERFILE2";

/// Returns true if a line contains a context switch in perf's text format.
pub fn is_scheduler_line(line: &str) -> bool {
    line.contains("sched_switch:")
}

fn read_trace(path: &Path, decompressed: Decompress) -> Result<ImportedTrace> {
    if path.extension().is_some_and(|e| e == "otf2") {
        return otf2::read_otf2_archive(path);
    }
    if path.is_dir() {
        return ctf::read_trace(path);
    }
    let bytes = decompressed(path, MAX_TEXT_BYTES)?;
    if bytes.starts_with(PERF_DATA_MAGIC) {
        bail!("{0} is the binary output of `perf record`. Convert it to text with `perf script -i {0} > trace.txt`", path.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.trim_start().chars().next() {
        _ if ctf::is_babeltrace_text(&text) => ctf::parse_babeltrace_text(path, &text),
        Some('{' | '[') => chrome::read_chrome_trace(path, &text),
        _ if is_scheduler_line(&text) => perf::read_perf_scheduler_text(path, &text),
        _ if perf::is_only_header(&text) => Ok(ImportedTrace::empty_trace("the perf recording has no events")),
        _ => bail!(
            "cannot recognise the format of {}. Pass a recording (a folder), an OTF2 archive (.otf2), Chrome trace JSON, or text from \
             `perf script` or `babeltrace2` with sched_switch events",
            path.display()
        ),
    }
}

/// Returns the number of the code with the given stack of function names. For a call site, `call` is the called function.
pub fn intern_code(names: &mut RecordedCodeNames, path: &[&str], call: Option<&'static str>, file: &str, line: u32) -> CodeId {
    let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
    let id =
        names.codes.intern(CodeStackLocation { path, calls: Vec::new(), file: file.to_owned(), call, call_line: line, taken_path: None });
    if call.is_none() {
        names.codes.add_line_weight(id, line, 1);
    }
    id
}

fn analyse_imported_trace_once(imported: &ImportedTrace, options: AnalysisOptions, is_enabled: bool) -> AnalysedRecording {
    let mut analysis = Analysis::new(options);
    let mut timeline = Timeline { is_enabled, ..Timeline::default() };
    let origin_ns = imported.locations.iter().map(|l| l.begin_ns).min().unwrap_or(0);
    let start = CodeId(0);
    let mut queue: BinaryHeap<Reverse<(u64, bool, usize)>> = BinaryHeap::new();
    let mut cursors: Vec<LocationMergeCursor> = Vec::new();
    for (index, location) in imported.locations.iter().enumerate() {
        let id = LocationId(index as u32);
        analysis.start(id, location.process, location.begin_ns - origin_ns, None, start);
        let mut cursor = LocationMergeCursor { next: 0, time_ns: location.begin_ns, blocks: Vec::new(), open: None };
        cursor.collect_blocks(location, id, origin_ns, &mut timeline);
        queue.push(cursor.sort_key(location, index));
        cursors.push(cursor);
    }
    let mut calls = 0;
    while let Some(Reverse((time_ns, _, index))) = queue.pop() {
        let (location, cursor, id) = (&imported.locations[index], &mut cursors[index], LocationId(index as u32));
        let Some(ImportedEvent { kind, .. }) = location.events.get(cursor.next) else {
            analysis.end(id, cursor.time_ns - origin_ns, &cursor.blocks, start);
            continue;
        };
        calls += u64::from(matches!(kind, EventKind::Enter(..)));
        cursor.apply_event(kind, id, time_ns - origin_ns, &mut analysis, &mut timeline);
        cursor.time_ns = time_ns;
        cursor.next += 1;
        cursor.collect_blocks(location, id, origin_ns, &mut timeline);
        queue.push(cursor.sort_key(location, index));
    }
    AnalysedRecording {
        outcome: analysis.finish(),
        names: RecordedCodeNames::default(),
        locations: imported.locations.iter().map(|l| l.name.clone()).collect(),
        uncovered: BTreeMap::new(),
        notes: imported.notes.clone(),
        timeline,
        calls,
        predictions: Vec::new(),
    }
}

/// The next event of a location, while the events of all locations are merged in chronological order.
struct LocationMergeCursor {
    /// Index of the next event.
    next: usize,
    time_ns: u64,
    /// What the location has executed since its last call.
    blocks: Vec<TimeBlock>,
    /// The entry time in ns and the call site of the current call.
    open: Option<(u64, CodeId)>,
}

impl LocationMergeCursor {
    /// Passes an event to the analysis and the timeline. `now_ns` is the time since the start of the trace.
    fn apply_event(&mut self, kind: &EventKind, id: LocationId, now_ns: u64, analysis: &mut Analysis, timeline: &mut Timeline) {
        match kind {
            EventKind::Enter(call, code) => {
                analysis.enter(id, now_ns, &self.blocks, call, *code);
                self.blocks.clear();
                self.open = Some((now_ns, *code));
            }
            EventKind::Exit(call) => {
                let waits = analysis.exit(id, now_ns, call);
                if let Some((enter_ns, code)) = self.open.take() {
                    timeline.add_call(id, code, (enter_ns, now_ns), &waits);
                }
            }
            EventKind::Run(..) => {}
        }
    }

    /// Consumes events about executed code up to the next call event.
    fn collect_blocks(&mut self, location: &ImportedLocation, id: LocationId, origin_ns: u64, timeline: &mut Timeline) {
        while let Some(ImportedEvent { time_ns, kind: EventKind::Run(code, state) }) = location.events.get(self.next) {
            let ns = time_ns.saturating_sub(self.time_ns);
            self.blocks.push(TimeBlock { code: *code, state: *state, ns });
            let activity = if *state == LocationState::Computing { BarActivity::Computing } else { BarActivity::Communicating };
            timeline.add(TimelineBar { location: id, from_ns: self.time_ns - origin_ns, ns, code: *code, activity });
            self.time_ns = self.time_ns.max(*time_ns);
            self.next += 1;
        }
    }

    /// Returns the sort key of the next call event. After the last event, it is that of the end of the location.
    fn sort_key(&self, location: &ImportedLocation, index: usize) -> Reverse<(u64, bool, usize)> {
        // The times of a location may decrease, which the analysis reports, but they must not be before its start.
        let next =
            location.events.get(self.next).map(|event| (event.time_ns.max(location.begin_ns), matches!(event.kind, EventKind::Exit(_))));
        let (time_ns, is_end) = next.unwrap_or((self.time_ns, true));
        Reverse((time_ns, is_end, index))
    }
}
