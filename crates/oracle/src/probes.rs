//! Puts probes into a unit's code, in its textual form, so that a run says what was executed without anything of trodden's at work.
//!
//! Two kinds: *counts* adds one to a number in memory at the beginning of each block; *log* calls a recorder with an
//! activation's token, which the function gets from the recorder when it is entered, so that recursion, exceptions and
//! `longjmp` cannot confuse activations.
//!
//! Probes are numbered by the nodes of the unit's map: the i-th basic block of the text is the i-th node of kind `Code`,
//! and what follows its calls that return twice are the continuations behind that node. Landings and dispatch blocks are no places
//! in the program and get no probe.
//!
//! A tail call in front of a return needs probes of its own: code generation may end the function before the call, and
//! trodden counts it so. If the callee does not come back, the returning block was counted though the text says that it
//! was not reached.

use crate::error::Error;
use crate::text::{TextBlock, TextFunction, TextModule, call_kind, is_codeless, is_intrinsic, opcode, result};
use std::collections::HashMap;
use std::fmt::Write;
use trodden_unit::{BlockKind, EdgeKind, FunctionMap, UnitMap};

/// What probes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePurpose {
    /// One number for each block.
    Counts,
    /// A record of every step.
    Log,
}

/// Gives numbers to the nodes of all functions of a program.
#[derive(Debug, Default)]
pub struct NodeNumbers {
    next: u32,
}

/// A block that ends with a tail call in front of a block that only returns.
#[derive(Clone, Copy, Debug)]
pub struct TailReturn {
    /// Its node in its function.
    pub node: u32,
    /// The returning block's node.
    pub returning: u32,
    /// Number of its probe in front of the call.
    pub before: u32,
    /// Number of its probe behind the call.
    pub after: u32,
}

/// A function's numbers.
#[derive(Clone, Debug)]
pub struct FunctionProbes {
    /// Number of its first node; the others follow.
    pub first: u32,
    /// Its tail calls in front of returns.
    pub tails: Vec<TailReturn>,
}

impl NodeNumbers {
    /// How many were given.
    pub fn count(&self) -> u32 {
        self.next
    }

    fn take(&mut self, count: usize) -> u32 {
        let first = self.next;
        self.next += count as u32;
        first
    }
}

/// Puts probes into a unit's functions; the result has one entry for each function of the map, in its order.
///
/// # Errors
/// The text does not match the map.
pub fn insert_probes(
    text: &str,
    map: &UnitMap,
    purpose: ProbePurpose,
    numbers: &mut NodeNumbers,
) -> Result<(String, Vec<FunctionProbes>), Error> {
    let module = TextModule::read(text);
    let place: HashMap<&str, usize> = module.functions.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
    let mut probes = Insertions::default();
    let mut probed = Vec::new();
    for function in &map.functions {
        let wrong = |what: String| Error::Text { function: function.name.clone(), what };
        let at = *place.get(function.name.as_str()).ok_or_else(|| wrong("its unit's bitcode does not define it".into()))?;
        let first = numbers.take(function.blocks.len());
        let mut work = Work { module: &module, map: function, purpose, first, probes: &mut probes, numbers, tails: Vec::new() };
        work.function(&module.functions[at]).map_err(wrong)?;
        probed.push(FunctionProbes { first, tails: work.tails });
    }
    Ok((probes.into_text(&module, purpose), probed))
}

/// Lines to put before and behind lines.
#[derive(Default)]
struct Insertions {
    before: HashMap<usize, String>,
    behind: HashMap<usize, String>,
    made: usize,
}

