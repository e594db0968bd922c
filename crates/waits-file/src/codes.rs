//! Code blocks: what the analysis calls a code, and how reports name it.
//!
//! A block is the stack of the program's own functions, outermost first: that of a sample, or what the calls before and behind it
//! have in common. A call
//! site is such a stack with the line of the call. Lines inside a block are counted beside it: they do not distinguish steps.

use crate::process_file::ProcessFile;
use crate::sample_paths::TimedPath;
use crate::symbols::{StackFrame, Symbols};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use trodden_text::escape;
use trodden_waits::CodeId;

/// A code block or call site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeLocation {
    /// Functions, outermost first; the last one is the block's.
    pub path: Vec<String>,
    /// Where each of them but the last calls the next one: file and line.
    pub calls: Vec<(String, u32)>,
    /// Source file; empty where it is not known.
    pub file: String,
    /// The function called, at a call site.
    pub call: Option<&'static str>,
    /// Line of a call.
    pub call_line: u32,
    /// The Ball-Larus path that was executed, where the program was built to say so.
    pub taken: Option<TimedPath>,
}

impl CodeLocation {
    /// File and line in the function at that depth of the path (1: the outermost), unless it is the last one.
    pub fn place(&self, depth: usize) -> Option<(&str, u32)> {
        self.calls.get(depth.checked_sub(1)?).map(|(file, line)| (file.as_str(), *line))
    }

    /// The function that executes.
    pub fn function(&self) -> &str {
        self.path.last().map_or("?", String::as_str)
    }
}

/// Time that a sample stands for, beside blocks without: a tick of the kernel.
const SAMPLE_NS: u64 = 4_000_000;

/// A stack, innermost frame first, own frames only (or the innermost of all, if there are none).
type Own = Vec<StackFrame>;

/// All codes.
#[derive(Default)]
pub struct Codes {
    codes: Vec<Rc<CodeLocation>>,
    ids: HashMap<Rc<CodeLocation>, CodeId>,
    /// Times by line.
    lines: HashMap<CodeId, BTreeMap<u32, u64>>,
}

impl Codes {
    /// The number of a code.
    pub fn id(&mut self, mut code: CodeLocation) -> CodeId {
        // Reports print each name within a line.
        let names = code.path.iter_mut().chain(code.calls.iter_mut().map(|(file, _)| file)).chain([&mut code.file]);
        names.filter(|name| name.contains(escape::is_unprintable)).for_each(|name| *name = escape::line(name));
        if let Some(id) = self.ids.get(&code) {
            return *id;
        }
        let id = CodeId(self.codes.len() as u32);
        let code = Rc::new(code);
        self.codes.push(Rc::clone(&code));
        self.ids.insert(code, id);
        id
    }

    /// The code of a number.
    pub fn get(&self, id: CodeId) -> &CodeLocation {
        &self.codes[id.0 as usize]
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = (CodeId, &CodeLocation)> {
        (0..).map(CodeId).zip(self.codes.iter().map(Rc::as_ref))
    }

    /// The line that stands for a code: that of the call, or that which most time was spent in.
    pub fn line(&self, id: CodeId) -> u32 {
        let code = self.get(id);
        if code.call.is_some() {
            return code.call_line;
        }
        self.lines
            .get(&id)
            .and_then(|lines| lines.iter().max_by_key(|(line, weight)| (**weight, u32::MAX - **line)))
            .map_or(0, |(line, _)| *line)
    }

    /// A start-up.
    pub fn start(&mut self, what: &str) -> CodeId {
        self.id(CodeLocation { path: vec![what.into()], calls: Vec::new(), file: String::new(), call: None, call_line: 0, taken: None })
    }

    /// The site of a call.
    pub fn call(&mut self, own: &Own, call: &'static str) -> CodeId {
        let (file, call_line) = own.first().map_or((String::new(), 0), |frame| (frame.file.clone(), frame.line));
        self.id(CodeLocation { path: path(own), calls: calls(own), file, call: Some(call), call_line, taken: None })
    }

    /// The block of a sample.
    pub fn sample(&mut self, own: &Own, taken: Option<TimedPath>) -> CodeId {
        let id = self.block(own, taken);
        self.weigh(id, own.first().map_or(0, |frame| frame.line), SAMPLE_NS);
        id
    }

    /// So much time was spent at a line of a block.
    pub fn weigh(&mut self, id: CodeId, line: u32, ns: u64) {
        let weight = self.lines.entry(id).or_default().entry(line).or_default();
        *weight = weight.saturating_add(ns);
    }

    /// Weights by line.
    pub fn lines(&self, id: CodeId) -> Option<&BTreeMap<u32, u64>> {
        self.lines.get(&id)
    }

    /// The block between two calls that no sample names: the functions that both are in. With the line of the second call, in the
    /// innermost of them.
    pub fn between(&mut self, before: Option<&Own>, next: Option<&Own>) -> (CodeId, u32) {
        let own = match (before, next) {
            (Some(before), Some(next)) => {
                let is_equal = |(a, b): &(&StackFrame, &StackFrame)| a.function == b.function && a.file == b.file;
                let common = before.iter().rev().zip(next.iter().rev()).take_while(is_equal).count();
                next[next.len() - common.max(1).min(next.len())..].to_vec()
            }
            (Some(own), None) | (None, Some(own)) => own.clone(),
            (None, None) => return (self.start("(unknown)"), 0),
        };
        (self.block(&own, None), own.first().map_or(0, |frame| frame.line))
    }

    fn block(&mut self, own: &Own, taken: Option<TimedPath>) -> CodeId {
        let file = own.first().map_or(String::new(), |frame| frame.file.clone());
        self.id(CodeLocation { path: path(own), calls: calls(own), file, call: None, call_line: 0, taken })
    }
}

fn calls(own: &Own) -> Vec<(String, u32)> {
    own.iter().skip(1).rev().map(|frame| (frame.file.clone(), frame.line)).collect()
}

fn path(own: &Own) -> Vec<String> {
    own.iter().rev().map(|frame| frame.function.clone()).collect()
}

/// The program's own frames of a stack. Addresses are those of returns, but `at` is that of an instruction.
pub fn own_frames(symbols: &mut Symbols, process: &ProcessFile, at: Option<u64>, stack: &[u64]) -> Own {
    let returns = stack.iter().map(|address| address.wrapping_sub(1));
    let mut all = Vec::new();
    for address in at.into_iter().chain(returns) {
        all.extend(symbols.frames(process, address).iter().cloned());
    }
    let mut own: Own = all.iter().filter(|frame| frame.is_own).cloned().collect();
    // A closure inlined into the function that it is written in is that function.
    let is_within = |inner: &StackFrame, outer: &StackFrame| inner.function.strip_suffix("::{{closure}}") == Some(&outer.function);
    // Start-up code of the C library has no lines.
    if own.iter().any(|frame| !frame.file.is_empty()) {
        own.retain(|frame| !frame.file.is_empty());
    }
    while let Some(index) = own.windows(2).position(|pair| is_within(&pair[0], &pair[1])) {
        let inner = own.remove(index);
        own[index].line = inner.line;
    }
    if own.is_empty() { all.into_iter().take(1).collect() } else { own }
}
