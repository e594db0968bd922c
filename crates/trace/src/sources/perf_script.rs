//! Branches from the output of `perf script`: branch stacks of samples (LBR), or all branches of a trace (Intel PT).
//!
//! Such recordings contain only taken branches. The conditional branches between them, which were not taken, are reconstructed by walking
//! the code from the target of one branch to the next. [`crate::perf_script`] parses the lines. Files are found by the mappings that `perf
//! script --show-mmap-events` prints, or among those that the user names. Each window of branch records covers a different part of the
//! execution, so a gap precedes it.

use super::lines::SourceLines;
use super::{BranchSource, EventBatch, SourceDetail, SourceError, SourceNotes};
use crate::perf_script::{self, ScriptLine, ScriptRecord, ScriptThread};
use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};
use trodden_binary::{Binary, MappedFile};
use trodden_hardware::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};

/// Maximum number of instructions between two taken branches; a longer walk does not follow a straight line.
const MAX_WALK_INSTRUCTIONS: u32 = 1 << 16;

/// Reads the output of `perf script` as a source of branches.
pub struct PerfScriptSource<R> {
    lines: SourceLines<R>,
    code: MappedCode,
    threads: HashMap<ScriptThread, ScriptState>,
    mappings: Vec<MappedFile>,
    instructions: u64,
    /// True once a line was recognised as output of `perf script`.
    is_recognised: bool,
    samples: u64,
    records: u64,
    /// Number of records from or to code of a readable file.
    inside: u64,
    /// Number of pairs of branches that no straight line of code connects.
    broken: u64,
    /// Number of branches to code of unknown files.
    outside: u64,
}

#[derive(Debug)]
struct ScriptState {
    id: ThreadId,
    /// Target of the last branch; `None` if unknown.
    at: Option<u64>,
    has_begun: bool,
}

impl<R: BufRead> PerfScriptSource<R> {
    /// Creates a source. `path` identifies the text in messages. `programs` are files to be used for mapped files of the same name.
    ///
    /// # Errors
    /// A program cannot be read.
    pub fn new(reader: R, path: &Path, programs: &[PathBuf]) -> Result<PerfScriptSource<R>, SourceError> {
        let mut code = MappedCode::default();
        for program in programs {
            let binary = Binary::read(program).map_err(|e| SourceError::Foreign { path: program.clone(), what: e.to_string() })?;
            if !binary.is_position_independent() {
                code.of_any.push(CodeMapping { start: 0, end: u64::MAX, bias: 0, file: Some(code.files.len()) });
            }
            code.files.push((program.clone(), Some(binary)));
        }
        let (threads, mappings) = (HashMap::new(), Vec::new());
        Ok(PerfScriptSource {
            lines: SourceLines::new(reader, path),
            code,
            threads,
            mappings,
            instructions: 0,
            is_recognised: false,
            samples: 0,
            records: 0,
            inside: 0,
            broken: 0,
            outside: 0,
        })
    }

    fn state(&mut self, thread: ScriptThread) -> &mut ScriptState {
        let next = ThreadId(self.threads.len() as u32);
        self.threads.entry(thread).or_insert(ScriptState { id: next, at: None, has_begun: false })
    }

    fn handle_line(&mut self, line: ScriptLine, batch: &mut EventBatch) {
        match line {
            ScriptLine::Nothing => {}
            ScriptLine::Fork { process, parent } => self.code.fork(process, parent),
            ScriptLine::Mapping(mut mapping) => {
                // Name the file that was read, since symbols and code are taken from it.
                if let Some(used) = self.code.map(&mapping) {
                    mapping.path = used.display().to_string();
                }
                self.mappings.push(mapping);
            }
            ScriptLine::Window(thread, records) => {
                self.samples += 1;
                self.state(thread).at = None;
                records.iter().for_each(|record| self.handle_branch(thread, *record, batch));
                self.state(thread).at = None;
            }
            ScriptLine::Branch(thread, record) => self.handle_branch(thread, record, batch),
            ScriptLine::Lost(Some(thread)) => self.state(thread).at = None,
            ScriptLine::Lost(None) => self.threads.values_mut().for_each(|state| state.at = None),
            ScriptLine::Exit(thread) => {
                let state = self.state(thread);
                state.at = None;
                if state.has_begun {
                    batch.events.push((state.id, StreamEvent::End(0)));
                }
            }
        }
    }

