//! Recordings: a grammar for each thread's events, and a table with the meaning of each symbol. Symbols are indices into the table.
//! Recordings that are compared share one table. Memory holds one window of events and the grammars of earlier windows, but never the
//! complete sequence.

use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_sequence::events::{CallRecordingConvention, Classify, EventClass, SubpathEnd};
use trodden_sequence::grammar::Window;
use trodden_sequence::{CompressionMethod, Grammar, WindowLimits, WindowWriter};

/// The meaning of a symbol.
#[derive(Clone, Debug)]
pub struct SymbolMeaning {
    /// The event's class.
    pub class: EventClass,
    /// The event as text: `FUNCTION:PATH`, `enter FUNCTION` or `leave`.
    pub label: String,
    /// Blocks of a path. Empty if unknown.
    pub blocks: Vec<u64>,
    /// True for a path up to a call, which is a prefix of a later path.
    pub is_prefix: bool,
    /// Source location of a path, if known.
    pub source: Option<String>,
}

/// A path, as passed to [`EventTable::intern_path`].
#[derive(Clone, Debug)]
pub struct PathEvent {
    /// Number of the path's function.
    pub function: u32,
    /// How the path ends.
    pub end: SubpathEnd,
    /// True for a path up to a call, which is a prefix of a later path.
    pub is_prefix: bool,
    /// The path's source location, if known.
    pub source: Option<String>,
}

impl SymbolMeaning {
    fn call_or_return(class: EventClass, label: String) -> SymbolMeaning {
        SymbolMeaning { class, label, blocks: Vec::new(), is_prefix: false, source: None }
    }
}

/// Symbol table of one or more recordings.
#[derive(Debug, Default)]
pub struct EventTable {
    entries: Vec<SymbolMeaning>,
    numbers: HashMap<(EventClass, String), u64>,
    functions: Vec<String>,
    function_numbers: HashMap<String, u32>,
    blocks: HashMap<(u32, String), u64>,
    block_names: Vec<String>,
}

impl EventTable {
    /// Returns the number of a function, adding it if new.
    pub fn intern_function(&mut self, name: &str) -> u32 {
        self.intern_function_with_key(name, name)
    }

    /// Returns the number of the function with this `key`, adding the function if new. Several functions may have the same `name`.
    pub fn intern_function_with_key(&mut self, key: &str, name: &str) -> u32 {
        if let Some(number) = self.function_numbers.get(key) {
            return *number;
        }
        let number = self.functions.len() as u32;
        self.functions.push(name.to_owned());
        self.function_numbers.insert(key.to_owned(), number);
        number
    }

    /// Returns the number of a block of a function, adding it if new.
    pub fn intern_block(&mut self, function: u32, name: &str) -> u64 {
        let key = (function, name.to_owned());
        if let Some(number) = self.blocks.get(&key) {
            return *number;
        }
        let number = self.block_names.len() as u64;
        self.block_names.push(format!("{}#{name}", self.function_name(function)));
        self.blocks.insert(key, number);
        number
    }

    /// Returns the name of a block, which is `FUNCTION#BLOCK`.
    pub fn block_name(&self, block: u64) -> &str {
        &self.block_names[block as usize]
    }

    /// Returns the name of a function.
    pub fn function_name(&self, function: u32) -> &str {
        &self.functions[function as usize]
    }

