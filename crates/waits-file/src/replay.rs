//! Passes a recording to the analysis: merges the calls of all threads in chronological order.
//!
//! Calls are read when they are needed. Only the samples, the state of the analysis, and a few calls of each thread are in memory.

use crate::blocks::{RecordedCodeNames, ThreadBlocks, is_supplementary_record};
use crate::clock::{ProcessClock, derive_clocks};
use crate::convert::{CallRecordConverter, SupplementaryRecords};
use crate::recording::{Process, RecordedCalls, ThreadRecording, WaitsRecording};
use crate::sample_paths::SamplePaths;
use crate::sync::correct_clocks;
use crate::timeline::{BarActivity, Timeline, TimelineBar};
use anyhow::Result;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use trodden_text::words::plural;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::call::SleepKind;
use trodden_waits::{Analysis, AnalysisOptions, Call, CodeId, LocationId, LocationState, PathDistanceRule, ProcessId, WaitOutcome};
use trodden_wire::waits::{CallRecord, FUNCTIONS, NO_STACK, kind};

/// A recording, or a trace from another tool, with the result of its analysis.
pub struct AnalysedRecording {
    /// What the analysis found.
    pub outcome: WaitOutcome,
    /// Codes and their names.
    pub names: RecordedCodeNames,
    /// The process and thread of each location, by the location's number.
    pub locations: Vec<NamedLocation>,
    /// MPI functions whose waits the analysis does not explain, each with the number of its calls and their total time in ns.
    pub uncovered: BTreeMap<&'static str, (u64, u64)>,
    /// Notes for the user about missing or estimated data.
    pub notes: Vec<String>,
    /// The activity of each location over time; empty unless requested.
    pub timeline: Timeline,
    /// Total number of calls.
    pub calls: u64,
    /// Predictions of the run time if a function were faster: the function, the reduction of its time in percent, and the predicted run
    /// time in ns.
    pub predictions: Vec<(String, f64, u64)>,
}

/// A location (a thread of a process), and the processor time that it used.
#[derive(Clone, Debug, Default)]
pub struct NamedLocation {
    /// MPI rank of the process, or the index of the process in the recording.
    pub process: u32,
    /// Whether `process` is an MPI rank.
    pub is_rank: bool,
    /// Index of the thread in its process, from 0.
    pub thread: u32,
    /// Wall-clock time in ns of those computations between two calls for which processor time was recorded.
    pub computing_ns: u64,
    /// Processor time in ns of the same computations.
    pub processor_ns: u64,
    /// Name of the location in a trace from another tool; `None` for a recording.
    pub label: Option<String>,
}

/// Maximum number of items that a message lists.
const MAX_LISTED_ITEMS: usize = 12;

/// What a report contains, and how its waits are classified.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Two waits at the same call site count as equivalent if the distance of their paths is less than this; between 0 and 2.
    pub threshold: f64,
    /// Which code is taken into account for the distance of two paths.
    pub rule: PathDistanceRule,
    /// Functions for which to predict the effect of a speed-up, each with the reduction of its time in percent.
    pub what_if: Vec<(String, f64)>,
    /// Whether to collect the activity of each location over time.
    pub has_timeline: bool,
    /// Whether to keep the expressions of all waits, which contain the steps on the paths of both locations.
    pub has_expressions: bool,
}

impl Default for ReportOptions {
    fn default() -> Self {
        let AnalysisOptions { threshold, rule, .. } = AnalysisOptions::default();
        ReportOptions { threshold, rule, what_if: Vec::new(), has_timeline: false, has_expressions: false }
    }
}

