//! Paths of k consecutive iterations and their repeating patterns (`trodden-lab patterns iterations`), and paths of the last k branches.

use super::numbers::{percent, take_top};
use super::recording::{EventTable, OpenedSequence};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::Grammar;
use trodden_sequence::events::{Classify, EventClass, SubpathEnd};
use trodden_sequence::general_paths::{GeneralPathState, GeneralPaths};
use trodden_sequence::iterations::IterationProfile;

const MAX_PERIOD: usize = 8;

/// Parameters of the analysis of iterations.
#[derive(Clone, Copy)]
pub struct IterationQuery {
    /// Number of consecutive iterations that form a path.
    pub iterations: usize,
    /// Minimum share, in percent, for a pattern to be reported ([`IterationPattern::percent`]).
    pub share: f64,
    /// Maximum number of results; 0 for all.
    pub top: usize,
    /// Maximum number of symbols to examine, from the start of the sequence.
    pub max_symbols: u64,
}

/// Paths of consecutive iterations, and their repeating patterns.
#[derive(Serialize)]
pub struct IterationDocument {
    /// Number of consecutive iterations that form a path.
    pub iterations: usize,
    /// The paths, most frequent first.
    pub paths: Vec<IterationRow>,
    /// Repeating patterns of iterations.
    pub patterns: Vec<IterationPattern>,
    /// Source locations of the paths, by label.
    pub sources: BTreeMap<String, String>,
    /// If a program counted the paths, the number of executions of all other paths, which the program did not distinguish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
}

/// A path of consecutive iterations.
#[derive(Serialize)]
pub struct IterationRow {
    /// The function with the loop.
    pub function: String,
    /// Number of executions.
    pub count: u64,
    /// The events of each iteration.
    pub iterations: Vec<Vec<String>>,
}

/// A repeating pattern of iterations.
#[derive(Serialize)]
pub struct IterationPattern {
    /// The function with the loop.
    pub function: String,
    /// Number of iterations in the pattern.
    pub period: usize,
    /// Number of paths of k iterations that follow the pattern.
    pub count: u64,
    /// `count` in percent of the paths of k iterations that contain any path of the pattern.
    pub percent: f64,
    /// The suggested optimisation.
    pub advice: String,
    /// The events of each iteration in the pattern.
    pub iterations: Vec<Vec<String>>,
}

/// Counts paths of consecutive iterations in a run of several instrumented copies of a program, each of which records some of the
/// functions. `copies` has the sequences of each copy's threads. A function in several copies is counted in the first copy only.
pub fn iterations_of_copies(copies: &[Vec<Grammar>], table: &EventTable, question: IterationQuery) -> Result<IterationDocument> {
    let mut profile = IterationProfile::new(question.iterations)?;
    let mut counted_by: BTreeMap<u32, usize> = BTreeMap::new();
    for (copy, threads) in copies.iter().enumerate() {
        for grammar in threads {
            profile.begin();
            for symbol in grammar.symbols().filter(|symbol| !table.entry(*symbol).is_prefix) {
                let class = table.class(symbol);
                if let EventClass::Subpath { function, .. } = class
                    && *counted_by.entry(function).or_insert(copy) != copy
                {
                    continue;
                }
                profile.push(symbol, class)?;
            }
        }
    }
    build_document(&profile, table, question)
}

/// Counts paths of consecutive iterations, and finds patterns.
pub fn document_iterations(opened: &OpenedSequence, job: IterationQuery) -> Result<IterationDocument> {
    let table = &opened.table;
    let mut profile = IterationProfile::new(job.iterations)?;
    // Prefixes are skipped, because each is part of a later complete path.
    let examined = opened.grammar.symbols().take(usize::try_from(job.max_symbols).unwrap_or(usize::MAX));
    for symbol in examined.filter(|symbol| !table.entry(*symbol).is_prefix) {
        profile.push(symbol, table.class(symbol))?;
    }
    build_document(&profile, table, job)
}

