//! The last events of each thread of a stopped program, for `trodden show`.
//!
//! The stream file contains a shadow stack, which shows the active frames, and a ring buffer of events, which shows earlier paths. For each
//! frame, the shadow stack has the path up to the frame's last call and the lines of that call. Only a core file shows where the innermost
//! frame was after its last event.

use super::event_names::{EventNames, SourceLine, format_lines};
use super::stopped::{CoreThreads, StopPosition};
use super::unfinished::{UnfinishedPathReport, find_unfinished};
use crate::words::plural;
use crate::{ProfileView, SourceCache, source_files};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trodden_profile::stream::{CallNesting, CallStackDepth, LiveStream, LiveThread, NestingStep};
use trodden_stored::maps::load_maps_for_header;
use trodden_stored::{Folders, streams as kept};
use trodden_wire::stream::Event;

const SCHEMA_VERSION: u32 = 2;
const MAX_SOURCE_LINES: usize = 6;

/// The last events and the active frames of each thread. Serialising this value yields the JSON report.
#[derive(Serialize)]
pub struct LastEventsReport {
    schema_version: u32,
    streams: Vec<StreamReport>,
}

#[derive(Serialize)]
struct StreamReport {
    file: PathBuf,
    image: PathBuf,
    lost_threads: u64,
    threads: Vec<ThreadReport>,
}

#[derive(Serialize)]
struct ThreadReport {
    process: u32,
    thread: u32,
    /// Where the thread stopped; `None` unless a core file contains the thread.
    stopped: Option<StopPosition>,
    /// The path of the innermost frame, up to the instruction at which the thread stopped; `None` if that instruction is in a different
    /// function.
    unfinished: Option<UnfinishedPathReport>,
    /// Frames of calls that had not returned, innermost first.
    frames: Vec<FrameReport>,
    /// The last events, oldest first.
    events: Vec<EventReport>,
    /// True if the thread was running while the file was read. Then its frames may be more recent than its events.
    running: bool,
    /// Number of earlier events that are recorded but not listed.
    known_before: u64,
}

#[derive(Serialize)]
struct FrameReport {
    function: String,
    /// The lines of the frame's path up to its last call; `None` if the frame made no call.
    path: Option<String>,
    /// The lines of the block with the frame's last call. If there was no call, the line of the function's declaration.
    lines: Vec<SourceLine>,
    at_call: bool,
}

#[derive(Serialize)]
struct EventReport {
    depth: usize,
    kind: &'static str,
    function: String,
    path: Option<String>,
}

/// Parameters of [`LastEventsReport::read`].
pub struct LastEventsRequest<'a> {
    /// Stream files, or folders with stream files.
    pub files: &'a [PathBuf],
    /// Maximum number of events per thread; 0 shows all.
    pub paths: usize,
    /// A core file of the process.
    pub core: Option<&'a Path>,
    /// Folders that are searched for moved source files.
    pub source: &'a [PathBuf],
}

impl LastEventsReport {
    /// Reads the last events and active frames from stream files. Fails if no stream files are given, if they cannot be read, or if none of
    /// them belongs to the core file's process.
    pub fn read(request: &LastEventsRequest, folders: &Folders) -> Result<LastEventsReport> {
        let mut streams = Vec::new();
        for path in request.files {
            match path.is_dir() {
                true => streams.extend(kept::list_stream_files_in(path)?),
                false => streams.push(path.clone()),
            }
        }
        let mut report = LastEventsReport { schema_version: SCHEMA_VERSION, streams: Vec::new() };
        let mut core = request.core.map(CoreThreads::read).transpose()?;
        for file in streams {
            let stream = LiveStream::open(&file, false)?;
            if stream.is_truncated()? {
                log::warn!("{} is truncated: the threads and events at its end are missing", file.display());
            }
            report.streams.push(stream_report(&stream, request, core.as_mut(), folders)?);
        }
        check_core(request, core.as_ref(), &report)?;
        core.iter().flat_map(CoreThreads::missing_files).for_each(|error| log::warn!("{error}"));
        Ok(report)
    }

    /// Renders the report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for stream in &self.streams {
            let _ = writeln!(out, "{} ({})", stream.image.display(), stream.file.display());
            if stream.lost_threads > 0 {
                let _ =
                    writeln!(out, "  {} could not be recorded: the file was full", plural(stream.lost_threads.into(), "thread", "threads"));
            }
            for thread in &stream.threads {
                write_thread(thread, &mut out);
            }
        }
        out
    }
}

/// Fails if a core file was given that belongs to none of the recorded processes.
fn check_core(request: &LastEventsRequest, core: Option<&CoreThreads>, report: &LastEventsReport) -> Result<()> {
    let (Some(core), Some(file)) = (core, request.core) else { return Ok(()) };
    let recorded = report.streams.iter().flat_map(|s| &s.threads).any(|t| t.stopped.is_some());
    let threads: Vec<String> = core.threads().map(|t| t.to_string()).collect();
    ensure!(
        recorded,
        "the stream files contain none of the threads in core file {} ({}). Pass the stream files of the same process",
        file.display(),
        threads.join(", ")
    );
    Ok(())
}

