//! A recording: for each thread its sequence of events as a grammar, and what each symbol means.
//!
//! Symbols are numbers of entries of one table, which two recordings that are compared share. Reading holds one window of the compressor
//! besides the windows' grammars, never the sequence.

use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_sequence::events::{Classify, Convention, EventClass, SubpathEnd};
use trodden_sequence::grammar::Window;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits, WindowWriter};

/// What a symbol means.
#[derive(Clone, Debug)]
pub struct EventEntry {
    /// Its class.
    pub class: EventClass,
    /// `FUNCTION:PATH`, `enter FUNCTION` or `leave`.
    pub label: String,
    /// Blocks of a path, if they are known.
    pub blocks: Vec<u64>,
    /// Whether it stands for a path up to a call, which is part of one that comes later.
    pub is_prefix: bool,
    /// Where a path runs in the source, if that is known.
    pub source: Option<String>,
}

/// What is known of a path besides its name and blocks.
#[derive(Clone, Debug)]
pub struct PathEvent {
    /// The number of its function.
    pub function: u32,
    /// How it ends.
    pub end: SubpathEnd,
    /// Whether it is a path up to a call, which is part of one that comes later.
    pub is_prefix: bool,
    /// Where it runs in the source, if that is known.
    pub source: Option<String>,
}

impl EventEntry {
    fn bracket(class: EventClass, label: String) -> EventEntry {
        EventEntry { class, label, blocks: Vec::new(), is_prefix: false, source: None }
    }
}

/// All events of one or more recordings.
#[derive(Debug, Default)]
pub struct EventTable {
    entries: Vec<EventEntry>,
    numbers: HashMap<(EventClass, String), u64>,
    functions: Vec<String>,
    function_numbers: HashMap<String, u32>,
    blocks: HashMap<(u32, String), u64>,
    block_names: Vec<String>,
}

impl EventTable {
    /// The number of a function's name.
    pub fn function(&mut self, name: &str) -> u32 {
        self.function_with_key(name, name)
    }

    /// The number of a function that is known by more than its name.
    pub fn function_with_key(&mut self, key: &str, name: &str) -> u32 {
        if let Some(number) = self.function_numbers.get(key) {
            return *number;
        }
        let number = self.functions.len() as u32;
        self.functions.push(name.to_owned());
        self.function_numbers.insert(key.to_owned(), number);
        number
    }

    /// The number of a block of a function.
    pub fn block(&mut self, function: u32, name: &str) -> u64 {
        let key = (function, name.to_owned());
        if let Some(number) = self.blocks.get(&key) {
            return *number;
        }
        let number = self.block_names.len() as u64;
        self.block_names.push(format!("{}#{name}", self.function_name(function)));
        self.blocks.insert(key, number);
        number
    }

    /// A block's name: `FUNCTION#BLOCK`.
    pub fn block_name(&self, block: u64) -> &str {
        &self.block_names[block as usize]
    }

    /// A function's name.
    pub fn function_name(&self, function: u32) -> &str {
        &self.functions[function as usize]
    }

    /// The symbol of a path.
    pub fn path(&mut self, event: &PathEvent, path: &str, blocks: impl FnOnce(&mut Self) -> Vec<u64>) -> u64 {
        let key = (EventClass::Subpath { function: event.function, end: event.end }, path.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let label = format!("{}:{path}", self.function_name(event.function));
        let blocks = blocks(self);
        let entry = EventEntry { class: key.0, label, blocks, is_prefix: event.is_prefix, source: event.source.clone() };
        self.insert(key, entry)
    }

    /// The symbol of a call of a function.
    pub fn enter(&mut self, function: u32) -> u64 {
        let key = (EventClass::Enter, function.to_string());
        let label = format!("enter {}", self.function_name(function));
        self.numbers.get(&key).copied().unwrap_or_else(|| self.insert(key, EventEntry::bracket(EventClass::Enter, label)))
    }

    /// The symbol of a return.
    pub fn leave(&mut self) -> u64 {
        let key = (EventClass::Leave, String::new());
        self.numbers.get(&key).copied().unwrap_or_else(|| self.insert(key, EventEntry::bracket(EventClass::Leave, "leave".into())))
    }

    /// What a symbol means.
    pub fn entry(&self, symbol: u64) -> &EventEntry {
        &self.entries[symbol as usize]
    }

    /// The label of a symbol.
    pub fn label(&self, symbol: u64) -> &str {
        &self.entry(symbol).label
    }

    /// Labels of several symbols.
    pub fn labels(&self, symbols: &[u64]) -> Vec<String> {
        symbols.iter().map(|symbol| self.label(*symbol).to_owned()).collect()
    }

    /// Symbols with a label: more than one if a path of that name ends in different ways.
    pub fn labelled(&self, label: &str) -> Vec<u64> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.label == label).map(|(symbol, _)| symbol).collect()
    }

    /// Whether a symbol is a path that was executed, not a bracket, nor the beginning of a path that comes later.
    pub fn is_path(&self, symbol: u64) -> bool {
        let entry = self.entry(symbol);
        matches!(entry.class, EventClass::Subpath { .. }) && !entry.is_prefix
    }

    /// Where the paths among some events run in the source, as far as that is known.
    pub fn sources<'a>(&self, labels: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, String> {
        let wanted: BTreeSet<&String> = labels.into_iter().collect();
        let known = self.entries.iter().filter(|entry| wanted.contains(&entry.label));
        known.filter_map(|entry| Some((entry.label.clone(), entry.source.clone()?))).collect()
    }

    fn insert(&mut self, key: (EventClass, String), entry: EventEntry) -> u64 {
        let number = self.entries.len() as u64;
        self.entries.push(entry);
        self.numbers.insert(key, number);
        number
    }
}

