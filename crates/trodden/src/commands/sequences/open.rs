//! Opening a recording: streams of a run, or a text; the thread that is asked for, as one grammar.

use super::recording::{EventTable, RecordingWriter};
use super::{streams, text};
use crate::cli::StreamInput;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use trodden_sequence::events::Convention;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits};

/// A thread's sequence as one grammar.
pub struct Opened {
    pub table: EventTable,
    pub convention: Convention,
    pub grammar: Grammar,
}

/// Reads the thread that is asked for.
///
/// # Errors
/// The recording cannot be read, or has no such thread.
pub fn open(input: &StreamInput) -> Result<Opened> {
    let mut table = EventTable::default();
    let (convention, grammar) = open_into(&input.recording, input, &mut table)?;
    Ok(Opened { table, convention, grammar })
}

/// The same of another recording, with symbols of one table.
///
/// # Errors
/// As of [`open`].
pub fn open_into(wanted: &str, input: &StreamInput, table: &mut EventTable) -> Result<(Convention, Grammar)> {
    let (method, limits) = (input.method.unwrap_or(CompressionMethod::Phrases), WindowLimits::default());
    let file = Path::new(wanted);
    if !file.is_file() || streams::is_log(file) {
        let (convention, grammar) = streams::read(wanted, input.thread, table)?;
        if input.method.is_none() {
            return Ok((convention, grammar));
        }
        let mut writer = RecordingWriter::new(method, limits);
        let thread = writer.thread("main")?;
        grammar.symbols().try_for_each(|symbol| writer.push(thread, symbol))?;
        return Ok((convention, writer.finish(convention)?.grammar(0)?));
    }
    let recording = text::read(file, method, limits, table).with_context(|| format!("cannot read {wanted}"))?;
    let count = recording.threads.len();
    let names = || recording.threads.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>().join(", ");
    ensure!(input.thread < count, "{wanted} has {count} threads ({}): --thread takes their places from 0", names());
    Ok((recording.convention, recording.grammar(input.thread)?))
}

/// Paths that were executed in a sequence, brackets and beginnings of paths left out.
pub fn path_events(grammar: &Grammar, table: &EventTable) -> u64 {
    let counts = grammar.terminals().iter().zip(grammar.terminal_counts());
    counts.filter(|(symbol, _)| table.is_path(**symbol)).map(|(_, count)| count).sum()
}
