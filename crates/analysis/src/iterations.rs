//! Which paths does a function take in consecutive iterations? This module builds the sets of paths over iterations that programs count,
//! and lists the counts.

use crate::segments::find_logs;
use crate::sequences::{IterationDocument, IterationRow, take_top};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::Origin;
use trodden_profile::iterations::{self, IterationPathCounters};
use trodden_profile::stream::{CounterLookup, FunctionIndex, IterationReader, StreamLog};
use trodden_profile::{EventToPathTranslator, Profile};
use trodden_stored::maps::{StreamMaps, load_maps};
use trodden_stored::{Folders, streams};
use trodden_text::names::DemangledName;
use trodden_text::words::plural;
use trodden_unit::{FunctionKey, IterationSet};

/// Returns the set of paths over iterations that a run's stream contains. Functions with cut edges but without such paths are also in the
/// set, because a program that counts the set may find paths in them. Fails if the run has no stream, or if no path over `iterations`
/// iterations was executed.
pub fn iteration_set_of_run(iterations: u32, wanted: &str, folders: &Folders) -> Result<IterationSet> {
    let logs = match streams::list_logs_of_copies(wanted) {
        Ok(Some(copies)) => copies.concat(),
        _ => find_logs(wanted)?,
    };
    ensure!(
        !logs.is_empty(),
        "`{wanted}` has no stream, the record of the order in which paths were taken. Build the program with --stream and record it with \
         `trodden record --whole-program`; without a rebuild, use `trodden record --copies K --divide iterations`"
    );
    let mut set = IterationSet::new(iterations);
    for file in &logs {
        let log = streams::open_log(file)?;
        let lost: u64 = log.threads().iter().map(|thread| thread.lost).sum();
        if lost > 0 {
            log::warn!(
                "{} lacks {} that were lost during recording, so paths near the gaps may be missing or wrong",
                file.display(),
                plural(lost.into(), "event", "events")
            );
        }
        add_stream_log(&mut set, &log, &load_maps(&log, folders)?)?;
    }
    let has_iterations = set.functions().values().any(|function| function.counted.keys().any(|path| path.len() == iterations as usize));
    ensure!(
        has_iterations,
        "`{wanted}` has no path over {iterations} iterations of a loop. Name a run in which loops iterate more often, or ask for fewer \
         iterations"
    );
    Ok(set)
}

fn add_stream_log(set: &mut IterationSet, log: &StreamLog, maps: &StreamMaps) -> Result<()> {
    for unit in &maps.counted.units {
        for function in &unit.map.functions {
            if set.add_function(&unit.map, function).is_none() && !function.cuts.is_empty() {
                log::warn!(
                    "skipping the paths of function `{}` in {} that span several iterations, because two programs of the run contain \
                     different versions of the function. Build all programs with the same options",
                    function.name,
                    log.path().display()
                );
            }
        }
    }
    let lookup = CounterLookup::new(log.header(), maps.image());
    let mut events: HashMap<FunctionIndex, Option<EventToPathTranslator>> = HashMap::new();
    for thread in log.threads() {
        let mut reader = IterationReader::new(&lookup, set.iterations() as usize);
        log.visit(thread, 0, |event| {
            reader.feed_symbol(event);
            true
        })?;
        for (place, counts) in reader.into_iteration_counts() {
            let unit = &maps.counted.units[place.unit];
            let function = &unit.map.functions[place.function];
            let to_path = events.entry(place).or_insert_with(|| EventToPathTranslator::new(function, function.event_words()?).ok());
            let Some(known) = set.add_function(&unit.map, function) else { continue };
            let (dag, numbering) =
                known.numbered_paths().with_context(|| format!("the map (blocks and paths) of `{}` is corrupt", function.name))?;
            for (events, count) in counts {
                let path = |event: &u64| to_path.as_ref().map_or(Some(*event), |to_path| to_path.path(*event));
                let Some(path) = events.iter().map(path).collect::<Option<Vec<u64>>>() else { continue };
                for edge in path.last().and_then(|last| numbering.path(&dag, *last)).into_iter().flatten() {
                    if let Origin::Real(edge) | Origin::Leave(edge) = dag.edge(edge).origin {
                        known.edges[edge.index()] = known.edges[edge.index()].saturating_add(count);
                    }
                }
                let sum = known.counted.entry(path).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    Ok(())
}

/// Returns the paths over iterations that a profile's programs counted, by function. The result is empty if they counted none.
pub fn counted_iterations(profile: &Profile) -> BTreeMap<FunctionKey, IterationPathCounters> {
    let mut all = BTreeMap::new();
    profile.images.iter().for_each(|image| iterations::add_counted_iterations(image, &mut all));
    all
}

/// Lists at most `top` counted sequences of `length` consecutive paths, or all of them if `top` is 0. `None` stands for the maximum length
/// that was counted. Fails if only shorter sequences were counted.
pub fn document_counted_iterations(
    counted: &BTreeMap<FunctionKey, IterationPathCounters>,
    length: Option<usize>,
    top: usize,
) -> Result<IterationDocument> {
    let deepest = counted.values().map(|function| function.iterations as usize).max().unwrap_or(0);
    let length = length.unwrap_or(deepest);
    ensure!(
        length <= deepest,
        "--length is too large: the program counted paths across at most {deepest} loop iterations. Pass --length {deepest} or less"
    );
    let names: Vec<DemangledName> = counted.keys().map(|(_, name, _)| DemangledName::from_linkage(name)).collect();
    let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
    names.iter().filter(|name| !seen.insert(&name.short)).for_each(|name| _ = shared.insert(&name.short));
    let mut rows = Vec::new();
    for (name, function) in names.iter().zip(counted.values()) {
        let name = if shared.contains(&name.short) { &name.full } else { &name.short };
        rows.extend(function.counts_of_length(length).into_iter().map(|(path, count)| (count, name, path)));
    }
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    let row = |(count, name, path): (u64, &String, Vec<u64>)| IterationRow {
        function: name.clone(),
        count,
        iterations: path.iter().map(|path| vec![format!("{name}:{path}")]).collect(),
    };
    Ok(IterationDocument {
        iterations: length,
        paths: take_top(rows, top).into_iter().map(row).collect(),
        patterns: Vec::new(),
        sources: BTreeMap::new(),
        others: Some(counted.values().fold(0, |sum: u64, function| sum.saturating_add(function.others))),
    })
}