    /// Returns the symbol of a path, adding it if new.
    pub fn intern_path(&mut self, event: &PathEvent, path: &str, blocks: impl FnOnce(&mut Self) -> Vec<u64>) -> u64 {
        let key = (EventClass::Subpath { function: event.function, end: event.end }, path.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let label = format!("{}:{path}", self.function_name(event.function));
        let blocks = blocks(self);
        let entry = SymbolMeaning { class: key.0, label, blocks, is_prefix: event.is_prefix, source: event.source.clone() };
        self.insert(key, entry)
    }

    /// Returns the symbol for entering a function, adding it if new.
    pub fn enter_symbol(&mut self, function: u32) -> u64 {
        let key = (EventClass::Enter, function.to_string());
        let label = format!("enter {}", self.function_name(function));
        self.numbers.get(&key).copied().unwrap_or_else(|| self.insert(key, SymbolMeaning::call_or_return(EventClass::Enter, label)))
    }

    /// Returns the symbol for leaving a function, adding it if new.
    pub fn leave_symbol(&mut self) -> u64 {
        let key = (EventClass::Leave, String::new());
        self.numbers
            .get(&key)
            .copied()
            .unwrap_or_else(|| self.insert(key, SymbolMeaning::call_or_return(EventClass::Leave, "leave".into())))
    }

    /// Returns the meaning of a symbol.
    pub fn entry(&self, symbol: u64) -> &SymbolMeaning {
        &self.entries[symbol as usize]
    }

    /// Returns the label of a symbol.
    pub fn label(&self, symbol: u64) -> &str {
        &self.entry(symbol).label
    }

    /// Returns the labels of several symbols.
    pub fn labels(&self, symbols: &[u64]) -> Vec<String> {
        symbols.iter().map(|symbol| self.label(*symbol).to_owned()).collect()
    }

    /// Returns the symbols with a label. There are several symbols if paths with this label end differently.
    pub fn find_symbols_with_label(&self, label: &str) -> Vec<u64> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.label == label).map(|(symbol, _)| symbol).collect()
    }

    /// Returns true for a path that is not a prefix.
    pub fn is_path(&self, symbol: u64) -> bool {
        let entry = self.entry(symbol);
        matches!(entry.class, EventClass::Subpath { .. }) && !entry.is_prefix
    }

    /// Returns the known source locations of the paths among the labels.
    pub fn sources<'a>(&self, labels: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, String> {
        let wanted: BTreeSet<&String> = labels.into_iter().collect();
        let known = self.entries.iter().filter(|entry| wanted.contains(&entry.label));
        known.filter_map(|entry| Some((entry.label.clone(), entry.source.clone()?))).collect()
    }

    fn insert(&mut self, key: (EventClass, String), entry: SymbolMeaning) -> u64 {
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
    /// Consecutive grammars that together represent the sequence.
    pub windows: Vec<Window>,
}

/// The sequences of all threads of a run.
pub struct SequenceRecording {
    /// How the events represent a path that is interrupted by calls.
    pub convention: CallRecordingConvention,
    /// The threads.
    pub threads: Vec<ThreadSequence>,
}

impl SequenceRecording {
    /// Concatenates a thread's windows into one grammar.
    pub fn grammar(&self, thread: usize) -> Result<Grammar> {
        Ok(Grammar::concatenated(self.threads[thread].windows.iter().map(|window| &window.grammar))?)
    }
}

/// Compresses the events of threads as they arrive.
pub struct RecordingWriter {
    method: CompressionMethod,
    limits: WindowLimits,
    threads: Vec<(String, WindowWriter, Vec<Window>)>,
}

impl RecordingWriter {
    /// Creates a writer without threads.
    pub fn new(method: CompressionMethod, limits: WindowLimits) -> RecordingWriter {
        RecordingWriter { method, limits, threads: Vec::new() }
    }

    /// Returns the number of a thread, adding it if new.
    pub fn thread(&mut self, name: &str) -> Result<usize> {
        if let Some(known) = self.threads.iter().position(|thread| thread.0 == name) {
            return Ok(known);
        }
        self.threads.push((name.to_owned(), WindowWriter::new(self.method, self.limits)?, Vec::new()));
        Ok(self.threads.len() - 1)
    }

    /// Appends an event of a thread.
    pub fn push(&mut self, thread: usize, symbol: u64) -> Result<()> {
        let (_, writer, windows) = &mut self.threads[thread];
        windows.extend(writer.push(symbol)?);
        Ok(())
    }

    /// Compresses the remaining events and returns the recording.
    pub fn into_recording(self, convention: CallRecordingConvention) -> Result<SequenceRecording> {
        let mut threads = Vec::new();
        for (name, mut writer, mut windows) in self.threads {
            windows.extend(writer.close()?);
            threads.push(ThreadSequence { name, windows });
        }
        Ok(SequenceRecording { convention, threads })
    }
}

/// A thread's sequence as one grammar, with its symbol table.
pub struct OpenedSequence {
    /// The meaning of symbols.
    pub table: EventTable,
    /// How the events represent a path that is interrupted by calls.
    pub convention: CallRecordingConvention,
    /// The sequence.
    pub grammar: Grammar,
}

impl OpenedSequence {
    /// Returns the number of paths in the sequence, not counting prefixes.
    pub fn path_event_count(&self) -> u64 {
        let counts = self.grammar.terminals().iter().zip(self.grammar.terminal_counts());
        counts.filter(|(symbol, _)| self.table.is_path(**symbol)).map(|(_, count)| count).sum()
    }
}