    /// Checks at the end of the text that it was usable.
    ///
    /// # Errors
    /// The text has samples, but none of their branches is in code of a readable file.
    fn check_usable(&self) -> Result<(), SourceError> {
        let what = match (self.samples, self.records, self.inside) {
            (0, 0, _) if !self.is_recognised => "it has no output of `perf script`".to_owned(),
            (0, 0, _) | (_, 1.., 1..) => return Ok(()),
            (_, 0, _) => "its samples have no branch stacks. Record with `perf record -b`, on a processor that has branch records, and \
                 print the field brstack"
                .to_owned(),
            (_, records, 0) => {
                let names: BTreeSet<&str> = self.mappings.iter().map(|m| m.path.as_str()).collect();
                let mapped: Vec<&str> = names.into_iter().take(4).collect();
                let mapped = if mapped.is_empty() { "none; print them with --show-mmap-events".to_owned() } else { mapped.join(", ") };
                format!(
                    "none of its {records} branches lies in code of a readable file (mapped: {mapped}). Pass the files that ran to \
                     --program, under their original names"
                )
            }
        };
        Err(self.lines.foreign_format_error(what))
    }

    fn handle_branch(&mut self, thread: ScriptThread, record: ScriptRecord, batch: &mut EventBatch) {
        self.records += 1;
        let (id, at) = (self.state(thread).id, self.state(thread).at);
        let mut walked = None;
        if let (Some(from), Some(to), Some(at)) = (record.from, record.to, at) {
            walked = self.code.walk(thread.process, at, from, to);
            self.broken += u64::from(walked.is_none());
        }
        match (walked, record.to) {
            (Some(branches), _) => {
                self.inside += 1;
                self.instructions += branches.iter().map(|b| u64::from(b.instructions)).sum::<u64>();
                batch.events.extend(branches.into_iter().map(|b| (id, StreamEvent::Branch(b))));
            }
            (None, Some(to)) => {
                let is_inside = self.code.code_at(thread.process, to).is_some();
                self.inside += u64::from(is_inside);
                self.outside += u64::from(!is_inside);
                let has_begun = std::mem::replace(&mut self.state(thread).has_begun, true);
                let event = if has_begun { StreamEvent::Gap(Address(to)) } else { StreamEvent::Begin(Address(to)) };
                batch.events.push((id, event));
            }
            (None, None) => {}
        }
        self.state(thread).at = record.to;
    }
}

impl<R: BufRead> BranchSource for PerfScriptSource<R> {
    fn level(&self) -> SourceDetail {
        SourceDetail::Branches
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        while batch.events.len() < EventBatch::EVENTS_PER_BATCH {
            let Some(line) = self.lines.next()? else { return self.check_usable().map(|()| false) };
            let is_header = line.starts_with('#');
            let line = perf_script::parse_script_line(&line).map_err(|what| self.lines.corrupt(what))?;
            self.is_recognised |= is_header || line != ScriptLine::Nothing;
            self.handle_line(line, batch);
        }
        Ok(true)
    }

    fn notes(&self) -> SourceNotes {
        let PerfScriptSource { records, broken, outside, .. } = self;
        let mut notes = Vec::new();
        if *broken > 0 {
            notes.push(format!("{broken} of {records} branches cannot be reached from the branch before, which leaves gaps"));
        }
        if *outside > 0 {
            notes.push(format!(
                "branches to code of unknown files: {outside}. Pass the files to --program, or print mappings (--show-mmap-events)"
            ));
        }
        if *records == 0 {
            notes.push("the recording has no branches".into());
        }
        SourceNotes { notes, mappings: self.mappings.clone(), instructions: self.instructions, ..SourceNotes::default() }
    }
}

/// The memory of a mapping. `file` is `None` if the file cannot be read or does not match the mapping.
#[derive(Clone, Copy, Debug)]
struct CodeMapping {
    start: u64,
    end: u64,
    bias: u64,
    file: Option<usize>,
}

/// The code of the mapped files. Each process has its own mappings.
#[derive(Debug, Default)]
struct MappedCode {
    files: Vec<(PathBuf, Option<Binary>)>,
    by_process: HashMap<u32, Vec<CodeMapping>>,
    /// The mappings of all processes, for a process of which no mapping is known.
    of_any: Vec<CodeMapping>,
}