impl Classify for EventTable {
    fn class(&self, symbol: u64) -> EventClass {
        self.entry(symbol).class
    }
}

/// The sequence of a thread.
pub struct ThreadSequence {
    /// The thread's name.
    pub name: String,
    /// Grammars of its events, one after the other.
    pub windows: Vec<Window>,
}

/// The sequences of a run.
pub struct Recording {
    /// What its events of paths stand for.
    pub convention: Convention,
    /// Its threads.
    pub threads: Vec<ThreadSequence>,
}

impl Recording {
    /// A thread's sequence as one grammar.
    ///
    /// # Errors
    /// It is too long.
    pub fn grammar(&self, thread: usize) -> Result<Grammar> {
        Ok(Grammar::concatenated(self.threads[thread].windows.iter().map(|window| &window.grammar))?)
    }
}

/// Takes the events of threads, compresses them at once.
pub struct RecordingWriter {
    method: CompressionMethod,
    limits: WindowLimits,
    threads: Vec<(String, WindowWriter, Vec<Window>)>,
}

impl RecordingWriter {
    /// A writer that has read nothing.
    pub fn new(method: CompressionMethod, limits: WindowLimits) -> RecordingWriter {
        RecordingWriter { method, limits, threads: Vec::new() }
    }

    /// The number of a thread.
    ///
    /// # Errors
    /// The limits are out of their range.
    pub fn thread(&mut self, name: &str) -> Result<usize> {
        if let Some(known) = self.threads.iter().position(|thread| thread.0 == name) {
            return Ok(known);
        }
        self.threads.push((name.to_owned(), WindowWriter::new(self.method, self.limits)?, Vec::new()));
        Ok(self.threads.len() - 1)
    }

    /// Appends an event of a thread.
    ///
    /// # Errors
    /// The sequence is too long.
    pub fn push(&mut self, thread: usize, symbol: u64) -> Result<()> {
        let (_, writer, windows) = &mut self.threads[thread];
        windows.extend(writer.push(symbol)?);
        Ok(())
    }

    /// The recording.
    ///
    /// # Errors
    /// The sequence is too long.
    pub fn finish(self, convention: Convention) -> Result<Recording> {
        let mut threads = Vec::new();
        for (name, mut writer, mut windows) in self.threads {
            windows.extend(writer.close()?);
            threads.push(ThreadSequence { name, windows });
        }
        Ok(Recording { convention, threads })
    }
}

/// A thread's sequence as one grammar, with what its symbols mean.
pub struct Opened {
    /// What symbols mean.
    pub table: EventTable,
    /// What events of paths stand for.
    pub convention: Convention,
    /// The sequence.
    pub grammar: Grammar,
}

impl Opened {
    /// Number of paths that were executed in the sequence, brackets and beginnings of paths left out.
    pub fn path_events(&self) -> u64 {
        let counts = self.grammar.terminals().iter().zip(self.grammar.terminal_counts());
        counts.filter(|(symbol, _)| self.table.is_path(**symbol)).map(|(_, count)| count).sum()
    }
}
