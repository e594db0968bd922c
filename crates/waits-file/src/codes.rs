//! Numbers for pieces of code, by which the analysis refers to them.
//!
//! A code is either a code block or a call site. A code block is a call stack without frames of system libraries: that of a sample, or the
//! common part of the stacks before and after a block of time. A call site is such a stack together with the line of a recorded call. The
//! lines of a code block are not part of its identity. Instead, each line has a weight.

use crate::process_file::ProcessFile;
use crate::sample_paths::TimedPath;
use crate::symbols::{StackFrame, SymbolCache};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use trodden_text::escape;
use trodden_waits::CodeId;

/// A code block or call site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeStackLocation {
    /// Names of the functions on the stack, outermost first. The last one is being executed.
    pub path: Vec<String>,
    /// For each function but the last, the file and line where it calls the next one.
    pub calls: Vec<(String, u32)>,
    /// Source file of the last function in `path`; empty if unknown.
    pub file: String,
    /// For a call site, the function that is called; `None` for a code block.
    pub call: Option<&'static str>,
    /// For a call site, the line of the call; 0 for a code block.
    pub call_line: u32,
    /// The Ball-Larus path that was executed; `None` unless the run's path streams are available.
    pub taken_path: Option<TimedPath>,
}

impl CodeStackLocation {
    /// Returns the file and line of the call by the function at `depth` to the next function on the stack. The outermost function has depth
    /// 1. Returns `None` for the last function, which calls none.
    pub fn location_of_call(&self, depth: usize) -> Option<(&str, u32)> {
        self.calls.get(depth.checked_sub(1)?).map(|(file, line)| (file.as_str(), *line))
    }

    /// Returns the innermost function, which is executing; `?` if the stack is empty.
    pub fn function(&self) -> &str {
        self.path.last().map_or("?", String::as_str)
    }
}

/// Weight in ns that a sample adds to its line: the period of the kernel's timer, which limits the sampling rate. A block without samples
/// adds its own length instead.
const SAMPLE_WEIGHT_NS: u64 = 4_000_000;

/// The frames of a stack that belong to the program itself, innermost first. If there are none, only the innermost frame.
type ProgramFrames = Vec<StackFrame>;

/// All codes by number.
#[derive(Default)]
pub struct CodeTable {
    codes: Vec<Rc<CodeStackLocation>>,
    ids: HashMap<Rc<CodeStackLocation>, CodeId>,
    lines: HashMap<CodeId, BTreeMap<u32, u64>>,
}

impl CodeTable {
    /// Returns the number of a code. A new code gets the next number.
    pub fn intern(&mut self, mut code: CodeStackLocation) -> CodeId {
        // Unprintable characters in names are escaped, because reports print several names in a line.
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

    /// Returns the code with the given number.
    pub fn get(&self, id: CodeId) -> &CodeStackLocation {
        &self.codes[id.0 as usize]
    }

    /// Iterates over all codes in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (CodeId, &CodeStackLocation)> {
        (0..).map(CodeId).zip(self.codes.iter().map(Rc::as_ref))
    }

    /// Returns the line that reports show for a code: that of a call site's call, or the line with the largest weight; 0 if unknown.
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

    /// Returns the number of an entry that is not a function, such as the start-up of a thread.
    pub fn intern_named_pseudo_code(&mut self, name: &str) -> CodeId {
        self.intern(CodeStackLocation {
            path: vec![name.into()],
            calls: Vec::new(),
            file: String::new(),
            call: None,
            call_line: 0,
            taken_path: None,
        })
    }

    /// Returns the number of the call site at which the innermost of the program's own functions makes the recorded call `call`.
    pub fn intern_call_site(&mut self, own: &ProgramFrames, call: &'static str) -> CodeId {
        let (file, call_line) = own.first().map_or((String::new(), 0), |frame| (frame.file.clone(), frame.line));
        self.intern(CodeStackLocation {
            path: function_path(own),
            calls: find_call_places(own),
            file,
            call: Some(call),
            call_line,
            taken_path: None,
        })
    }

