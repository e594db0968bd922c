//! The second oracle: a log of every step, from which paths are counted again.
//!
//! The log says for each activation of a function which blocks it went through. Walking over the edges of the
//! function's map, cutting where the map says that paths are cut, gives every path as a sequence of blocks, and how it
//! ended: so which paths were executed how often, which were left unfinished, and what each counter must hold. Neither
//! the placement of probes, nor how paths are decoded, plays a part.

use crate::counts::{UnitCounts, counts_of, decode};
use crate::error::Error;
use crate::probes::ProbePurpose;
use crate::subject::{ProbedProgram, Subject, SubjectOutcome, SubjectRun};
use crate::tools::Toolkit;
use crate::verdict::{CountDifference, CountVerdict};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use trodden_flow::Origin;
use trodden_profile::{Beginning, FunctionPaths, PathEnd};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap};

/// Most bytes of a log.
const LOG_BYTES: u64 = 2 << 30;
/// Words in front of the records.
const LOG_HEAD: usize = 2;

/// A step of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A function was entered: its first block.
    Enter,
    /// A block, or what follows a call that returns twice.
    Block,
    /// The function is over, but for a tail call.
    End,
    /// A call that returns twice comes.
    Twice,
    /// A tail call in front of a block that only returns comes.
    Tail,
}

/// Runs the program with a log and counts its paths.
///
/// # Errors
/// A tool fails, the program cannot be run, or the log is full or damaged.
pub fn replay(subject: &Subject, tools: &Toolkit, run: &SubjectRun) -> Result<(SubjectOutcome, Replay), Error> {
    let probed = subject.with_probes(tools, ProbePurpose::Log, LOG_BYTES, false)?;
    let file = subject.folder.join("log-of-steps");
    if file.exists() {
        fs::remove_file(&file).map_err(Error::file(&file))?;
    }
    let outcome = run.make(&probed.program, &[("ORACLE_FILE", &file)])?;
    let records = read_log(&file)?;
    fs::remove_file(&file).map_err(Error::file(&file))?;
    Ok((outcome, Replay::new(subject, &probed, &records)?))
}

fn read_log(file: &Path) -> Result<Vec<u64>, Error> {
    use std::io::Read;
    let mut log = fs::File::open(file).map_err(Error::file(file))?;
    let mut word = [0; 8];
    log.read_exact(&mut word).map_err(Error::file(file))?;
    let used = u64::from_le_bytes(word) + LOG_HEAD as u64;
    if used > LOG_BYTES / 8 {
        return Err(Error::Damaged { path: file.to_owned(), what: "the program ran too long for a log".into() });
    }
    let mut bytes = vec![0; (used as usize - 1) * 8];
    log.read_exact(&mut bytes).map_err(Error::file(file))?;
    let words = bytes.chunks_exact(8).skip(LOG_HEAD - 1);
    // A thread may have been ended between taking a place and writing.
    Ok(words.map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).filter(|w| *w != 0).collect())
}

/// What a log says of all functions.
#[derive(Debug)]
pub struct Replay {
    /// For each unit, for each function of its map.
    units: Vec<Vec<Observed>>,
}

/// A path: its blocks, whether it begins behind a cut edge, the edge by which it ends (none: it did not).
type PathShape = (Vec<u32>, bool, Option<u32>);

/// What a log says of a function.
#[derive(Debug, Default)]
struct Observed {
    counters: BTreeMap<u64, u64>,
    paths: BTreeMap<PathShape, u64>,
    blocks: Vec<u64>,
    edges: Vec<u64>,
    /// Paths that stopped where no call is: ended from outside.
    stopped: Vec<u32>,
    nonsense: Vec<String>,
}

/// A function's map, arranged for walking.
struct Walk<'a> {
    map: &'a FunctionMap,
    /// For each node its edges.
    out: Vec<Vec<u32>>,
    /// For each edge its value if it is in the acyclic graph, and the value of leaving by it if it is cut.
    real: Vec<Option<i64>>,
    leave: Vec<Option<i64>>,
    /// For each node the value of entering behind a cut edge.
    enter: Vec<Option<i64>>,
    /// For each node its edge before a call that might not return.
    reach: Vec<Option<u32>>,
}