/// Analyses a recording. Reads it once more for each prediction.
///
/// # Errors
/// A file cannot be read, a function for which a prediction is requested is not in the recording, or `paths` belongs to another run, so
/// that it has no path for any sample.
pub fn replay(
    recording: &WaitsRecording,
    report_options: &ReportOptions,
    paths: Option<Box<dyn SamplePaths>>,
) -> Result<AnalysedRecording> {
    let options = analysis_options(report_options, None);
    let mut names = RecordedCodeNames { paths, ..RecordedCodeNames::default() };
    let mut replayed = analyse_recording_once(recording, options.clone(), &mut names, report_options.has_timeline)?;
    for (function, percent) in &report_options.what_if {
        let codes: HashSet<CodeId> = names.codes.iter().filter(|(_, code)| code.path.contains(function)).map(|(id, _)| id).collect();
        if codes.is_empty() {
            let known: BTreeSet<&str> = names.codes.iter().flat_map(|(_, code)| &code.path).map(String::as_str).collect();
            let known: Vec<&str> = known.into_iter().take(MAX_LISTED_ITEMS).collect();
            anyhow::bail!(
                "--what-if cannot be applied to function {function}, because time was recorded only in {}. The time of calls such as \
                 `usleep` or `MPI_Send` belongs to their callers; name a caller",
                known.join(", ")
            );
        }
        let question = AnalysisOptions { what_if: Some((codes, 1.0 - percent / 100.0)), ..options.clone() };
        let answer = analyse_recording_once(recording, question, &mut names, false)?.outcome;
        replayed.predictions.push((function.clone(), *percent, answer.what_if_ns));
    }
    if let Some(paths) = &names.paths {
        if paths.is_unused() {
            anyhow::bail!(
                "these streams contain no sample of the recording. Build the program with --stream, do not strip it, and record with \
                 sampling enabled: `trodden record --whole-program -- trodden waits record -- PROGRAM`"
            );
        }
        replayed.notes.extend(paths.notes().iter().cloned());
    }
    replayed.names = names;
    Ok(replayed)
}

/// Converts the options of a report to those of the analysis. `what_if` contains the codes whose time is to be reduced, and the factor.
pub fn analysis_options(report_options: &ReportOptions, what_if: Option<(HashSet<CodeId>, f64)>) -> AnalysisOptions {
    AnalysisOptions {
        threshold: report_options.threshold,
        rule: report_options.rule,
        other_thresholds: vec![report_options.threshold / 2.0, (report_options.threshold * 2.0).min(2.0)],
        has_expressions: report_options.has_expressions && what_if.is_none(),
        what_if,
    }
}

fn analyse_recording_once(
    recording: &WaitsRecording,
    options: AnalysisOptions,
    names: &mut RecordedCodeNames,
    is_enabled: bool,
) -> Result<AnalysedRecording> {
    let mut clocks = derive_clocks(recording);
    correct_clocks(recording, &mut clocks)?;
    let mut replay = RecordingReplay {
        recording,
        analysis: Analysis::new(options),
        converter: CallRecordConverter::new(recording),
        names,
        uncovered: BTreeMap::new(),
        timeline: Timeline { is_enabled, ..Timeline::default() },
        calls: 0,
    };
    let mut streams = Vec::new();
    for (index, (process, clock)) in recording.processes.iter().zip(&clocks.clocks).enumerate() {
        for (number, thread) in process.threads.iter().enumerate() {
            let (location, id, number) = (LocationId(streams.len() as u32), ProcessId(index as u32), number as u32);
            streams.push(ThreadCallStream::open(location, id, number, process, thread, clock.clone(), replay.names)?);
        }
    }
    replay.replay_streams(&mut streams);
    let mut notes = clocks.notes;
    notes.extend(recording.losses.iter().take(MAX_LISTED_ITEMS).cloned());
    if recording.losses.len() > MAX_LISTED_ITEMS {
        let more = (recording.losses.len() - MAX_LISTED_ITEMS) as u128;
        notes.push(format!("and {}", plural(more, "more corrupt part of the recording", "more corrupt parts of the recording")));
    }
    let incomplete = streams.iter().filter(|stream| stream.calls.is_incomplete()).count();
    if incomplete > 0 {
        let threads = plural(incomplete as u128, "thread", "threads");
        notes.push(format!("the calls of {threads} are corrupt from some point on and are left out from there"));
    }
    notes.extend(replay.notes());
    let locations = streams.into_iter().map(|stream| stream.name).collect();
    Ok(AnalysedRecording {
        outcome: replay.analysis.finish(),
        names: RecordedCodeNames::default(),
        locations,
        uncovered: replay.uncovered,
        notes,
        timeline: replay.timeline,
        calls: replay.calls,
        predictions: Vec::new(),
    })
}

struct ThreadCallStream<'a> {
    location: LocationId,
    process: ProcessId,
    thread: &'a ThreadRecording,
    clock: ProcessClock,
    calls: RecordedCalls,
    /// Index of the next record.
    index: u32,
    /// Number of the records that followed the current call and were consumed with it.
    parts: u32,
    blocks: ThreadBlocks,
    /// Number of the call stack of the previous call.
    previous_stack: u32,
    site: CodeId,
    time_ns: u64,
    next: Option<NextCallEvent>,
    name: NamedLocation,
    /// At the last point at which processor time was recorded: the time, and the thread's processor time, both in ns.
    processor: Option<(u64, u64)>,
    /// Time in ns before the next call for which the thread was ready to run but had no processor.
    ready_ns: u64,
}