fn stream_report(
    stream: &LiveStream,
    request: &LastEventsRequest,
    mut core: Option<&mut CoreThreads>,
    folders: &Folders,
) -> Result<StreamReport> {
    let maps = load_maps_for_header(stream.header(), folders)?;
    let view = ProfileView::from_profile(&maps.events);
    let provider = source_files::sources(request.source, &folders.current_text());
    let sources = SourceCache::new(&provider);
    let event_names = EventNames::new(stream.header(), &maps, &view, &sources);
    let mut report_thread = |thread: &LiveThread| {
        let stopped = core.as_mut().and_then(|core| core.find_stop_position(thread.key.thread, &sources));
        let unfinished = stopped.as_ref().and_then(|stopped| find_unfinished(thread, &event_names, stopped));
        ThreadReport { stopped, unfinished, ..thread_report(thread, &event_names, request.paths) }
    };
    let threads = stream.threads()?.iter().map(&mut report_thread).collect();
    let (file, image) = (stream.path().to_owned(), stream.header().image_path.clone());
    Ok(StreamReport { file, image, lost_threads: stream.lost_threads()?.threads(), threads })
}

fn thread_report(thread: &LiveThread, event_names: &EventNames, limit: usize) -> ThreadReport {
    let frames = thread.frames.iter().rev().filter_map(|slot| frame_report(*slot, event_names)).collect();
    let mut depth = CallStackDepth { is_known: thread.earlier == 0, ..CallStackDepth::default() };
    let mut nesting = CallNesting::new(&event_names.places);
    let mut events = Vec::new();
    for symbol in thread.events.iter().filter_map(|event| depth.next_symbol(*event)) {
        let step = nesting.feed_symbol(symbol);
        events.extend(event_report(step, nesting.frames().len(), event_names));
    }
    let shown = if limit == 0 { events.len() } else { limit.min(events.len()) };
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

/// Describes the active frame in a slot of the shadow stack. Returns `None` if the frame's unit has no map.
fn frame_report(slot: Event, event_names: &EventNames) -> Option<FrameReport> {
    match slot {
        Event::Path(counter) | Event::Exit(counter) => {
            let (function, _) = event_names.places.path(counter)?;
            let path = event_names.listing(counter).map(|listing| listing.outline(usize::MAX));
            Some(FrameReport {
                function: event_names.function_name(function),
                path,
                lines: event_names.lines_at_path_end(counter),
                at_call: true,
            })
        }
        Event::Enter(counter) | Event::Inherited(counter) => {
            let (function, _) = event_names.places.path(counter)?;
            let lines = event_names.declaration(function).into_iter().collect();
            Some(FrameReport { function: event_names.function_name(function), path: None, lines, at_call: false })
        }
        Event::Resume(_) => None,
    }
}

fn event_report(step: NestingStep, depth: usize, event_names: &EventNames) -> Option<EventReport> {
    match step {
        NestingStep::Entered(frame) => Some(EventReport {
            depth: depth.saturating_sub(1),
            kind: "enter",
            function: event_names.function_name(frame.function),
            path: None,
        }),
        NestingStep::Path { counter, role, depth } => {
            let (function, _) = event_names.places.path(counter)?;
            Some(EventReport {
                depth: depth - 1,
                kind: event_names.role_name(role),
                function: event_names.function_name(function),
                path: Some(event_names.describe_path(counter)),
            })
        }
        NestingStep::Unwound(0) | NestingStep::Unknown => None,
        NestingStep::Unwound(frames) => {
            let function = plural(frames as u128, "frame", "frames");
            Some(EventReport { depth: depth.saturating_sub(1), kind: "unwound", function, path: None })
        }
    }
}

fn write_thread(thread: &ThreadReport, out: &mut String) {
    let frames = plural(thread.frames.len() as u128, "live frame", "live frames");
    let _ = writeln!(out, "\nthread {} of process {}: {frames}", thread.thread, thread.process);
    if let Some(stopped) = &thread.stopped {
        write_stop_position(stopped, out);
    }
    if let Some(UnfinishedPathReport { function, path, paths }) = &thread.unfinished {
        let _ = match paths {
            1 => writeln!(out, "  on the path {path} of {function}"),
            _ => writeln!(out, "  on one of {paths} paths of {function}, all through {path}"),
        };
    }
    if thread.running {
        let _ = writeln!(out, "  still running: its frames are more recent than its events");
    }
    for (number, frame) in thread.frames.iter().enumerate() {
        let at = format_lines(&frame.lines).map_or(String::new(), |place| format!("  {place}"));
        let _ = match (&frame.path, frame.at_call) {
            (Some(path), _) => writeln!(out, "  #{number} {}{at}  at its last call, on the path {path}", frame.function),
            (None, true) => writeln!(out, "  #{number} {}{at}  at its last call", frame.function),
            (None, false) => writeln!(out, "  #{number} {}{at}  declared here; has made no call", frame.function),
        };
        let skipped = frame.lines.len().saturating_sub(MAX_SOURCE_LINES);
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

fn write_stop_position(stopped: &StopPosition, out: &mut String) {
    let function = stopped.function.as_deref().unwrap_or("code without a name");
    let image = stopped.image.as_ref().and_then(|i| i.file_name()).map_or(String::new(), |name| format!(" of {}", name.to_string_lossy()));
    let _ = writeln!(out, "  stopped in {function}{image}, instruction 0x{:x}", stopped.address);
    for line in &stopped.lines {
        let at = format_lines(std::slice::from_ref(line)).unwrap_or_default();
        let text = line.text.as_deref().map_or(String::new(), |text| format!(" | {}", text.trim_end()));
        let _ = writeln!(out, "       {at}{text}");
    }
}