/// An activation of a function.
struct Activation {
    unit: usize,
    function: usize,
    sum: i64,
    path: Vec<u32>,
    begun_by_cut: bool,
    /// The path under way has ended (at a call that returns twice).
    between: bool,
    tail: bool,
}

impl Replay {
    fn new(subject: &Subject, probed: &ProbedProgram, records: &[u64]) -> Result<Replay, Error> {
        let mut walks: Vec<Vec<Walk>> = Vec::new();
        let mut owner = Vec::new();
        for (u, (unit, functions)) in subject.units.iter().zip(&probed.functions).enumerate() {
            walks.push(unit.map.functions.iter().map(Walk::new).collect());
            owner.extend(functions.iter().enumerate().map(|(f, probes)| (probes.first, u, f)));
        }
        let mut observed: Vec<Vec<Observed>> = walks.iter().map(|unit| unit.iter().map(Walk::nothing).collect()).collect();
        let mut running: BTreeMap<u32, Activation> = BTreeMap::new();
        for &record in records {
            let (token, step, number) = parse(record)?;
            let at = owner.partition_point(|o| o.0 <= number).checked_sub(1).ok_or_else(|| damaged("a record of no function"))?;
            let (first, unit, function) = owner[at];
            let (walk, observed) = (&walks[unit][function], &mut observed[unit][function]);
            let node = number - first;
            if step == Step::Enter {
                let new = Activation { unit, function, sum: 0, path: vec![], begun_by_cut: false, between: true, tail: false };
                running.insert(token, new);
            }
            let activation = running.get_mut(&token).ok_or_else(|| damaged("a step of an activation that is over"))?;
            if (activation.unit, activation.function) != (unit, function) {
                return Err(damaged("a step of another function's activation"));
            }
            if walk.step(activation, step, node, observed) {
                running.remove(&token);
            }
        }
        for activation in running.into_values() {
            let (unit, function) = (activation.unit, activation.function);
            walks[unit][function].leave_unfinished(activation, &mut observed[unit][function]);
        }
        Ok(Replay { units: observed })
    }

