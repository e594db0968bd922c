//! Parser for recordings in either of two text formats.
//!
//! `trodden-lab simulate --preset whole-program --sequence` writes lines `THREAD START OUTCOMES END`. After a path that ended at a call,
//! the next line is the callee's first path. The other format has tab-separated fields. Empty lines and comments (`#`) are ignored. `leave`
//! leaves the innermost frame, and the frame's paths precede it:
//!
//! ```text
//! #trodden events 1
//! convention   subpaths | whole-paths | prefixes      (before all events; subpaths by default)
//! thread       NAME                                   (subsequent events are of this thread)
//! enter        FUNCTION
//! path         FUNCTION  PATH  call | loop | return  [BLOCK ...]
//! leave
//! ```

use super::recording::{EventTable, PathEvent, RecordingWriter, SequenceRecording};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use trodden_sequence::events::{CallRecordingConvention, SubpathEnd};
use trodden_sequence::{CompressionMethod, WindowLimits};

const HEADER: &str = "#trodden events 1";

/// Path ends of `trodden simulate`, besides calls and returns.
const SIMULATED_ENDS: [&str; 5] = ["backward", "backward-not-taken", "indirect", "forward", "limit"];

/// Returns true if this is the first line of either format.
pub fn is_first_line(line: &str) -> bool {
    let is_simulated = |end: &str| end == "call" || end == "return" || SIMULATED_ENDS.contains(&end);
    match line.split(' ').collect::<Vec<_>>()[..] {
        [_, _, outcomes, end] if is_simulated(end) => outcomes.bytes().all(|b| b == b'0' || b == b'1'),
        _ => line.starts_with("#trodden events"),
    }
}

/// Parses a file of either format. An error names the malformed line.
pub fn read(file: &Path, method: CompressionMethod, limits: WindowLimits, table: &mut EventTable) -> Result<SequenceRecording> {
    let mut lines = BufReader::new(File::open(file)?);
    let mut line = String::new();
    let mut writer = RecordingWriter::new(method, limits);
    let mut events =
        TextEvents { table, writer: &mut writer, convention: CallRecordingConvention::Subpaths, thread: None, frames: Vec::new() };
    let mut simulated: Option<HashMap<String, OpenFrames>> = None;
    for number in 1_u64.. {
        line.clear();
        if lines.read_line(&mut line).with_context(|| format!("cannot read line {number} of the events"))? == 0 {
            break;
        }
        let text = line.trim_end_matches(['\n', '\r']);
        if number == 1 && text != HEADER {
            simulated = Some(HashMap::new());
        }
        let parsed = match &mut simulated {
            Some(frames) => events.push_simulated(text, frames),
            None => events.parse_line(text),
        };
        parsed.with_context(|| format!("cannot parse line {number} (`{}`)", text.chars().take(80).collect::<String>()))?;
    }
    let convention = events.convention;
    writer.into_recording(convention)
}

struct TextEvents<'a> {
    table: &'a mut EventTable,
    writer: &'a mut RecordingWriter,
    convention: CallRecordingConvention,
    thread: Option<usize>,
    /// For each thread, the functions of its open frames, outermost first.
    frames: Vec<Vec<u32>>,
}

#[derive(Default)]
struct OpenFrames {
    functions: Vec<u32>,
    /// Whether the last path ended at a call.
    ended_at_call: bool,
}

