//! The second oracle: a log of every step, from which paths are counted independently.
//!
//! The log contains the sequence of blocks that each activation of a function executed. Following this sequence along the edges of the
//! function's map, and ending paths at the map's cut edges, yields the complete and unfinished paths, their counts, and the value of every
//! counter. The result does not depend on where trodden inserts its probes or how it decodes paths.

use crate::counts::{UnitCounts, counts_of, decode};
use crate::error::OracleError;
use crate::probes::ProbePurpose;
use crate::subject::{OracleSubject, ProbedProgram, SubjectOutcome, SubjectRun};
use crate::tools::OracleTools;
use crate::verdict::{CountDifference, CountVerdict};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use trodden_flow::{Edge, Origin};
use trodden_profile::{FunctionPaths, PathEnd, PathStart};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap};

const MAX_LOG_BYTES: u64 = 2 << 30;
/// Number of 8-byte words before the records.
const HEADER_WORDS: usize = 2;

/// A step of an activation, which is one execution of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogStep {
    /// The first block of the function starts.
    Enter,
    /// A block or a continuation starts.
    Block,
    /// The function ends, at an exit or with a tail call.
    End,
    /// The next instruction is a call that returns twice.
    ReturnsTwice,
    /// The next instruction is a tail call, and only a returning block follows it.
    TailReturn,
}

/// Runs the program with a log and counts the logged paths.
///
/// # Errors
/// A tool fails, the program cannot be run, or the log is full or corrupt.
pub fn replay_log(subject: &OracleSubject, tools: &OracleTools, run: &SubjectRun) -> Result<(SubjectOutcome, LogReplay), OracleError> {
    let probed = subject.with_probes(tools, ProbePurpose::Log, MAX_LOG_BYTES, false)?;
    let file = subject.folder.join("log-of-steps");
    if file.exists() {
        fs::remove_file(&file).map_err(OracleError::file(&file))?;
    }
    let outcome = run.execute(&probed.program, &[("ORACLE_FILE", &file)])?;
    let records = read_log(&file)?;
    fs::remove_file(&file).map_err(OracleError::file(&file))?;
    Ok((outcome, LogReplay::new(subject, &probed, &records)?))
}

fn read_log(file: &Path) -> Result<Vec<u64>, OracleError> {
    use std::io::Read;
    let mut log = fs::File::open(file).map_err(OracleError::file(file))?;
    let mut word = [0; 8];
    log.read_exact(&mut word).map_err(OracleError::file(file))?;
    let used = u64::from_le_bytes(word) + HEADER_WORDS as u64;
    if used > MAX_LOG_BYTES / 8 {
        return Err(OracleError::Unusable {
            path: file.to_owned(),
            what: format!("the log exceeds {MAX_LOG_BYTES} bytes. Check a shorter run"),
        });
    }
    let mut bytes = vec![0; (used as usize - 1) * 8];
    log.read_exact(&mut bytes).map_err(OracleError::file(file))?;
    let words = bytes.chunks_exact(8).skip(HEADER_WORDS - 1);
    // A record is zero if its thread was killed between reserving the record and writing it.
    Ok(words.map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).filter(|w| *w != 0).collect())
}

/// The counts of all functions, derived from a log.
#[derive(Debug)]
pub struct LogReplay {
    /// Indexed by unit and by function in the unit's map.
    units: Vec<Vec<ObservedCounts>>,
}

/// A path: its blocks, whether it starts after a cut edge, and the edge by which it ends (`None` if it is unfinished).
type PathShape = (Vec<u32>, bool, Option<u32>);

/// The counts of one function, derived from a log.
#[derive(Debug, Default)]
struct ObservedCounts {
    counters: BTreeMap<u64, u64>,
    paths: BTreeMap<PathShape, u64>,
    blocks: Vec<u64>,
    edges: Vec<u64>,
    /// Last blocks of unfinished paths that stopped in a block without a call that might not return.
    stopped: Vec<u32>,
    /// Steps that contradict the map.
    contradictions: Vec<String>,
}

struct LogWalk<'a> {
    map: &'a FunctionMap,
    /// For each node, its outgoing edges, except `Reach` edges.
    out: Vec<Vec<u32>>,
    /// For each edge, its value; `None` if the edge is not in the acyclic graph.
    real: Vec<Option<i64>>,
    /// For each edge, the value that is added when a path ends there at a cut.
    leave: Vec<Option<i64>>,
    /// For each node, the value that is added when a path starts there after a cut edge.
    enter: Vec<Option<i64>>,
    /// For each node, its `Reach` edge, if it has one.
    reach: Vec<Option<u32>>,
}