enum NextCallEvent {
    Start,
    Enter(CallRecord, Call),
    Exit(CallRecord, Call),
}

impl<'a> ThreadCallStream<'a> {
    fn open(
        location: LocationId,
        id: ProcessId,
        number: u32,
        process: &Process,
        thread: &'a ThreadRecording,
        clock: ProcessClock,
        names: &mut RecordedCodeNames,
    ) -> Result<ThreadCallStream<'a>> {
        let rank = process.file.mpi.as_ref().map(|mpi| mpi.rank);
        let time_ns = clock.time_ns(thread.begin);
        let (process_number, is_rank) = (rank.unwrap_or(id.0), rank.is_some());
        let name = NamedLocation { process: process_number, is_rank, thread: number, ..NamedLocation::default() };
        Ok(ThreadCallStream {
            location,
            process: id,
            thread,
            clock,
            calls: thread.calls(),
            index: 0,
            parts: 0,
            blocks: ThreadBlocks::read(thread, &process.file, names)?,
            previous_stack: NO_STACK,
            site: CodeId(0),
            time_ns,
            next: Some(NextCallEvent::Start),
            name,
            processor: None,
            ready_ns: 0,
        })
    }

    /// Returns the time of the next event in ns; `None` after the last event.
    fn next_event_ns(&self) -> Option<u64> {
        Some(match self.next.as_ref()? {
            NextCallEvent::Start => self.clock.time_ns(self.thread.begin),
            NextCallEvent::Enter(record, _) => self.clock.time_ns(record.enter),
            NextCallEvent::Exit(record, _) => self.clock.time_ns(record.exit),
        })
    }

    /// Updates the time and processor time spent in computations, if `record` contains the thread's processor time. `is_enter` is true
    /// before a call, at the end of a computation.
    fn add_processor_time(&mut self, record: &CallRecord, at_ns: u64, is_enter: bool) {
        if record.cpu_ns == 0 {
            return;
        }
        if let Some((time_ns, cpu_ns)) = self.processor.filter(|_| is_enter) {
            self.name.computing_ns += at_ns.saturating_sub(time_ns);
            self.name.processor_ns += record.cpu_ns.saturating_sub(cpu_ns);
        }
        self.processor = Some((at_ns, record.cpu_ns));
    }
}

struct RecordingReplay<'a, 'n> {
    recording: &'a WaitsRecording,
    analysis: Analysis,
    converter: CallRecordConverter,
    names: &'n mut RecordedCodeNames,
    uncovered: BTreeMap<&'static str, (u64, u64)>,
    timeline: Timeline,
    calls: u64,
}

impl RecordingReplay<'_, '_> {
    fn replay_streams(&mut self, streams: &mut [ThreadCallStream]) {
        let mut queue: BinaryHeap<Reverse<(u64, bool, usize)>> = BinaryHeap::new();
        let key = |stream: &ThreadCallStream, index: usize| {
            // At the same time, calls are entered before others are left, because a call may end because of the entry of another one.
            stream.next_event_ns().map(|ns| Reverse((ns, matches!(stream.next, Some(NextCallEvent::Exit(..))), index)))
        };
        queue.extend(streams.iter().enumerate().filter_map(|(index, stream)| key(stream, index)));
        while let Some(Reverse((time_ns, _, index))) = queue.pop() {
            let stream = &mut streams[index];
            self.replay_event(stream, time_ns);
            queue.extend(key(stream, index));
        }
    }

    /// Passes a thread's next event to the analysis, and determines the one after it.
    fn replay_event(&mut self, stream: &mut ThreadCallStream, time_ns: u64) {
        let process = &self.recording.processes[stream.process.0 as usize];
        match stream.next.take() {
            Some(NextCallEvent::Start) => {
                let creator = self.converter.find_creator(process, stream.process, stream.thread.token);
                let code = self.names.codes.intern_named_pseudo_code("(start)");
                self.analysis.start(stream.location, stream.process, time_ns, creator, code);
                stream.next = self.next_call(stream, process);
            }
            Some(NextCallEvent::Enter(record, call)) => {
                self.enter_call(stream, process, time_ns, &record, &call);
                stream.next = if record.exit == 0 { None } else { Some(NextCallEvent::Exit(record, call)) };
            }
            Some(NextCallEvent::Exit(record, call)) => {
                self.exit_call(stream, time_ns, &record, &call);
                stream.next = self.next_call(stream, process);
            }
            None => {}
        }
    }

