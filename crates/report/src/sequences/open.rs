//! Opening a recording: streams of a run, or a text; the thread that is asked for, as one grammar.

use super::streams;
use crate::input_kind::InputKind;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use trodden_analysis::sequences::{EventTable, Opened, RecordingWriter, text};
use trodden_sequence::events::Convention;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits};
use trodden_stored::Folders;

/// Which thread of a recording is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RecordedThread {
    /// Its number, from 0.
    pub thread: usize,
    /// Compress the sequence again by this method. By default a run's grammars are used as they were recorded, and a text is compressed by
    /// phrases.
    pub method: Option<CompressionMethod>,
}

/// Reads the thread that is asked for.
///
/// # Errors
/// The recording cannot be read, or has no such thread.
pub fn open(wanted: &str, input: RecordedThread, folders: &Folders) -> Result<Opened> {
    let mut table = EventTable::default();
    let (convention, grammar) = open_into(wanted, input, &mut table, folders)?;
    Ok(Opened { table, convention, grammar })
}

/// The same of another recording, with symbols of one table.
///
/// # Errors
/// As of [`open`].
pub fn open_into(wanted: &str, input: RecordedThread, table: &mut EventTable, folders: &Folders) -> Result<(Convention, Grammar)> {
    let (method, limits) = (input.method.unwrap_or(CompressionMethod::Phrases), WindowLimits::default());
    let file = Path::new(wanted);
    if !file.is_file() || InputKind::of_file(file)? == Some(InputKind::StreamLogs) {
        let (convention, grammar) = streams::read(wanted, input.thread, table, folders)?;
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