struct Activation {
    unit: usize,
    function: usize,
    /// Sum of the current path's values.
    sum: i64,
    /// Blocks of the current path.
    path: Vec<u32>,
    starts_after_cut: bool,
    /// True after a path has ended, until a block starts the next path.
    is_between_paths: bool,
    /// True if a tail call before a returning block is in progress.
    in_tail_call: bool,
}

impl LogReplay {
    fn new(subject: &OracleSubject, probed: &ProbedProgram, records: &[u64]) -> Result<LogReplay, OracleError> {
        let mut walks: Vec<Vec<LogWalk>> = Vec::new();
        let mut owner = Vec::new();
        for (u, (unit, functions)) in subject.units.iter().zip(&probed.functions).enumerate() {
            walks.push(unit.map.functions.iter().map(LogWalk::new).collect());
            owner.extend(functions.iter().enumerate().map(|(f, probes)| (probes.first, u, f)));
        }
        let mut observed: Vec<Vec<ObservedCounts>> =
            walks.iter().map(|unit| unit.iter().map(LogWalk::create_zero_counts).collect()).collect();
        let mut running: BTreeMap<u32, Activation> = BTreeMap::new();
        for &record in records {
            let (token, step, number) = parse_record(record)?;
            let at = owner
                .partition_point(|o| o.0 <= number)
                .checked_sub(1)
                .ok_or_else(|| corrupt_log_error("a record does not belong to any function"))?;
            let (first, unit, function) = owner[at];
            let (walk, observed) = (&walks[unit][function], &mut observed[unit][function]);
            let node = number - first;
            if step == LogStep::Enter {
                let (path, is_between_paths) = (vec![], true);
                let new = Activation { unit, function, sum: 0, path, starts_after_cut: false, is_between_paths, in_tail_call: false };
                running.insert(token, new);
            }
            let activation = running.get_mut(&token).ok_or_else(|| corrupt_log_error("a step follows the end of its activation"))?;
            if (activation.unit, activation.function) != (unit, function) {
                return Err(corrupt_log_error("a step belongs to an activation of a different function"));
            }
            if walk.process_step(activation, step, node, observed) {
                running.remove(&token);
            }
        }
        for activation in running.into_values() {
            let (unit, function) = (activation.unit, activation.function);
            walks[unit][function].end_activation(activation, &mut observed[unit][function]);
        }
        Ok(LogReplay { units: observed })
    }

    /// Compares counters, paths, unfinished paths, and the counts of blocks and edges, of every function.
    ///
    /// # Errors
    /// A map is corrupt.
    pub fn check(&self, subject: &OracleSubject, counts: &[UnitCounts]) -> Result<CountVerdict, OracleError> {
        let mut verdict = CountVerdict::default();
        for ((unit, counted), observed) in subject.units.iter().zip(counts).zip(&self.units) {
            for (function, observed) in unit.map.functions.iter().zip(observed) {
                verdict.functions += 1;
                verdict.executed += usize::from(!observed.paths.is_empty());
                verify_counters(function, observed, counted, &mut verdict);
                verify_paths(function, observed, &decode(function, counted)?, &mut verdict);
            }
        }
        Ok(verdict)
    }
}

fn corrupt_log_error(what: &str) -> OracleError {
    OracleError::Unusable { path: "log of steps".into(), what: what.into() }
}

fn parse_record(record: u64) -> Result<(u32, LogStep, u32), OracleError> {
    let step = match record >> 29 & 7 {
        0 => LogStep::Enter,
        1 => LogStep::Block,
        2 => LogStep::End,
        3 => LogStep::ReturnsTwice,
        4 => LogStep::TailReturn,
        _ => return Err(corrupt_log_error("a record has an unknown kind")),
    };
    Ok(((record >> 32) as u32, step, (record & 0x1fff_ffff) as u32))
}