    fn next_call(&mut self, stream: &mut ThreadCallStream, process: &Process) -> Option<NextCallEvent> {
        loop {
            let record = stream.calls.next()?;
            if is_supplementary_record(record.kind) {
                if record.kind == kind::CPU_AT_ENTER {
                    let at_ns = stream.clock.time_ns(record.enter);
                    stream.add_processor_time(&record, at_ns, true);
                    stream.ready_ns = record.object;
                }
                stream.index += 1;
                continue;
            }
            self.calls += 1;
            let mut parts = SupplementaryRecords::collect(&self.converter, process, stream.process, &record, &mut stream.calls);
            let call = self.converter.convert_call(process, stream.process, stream.thread.token, &record, &mut parts);
            stream.parts = parts.count;
            return Some(NextCallEvent::Enter(record, call));
        }
    }

    fn enter_call(&mut self, stream: &mut ThreadCallStream, process: &Process, time_ns: u64, record: &CallRecord, call: &Call) {
        let ns = time_ns.saturating_sub(stream.time_ns);
        let ready_ns = std::mem::take(&mut stream.ready_ns).min(ns);
        let between = (stream.previous_stack, record.stack);
        let mut blocks = stream.blocks.divide_block(self.names, &process.file, stream.index, between, ns - ready_ns);
        if let Some(TimeBlock { code, .. }) = blocks.iter().max_by_key(|block| block.ns).copied().filter(|_| ready_ns > 0) {
            blocks.insert(0, TimeBlock { code, state: LocationState::Ready, ns: ready_ns });
        }
        let mut from_ns = stream.time_ns;
        for block in &blocks {
            let (location, code, ns) = (stream.location, block.code, block.ns);
            self.timeline.add(TimelineBar { location, from_ns, ns, code, activity: BarActivity::Computing });
            from_ns += ns;
        }
        let name = FUNCTIONS.get(record.function as usize).copied().unwrap_or("(unknown function)");
        let site = stream.blocks.call_site(self.names, &process.file, record.stack, record.function, name);
        // A wait for a condition variable releases the mutex before it sleeps.
        if let Call::Sleep(_, SleepKind::Condition(Some(mutex)), _) = call {
            self.add_instant_call(stream, time_ns, &blocks, &Call::Unlock(*mutex), site);
            self.analysis.enter(stream.location, time_ns, &[], call, site);
        } else {
            self.analysis.enter(stream.location, time_ns, &blocks, call, site);
        }
        stream.index += 1 + std::mem::take(&mut stream.parts);
        stream.previous_stack = record.stack;
        stream.site = site;
    }

    fn add_instant_call(&mut self, stream: &ThreadCallStream, time_ns: u64, blocks: &[TimeBlock], call: &Call, site: CodeId) {
        self.analysis.enter(stream.location, time_ns, blocks, call, site);
        self.analysis.exit(stream.location, time_ns, call);
    }

    fn exit_call(&mut self, stream: &mut ThreadCallStream, time_ns: u64, record: &CallRecord, call: &Call) {
        let waits = self.analysis.exit(stream.location, time_ns, call);
        let enter_ns = stream.clock.time_ns(record.enter);
        self.timeline.add_call(stream.location, stream.site, (enter_ns, time_ns), &waits);
        stream.add_processor_time(record, time_ns, false);
        stream.time_ns = time_ns;
        let is_local = matches!(FUNCTIONS.get(record.function as usize), Some(&"MPI_Comm_free" | &"MPI_Comm_disconnect"));
        if record.kind == kind::MPI_OTHER
            && !is_local
            && let Some(name) = FUNCTIONS.get(record.function as usize)
        {
            let uncovered = self.uncovered.entry(name).or_default();
            uncovered.0 += 1;
            uncovered.1 += time_ns.saturating_sub(enter_ns);
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for (missing, size) in self.converter.missing_ranks() {
            let note = match missing {
                1 => format!("1 of {size} ranks is not in the recording: waits for it are not explained"),
                _ => format!("{missing} of {size} ranks are not in the recording: waits for them are not explained"),
            };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        for process in &self.recording.processes {
            notes.extend(process.file.notes.iter().filter(|note| !notes.contains(note)).cloned().collect::<Vec<_>>());
        }
        notes
    }
}
