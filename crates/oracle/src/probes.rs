//! Inserts the oracles' probes into the textual IR of a unit: either a counter in every block, or calls that log every step. A function
//! gets a token from the recorder on entry, so that recursion, exceptions and `longjmp` cannot confuse its activations.
//!
//! Probes are numbered by the nodes of the unit's map. The i-th basic block of the text is the i-th node of kind `Code`; the continuations
//! after it are the code that follows its calls that return twice. Landings and dispatch blocks are not in the text and get no probe. A
//! tail call before a return gets two additional probes. trodden counts as if the function ended before such a call, so it counts the
//! returning block even if the callee never returns.

use crate::error::OracleError;
use crate::text::{TextBlock, TextFunction, TextModule, call_kind, is_codeless, is_intrinsic, opcode, result_name};
use std::collections::HashMap;
use std::fmt::Write;
use trodden_unit::{BlockKind, EdgeKind, FunctionMap, UnitMap};

/// What probes record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePurpose {
    /// An execution count for each block.
    Counts,
    /// A log record for every step.
    Log,
}

/// Assigns probe numbers to all nodes of a program.
#[derive(Debug, Default)]
pub struct NodeNumbers {
    next: u32,
}

/// A block that ends with a tail call followed by a jump to a block that only returns.
#[derive(Clone, Copy, Debug)]
pub struct TailReturn {
    /// Node of the calling block.
    pub node: u32,
    /// Node of the returning block.
    pub returning: u32,
    /// Number of the probe before the call.
    pub before: u32,
    /// Number of the probe after the call.
    pub after: u32,
}

/// The probes of a function, which are identified by number.
#[derive(Clone, Debug)]
pub struct FunctionProbes {
    /// Probe number of the first node; the other nodes have the following numbers.
    pub first: u32,
    /// Tail calls before returns.
    pub tails: Vec<TailReturn>,
}

impl NodeNumbers {
    /// Returns how many numbers have been assigned.
    pub fn count(&self) -> u32 {
        self.next
    }

    fn assign(&mut self, count: usize) -> u32 {
        let first = self.next;
        self.next += count as u32;
        first
    }
}

/// Inserts probes into a unit's functions. Returns the new text, and the probes of each function in the order of the map.
///
/// # Errors
/// The text does not match the map.
pub fn insert_probes(
    text: &str,
    map: &UnitMap,
    purpose: ProbePurpose,
    numbers: &mut NodeNumbers,
) -> Result<(String, Vec<FunctionProbes>), OracleError> {
    let module = TextModule::read(text);
    let place: HashMap<&str, usize> = module.functions.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
    let mut probes = ProbeInsertions::default();
    let mut probed = Vec::new();
    for function in &map.functions {
        let mismatch = |what: String| OracleError::Text { function: function.name.clone(), what };
        let at = *place.get(function.name.as_str()).ok_or_else(|| mismatch("the unit's bitcode does not define it".into()))?;
        let first = numbers.assign(function.blocks.len());
        let mut prober = FunctionProber { module: &module, map: function, purpose, first, probes: &mut probes, numbers, tails: Vec::new() };
        prober.insert_in_function(&module.functions[at]).map_err(mismatch)?;
        probed.push(FunctionProbes { first, tails: prober.tails });
    }
    Ok((probes.into_text(&module, purpose), probed))
}

#[derive(Default)]
struct ProbeInsertions {
    before: HashMap<usize, String>,
    after: HashMap<usize, String>,
    /// Number of IR values that were named so far.
    values: usize,
}

impl ProbeInsertions {
    fn into_text(self, module: &TextModule, purpose: ProbePurpose) -> String {
        let mut out = String::new();
        for (at, line) in module.lines.iter().enumerate() {
            out.push_str(self.before.get(&at).map_or("", String::as_str));
            out.push_str(&strip_memory_attribute(line));
            out.push('\n');
            out.push_str(self.after.get(&at).map_or("", String::as_str));
        }
        out.push_str(match purpose {
            ProbePurpose::Counts => "\n@__oracle_counts = external global i8\n",
            ProbePurpose::Log => {
                "\ndeclare i64 @__oracle_enter(i64)\ndeclare void @__oracle_block(i64, i64)\ndeclare void @__oracle_end(i64, i64)\n\
                 declare void @__oracle_twice(i64, i64)\ndeclare void @__oracle_tail(i64, i64)\n"
            }
        });
        out
    }
}