impl<'a> LogWalk<'a> {
    fn new(map: &'a FunctionMap) -> LogWalk<'a> {
        let nodes = map.blocks.len() + 1;
        let (mut out, mut reach) = (vec![Vec::new(); nodes], vec![None; nodes]);
        for (i, edge) in map.graph.flow_edges().enumerate() {
            match edge.kind {
                EdgeKind::Reach => reach[edge.from.index()] = Some(i as u32),
                _ => out[edge.from.index()].push(i as u32),
            }
        }
        let (mut real, mut leave, mut enter) = (vec![None; map.graph.edge_count()], vec![None; map.graph.edge_count()], vec![None; nodes]);
        for (edge, value) in map.dag.iter().zip(&map.values) {
            match *edge {
                Origin::Real(e) => real[e.index()] = Some(*value),
                Origin::Leave(e) => leave[e.index()] = Some(*value),
                Origin::Enter(e) => enter[map.graph.to(e).index()] = Some(*value),
                Origin::Stop(_) => {}
            }
        }
        LogWalk { map, out, real, leave, enter, reach }
    }

    fn create_zero_counts(&self) -> ObservedCounts {
        ObservedCounts { blocks: vec![0; self.map.blocks.len()], edges: vec![0; self.map.graph.edge_count()], ..ObservedCounts::default() }
    }

    /// Processes a step. Returns true if it ends the activation.
    fn process_step(&self, activation: &mut Activation, step: LogStep, node: u32, observed: &mut ObservedCounts) -> bool {
        match step {
            LogStep::Enter => self.enter_node(activation, node, observed),
            LogStep::Block if self.map.blocks[node as usize].kind == BlockKind::Continuation => {
                // After a second return, the path that was in progress stays unfinished.
                if !activation.is_between_paths {
                    self.record_unfinished(activation, observed);
                }
                activation.sum = self.enter[node as usize].unwrap_or(0);
                activation.path.clear();
                activation.starts_after_cut = true;
                self.enter_node(activation, node, observed);
            }
            LogStep::Block => self.follow_edges_to(activation, node, observed),
            LogStep::ReturnsTwice => match self.find_edge(node, |e| self.map.graph.kind(e) == EdgeKind::ReturnsTwice) {
                Some(edge) => self.take_edge(activation, edge, observed),
                None => observed
                    .contradictions
                    .push(format!("block {node} calls a function that returns twice, but the map has no edge for it")),
            },
            LogStep::TailReturn => activation.in_tail_call = true,
            LogStep::End => {
                let ends = |e: Edge| self.map.graph.to(e) == self.map.exit();
                match self.find_edge(node, ends) {
                    Some(edge) => self.take_edge(activation, edge, observed),
                    None => observed.contradictions.push(format!("block {node} ends the function, but the map has no edge for it")),
                }
                return true;
            }
        }
        false
    }

    fn find_edge(&self, node: u32, which: impl Fn(Edge) -> bool) -> Option<u32> {
        self.out[node as usize].iter().copied().find(|e| which(Edge(*e)))
    }

    /// Follows the edges to a block, through dispatch blocks and landings if necessary.
    fn follow_edges_to(&self, activation: &mut Activation, to: u32, observed: &mut ObservedCounts) {
        activation.in_tail_call = false;
        let Some(&from) = activation.path.last() else {
            observed.contradictions.push(format!("block {to} was executed without a block before it"));
            return;
        };
        match self.edges_between(from, to, 0) {
            Some(edges) => edges.into_iter().for_each(|e| self.take_edge(activation, e, observed)),
            None => {
                observed.contradictions.push(format!("control went from block {from} to block {to}, but the map has no edge between them"))
            }
        }
    }

    fn edges_between(&self, from: u32, to: u32, depth: u32) -> Option<Vec<u32>> {
        for &edge in &self.out[from as usize] {
            let head = self.map.graph.to(Edge(edge)).0;
            if head == to {
                return Some(vec![edge]);
            }
            let passes = self.map.blocks.get(head as usize).is_some_and(|b| matches!(b.kind, BlockKind::Dispatch | BlockKind::Landing));
            if passes
                && depth < 2
                && let Some(rest) = self.edges_between(head, to, depth + 1)
            {
                return Some([vec![edge], rest].concat());
            }
        }
        None
    }

    fn take_edge(&self, activation: &mut Activation, edge: u32, observed: &mut ObservedCounts) {
        let e = edge as usize;
        observed.edges[e] += 1;
        let flow = self.map.graph.edge(Edge(edge));
        let ends = flow.to == self.map.exit();
        match (self.real[e], self.leave[e]) {
            (Some(value), _) if ends => self.complete_path(activation, activation.sum + value, edge, observed),
            (Some(value), _) => activation.sum += value,
            (None, Some(value)) => {
                self.complete_path(activation, activation.sum + value, edge, observed);
                activation.sum = self.enter[flow.to.index()].unwrap_or(0);
                activation.starts_after_cut = true;
            }
            (None, None) => observed.contradictions.push(format!("edge {edge} was taken, but no path contains it")),
        }
        if !ends && flow.kind != EdgeKind::ReturnsTwice {
            self.enter_node(activation, flow.to.0, observed);
        }
    }

    fn enter_node(&self, activation: &mut Activation, node: u32, observed: &mut ObservedCounts) {
        activation.is_between_paths = false;
        activation.path.push(node);
        observed.blocks[node as usize] += 1;
        if let Some(edge) = self.reach[node as usize] {
            match self.real[edge as usize] {
                Some(value) => *observed.counters.entry((activation.sum + value) as u64).or_default() += 1,
                None => observed.contradictions.push(format!("block {node} was executed, but no path contains it")),
            }
        }
    }

    fn complete_path(&self, activation: &mut Activation, id: i64, edge: u32, observed: &mut ObservedCounts) {
        *observed.counters.entry(id as u64).or_default() += 1;
        let path = std::mem::take(&mut activation.path);
        *observed.paths.entry((path, activation.starts_after_cut, Some(edge))).or_default() += 1;
        activation.is_between_paths = true;
    }

    fn record_unfinished(&self, activation: &mut Activation, observed: &mut ObservedCounts) {
        let path = std::mem::take(&mut activation.path);
        let at = path.last().copied().unwrap_or(0);
        if self.reach[at as usize].is_none() {
            observed.stopped.push(at);
        }
        *observed.paths.entry((path, activation.starts_after_cut, None)).or_default() += 1;
    }

    /// Processes an activation that was still running at the end of the log.
    fn end_activation(&self, mut activation: Activation, observed: &mut ObservedCounts) {
        if activation.in_tail_call {
            // The tail call has replaced the function's frame, so trodden counts the returning block.
            let from = *activation.path.last().expect("a block made the call");
            let to = self.find_edge(from, |_| true).map(|e| self.map.graph.to(Edge(e)).0).expect("the block jumps to a return");
            self.follow_edges_to(&mut activation, to, observed);
            self.process_step(&mut activation, LogStep::End, to, observed);
        } else if !activation.is_between_paths {
            self.record_unfinished(&mut activation, observed);
        }
    }
}

fn verify_counters(function: &FunctionMap, observed: &ObservedCounts, counts: &UnitCounts, verdict: &mut CountVerdict) {
    for what in &observed.contradictions {
        verdict.differences.push(CountDifference { function: function.name.clone(), what: what.clone() });
    }
    for at in &observed.stopped {
        let what = format!("the path stopped in block {at}, which has no call that might not return");
        verdict.differences.push(CountDifference { function: function.name.clone(), what });
    }
    let own: HashMap<u64, u64> = counts_of(function, counts).into_iter().collect();
    let ids: BTreeSet<u64> = own.keys().chain(observed.counters.keys()).copied().filter(|id| *id < function.counters).collect();
    for id in ids {
        let trodden = own.get(&id).copied().unwrap_or(0);
        let oracle = observed.counters.get(&id).copied().unwrap_or(0);
        verdict.compare(&function.name, || format!("counter {id}"), trodden, oracle);
    }
    if let Some(path) = observed.counters.keys().find(|id| **id >= function.counters) {
        let what = format!("the steps form path {path}, but there are only {} paths", function.counters);
        verdict.differences.push(CountDifference { function: function.name.clone(), what });
    }
}

fn verify_paths(function: &FunctionMap, observed: &ObservedCounts, paths: &FunctionPaths, verdict: &mut CountVerdict) {
    let name = &function.name;
    for (at, (trodden, oracle)) in paths.blocks.iter().zip(&observed.blocks).enumerate() {
        verdict.compare(name, || format!("block {at}"), *trodden, *oracle);
    }
    for (at, (trodden, oracle)) in paths.edges.iter().zip(&observed.edges).enumerate() {
        verdict.compare(name, || format!("edge {at}"), *trodden, *oracle);
    }
    if !paths.are_all_paths_finished() {
        verdict.unfinished.push(name.clone());
    }
    let mut shapes: HashMap<PathShape, u64> = HashMap::new();
    for path in &paths.complete {
        let end = match path.end {
            PathEnd::Exit(e) | PathEnd::Cut(e) => Some(e.0),
            PathEnd::Stop => None,
        };
        let blocks = path.blocks.iter().map(|b| b.0).collect();
        *shapes.entry((blocks, path.beginning != PathStart::Entry, end)).or_default() += path.count;
    }
    for path in &paths.unfinished {
        let blocks = path.blocks.iter().map(|b| b.0).collect();
        let count = shapes.entry((blocks, path.beginning != PathStart::Entry, None)).or_default();
        *count = count.wrapping_add_signed(path.count);
    }
    for (shape, oracle) in &observed.paths {
        verdict.compare(name, || format!("path {shape:?}"), shapes.remove(shape).unwrap_or(0), *oracle);
    }
    for (shape, count) in shapes {
        verdict.compare(name, || format!("path {shape:?}"), count, 0);
    }
}
