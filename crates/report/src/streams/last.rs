//! What each thread did before the end (`trodden show`).
//!
//! Frames come from the shadow stack in the stream file: for each, the path up to its last call, and the lines of that
//! call. The paths before come from the ring of events. Of the innermost frame nothing is known behind its last event:
//! where in the code it was, a core file says.

use super::event_names::{EventNames, SourceLine, place};
use super::stopped::{Core, Stopped};
use super::unfinished::{Unfinished, unfinished};
use crate::words::plural;
use crate::{SourceCache, View, source_files};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trodden_profile::stream::{Depth, LiveStream, LiveThread, Nesting, NestingStep};
use trodden_stored::maps::maps;
use trodden_stored::{Folders, streams as kept};
use trodden_wire::stream::Event;

const SCHEMA_VERSION: u32 = 2;
/// Most source lines of a frame's block.
const SOURCE_LINES: usize = 6;

/// What the threads of programs did before the end. It can be serialised as it is.
#[derive(Serialize)]
pub struct LastReport {
    schema_version: u32,
    streams: Vec<StreamReport>,
}

#[derive(Serialize)]
struct StreamReport {
    file: PathBuf,
    image: PathBuf,
    /// Threads that could not write.
    lost_threads: u64,
    threads: Vec<ThreadReport>,
}

#[derive(Serialize)]
struct ThreadReport {
    process: u32,
    thread: u32,
    /// Where it was, if a core file says so.
    stopped: Option<Stopped>,
    /// The innermost frame's path to there, if it stopped in that frame's function.
    unfinished: Option<Unfinished>,
    /// Live frames, innermost first.
    frames: Vec<FrameReport>,
    /// The last events, oldest first.
    events: Vec<EventReport>,
    /// It went on meanwhile: the frames are of a later moment than the events.
    running: bool,
    /// Events before those that are still known.
    known_before: u64,
}

#[derive(Serialize)]
struct FrameReport {
    function: String,
    /// The path up to the last call, as lines; none if it made no call.
    path: Option<String>,
    /// The lines of the block of that call; of the function's beginning if it made none.
    lines: Vec<SourceLine>,
    /// Whether it made a call.
    at_call: bool,
}

#[derive(Serialize)]
struct EventReport {
    depth: usize,
    kind: &'static str,
    function: String,
    path: Option<String>,
}

/// What is asked of ends.
pub struct LastQuestion<'a> {
    /// Stream files, or folders of them.
    pub files: &'a [PathBuf],
    /// At most this many paths and calls of each thread; 0 for all.
    pub paths: usize,
    /// The core file of the process.
    pub core: Option<&'a Path>,
    /// Where source files are, if they have moved.
    pub source: &'a [PathBuf],
}

impl LastReport {
    /// Reads the end of runs.
    ///
    /// # Errors
    /// There are no stream files, or they cannot be read.
    pub fn read(job: &LastQuestion, folders: &Folders) -> Result<LastReport> {
        let mut streams = Vec::new();
        for path in job.files {
            match path.is_dir() {
                true => streams.extend(kept::streams_in(path)?),
                false => streams.push(path.clone()),
            }
        }
        let mut report = LastReport { schema_version: SCHEMA_VERSION, streams: Vec::new() };
        let mut core = job.core.map(Core::read).transpose()?;
        for file in streams {
            let stream = LiveStream::open(&file, false)?;
            if stream.is_cut()? {
                log::warn!("{} is cut: threads and events that were in the rest are missing", file.display());
            }
            report.streams.push(of_file(&stream, job, core.as_mut(), folders)?);
        }
        check_core(job, core.as_ref(), &report)?;
        Ok(report)
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for stream in &self.streams {
            let _ = writeln!(out, "{} ({})", stream.image.display(), stream.file.display());
            if stream.lost_threads > 0 {
                let _ =
                    writeln!(out, "  {} could not be recorded: there was no room", plural(stream.lost_threads.into(), "thread", "threads"));
            }
            for thread in &stream.threads {
                thread_text(thread, &mut out);
            }
        }
        out
    }
}

/// A core file must be of one of the processes.
fn check_core(job: &LastQuestion, core: Option<&Core>, report: &LastReport) -> Result<()> {
    let (Some(core), Some(file)) = (core, job.core) else { return Ok(()) };
    let recorded = report.streams.iter().flat_map(|s| &s.threads).any(|t| t.stopped.is_some());
    let threads: Vec<String> = core.threads().map(|t| t.to_string()).collect();
    ensure!(
        recorded,
        "{}: none of its threads ({}) has a stream here: name the stream files of the process that it is of",
        file.display(),
        threads.join(", ")
    );
    Ok(())
}

fn of_file(stream: &LiveStream, job: &LastQuestion, mut core: Option<&mut Core>, folders: &Folders) -> Result<StreamReport> {
    let maps = maps(stream.head(), folders)?;
    let view = View::from_profile(&maps.events);
    let provider = source_files::sources(job.source, &folders.current_text());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(stream.head(), &maps, &view, &sources);
    // A thread whose frames are all left has ended, or waits in code that is not instrumented.
    let mut of = |thread: &LiveThread| {
        let stopped = core.as_mut().and_then(|core| core.stopped(thread.key.thread, &sources));
        let unfinished = stopped.as_ref().and_then(|stopped| unfinished(thread, &event_names, stopped));
        ThreadReport { stopped, unfinished, ..of_thread(thread, &event_names, job.paths) }
    };
    let threads = stream.threads()?.iter().map(&mut of).collect();
    let (file, image) = (stream.path().to_owned(), stream.head().image_path.clone());
    Ok(StreamReport { file, image, lost_threads: stream.lost_threads()?.threads(), threads })
}