/// Removes the `memory(...)` attribute from a line, since probes write memory.
pub fn strip_memory_attribute(line: &str) -> std::borrow::Cow<'_, str> {
    match line.starts_with("attributes #").then(|| line.find(" memory(")).flatten() {
        Some(at) => {
            let depth_end = line[at..].char_indices().scan(0, |depth, (i, c)| {
                *depth += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                Some((i, c, *depth))
            });
            let end = depth_end.filter(|(_, c, depth)| *c == ')' && *depth == 0).map(|(i, ..)| at + i + 1).next().unwrap_or(line.len());
            format!("{}{}", &line[..at], &line[end..]).into()
        }
        None => line.into(),
    }
}

struct FunctionProber<'a, 'b> {
    module: &'a TextModule<'a>,
    map: &'a FunctionMap,
    purpose: ProbePurpose,
    first: u32,
    probes: &'b mut ProbeInsertions,
    numbers: &'b mut NodeNumbers,
    tails: Vec<TailReturn>,
}

impl FunctionProber<'_, '_> {
    fn insert_in_function(&mut self, function: &TextFunction) -> Result<(), String> {
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        for (i, block) in self.map.blocks.iter().enumerate() {
            match block.kind {
                BlockKind::Code => nodes.push(vec![i as u32]),
                BlockKind::Continuation => nodes.last_mut().ok_or("the first block continues a different block")?.push(i as u32),
                BlockKind::Landing | BlockKind::Dispatch => {}
            }
        }
        if nodes.len() != function.blocks.len() {
            return Err(format!("the map has {} basic blocks, but the text has {}", nodes.len(), function.blocks.len()));
        }
        let labels: HashMap<&str, usize> =
            function.blocks.iter().enumerate().filter_map(|(i, b)| b.label.as_deref().map(|l| (l, i))).collect();
        for (block, own) in function.blocks.iter().zip(&nodes) {
            self.insert_in_block(block, own)?;
            if let Some((call, to)) = self.tail_call_before_return(function, block, &labels) {
                self.insert_around_tail_call(*own.last().expect("a node"), nodes[to][0], call);
            }
        }
        Ok(())
    }

    fn insert_in_block(&mut self, block: &TextBlock, nodes: &[u32]) -> Result<(), String> {
        let line = |at: usize| self.module.lines[at];
        let is_head = |at: &usize| matches!(opcode(line(*at)), "phi" | "landingpad");
        let body: Vec<usize> = block.instructions.iter().copied().skip_while(is_head).collect();
        let (&start, &terminator) = body.first().zip(body.last()).ok_or("a block has no instructions")?;
        let twice = |at: &&usize| call_kind(line(**at)).is_some_and(|k| k != "musttail") && self.module.returns_twice(line(**at));
        let calls: Vec<usize> = body.iter().filter(twice).copied().collect();
        if calls.len() + 1 != nodes.len() {
            return Err(format!("node {} has {} calls that return twice, but the map has {}", nodes[0], calls.len(), nodes.len() - 1));
        }
        let end = self.end_line(&body, *nodes.last().expect("a node"), terminator)?;
        let first = if nodes[0] == 0 { self.entry_probe() } else { self.block_probe(nodes[0]) };
        self.insert_before(start, first);
        for (i, call) in calls.into_iter().enumerate() {
            self.insert_log_record(call, "twice", nodes[i]);
            let continuation = self.block_probe(nodes[i + 1]);
            self.probes.after.entry(call).or_default().push_str(&continuation);
        }
        if let Some(at) = end {
            self.insert_log_record(at, "end", *nodes.last().expect("a node"));
        }
        Ok(())
    }

