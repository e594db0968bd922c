//! Code blocks, which the analysis identifies by number, and their names in reports.
//!
//! A code block is a stack of the program's own functions: a sample's stack, or the common part of the call stacks before and after a
//! block. A call site is a stack with the line of the call. Lines within a block are counted separately and do not distinguish steps.

use crate::process_file::ProcessFile;
use crate::sample_paths::TimedPath;
use crate::symbols::{StackFrame, SymbolCache};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use trodden_text::escape;
use trodden_waits::CodeId;

/// A code block or call site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeLocation {
    /// Functions on the stack, outermost first; the last one is executing.
    pub path: Vec<String>,
    /// For each function but the last, the file and line at which it calls the next.
    pub calls: Vec<(String, u32)>,
    /// Source file of the last function; empty if unknown.
    pub file: String,
    /// The function called; `None` unless this is a call site.
    pub call: Option<&'static str>,
    /// Line of the call; 0 unless this is a call site.
    pub call_line: u32,
    /// The Ball-Larus path that was executed; `None` unless streams of the run are available.
    pub taken: Option<TimedPath>,
}

impl CodeLocation {
    /// Returns the file and line of the call that the function at a depth of the path makes; depth 1 is the outermost function. `None` for
    /// the last function.
    pub fn call_place(&self, depth: usize) -> Option<(&str, u32)> {
        self.calls.get(depth.checked_sub(1)?).map(|(file, line)| (file.as_str(), *line))
    }

    /// Returns the innermost function, which is executing.
    pub fn function(&self) -> &str {
        self.path.last().map_or("?", String::as_str)
    }
}

/// Weight of a sample, ns: one kernel tick. Blocks without samples have their time as weight.
const SAMPLE_NS: u64 = 4_000_000;

/// The program's own frames of a stack, innermost first. If the stack contains none, only its innermost frame.
type OwnFrames = Vec<StackFrame>;

/// All codes, numbered.
#[derive(Default)]
pub struct Codes {
    codes: Vec<Rc<CodeLocation>>,
    ids: HashMap<Rc<CodeLocation>, CodeId>,
    /// Weights of lines.
    lines: HashMap<CodeId, BTreeMap<u32, u64>>,
}

impl Codes {
    /// Returns the number of a code. A new code gets the next number.
    pub fn id(&mut self, mut code: CodeLocation) -> CodeId {
        // Control characters are escaped, because reports print names within a line.
        let names = code.path.iter_mut().chain(code.calls.iter_mut().map(|(file, _)| file)).chain([&mut code.file]);
        names.filter(|name| name.contains(escape::is_unprintable)).for_each(|name| *name = escape::escape_line(name));
        if let Some(id) = self.ids.get(&code) {
            return *id;
        }
        let id = CodeId(self.codes.len() as u32);
        let code = Rc::new(code);
        self.codes.push(Rc::clone(&code));
        self.ids.insert(code, id);
        id
    }

    /// Returns the code with a number.
    pub fn get(&self, id: CodeId) -> &CodeLocation {
        &self.codes[id.0 as usize]
    }

    /// Iterates over all codes in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (CodeId, &CodeLocation)> {
        (0..).map(CodeId).zip(self.codes.iter().map(Rc::as_ref))
    }

    /// Returns the line that represents a code in reports: the line of the call, or the line with the largest weight; 0 if unknown.
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

    /// Returns the number of a pseudo-code that is not a function, such as start-up.
    pub fn pseudo_code(&mut self, name: &str) -> CodeId {
        self.id(CodeLocation { path: vec![name.into()], calls: Vec::new(), file: String::new(), call: None, call_line: 0, taken: None })
    }

    /// Returns the number of a call site.
    pub fn call(&mut self, own: &OwnFrames, call: &'static str) -> CodeId {
        let (file, call_line) = own.first().map_or((String::new(), 0), |frame| (frame.file.clone(), frame.line));
        self.id(CodeLocation { path: path(own), calls: calls(own), file, call: Some(call), call_line, taken: None })
    }

    /// Returns the number of a sample's code block, and adds the sample to the weight of its line.
    pub fn sample(&mut self, own: &OwnFrames, taken: Option<TimedPath>) -> CodeId {
        let id = self.block(own, taken);
        self.weigh(id, own.first().map_or(0, |frame| frame.line), SAMPLE_NS);
        id
    }

    /// Adds time to the weight of a line in a block.
    pub fn weigh(&mut self, id: CodeId, line: u32, ns: u64) {
        let weight = self.lines.entry(id).or_default().entry(line).or_default();
        *weight = weight.saturating_add(ns);
    }

    /// Returns the weights of a block's lines; `None` if no line has a weight.
    pub fn lines(&self, id: CodeId) -> Option<&BTreeMap<u32, u64>> {
        self.lines.get(&id)
    }

    /// Returns the code of a block without samples, which is the common part of the call stacks before and after it, and the line of the
    /// second call in the innermost common function.
    pub fn between_calls(&mut self, before: Option<&OwnFrames>, next: Option<&OwnFrames>) -> (CodeId, u32) {
        let own = match (before, next) {
            (Some(before), Some(next)) => {
                let is_equal = |(a, b): &(&StackFrame, &StackFrame)| a.function == b.function && a.file == b.file;
                let common = before.iter().rev().zip(next.iter().rev()).take_while(is_equal).count();
                next[next.len() - common.max(1).min(next.len())..].to_vec()
            }
            (Some(own), None) | (None, Some(own)) => own.clone(),
            (None, None) => return (self.pseudo_code("(unknown)"), 0),
        };
        (self.block(&own, None), own.first().map_or(0, |frame| frame.line))
    }

    fn block(&mut self, own: &OwnFrames, taken: Option<TimedPath>) -> CodeId {
        let file = own.first().map_or(String::new(), |frame| frame.file.clone());
        self.id(CodeLocation { path: path(own), calls: calls(own), file, call: None, call_line: 0, taken })
    }
}

fn calls(own: &OwnFrames) -> Vec<(String, u32)> {
    own.iter().skip(1).rev().map(|frame| (frame.file.clone(), frame.line)).collect()
}

fn path(own: &OwnFrames) -> Vec<String> {
    own.iter().rev().map(|frame| frame.function.clone()).collect()
}

/// Returns the program's own frames in a stack of return addresses. `at` is the address of the current instruction, if known.
pub fn own_frames(symbols: &mut SymbolCache, process: &ProcessFile, at: Option<u64>, stack: &[u64]) -> OwnFrames {
    let returns = stack.iter().map(|address| address.wrapping_sub(1));
    let mut all = Vec::new();
    for address in at.into_iter().chain(returns) {
        all.extend(symbols.frames(process, address).iter().cloned());
    }
    let mut own: OwnFrames = all.iter().filter(|frame| frame.is_own).cloned().collect();
    // A closure that is inlined into its enclosing function counts as that function.
    let is_within = |inner: &StackFrame, outer: &StackFrame| inner.function.strip_suffix("::{{closure}}") == Some(&outer.function);
    // Drops the C library's start-up code, which has no lines.
    if own.iter().any(|frame| !frame.file.is_empty()) {
        own.retain(|frame| !frame.file.is_empty());
    }
    while let Some(index) = own.windows(2).position(|pair| is_within(&pair[0], &pair[1])) {
        let inner = own.remove(index);
        own[index].line = inner.line;
    }
    if own.is_empty() { all.into_iter().take(1).collect() } else { own }
}