fn build_document(profile: &IterationProfile, table: &EventTable, job: IterationQuery) -> Result<IterationDocument> {
    let mut rows = Vec::new();
    let mut patterns = Vec::new();
    for (function, forest) in profile.functions() {
        for (paths, count) in forest.counts(job.iterations) {
            rows.push((count, function, paths));
        }
        for period in 2..=(job.iterations / 2).min(MAX_PERIOD) {
            for found in profile.repeated_patterns(function, period, job.share / 100.0) {
                let percent = percent(found.count, found.of);
                let iterations = found.paths.iter().map(|path| table.labels(path)).collect();
                let advice = unrolling_advice(period);
                let function = table.function_name(function).to_owned();
                patterns.push(IterationPattern { function, period, count: found.count, percent, advice, iterations });
            }
        }
    }
    patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.count));
    let patterns = take_top(patterns, job.top);
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    let row = |(count, function, paths): (u64, u32, Vec<u32>)| IterationRow {
        function: table.function_name(function).to_owned(),
        count,
        iterations: paths.iter().map(|path| table.labels(profile.path(*path))).collect(),
    };
    let paths: Vec<IterationRow> = take_top(rows, job.top).into_iter().map(row).collect();
    let shown = paths.iter().map(|row| &row.iterations).chain(patterns.iter().map(|pattern| &pattern.iterations));
    let sources = table.sources(shown.flatten().flatten());
    Ok(IterationDocument { iterations: job.iterations, paths, patterns, sources, others: None })
}

fn unrolling_advice(period: usize) -> String {
    match period {
        2 => "every second iteration takes the other path: unroll the loop by 2, so that each copy of its body has one path".into(),
        _ => format!("{period} paths alternate: unroll the loop by {period}, so that each copy of its body has one path"),
    }
}

/// The paths of the last k branches before each point of an execution.
#[derive(Serialize)]
pub struct BranchPathDocument {
    /// Maximum number of branches in a path.
    pub branches: usize,
    /// Number of distinct paths.
    pub distinct: usize,
    /// The most frequent paths.
    pub paths: Vec<BranchPath>,
}

/// A path of the last k branches.
#[derive(Serialize)]
pub struct BranchPath {
    /// Number of executions.
    pub count: u64,
    /// The branches, each as the names of its source block and its target block.
    pub branches: Vec<(String, String)>,
}

/// Counts paths of the last `k` branches in the first `max_symbols` symbols of the sequence. Returns the `top` most frequent, or all if
/// `top` is 0. Fails if `k` is out of range or the events name no blocks.
pub fn last_branches(opened: &OpenedSequence, k: usize, top: usize, max_symbols: u64) -> Result<BranchPathDocument> {
    let mut paths = GeneralPaths::new(k)?;
    let mut edges = EdgeNumbers::default();
    let mut frames = vec![(paths.start(), None)];
    for symbol in opened.grammar.symbols().take(usize::try_from(max_symbols).unwrap_or(usize::MAX)) {
        match opened.table.class(symbol) {
            EventClass::Enter => frames.push((paths.start(), None)),
            EventClass::Leave if frames.len() > 1 => drop(frames.pop()),
            EventClass::Leave => frames = vec![(paths.start(), None)],
            EventClass::Subpath { .. } if opened.table.entry(symbol).is_prefix => {}
            EventClass::Subpath { end, .. } => {
                if let Some((position, last)) = frames.last_mut() {
                    add_path_edges(&mut paths, position, last, &mut edges, &opened.table, symbol)?;
                    if end == SubpathEnd::Return {
                        *last = None;
                    }
                }
            }
        }
    }
    let mut rows: Vec<(&[u64], u64)> = paths.counts().into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let distinct = rows.len();
    let names = |(from, to)| (opened.table.block_name(from).to_owned(), opened.table.block_name(to).to_owned());
    let row = |(branches, count): (&[u64], u64)| BranchPath {
        count,
        branches: branches.iter().map(|edge| names(edges.list[*edge as usize])).collect(),
    };
    Ok(BranchPathDocument { branches: k, distinct, paths: take_top(rows, top).into_iter().map(row).collect() })
}

#[derive(Default)]
struct EdgeNumbers {
    list: Vec<(u64, u64)>,
    numbers: std::collections::HashMap<(u64, u64), u64>,
}

/// Appends the edges of a path, beginning with the edge that leads to it from the block `last`.
fn add_path_edges(
    paths: &mut GeneralPaths,
    position: &mut GeneralPathState,
    last: &mut Option<u64>,
    edges: &mut EdgeNumbers,
    table: &EventTable,
    symbol: u64,
) -> Result<()> {
    let entry = table.entry(symbol);
    ensure!(
        !entry.blocks.is_empty(),
        "cannot determine the last branches of path `{}`, because the recording does not list the path's basic blocks",
        entry.label
    );
    for block in &entry.blocks {
        if let Some(from) = last.replace(*block) {
            let next = edges.list.len() as u64;
            let edge = *edges.numbers.entry((from, *block)).or_insert(next);
            if edge == next {
                edges.list.push((from, *block));
            }
            paths.push(position, edge);
        }
    }
    Ok(())
}