impl Insertions {
    fn into_text(self, module: &TextModule, purpose: ProbePurpose) -> String {
        let mut out = String::new();
        for (at, line) in module.lines.iter().enumerate() {
            out.push_str(self.before.get(&at).map_or("", String::as_str));
            out.push_str(&without_memory_promise(line));
            out.push('\n');
            out.push_str(self.behind.get(&at).map_or("", String::as_str));
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

/// A function with probes writes memory, whatever the optimiser found.
pub fn without_memory_promise(line: &str) -> std::borrow::Cow<'_, str> {
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

struct Work<'a, 'b> {
    module: &'a TextModule<'a>,
    map: &'a FunctionMap,
    purpose: ProbePurpose,
    first: u32,
    probes: &'b mut Insertions,
    numbers: &'b mut NodeNumbers,
    tails: Vec<TailReturn>,
}

impl Work<'_, '_> {
    fn function(&mut self, function: &TextFunction) -> Result<(), String> {
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        for (i, block) in self.map.blocks.iter().enumerate() {
            match block.kind {
                BlockKind::Code => nodes.push(vec![i as u32]),
                BlockKind::Continuation => nodes.last_mut().ok_or("its first block continues another")?.push(i as u32),
                BlockKind::Landing | BlockKind::Dispatch => {}
            }
        }
        if nodes.len() != function.blocks.len() {
            return Err(format!("the map has {} basic blocks, the text {}", nodes.len(), function.blocks.len()));
        }
        let labels: HashMap<&str, usize> =
            function.blocks.iter().enumerate().filter_map(|(i, b)| b.label.as_deref().map(|l| (l, i))).collect();
        for (block, own) in function.blocks.iter().zip(&nodes) {
            self.block(block, own)?;
            if let Some((call, to)) = self.tail_call_before_return(function, block, &labels) {
                self.tail(*own.last().expect("a node"), nodes[to][0], call);
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &TextBlock, nodes: &[u32]) -> Result<(), String> {
        let line = |at: usize| self.module.lines[at];
        let is_head = |at: &usize| matches!(opcode(line(*at)), "phi" | "landingpad");
        let body: Vec<usize> = block.instructions.iter().copied().skip_while(is_head).collect();
        let (&start, &terminator) = body.first().zip(body.last()).ok_or("a block has no instruction")?;
        let twice = |at: &&usize| call_kind(line(**at)).is_some_and(|k| k != "musttail") && self.module.returns_twice(line(**at));
        let calls: Vec<usize> = body.iter().filter(twice).copied().collect();
        if calls.len() + 1 != nodes.len() {
            return Err(format!("node {} has {} calls that return twice, the map says {}", nodes[0], calls.len(), nodes.len() - 1));
        }
        let end = self.end(&body, *nodes.last().expect("a node"), terminator)?;
        let first = if nodes[0] == 0 { self.enter() } else { self.executed(nodes[0]) };
        self.before(start, first);
        for (i, call) in calls.into_iter().enumerate() {
            self.record(call, "twice", nodes[i]);
            let behind = self.executed(nodes[i + 1]);
            self.probes.behind.entry(call).or_default().push_str(&behind);
        }
        if let Some(at) = end {
            self.record(at, "end", *nodes.last().expect("a node"));
        }
        Ok(())
    }

    /// In front of which line the function is over, if the node ends it.
    fn end(&self, body: &[usize], node: u32, terminator: usize) -> Result<Option<usize>, String> {
        let ends = |e: &&trodden_unit::FlowEdge| {
            e.from.0 == node
                && e.to.index() == self.map.blocks.len()
                && matches!(e.kind, EdgeKind::Return | EdgeKind::Resume | EdgeKind::NoReturn | EdgeKind::TailCall)
        };
        let line = |at: usize| self.module.lines[at];
        let calls = || body.iter().rev().copied().filter(|at| call_kind(line(*at)).is_some() && !is_codeless(line(*at)));
        Ok(match self.map.edges.iter().find(ends).map(|e| e.kind) {
            None => None,
            Some(EdgeKind::TailCall) => {
                let is_tail = |at: &usize| matches!(call_kind(line(*at)), Some("tail" | "musttail"));
                Some(calls().find(is_tail).ok_or(format!("node {node} ends with no tail call, though the map says so"))?)
            }
            Some(EdgeKind::NoReturn) => {
                let last = body.iter().rev().copied().find(|at| call_kind(line(*at)).is_some() && !is_codeless(line(*at)));
                Some(last.filter(|at| self.module.never_returns(line(*at))).unwrap_or(terminator))
            }
            Some(_) => Some(terminator),
        })
    }

    /// A tail call at a block's end, in front of a jump to a block that returns what it returned and does nothing else.
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
        let idle = |at: &usize| opcode(line(*at)) == "phi" || is_codeless(line(*at));
        if opcode(line(ret)) != "ret" || !others.iter().all(idle) {
            return None;
        }
        if line(ret).trim_start().starts_with("ret void") {
            return Some((call, to));
        }
        let returned = line(ret).split(", !").next()?.split(' ').next_back()?;
        let phi = others.iter().copied().find(|at| result(line(*at)) == Some(returned))?;
        let value = result(line(call))?;
        line(phi).contains(&format!("[ {value}, %{} ]", block.label.as_deref().unwrap_or_default())).then_some((call, to))
    }

    fn tail(&mut self, node: u32, returning: u32, call: usize) {
        match self.purpose {
            ProbePurpose::Counts => {
                let before = self.numbers.take(2);
                let (one, other) = (self.count(before), self.count(before + 1));
                self.before(call, one);
                self.probes.behind.entry(call).or_default().push_str(&other);
                self.tails.push(TailReturn { node, returning, before, after: before + 1 });
            }
            ProbePurpose::Log => {
                self.record(call, "tail", node);
                self.tails.push(TailReturn { node, returning, before: 0, after: 0 });
            }
        }
    }

    fn before(&mut self, at: usize, text: String) {
        self.probes.before.entry(at).or_default().push_str(&text);
    }

    /// A record of something else than a block's execution; logs only.
    fn record(&mut self, at: usize, what: &str, node: u32) {
        if self.purpose == ProbePurpose::Log {
            self.before(at, format!("  call void @__oracle_{what}(i64 %oracle.token, i64 {})\n", self.first + node));
        }
    }

    fn enter(&mut self) -> String {
        match self.purpose {
            ProbePurpose::Counts => self.count(self.first),
            ProbePurpose::Log => format!("  %oracle.token = call i64 @__oracle_enter(i64 {})\n", self.first),
        }
    }

    fn executed(&mut self, node: u32) -> String {
        match self.purpose {
            ProbePurpose::Counts => self.count(self.first + node),
            ProbePurpose::Log => format!("  call void @__oracle_block(i64 %oracle.token, i64 {})\n", self.first + node),
        }
    }

    fn count(&mut self, number: u32) -> String {
        let mut text = String::new();
        self.probes.made += 1;
        let (name, at) = (self.probes.made, u64::from(number) * 8);
        writeln!(text, "  %oracle.{name} = atomicrmw add ptr getelementptr (i8, ptr @__oracle_counts, i64 {at}), i64 1 monotonic")
            .expect("text grows");
        text
    }
}
