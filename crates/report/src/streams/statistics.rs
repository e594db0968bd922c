//! Statistics of recorded streams for `trodden info RUN`, computed from the streams' grammars without expanding them.
//!
//! Complexity for each window: O(items), times the number of frames that a grammar rule opens or closes.

use crate::words::{count, plural};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use trodden_profile::stream::{CounterLookup, FunctionIndex, PathRole, StreamLog, StreamSymbol, ThreadLog};
use trodden_stored::maps::load_maps;
use trodden_stored::{Folders, streams as kept};

const SCHEMA_VERSION: u32 = 1;

/// Statistics of streams. Serialising them yields the JSON report.
#[derive(Serialize)]
pub struct StreamStatistics {
    schema_version: u32,
    logs: Vec<LogReport>,
}

#[derive(Serialize)]
struct LogReport {
    file: PathBuf,
    image: PathBuf,
    bytes: u64,
    is_cut: bool,
    threads: Vec<ThreadStatistics>,
}

#[derive(Default, Serialize)]
struct ThreadStatistics {
    process: u32,
    thread: u32,
    parent: Option<u32>,
    events: u64,
    lost: u64,
    /// Number of entered frames.
    calls: u64,
    paths: u64,
    /// Number of times the program reached a call that may not return.
    arrivals: u64,
    unwound: u64,
    deepest: u64,
    /// Number of paths that left the frame of a different function than the innermost one, usually because the program switched stacks.
    mismatched: u64,
    /// Number of windows. A stream is compressed window by window, each to its own grammar.
    windows: usize,
    items: usize,
    bytes: u64,
}

impl StreamStatistics {
    /// Reads the streams of a run or a folder. Fails if there are none.
    pub fn read(run: &str, folders: &Folders) -> Result<StreamStatistics> {
        StreamStatistics::of_logs(&kept::find_logs(run)?, folders)
    }

    /// Reads the streams in the given logs.
    pub fn of_logs(logs: &[PathBuf], folders: &Folders) -> Result<StreamStatistics> {
        let mut report = StreamStatistics { schema_version: SCHEMA_VERSION, logs: Vec::new() };
        for file in logs {
            let log = kept::open_log(file)?;
            let maps = load_maps(&log, folders)?;
            let places = CounterLookup::new(log.header(), maps.image());
            let threads = log.threads().iter().map(|t| thread_report(&log, t, &places)).collect::<Result<_>>()?;
            let bytes = std::fs::metadata(file)?.len();
            report.logs.push(LogReport {
                image: log.header().image_path.clone(),
                bytes,
                is_cut: log.is_truncated(),
                threads,
                file: file.clone(),
            });
        }
        Ok(report)
    }

    /// Renders the statistics as text.
    pub fn text(&self) -> String {
        render_statistics(self)
    }
}

fn thread_report(log: &StreamLog, thread: &ThreadLog, places: &CounterLookup) -> Result<ThreadStatistics> {
    let (process, number) = (thread.key.process, thread.key.thread);
    let mut report = ThreadStatistics {
        process,
        thread: number,
        parent: thread.parent,
        events: thread.events,
        lost: thread.lost,
        ..ThreadStatistics::default()
    };
    let mut frames = StackEffect::default();
    for window in 0..thread.window_count() {
        let grammar = log.window(thread, window)?;
        report.items += grammar.statistics().items;
        for (symbol, times) in grammar.terminals().iter().zip(grammar.terminal_counts()) {
            match StreamSymbol::from_number(*symbol) {
                Some(StreamSymbol::Enter(_)) => report.calls += times,
                Some(StreamSymbol::Path(counter) | StreamSymbol::Exit(counter)) => match places.path_role(counter) {
                    Some(PathRole::Call) => report.arrivals += times,
                    _ => report.paths += times,
                },
                Some(StreamSymbol::Unwound(frames)) => report.unwound += times * u64::from(frames),
                Some(StreamSymbol::Inherited(_)) | None => {}
            }
        }
        let function = |symbol: StreamSymbol| match symbol {
            StreamSymbol::Enter(counter) | StreamSymbol::Inherited(counter) | StreamSymbol::Exit(counter) => {
                places.path(counter).map(|p| p.0)
            }
            StreamSymbol::Path(_) | StreamSymbol::Unwound(_) => None,
        };
        let rules = grammar.fold(|symbol| StackEffect::from_symbol(symbol, function), StackEffect::concatenate);
        frames.append(rules.last().unwrap_or(&StackEffect::default()));
    }
    (report.deepest, report.mismatched) = (frames.deepest as u64, frames.mismatched);
    Ok(report)
}

/// The effect of a subsequence of events on the call stack.
#[derive(Default)]
struct StackEffect {
    /// Functions of the frames that the subsequence closes but did not open, in order; `None` if the frame was unwound or is unknown.
    closes: Vec<Option<FunctionIndex>>,
    /// Functions of the frames that are open after the subsequence and were opened by it, outermost first.
    opens: Vec<Option<FunctionIndex>>,
    /// Maximum depth of the call stack within the subsequence, relative to the depth before it.
    deepest: i64,
    mismatched: u64,
}

impl StackEffect {
    fn from_symbol(symbol: u64, function: impl Fn(StreamSymbol) -> Option<FunctionIndex>) -> StackEffect {
        let Some(symbol) = StreamSymbol::from_number(symbol) else { return StackEffect::default() };
        let effect = symbol.frame_effect();
        let closes = vec![function(symbol); effect.closes as usize];
        let opens: Vec<_> = effect.opens.then(|| function(symbol)).into_iter().collect();
        StackEffect { closes, deepest: opens.len() as i64, opens, mismatched: 0 }
    }

    fn concatenate(children: &[&StackEffect]) -> StackEffect {
        let mut all = StackEffect::default();
        children.iter().for_each(|child| all.append(child));
        all
    }

    fn append(&mut self, next: &StackEffect) {
        let before = self.opens.len() as i64 - self.closes.len() as i64;
        self.deepest = self.deepest.max(before + next.deepest);
        self.mismatched += next.mismatched;
        for closed in &next.closes {
            match (self.opens.pop(), closed) {
                (Some(Some(open)), Some(closed)) => self.mismatched += u64::from(open != *closed),
                (Some(_), _) => {}
                (None, _) => self.closes.push(*closed),
            }
        }
        self.opens.extend_from_slice(&next.opens);
    }
}

fn render_statistics(report: &StreamStatistics) -> String {
    let mut out = String::new();
    let mut number = 0;
    for log in &report.logs {
        let events: u64 = log.threads.iter().map(|t| t.events).sum();
        let each = if events == 0 { 0.0 } else { log.bytes as f64 / events as f64 };
        let _ = writeln!(
            out,
            "{}: {} in {} ({each:.3} bytes per event){}",
            log.image.display(),
            plural(events.into(), "event", "events"),
            plural(log.bytes.into(), "byte", "bytes"),
            if log.is_cut { "; the log is truncated" } else { "" }
        );
        let _ = writeln!(out, "  thread  process/thread       events        calls        paths     arrivals  unwound  deepest  lost");
        for t in &log.threads {
            let _ = writeln!(
                out,
                "  {number:>6}  {:<14} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>5}",
                format!("{}/{}", t.process, t.thread),
                count(t.events.into()),
                count(t.calls.into()),
                count(t.paths.into()),
                count(t.arrivals.into()),
                count(t.unwound.into()),
                t.deepest,
                t.lost
            );
            if t.mismatched > 0 {
                let _ = writeln!(out, "          paths that left a different function's frame (the stack was switched): {}", t.mismatched);
            }
            number += 1;
        }
    }
    out
}