    /// Compares counters, paths, unfinished paths, and the counts of blocks and edges, of every function.
    ///
    /// # Errors
    /// A map is damaged.
    pub fn check(&self, subject: &Subject, counts: &[UnitCounts]) -> Result<CountVerdict, Error> {
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

fn damaged(what: &str) -> Error {
    Error::Damaged { path: "log of steps".into(), what: what.into() }
}

fn parse(record: u64) -> Result<(u32, Step, u32), Error> {
    let step = match record >> 29 & 7 {
        0 => Step::Enter,
        1 => Step::Block,
        2 => Step::End,
        3 => Step::Twice,
        4 => Step::Tail,
        _ => return Err(damaged("a record of no kind")),
    };
    Ok(((record >> 32) as u32, step, (record & 0x1fff_ffff) as u32))
}

impl<'a> Walk<'a> {
    fn new(map: &'a FunctionMap) -> Walk<'a> {
        let nodes = map.blocks.len() + 1;
        let (mut out, mut reach) = (vec![Vec::new(); nodes], vec![None; nodes]);
        for (i, edge) in map.edges.iter().enumerate() {
            match edge.kind {
                EdgeKind::Reach => reach[edge.from.index()] = Some(i as u32),
                _ => out[edge.from.index()].push(i as u32),
            }
        }
        let (mut real, mut leave, mut enter) = (vec![None; map.edges.len()], vec![None; map.edges.len()], vec![None; nodes]);
        for (edge, value) in map.dag.iter().zip(&map.values) {
            match edge.origin {
                Origin::Real(e) => real[e.index()] = Some(*value),
                Origin::Leave(e) => leave[e.index()] = Some(*value),
                Origin::Enter(_) => enter[edge.to.index()] = Some(*value),
                Origin::Stop(_) => {}
            }
        }
        Walk { map, out, real, leave, enter, reach }
    }

    fn nothing(&self) -> Observed {
        Observed { blocks: vec![0; self.map.blocks.len()], edges: vec![0; self.map.edges.len()], ..Observed::default() }
    }

    /// Takes a step; whether the activation is over.
    fn step(&self, activation: &mut Activation, step: Step, node: u32, observed: &mut Observed) -> bool {
        match step {
            Step::Enter => self.arrive(activation, node, observed),
            Step::Block if self.map.blocks[node as usize].kind == BlockKind::Continuation => {
                // Behind a call that returns twice: perhaps out of nowhere.
                if !activation.between {
                    self.unfinished(activation, observed);
                }
                activation.sum = self.enter[node as usize].unwrap_or(0);
                activation.path.clear();
                activation.begun_by_cut = true;
                self.arrive(activation, node, observed);
            }
            Step::Block => self.go(activation, node, observed),
            Step::Twice => match self.find(node, |e| self.map.edges[e].kind == EdgeKind::ReturnsTwice) {
                Some(edge) => self.take(activation, edge, observed),
                None => observed.nonsense.push(format!("block {node} makes a call that returns twice, and no edge says so")),
            },
            Step::Tail => activation.tail = true,
            Step::End => {
                let ends = |e: usize| self.map.edges[e].to == self.map.exit();
                match self.find(node, ends) {
                    Some(edge) => self.take(activation, edge, observed),
                    None => observed.nonsense.push(format!("block {node} ends the function, and no edge says so")),
                }
                return true;
            }
        }
        false
    }

    fn find(&self, node: u32, which: impl Fn(usize) -> bool) -> Option<u32> {
        self.out[node as usize].iter().copied().find(|e| which(*e as usize))
    }

    /// Goes to a block, through dispatch blocks and landings if needed.
    fn go(&self, activation: &mut Activation, to: u32, observed: &mut Observed) {
        activation.tail = false;
        let Some(&from) = activation.path.last() else {
            observed.nonsense.push(format!("block {to} is executed out of nowhere"));
            return;
        };
        match self.edges_between(from, to, 0) {
            Some(edges) => edges.into_iter().for_each(|e| self.take(activation, e, observed)),
            None => observed.nonsense.push(format!("control went from block {from} to block {to}, where the map has no edge")),
        }
    }

    fn edges_between(&self, from: u32, to: u32, depth: u32) -> Option<Vec<u32>> {
        for &edge in &self.out[from as usize] {
            let head = self.map.edges[edge as usize].to.0;
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

    fn take(&self, activation: &mut Activation, edge: u32, observed: &mut Observed) {
        let e = edge as usize;
        observed.edges[e] += 1;
        let flow = &self.map.edges[e];
        let ends = flow.to == self.map.exit();
        match (self.real[e], self.leave[e]) {
            (Some(value), _) if ends => self.complete(activation, activation.sum + value, edge, observed),
            (Some(value), _) => activation.sum += value,
            (None, Some(value)) => {
                self.complete(activation, activation.sum + value, edge, observed);
                activation.sum = self.enter[flow.to.index()].unwrap_or(0);
                activation.begun_by_cut = true;
            }
            (None, None) => observed.nonsense.push(format!("edge {edge} was taken, which the paths leave out")),
        }
        if !ends && flow.kind != EdgeKind::ReturnsTwice {
            self.arrive(activation, flow.to.0, observed);
        }
    }

    fn arrive(&self, activation: &mut Activation, node: u32, observed: &mut Observed) {
        activation.between = false;
        activation.path.push(node);
        observed.blocks[node as usize] += 1;
        if let Some(edge) = self.reach[node as usize] {
            match self.real[edge as usize] {
                Some(value) => *observed.counters.entry((activation.sum + value) as u64).or_default() += 1,
                None => observed.nonsense.push(format!("block {node} was executed, which the paths leave out")),
            }
        }
    }

    fn complete(&self, activation: &mut Activation, id: i64, edge: u32, observed: &mut Observed) {
        *observed.counters.entry(id as u64).or_default() += 1;
        let path = std::mem::take(&mut activation.path);
        *observed.paths.entry((path, activation.begun_by_cut, Some(edge))).or_default() += 1;
        activation.between = true;
    }

    fn unfinished(&self, activation: &mut Activation, observed: &mut Observed) {
        let path = std::mem::take(&mut activation.path);
        let at = path.last().copied().unwrap_or(0);
        if self.reach[at as usize].is_none() {
            observed.stopped.push(at);
        }
        *observed.paths.entry((path, activation.begun_by_cut, None)).or_default() += 1;
    }

    /// The log is over, and control did not come back.
    fn leave_unfinished(&self, mut activation: Activation, observed: &mut Observed) {
        if activation.tail {
            // The tail call took the function's place.
            let from = *activation.path.last().expect("a block made the call");
            let to = self.find(from, |_| true).map(|e| self.map.edges[e as usize].to.0).expect("the block goes on to a return");
            self.go(&mut activation, to, observed);
            self.step(&mut activation, Step::End, to, observed);
        } else if !activation.between {
            self.unfinished(&mut activation, observed);
        }
    }
}

fn verify_counters(function: &FunctionMap, observed: &Observed, counts: &UnitCounts, verdict: &mut CountVerdict) {
    for what in &observed.nonsense {
        verdict.differences.push(CountDifference { function: function.name.clone(), what: what.clone() });
    }
    for at in &observed.stopped {
        let what = format!("control left block {at} for good, where no call was expected not to return");
        verdict.differences.push(CountDifference { function: function.name.clone(), what });
    }
    let own: HashMap<u64, u64> = counts_of(function, counts).into_iter().collect();
    let either: BTreeSet<u64> = own.keys().chain(observed.counters.keys()).copied().filter(|id| *id < function.counters).collect();
    for id in either {
        let trodden = own.get(&id).copied().unwrap_or(0);
        let oracle = observed.counters.get(&id).copied().unwrap_or(0);
        verdict.compare(&function.name, || format!("counter {id}"), trodden, oracle);
    }
    if let Some(path) = observed.counters.keys().find(|id| **id >= function.counters) {
        let what = format!("the steps make up path {path}, and there are {}", function.counters);
        verdict.differences.push(CountDifference { function: function.name.clone(), what });
    }
}

fn verify_paths(function: &FunctionMap, observed: &Observed, paths: &FunctionPaths, verdict: &mut CountVerdict) {
    let name = &function.name;
    for (at, (trodden, oracle)) in paths.blocks.iter().zip(&observed.blocks).enumerate() {
        verdict.compare(name, || format!("block {at}"), *trodden, *oracle);
    }
    for (at, (trodden, oracle)) in paths.edges.iter().zip(&observed.edges).enumerate() {
        verdict.compare(name, || format!("edge {at}"), *trodden, *oracle);
    }
    if !paths.all_finished() {
        verdict.unfinished.push(name.clone());
    }
    let mut shapes: HashMap<PathShape, u64> = HashMap::new();
    for path in &paths.complete {
        let end = match path.end {
            PathEnd::Exit(e) | PathEnd::Cut(e) => Some(e.0),
            PathEnd::Stop => None,
        };
        let blocks = path.blocks.iter().map(|b| b.0).collect();
        *shapes.entry((blocks, path.beginning != Beginning::Entry, end)).or_default() += path.count;
    }
    for path in &paths.unfinished {
        let blocks = path.blocks.iter().map(|b| b.0).collect();
        let count = shapes.entry((blocks, path.beginning != Beginning::Entry, None)).or_default();
        *count = count.wrapping_add_signed(path.count);
    }
    for (shape, oracle) in &observed.paths {
        verdict.compare(name, || format!("path {shape:?}"), shapes.remove(shape).unwrap_or(0), *oracle);
    }
    for (shape, count) in shapes {
        verdict.compare(name, || format!("path {shape:?}"), count, 0);
    }
}