    /// Returns the number of the code block that a sample interrupted, and adds the sample's weight to the line.
    pub fn intern_sample(&mut self, own: &ProgramFrames, taken_path: Option<TimedPath>) -> CodeId {
        let id = self.intern_block(own, taken_path);
        self.add_line_weight(id, own.first().map_or(0, |frame| frame.line), SAMPLE_WEIGHT_NS);
        id
    }

    /// Adds a time in ns to the weight of a line in a code block.
    pub fn add_line_weight(&mut self, id: CodeId, line: u32, ns: u64) {
        let weight = self.lines.entry(id).or_default().entry(line).or_default();
        *weight = weight.saturating_add(ns);
    }

    /// Returns the weights of a code block's lines; `None` if no line has a weight.
    pub fn line_weights(&self, id: CodeId) -> Option<&BTreeMap<u32, u64>> {
        self.lines.get(&id)
    }

    /// Returns the code block of time without samples: the part that the call stacks before and after it have in common. Also returns the
    /// line from which the innermost common function makes the second call.
    pub fn intern_common_block(&mut self, before: Option<&ProgramFrames>, next: Option<&ProgramFrames>) -> (CodeId, u32) {
        let own = match (before, next) {
            (Some(before), Some(next)) => {
                let is_equal = |(a, b): &(&StackFrame, &StackFrame)| a.function == b.function && a.file == b.file;
                let common = before.iter().rev().zip(next.iter().rev()).take_while(is_equal).count();
                next[next.len() - common.max(1).min(next.len())..].to_vec()
            }
            (Some(own), None) | (None, Some(own)) => own.clone(),
            (None, None) => return (self.intern_named_pseudo_code("(unknown)"), 0),
        };
        (self.intern_block(&own, None), own.first().map_or(0, |frame| frame.line))
    }

    fn intern_block(&mut self, own: &ProgramFrames, taken_path: Option<TimedPath>) -> CodeId {
        let file = own.first().map_or(String::new(), |frame| frame.file.clone());
        self.intern(CodeStackLocation {
            path: function_path(own),
            calls: find_call_places(own),
            file,
            call: None,
            call_line: 0,
            taken_path,
        })
    }
}

fn find_call_places(own: &ProgramFrames) -> Vec<(String, u32)> {
    own.iter().skip(1).rev().map(|frame| (frame.file.clone(), frame.line)).collect()
}

fn function_path(own: &ProgramFrames) -> Vec<String> {
    own.iter().rev().map(|frame| frame.function.clone()).collect()
}

/// Returns the program's own frames on a stack of return addresses. `at` is the address of the current instruction, if known.
pub fn find_program_frames(symbols: &mut SymbolCache, process: &ProcessFile, at: Option<u64>, stack: &[u64]) -> ProgramFrames {
    let returns = stack.iter().map(|address| address.wrapping_sub(1));
    let mut all = Vec::new();
    for address in at.into_iter().chain(returns) {
        all.extend(symbols.frames(process, address).iter().cloned());
    }
    let mut own: ProgramFrames = all.iter().filter(|frame| frame.is_own).cloned().collect();
    // A Rust closure that is inlined into its enclosing function counts as part of that function.
    let is_within = |inner: &StackFrame, outer: &StackFrame| inner.function.strip_suffix("::{{closure}}") == Some(&outer.function);
    // Frames without source lines are dropped if others have lines. Most of these belong to the C library's start-up code.
    if own.iter().any(|frame| !frame.file.is_empty()) {
        own.retain(|frame| !frame.file.is_empty());
    }
    while let Some(index) = own.windows(2).position(|pair| is_within(&pair[0], &pair[1])) {
        let inner = own.remove(index);
        own[index].line = inner.line;
    }
    if own.is_empty() { all.into_iter().take(1).collect() } else { own }
}
