//! k consecutive iterations as one path, and patterns that they repeat; or the last branches as a path (`trodden patterns iterations`).

use super::numbers::{first, percent};
use super::recording::{EventTable, Opened};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::Grammar;
use trodden_sequence::events::{Classify, EventClass, SubpathEnd};
use trodden_sequence::general_paths::{GeneralPaths, GeneralPosition};
use trodden_sequence::iterations::IterationProfile;

/// The longest pattern that is searched for.
const LONGEST_PERIOD: usize = 8;

/// What is asked of iterations.
#[derive(Clone, Copy)]
pub struct IterationQuestion {
    /// Consecutive iterations.
    pub iterations: usize,
    /// Patterns that at least so many percent go on with.
    pub share: f64,
    /// Results at most; 0 for all.
    pub top: usize,
    /// Symbols of the sequence that are examined, from its beginning.
    pub most: u64,
}

/// Paths across iterations, and patterns of them.
#[derive(Serialize)]
pub struct IterationDocument {
    /// Consecutive iterations that make a path.
    pub iterations: usize,
    /// The paths, most frequent first.
    pub paths: Vec<IterationPath>,
    /// Patterns that iterations repeat.
    pub patterns: Vec<IterationPattern>,
    /// Where paths run.
    pub sources: BTreeMap<String, String>,
}

/// A path of consecutive iterations.
#[derive(Serialize)]
pub struct IterationPath {
    /// The function with the loop.
    pub function: String,
    /// How often it was executed.
    pub count: u64,
    /// For each iteration its events.
    pub iterations: Vec<Vec<String>>,
}

/// A pattern that iterations repeat.
#[derive(Serialize)]
pub struct IterationPattern {
    /// The function with the loop.
    pub function: String,
    /// Iterations of the pattern.
    pub period: usize,
    /// Paths of k iterations that go on with it.
    pub count: u64,
    /// Their share.
    pub percent: f64,
    /// What can be done.
    pub advice: String,
    /// The iterations' events.
    pub iterations: Vec<Vec<String>>,
}

/// Counts paths of consecutive iterations of all threads, where copies share the functions of a run: for each copy the sequences of its
/// threads. A function that several copies have is counted from the first's streams.
///
/// # Errors
/// A number is out of its range.
pub fn iterations_of_copies(copies: &[Vec<Grammar>], table: &EventTable, question: IterationQuestion) -> Result<IterationDocument> {
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
    document(&profile, table, question)
}

/// Counts paths of consecutive iterations, and finds patterns.
///
/// # Errors
/// A number is out of its range.
pub fn iterations_of(opened: &Opened, job: IterationQuestion) -> Result<IterationDocument> {
    let table = &opened.table;
    let mut profile = IterationProfile::new(job.iterations)?;
    // A prefix follows from its whole path.
    let examined = opened.grammar.symbols().take(usize::try_from(job.most).unwrap_or(usize::MAX));
    for symbol in examined.filter(|symbol| !table.entry(*symbol).is_prefix) {
        profile.push(symbol, table.class(symbol))?;
    }
    document(&profile, table, job)
}

/// What is shown of a profile.
fn document(profile: &IterationProfile, table: &EventTable, job: IterationQuestion) -> Result<IterationDocument> {
    let mut rows = Vec::new();
    let mut patterns = Vec::new();
    for (function, forest) in profile.functions() {
        for (paths, count) in forest.counts(job.iterations) {
            rows.push((count, function, paths));
        }
        for period in 2..=(job.iterations / 2).min(LONGEST_PERIOD) {
            for found in profile.repeated_patterns(function, period, job.share / 100.0) {
                let percent = percent(found.count, found.of);
                let iterations = found.paths.iter().map(|path| table.labels(path)).collect();
                let advice = advice(period);
                let function = table.function_name(function).to_owned();
                patterns.push(IterationPattern { function, period, count: found.count, percent, advice, iterations });
            }
        }
    }
    patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.count));
    let patterns = first(patterns, job.top);
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    let row = |(count, function, paths): (u64, u32, Vec<u32>)| IterationPath {
        function: table.function_name(function).to_owned(),
        count,
        iterations: paths.iter().map(|path| table.labels(profile.path(*path))).collect(),
    };
    let paths: Vec<IterationPath> = first(rows, job.top).into_iter().map(row).collect();
    let shown = paths.iter().map(|row| &row.iterations).chain(patterns.iter().map(|pattern| &pattern.iterations));
    let sources = table.sources(shown.flatten().flatten());
    Ok(IterationDocument { iterations: job.iterations, paths, patterns, sources })
}

fn advice(period: usize) -> String {
    match period {
        2 => "every second iteration takes the other path: unroll the loop twice, and each copy has one path".into(),
        _ => format!("{period} paths take turns: unroll the loop {period} times, and each copy has one path"),
    }
}

/// Paths of the last branches.
#[derive(Serialize)]
pub struct GeneralDocument {
    /// Branches of a path at most.
    pub branches: usize,
    /// Different paths.
    pub distinct: usize,
    /// The most frequent ones.
    pub paths: Vec<GeneralRow>,
}

/// A path of branches.
#[derive(Serialize)]
pub struct GeneralRow {
    /// How often it was executed.
    pub count: u64,
    /// Edges between blocks.
    pub branches: Vec<(String, String)>,
}

/// The last k branches as a path, of so many symbols of the sequence.
///
/// # Errors
/// k is out of its range, or the events name no blocks.
pub fn last_branches(opened: &Opened, k: usize, top: usize, most: u64) -> Result<GeneralDocument> {
    let mut paths = GeneralPaths::new(k)?;
    let mut edges = Edges::default();
    let mut frames = vec![(paths.start(), None)];
    for symbol in opened.grammar.symbols().take(usize::try_from(most).unwrap_or(usize::MAX)) {
        match opened.table.class(symbol) {
            EventClass::Enter => frames.push((paths.start(), None)),
            EventClass::Leave if frames.len() > 1 => drop(frames.pop()),
            EventClass::Leave => frames = vec![(paths.start(), None)],
            EventClass::Subpath { .. } if opened.table.entry(symbol).is_prefix => {}
            EventClass::Subpath { end, .. } => {
                if let Some((position, last)) = frames.last_mut() {
                    walk(&mut paths, position, last, &mut edges, &opened.table, symbol)?;
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
    let row = |(branches, count): (&[u64], u64)| GeneralRow {
        count,
        branches: branches.iter().map(|edge| names(edges.list[*edge as usize])).collect(),
    };
    Ok(GeneralDocument { branches: k, distinct, paths: first(rows, top).into_iter().map(row).collect() })
}

/// Edges between blocks, by number.
#[derive(Default)]
struct Edges {
    list: Vec<(u64, u64)>,
    numbers: std::collections::HashMap<(u64, u64), u64>,
}

/// The branches of a path, from the block before it on.
fn walk(
    paths: &mut GeneralPaths,
    position: &mut GeneralPosition,
    last: &mut Option<u64>,
    edges: &mut Edges,
    table: &EventTable,
    symbol: u64,
) -> Result<()> {
    let entry = table.entry(symbol);
    ensure!(
        !entry.blocks.is_empty(),
        "path `{}` does not name its blocks: the last branches are known where all paths name theirs",
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