fn of_thread(thread: &LiveThread, event_names: &EventNames, most: usize) -> ThreadReport {
    let frames = thread.frames.iter().rev().filter_map(|slot| of_frame(*slot, event_names)).collect();
    let mut depth = Depth { is_known: thread.earlier == 0, ..Depth::default() };
    let mut nesting = Nesting::new(&event_names.places);
    let mut events = Vec::new();
    for symbol in thread.events.iter().filter_map(|event| depth.symbol(*event)) {
        let step = nesting.feed(symbol);
        events.extend(of_step(step, nesting.frames().len(), event_names));
    }
    let shown = if most == 0 { events.len() } else { most.min(events.len()) };
    let known_before = (events.len() - shown) as u64;
    let events = events.split_off(events.len() - shown);
    ThreadReport {
        process: thread.key.process,
        thread: thread.key.thread,
        stopped: None,
        unfinished: None,
        frames,
        events,
        running: thread.is_running,
        known_before,
    }
}

/// A live frame by what its slot holds.
fn of_frame(slot: Event, event_names: &EventNames) -> Option<FrameReport> {
    match slot {
        Event::Path(counter) | Event::Exit(counter) => {
            let (function, _) = event_names.places.path(counter)?;
            let path = event_names.listing(counter).map(|listing| listing.outline(usize::MAX));
            Some(FrameReport { function: event_names.name(function), path, lines: event_names.lines_of_end(counter), at_call: true })
        }
        Event::Enter(counter) | Event::Inherited(counter) => {
            let (function, _) = event_names.places.path(counter)?;
            let lines = event_names.declared(function).into_iter().collect();
            Some(FrameReport { function: event_names.name(function), path: None, lines, at_call: false })
        }
        Event::Resume(_) => None,
    }
}

fn of_step(step: NestingStep, depth: usize, event_names: &EventNames) -> Option<EventReport> {
    match step {
        NestingStep::Entered(frame) => {
            Some(EventReport { depth: depth.saturating_sub(1), kind: "enter", function: event_names.name(frame.function), path: None })
        }
        NestingStep::Path { counter, role, depth } => {
            let (function, _) = event_names.places.path(counter)?;
            Some(EventReport {
                depth: depth - 1,
                kind: event_names.role(role),
                function: event_names.name(function),
                path: Some(event_names.path(counter)),
            })
        }
        NestingStep::Unwound(0) | NestingStep::Unknown => None,
        NestingStep::Unwound(frames) => {
            let function = plural(frames as u128, "frame", "frames");
            Some(EventReport { depth: depth.saturating_sub(1), kind: "unwound", function, path: None })
        }
    }
}

fn thread_text(thread: &ThreadReport, out: &mut String) {
    let frames = plural(thread.frames.len() as u128, "live frame", "live frames");
    let _ = writeln!(out, "\nthread {} of process {}: {frames}", thread.thread, thread.process);
    if let Some(stopped) = &thread.stopped {
        stopped_text(stopped, out);
    }
    if let Some(Unfinished { function, path, paths }) = &thread.unfinished {
        let _ = match paths {
            1 => writeln!(out, "  by the path {path} of {function}"),
            _ => writeln!(out, "  by one of {paths} paths of {function}; all run through {path}"),
        };
    }
    if thread.running {
        let _ = writeln!(out, "  it is running: its frames are of a later moment than its events");
    }
    for (number, frame) in thread.frames.iter().enumerate() {
        let at = place(&frame.lines).map_or(String::new(), |place| format!("  {place}"));
        let _ = match (&frame.path, frame.at_call) {
            (Some(path), _) => writeln!(out, "  #{number} {}{at}  at its last call, by the path {path}", frame.function),
            (None, true) => writeln!(out, "  #{number} {}{at}  at its last call", frame.function),
            (None, false) => writeln!(out, "  #{number} {}{at}  begins here; has made no call", frame.function),
        };
        let skipped = frame.lines.len().saturating_sub(SOURCE_LINES);
        for line in &frame.lines[skipped..] {
            if let Some(text) = &line.text {
                let _ = writeln!(out, "       {:>5} | {}", line.line, text.trim_end());
            }
        }
    }
    if thread.events.is_empty() {
        return;
    }
    let before = match thread.known_before {
        0 => String::new(),
        n => format!(" ({} before; --count 0 shows all)", plural(n.into(), "more event", "more events")),
    };
    let _ = writeln!(out, "  last events, newest last{before}:");
    for event in &thread.events {
        let indent = 2 * event.depth.min(20);
        let path = event.path.as_ref().map_or(String::new(), |path| format!("  {path}"));
        let _ = writeln!(out, "    {:indent$}{:<7} {}{path}", "", event.kind, event.function);
    }
}

fn stopped_text(stopped: &Stopped, out: &mut String) {
    let function = stopped.function.as_deref().unwrap_or("code without a name");
    let image = stopped.image.as_ref().and_then(|i| i.file_name()).map_or(String::new(), |name| format!(" of {}", name.to_string_lossy()));
    let _ = writeln!(out, "  stopped in {function}{image}, instruction 0x{:x}", stopped.address);
    for line in &stopped.lines {
        let at = place(std::slice::from_ref(line)).unwrap_or_default();
        let text = line.text.as_deref().map_or(String::new(), |text| format!(" | {}", text.trim_end()));
        let _ = writeln!(out, "       {at}{text}");
    }
}