impl TextEvents<'_> {
    fn parse_line(&mut self, line: &str) -> Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["convention", name] => {
                self.convention = parse_convention(name)?;
                return Ok(());
            }
            ["thread", name] => {
                self.thread = Some(self.writer.thread(name)?);
                return Ok(());
            }
            _ => {}
        }
        let thread = match self.thread {
            Some(thread) => thread,
            None => self.writer.thread("main")?,
        };
        self.thread = Some(thread);
        let symbol = self.parse_event(&fields, thread)?;
        self.writer.push(thread, symbol)
    }

    fn parse_event(&mut self, fields: &[&str], thread: usize) -> Result<u64> {
        self.frames.resize(self.frames.len().max(thread + 1), Vec::new());
        let frames = &mut self.frames[thread];
        Ok(match *fields {
            ["enter", function] => {
                let function = self.table.intern_function(function);
                frames.push(function);
                self.table.enter_symbol(function)
            }
            ["leave"] => {
                ensure!(frames.pop().is_some(), "event `leave` is not preceded by a matching `enter` in the same thread");
                self.table.leave_symbol()
            }
            ["path", function, path, end, ref blocks @ ..] => {
                let (function, end) = (self.table.intern_function(function), parse_path_end(end)?);
                match frames.last() {
                    None => bail!("event `path` is not preceded by an `enter` of its function in the same thread"),
                    Some(open) => {
                        ensure!(
                            *open == function,
                            "event `path` names a different function than `{}`, which was entered last",
                            self.table.function_name(*open)
                        )
                    }
                }
                let named = |table: &mut EventTable| blocks.iter().map(|block| table.intern_block(function, block)).collect();
                let is_prefix = self.convention == CallRecordingConvention::Prefixes && end == SubpathEnd::Call;
                self.table.intern_path(&PathEvent { function, end, is_prefix, source: None }, path, named)
            }
            _ => bail!(
                "expected a line that starts with the word convention, thread, enter, leave or path, followed by fields separated by tabs"
            ),
        })
    }

    fn push_simulated(&mut self, line: &str, frames: &mut HashMap<String, OpenFrames>) -> Result<()> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [thread, start, outcomes, end] = fields[..] else {
            bail!(
                "expected a line printed by `trodden simulate` (with the fields thread, start, outcomes and end). A file of events must \
                 start with the line `{HEADER}`"
            )
        };
        ensure!(
            outcomes.bytes().all(|b| b == b'0' || b == b'1'),
            "invalid branch outcomes: expected only the digits 0 (not taken) and 1 (taken)"
        );
        let number = self.writer.thread(thread)?;
        if !frames.contains_key(thread) {
            frames.insert(thread.to_owned(), OpenFrames::default());
        }
        let Some(frames) = frames.get_mut(thread) else { return Ok(()) };
        if std::mem::take(&mut frames.ended_at_call) || frames.functions.is_empty() {
            let function = self.table.intern_function(start);
            let enter = self.table.enter_symbol(function);
            frames.functions.push(function);
            self.writer.push(number, enter)?;
        }
        let Some(function) = frames.functions.last().copied() else { return Ok(()) };
        let (end, is_return) = match end {
            "call" => (SubpathEnd::Call, false),
            "return" => (SubpathEnd::Return, true),
            end if SIMULATED_ENDS.contains(&end) => (SubpathEnd::BackEdge, false),
            _ => bail!("unknown path end `{end}`: a path ends with one of call, return, {}", SIMULATED_ENDS.join(", ")),
        };
        let symbol =
            self.table
                .intern_path(&PathEvent { function, end, is_prefix: false, source: None }, &format!("{start}/{outcomes}"), |_| Vec::new());
        self.writer.push(number, symbol)?;
        frames.ended_at_call = end == SubpathEnd::Call;
        if is_return {
            frames.functions.pop();
            let leave = self.table.leave_symbol();
            self.writer.push(number, leave)?;
        }
        Ok(())
    }
}

fn parse_convention(name: &str) -> Result<CallRecordingConvention> {
    Ok(match name {
        "subpaths" => CallRecordingConvention::Subpaths,
        "whole-paths" => CallRecordingConvention::WholePaths,
        "prefixes" => CallRecordingConvention::Prefixes,
        _ => bail!("unknown path convention: expected subpaths, whole-paths or prefixes"),
    })
}

fn parse_path_end(name: &str) -> Result<SubpathEnd> {
    Ok(match name {
        "call" => SubpathEnd::Call,
        "loop" => SubpathEnd::BackEdge,
        "return" => SubpathEnd::Return,
        _ => bail!("unknown path end: a path ends with call, loop or return"),
    })
}