impl MappedCode {
    /// Adds a mapping to a process. The file is recognised by its build ID, or else by its name without the folder. Returns the path of
    /// the file that was read.
    fn map(&mut self, mapping: &MappedFile) -> Option<&Path> {
        let path = Path::new(&mapping.path);
        let is_build = |known: &Option<Binary>| {
            let id = known.as_ref().and_then(Binary::build_id);
            id.zip(mapping.build_id.as_deref()).map(|(here, ran)| here == ran)
        };
        let is_same = |(known, binary): &(PathBuf, Option<Binary>)| {
            is_build(binary).unwrap_or_else(|| known.file_name().is_some() && known.file_name() == path.file_name())
        };
        let known = self.files.iter().position(is_same);
        let number = known.unwrap_or_else(|| {
            self.files.push((path.to_owned(), Binary::read(path).ok()));
            self.files.len() - 1
        });
        let bias = self.files[number].1.as_ref().and_then(|binary| match binary.is_position_independent() {
            true => binary.load_bias(mapping.start, mapping.offset),
            false => Some(0),
        });
        let end = mapping.start.saturating_add(mapping.length);
        let range = CodeMapping { start: mapping.start, end, bias: bias.unwrap_or(0), file: bias.map(|_| number) };
        self.by_process.entry(mapping.process).or_default().push(range);
        self.of_any.push(range);
        bias.map(|_| self.files[number].0.as_path())
    }

    fn fork(&mut self, process: u32, parent: u32) {
        if let Some(inherited) = self.by_process.get(&parent).filter(|_| process != parent).cloned() {
            self.by_process.insert(process, inherited);
        }
    }

    /// Returns the code at an address of a process. The latest mapping takes precedence.
    fn code_at(&self, process: u32, address: u64) -> Option<&[u8]> {
        let ranges = self.by_process.get(&process).unwrap_or(&self.of_any);
        let range = ranges.iter().rev().find(|r| (r.start..r.end).contains(&address))?;
        self.files[range.file?].1.as_ref()?.code_at(address.wrapping_sub(range.bias))
    }

    /// Returns the branches of a process from `start` up to the taken branch from `from` to `to`; `None` if no straight line connects
    /// them.
    fn walk(&self, process: u32, start: u64, from: u64, to: u64) -> Option<Vec<RetiredBranch>> {
        let mut branches = Vec::new();
        let mut address = start;
        let mut instructions = 0;
        for _ in 0..MAX_WALK_INSTRUCTIONS {
            let instruction = decode_instruction(self.code_at(process, address)?, address)?;
            let fall_through = address.checked_add(instruction.len() as u64)?;
            instructions += 1;
            let what = classify_branch(&instruction);
            let mut push = |kind, target: u64, is_taken| {
                let (address, target, fall_through) = (Address(address), Address(target), Address(fall_through));
                branches.push(RetiredBranch { address, target, fall_through, kind, is_taken, instructions, stack: None });
            };
            match what {
                _ if address == from => {
                    push(kind_to(what?, to)?, to, true);
                    return Some(branches);
                }
                None => {}
                Some(BranchInstruction::Conditional(target)) => {
                    push(BranchKind::Conditional, target, false);
                    instructions = 0;
                }
                // All other branches are always taken, so this one would have been recorded.
                Some(_) => return None,
            }
            address = fall_through;
        }
        None
    }
}

/// Returns the kind of a branch that was taken to an address, or `None` if the branch cannot lead there.
fn kind_to(branch: BranchInstruction, to: u64) -> Option<BranchKind> {
    let kind = match branch {
        BranchInstruction::Conditional(_) => BranchKind::Conditional,
        BranchInstruction::Jump(_) => BranchKind::Jump,
        BranchInstruction::Call(_) => BranchKind::Call,
        BranchInstruction::IndirectCall => BranchKind::IndirectCall,
        BranchInstruction::IndirectJump => BranchKind::IndirectJump,
        BranchInstruction::Return => BranchKind::Return,
        BranchInstruction::System | BranchInstruction::Stop => return None,
    };
    branch.target().is_none_or(|target| target == to).then_some(kind)
}

#[cfg(test)]
#[path = "perf_script_tests.rs"]
mod tests;