    /// Returns the line before which the function ends; `None` if the function does not end in this node.
    fn end_line(&self, body: &[usize], node: u32, terminator: usize) -> Result<Option<usize>, String> {
        let ends = |e: &trodden_unit::FlowEdge| {
            e.from.0 == node
                && e.to.index() == self.map.blocks.len()
                && matches!(e.kind, EdgeKind::Return | EdgeKind::Resume | EdgeKind::NoReturn | EdgeKind::TailCall)
        };
        let line = |at: usize| self.module.lines[at];
        let calls = || body.iter().rev().copied().filter(|at| call_kind(line(*at)).is_some() && !is_codeless(line(*at)));
        Ok(match self.map.graph.flow_edges().find(ends).map(|e| e.kind) {
            None => None,
            Some(EdgeKind::TailCall) => {
                let is_tail = |at: &usize| matches!(call_kind(line(*at)), Some("tail" | "musttail"));
                Some(calls().find(is_tail).ok_or(format!("node {node} has no tail call at its end, but the map has one"))?)
            }
            Some(EdgeKind::NoReturn) => {
                let last = body.iter().rev().copied().find(|at| call_kind(line(*at)).is_some() && !is_codeless(line(*at)));
                Some(last.filter(|at| self.module.never_returns(line(*at))).unwrap_or(terminator))
            }
            Some(_) => Some(terminator),
        })
    }

    /// Finds a tail call at the end of a block that jumps to a block which only returns the call's result. Returns the line of the call and
    /// the index of the returning block.
    fn tail_call_before_return(&self, function: &TextFunction, block: &TextBlock, labels: &HashMap<&str, usize>) -> Option<(usize, usize)> {
        let line = |at: usize| self.module.lines[at];
        let jump = *block.instructions.last()?;
        let to = line(jump).trim_start().strip_prefix("br label %")?.split(',').next()?.trim().trim_matches('"');
        let to = *labels.get(to)?;
        let call = block.instructions.iter().rev().skip(1).copied().find(|at| !is_codeless(line(*at)))?;
        if !matches!(call_kind(line(call)), Some("tail" | "musttail")) || is_intrinsic(line(call)) {
            return None;
        }
        let target = &function.blocks[to].instructions;
        let (&ret, others) = target.split_last()?;
        let has_no_code = |at: &usize| opcode(line(*at)) == "phi" || is_codeless(line(*at));
        if opcode(line(ret)) != "ret" || !others.iter().all(has_no_code) {
            return None;
        }
        if line(ret).trim_start().starts_with("ret void") {
            return Some((call, to));
        }
        let returned = line(ret).split(", !").next()?.split(' ').next_back()?;
        let phi = others.iter().copied().find(|at| result_name(line(*at)) == Some(returned))?;
        let value = result_name(line(call))?;
        line(phi).contains(&format!("[ {value}, %{} ]", block.label.as_deref().unwrap_or_default())).then_some((call, to))
    }

    fn insert_around_tail_call(&mut self, node: u32, returning: u32, call: usize) {
        match self.purpose {
            ProbePurpose::Counts => {
                let before = self.numbers.assign(2);
                let (first, second) = (self.counter_increment(before), self.counter_increment(before + 1));
                self.insert_before(call, first);
                self.probes.after.entry(call).or_default().push_str(&second);
                self.tails.push(TailReturn { node, returning, before, after: before + 1 });
            }
            ProbePurpose::Log => {
                self.insert_log_record(call, "tail", node);
                self.tails.push(TailReturn { node, returning, before: 0, after: 0 });
            }
        }
    }

    fn insert_before(&mut self, at: usize, text: String) {
        self.probes.before.entry(at).or_default().push_str(&text);
    }

    /// Inserts the log record of a step other than the execution of a block. Does nothing if the probes are counters.
    fn insert_log_record(&mut self, at: usize, what: &str, node: u32) {
        if self.purpose == ProbePurpose::Log {
            self.insert_before(at, format!("  call void @__oracle_{what}(i64 %oracle.token, i64 {})\n", self.first + node));
        }
    }

    fn entry_probe(&mut self) -> String {
        match self.purpose {
            ProbePurpose::Counts => self.counter_increment(self.first),
            ProbePurpose::Log => format!("  %oracle.token = call i64 @__oracle_enter(i64 {})\n", self.first),
        }
    }

    fn block_probe(&mut self, node: u32) -> String {
        match self.purpose {
            ProbePurpose::Counts => self.counter_increment(self.first + node),
            ProbePurpose::Log => format!("  call void @__oracle_block(i64 %oracle.token, i64 {})\n", self.first + node),
        }
    }

    fn counter_increment(&mut self, number: u32) -> String {
        let mut text = String::new();
        self.probes.values += 1;
        let (name, at) = (self.probes.values, u64::from(number) * 8);
        writeln!(text, "  %oracle.{name} = atomicrmw add ptr getelementptr (i8, ptr @__oracle_counts, i64 {at}), i64 1 monotonic")
            .expect("writing to a string does not fail");
        text
    }
}
