//! Opens one thread of a recording as a grammar. The recording is a run's streams or a text.

use super::streams;
use crate::input_kind::InputKind;
use crate::words::plural;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use trodden_analysis::sequences::{EventTable, OpenedSequence, RecordingWriter, text};
use trodden_sequence::events::CallRecordingConvention;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits};
use trodden_stored::Folders;

/// Which thread of a recording to open.
#[derive(Clone, Copy, Debug)]
pub struct ThreadChoice {
    /// Index of the thread.
    pub thread: usize,
    /// The method for compressing the sequence again. `None` uses a run's grammars as recorded, and compresses text by phrases.
    pub method: Option<CompressionMethod>,
}

/// Reads a thread into a new symbol table. Fails if the recording cannot be read or does not have the thread.
pub fn open(wanted: &str, input: ThreadChoice, folders: &Folders) -> Result<OpenedSequence> {
    let mut table = EventTable::default();
    let (convention, grammar) = open_into(wanted, input, &mut table, folders)?;
    Ok(OpenedSequence { table, convention, grammar })
}

/// Like [`open`], but adds the thread's symbols to an existing table, so that several recordings can be compared.
pub fn open_into(
    wanted: &str,
    input: ThreadChoice,
    table: &mut EventTable,
    folders: &Folders,
) -> Result<(CallRecordingConvention, Grammar)> {
    let (method, limits) = (input.method.unwrap_or(CompressionMethod::Phrases), WindowLimits::default());
    let file = Path::new(wanted);
    if !file.is_file() || InputKind::detect_file(file)? == Some(InputKind::StreamLogs) {
        let (convention, grammar) = streams::read(wanted, input.thread, table, folders)?;
        if input.method.is_none() {
            return Ok((convention, grammar));
        }
        let mut writer = RecordingWriter::new(method, limits);
        let thread = writer.thread("main")?;
        grammar.symbols().try_for_each(|symbol| writer.push(thread, symbol))?;
        return Ok((convention, writer.into_recording(convention)?.grammar(0)?));
    }
    let recording = text::read(file, method, limits, table).with_context(|| format!("cannot read {wanted}"))?;
    let count = recording.threads.len();
    let names = || recording.threads.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>().join(", ");
    let threads = plural(count as u128, "thread", "threads");
    ensure!(
        input.thread < count,
        "{wanted} has only {threads} ({}). Pass --thread with a number from 0 to {}",
        names(),
        count.saturating_sub(1)
    );
    Ok((recording.convention, recording.grammar(input.thread)?))
}
