//! Copies that each count some segments across calls.
//!
//! P3 (Afraz, Saha and Kanade, ESEC/FSE 2015) divides paths within functions. A segment consists of a context (the callers' paths up to
//! their calls) and a path of the callee. Segments are divided by this last path: a copy counts some of a function's paths, in every
//! context. Dividing contexts would save no probes, because each execution of a path executes the path's labels and its count in any
//! context. In each copy, the paths that it counts, and the callers' paths up to the calls that lead to them, get unique selective labels;
//! other code is not instrumented. The paths that end segments form [`procedures_of_set`], which are divided like other paths. Each copy
//! counts its part of the set ([`SegmentSet::part`]). No copy counts all executions in contexts outside the set.

use super::preparation::CopyInput;
use super::shared::{self, CopyPartition, NamedFunction, lightest_functions};
use super::{CopyContext, CopyJob, RecordedCopies};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use trodden_flow::part::PathEnds;
use trodden_flow::{Dag, DagEdge, DagEdgeId, Edge, NumberingScheme, Origin};
use trodden_partition::{ExecutedPath, PartitionOptions, PartitionPlan, Procedure};
use trodden_profile::segments::{FunctionPath, counted_segments, counts_segments, function_map, unit_map};
use trodden_profile::{ImageProfile, Profile};
use trodden_text::words::plural;
use trodden_unit::experiment::{ExperimentScheme, SettingsFile};
use trodden_unit::{SegmentSet, Settings};

/// Maximum number of segments per function in a set that is given as all combinations of contexts and paths. Such sets are expanded,
/// because only individual segments can be divided.
const MAX_LISTED_SEGMENTS: u64 = 1 << 20;

/// The number of executions of each segment. A segment is a list of paths, each with its unit, function and number.
type NamedSegmentCounts = BTreeMap<Vec<(String, String, u64)>, u64>;

pub fn run(job: &CopyJob, set: &SegmentSet, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    shared::record_with_partition(job, context, input, |_| SegmentPartition::new(set.with_all_pairs_as_segments(MAX_LISTED_SEGMENTS), job))
}

/// Assigns each segment to a copy, by the last path of the segment.
struct SegmentPartition {
    set: SegmentSet,
    /// For each function and path number, the copy that counts the segments which end with this path.
    owners: Vec<BTreeMap<u64, usize>>,
    /// The copies that count anything.
    copies: Vec<usize>,
    /// Functions that all copies count, to check that the copies execute the same paths.
    counted_by_all: BTreeSet<u32>,
}

struct DividedFunction {
    number: u32,
    /// For each path: its number, its edges in the procedure's graph, and its number of executions.
    paths: Vec<(u64, Vec<DagEdgeId>, u64)>,
    procedure: Procedure,
}

impl DividedFunction {
    fn execution_count(&self) -> u64 {
        self.paths.iter().fold(0, |sum: u64, (.., count)| sum.saturating_add(*count))
    }
}

impl SegmentPartition {
    fn new(set: SegmentSet, job: &CopyJob) -> Result<SegmentPartition> {
        let options = &job.options;
        let functions = procedures_of_set(&set)?;
        let counted_by_all = lightest_functions(&functions.iter().map(|f| (f.execution_count(), f.number)).collect::<Vec<_>>());
        let (small, divided): (Vec<DividedFunction>, Vec<DividedFunction>) =
            functions.into_iter().partition(|f| counted_by_all.contains(&f.number));
        ensure!(options.max_probes.is_none(), "--max-probes cannot be combined with this value of --divide. Omit --max-probes or --divide");
        let choices = PartitionOptions { profitable: options.profitable, ..PartitionOptions::new(options.copies, options.hits) };
        let all: Vec<Procedure> = divided.iter().map(|f| f.procedure.clone()).collect();
        let plan = trodden_partition::plan(&all, options.strategy, &choices);
        let mut owners = vec![BTreeMap::new(); set.functions().len()];
        small.iter().for_each(|f| owners[f.number as usize].extend(f.paths.iter().map(|(path, ..)| (*path, 0))));
        let mut loads = vec![0u64; options.copies];
        for (at, function) in divided.iter().enumerate() {
            for (path, edges, count) in &function.paths {
                let copy = first_counting_copy(&plan, at, edges);
                loads[copy] = loads[copy].saturating_add(*count);
                owners[function.number as usize].insert(*path, copy);
            }
        }
        // A copy that would count nothing is not made.
        let mut copies: Vec<usize> =
            (0..options.copies).filter(|copy| owners.iter().any(|of| of.values().any(|own| own == copy))).collect();
        if copies.is_empty() {
            copies.push(0);
        }
        let partition = SegmentPartition { set, owners, copies, counted_by_all };
        partition.log_division_of_functions(loads.into_iter().max().unwrap_or(0), small.iter().chain(&divided));
        Ok(partition)
    }

    fn log_division_of_functions<'a>(&self, largest: u64, functions: impl Iterator<Item = &'a DividedFunction> + Clone) {
        let all = functions.clone().fold(0u64, |sum, function| sum.saturating_add(function.execution_count()));
        let divided = self.divided_functions().count() as u128;
        log::info!(
            "{} of segments (paths across calls) of {} will be counted by {} copies; the largest share is {largest}, and {} divided \
             between copies",
            plural(all.into(), "execution", "executions"),
            plural(functions.count() as u128, "function", "functions"),
            self.copies.len(),
            plural(divided, "function is", "functions are")
        );
    }

    /// Returns the functions whose paths are divided among several copies.
    fn divided_functions(&self) -> impl Iterator<Item = u32> + '_ {
        let is_divided = |of: &BTreeMap<u64, usize>| of.values().collect::<BTreeSet<_>>().len() > 1;
        (0..).zip(&self.owners).filter(move |(_, of)| is_divided(of)).map(|(number, _)| number)
    }

    fn function_names(&self, numbers: impl Iterator<Item = u32>) -> BTreeSet<NamedFunction> {
        let name = |number: u32| &self.set.functions()[number as usize];
        numbers.map(|number| (name(number).unit.clone(), name(number).name.clone())).collect()
    }
}

fn first_counting_copy(plan: &PartitionPlan, procedure: usize, path: &[DagEdgeId]) -> usize {
    let counts = |copy: &trodden_partition::CopyPlan| copy.parts[procedure].as_ref().is_some_and(|part| part.is_interesting(path));
    plan.copies.iter().position(counts).expect("every path is in the part of a copy")
}

/// Converts the functions in which segments end to procedures that contain only the last paths of segments.
fn procedures_of_set(set: &SegmentSet) -> Result<Vec<DividedFunction>> {
    let sites = find_call_sites(set)?;
    let mut units: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for (number, function) in (0..).zip(set.functions()).filter(|(_, function)| !function.interesting.is_empty()) {
        let (dag, numbering) =
            function.numbered_paths().with_context(|| format!("the stored paths of function `{}` are corrupt", function.name))?;
        let numbers: BTreeSet<u64> = function.interesting.iter().map(|(_, path)| *path).collect();
        let paths: Vec<(u64, Vec<DagEdgeId>)> = numbers.into_iter().filter_map(|path| Some((path, numbering.path(&dag, path)?))).collect();
        let (own, renumbered) = build_subgraph(&dag, &paths);
        // If the set has no execution counts for the function, each path has weight one.
        let executions = |path: u64| match function.executions.is_empty() {
            true => 1,
            false => function.executions.get(&path).copied().unwrap_or(0),
        };
        let in_subgraph = |path: Vec<DagEdgeId>| path.iter().map(|edge| renumbered[edge]).collect();
        let paths: Vec<(u64, Vec<DagEdgeId>, u64)> =
            paths.into_iter().map(|(path, edges)| (path, in_subgraph(edges), executions(path))).collect();
        let next = units.len();
        let unit = *units.entry(&function.unit).or_insert(next);
        let call_sites = Some(sites.get(&number).map_or(0, |sites| sites.len() as u32));
        let procedure = build_procedure(own, &paths, call_sites, unit);
        out.push(DividedFunction { number, paths, procedure });
    }
    Ok(out)
}

/// Returns the subgraph that consists of the edges on the given paths, and a map from these edges in `dag` to the subgraph's edges.
fn build_subgraph(dag: &Dag, paths: &[(u64, Vec<DagEdgeId>)]) -> (Dag, HashMap<DagEdgeId, DagEdgeId>) {
    let used: BTreeSet<DagEdgeId> = paths.iter().flat_map(|(_, edges)| edges.iter().copied()).collect();
    let edges: Vec<DagEdge> = used.iter().map(|edge| dag.edge(*edge)).collect();
    let own = Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges)
        .expect("complete paths of an acyclic graph form an acyclic graph");
    (own, used.into_iter().zip((0..).map(DagEdgeId)).collect())
}

fn build_procedure(dag: Dag, paths: &[(u64, Vec<DagEdgeId>, u64)], call_sites: Option<u32>, unit: usize) -> Procedure {
    let mut frequencies = vec![0u64; dag.edges().len()];
    let ends: BTreeSet<DagEdgeId> = PathEnds::from_dag(&dag).edges().iter().copied().collect();
    let mut executed = Vec::new();
    for (_, edges, count) in paths {
        edges.iter().for_each(|edge| frequencies[edge.index()] = frequencies[edge.index()].saturating_add(*count));
        let end = edges.iter().find(|edge| ends.contains(edge)).expect("every path has an end edge");
        executed.push(ExecutedPath { end: *end, count: *count, in_passing: false });
    }
    Procedure { dag, frequencies, paths: executed, call_sites, unit }
}

/// For each function, the call sites through which segments enter it: the caller's number, and the edge by which the caller's path reaches
/// the call.
type CallSites = BTreeMap<u32, BTreeSet<(u32, Option<Edge>)>>;

fn find_call_sites(set: &SegmentSet) -> Result<CallSites> {
    let mut sites = CallSites::new();
    for (caller, function) in (0..).zip(set.functions()) {
        let calls = set.contexts_with_caller(caller);
        if calls.is_empty() {
            continue;
        }
        let (dag, numbering) =
            function.numbered_paths().with_context(|| format!("the stored paths of function `{}` are corrupt", function.name))?;
        for (callee, context) in calls {
            let path = numbering.path(&dag, context.path).unwrap_or_default();
            let last = path.iter().rev().find_map(|edge| match dag.edge(*edge).origin {
                Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
                Origin::Enter(_) | Origin::Stop(_) => None,
            });
            sites.entry(callee).or_default().insert((caller, last));
        }
    }
    Ok(sites)
}

impl CopyPartition for SegmentPartition {
    const WRITES_STREAMS: bool = false;

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |copy: &usize| {
            let has = |number: u32, path: u64| {
                self.counted_by_all.contains(&number) || self.owners[number as usize].get(&path).is_some_and(|owner| owner == copy)
            };
            let part = self.set.part(has);
            let segments = Some(SettingsFile::Stored(context.driver.inputs()?.put(&part.to_bytes())?));
            Ok(Settings { segments, scheme: Some(ExperimentScheme::Interesting(NumberingScheme::Pspp)), ..Settings::default() })
        };
        self.copies.iter().map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, _: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let divided = self.function_names(self.divided_functions());
        let (images, differences) = merge(profiles, &self.function_names(self.counted_by_all.iter().copied()), &divided);
        ensure!(
            images.iter().any(counts_segments),
            "no segment (path across calls) was counted, because the program executed none of the functions that were to be counted. Run \
             it with the same input as the run that named these functions"
        );
        Ok((images, differences))
    }

    fn store_results(&self, _: &CopyJob, _: Option<u64>, _: &Path, _: CopyContext) -> Result<()> {
        Ok(())
    }
}

/// Combines the images of all copies. For functions that all copies count, keeps the first copy's counts and returns how other copies
/// differ. For divided functions, drops the counts in contexts outside the set, because no copy counts all of these executions.
fn merge(
    profiles: Vec<Profile>,
    counted_by_all: &BTreeSet<NamedFunction>,
    divided: &BTreeSet<NamedFunction>,
) -> (Vec<ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut first = NamedSegmentCounts::new();
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own = NamedSegmentCounts::new();
        for mut image in profile.images {
            if !counts_segments(&image) {
                if copy == 0 {
                    images.push(image);
                }
                continue;
            }
            own.extend(named_segment_counts(&image, counted_by_all));
            for unit in &mut image.units {
                for function in &unit.map.functions {
                    let (key, Some(words)) = ((unit.map.source.clone(), function.name.clone()), function.segment_words()) else { continue };
                    let last = words.range().end.saturating_sub(1);
                    let dropped = match (counted_by_all.contains(&key), divided.contains(&key)) {
                        (true, _) if copy > 0 => words.range(),
                        (false, true) => last..words.range().end,
                        _ => continue,
                    };
                    unit.counts.executions.retain(|(word, _)| !dropped.contains(word));
                }
            }
            images.push(image);
        }
        if copy == 0 {
            first = own;
        } else if own != first {
            let at = own.iter().chain(&first).map(|(key, _)| key).find(|key| own.get(*key) != first.get(*key));
            let name = at.and_then(|segment| segment.last()).map_or("", |(_, name, _)| name);
            differences.push(format!("copy {copy} and copy 0 have different counts of the segments that end in `{name}`"));
        }
    }
    (images, differences)
}

/// Returns how often each segment that ends in one of the given functions was executed. Segments are identified by names, because each copy
/// numbers contexts and paths differently.
fn named_segment_counts(image: &ImageProfile, functions: &BTreeSet<NamedFunction>) -> NamedSegmentCounts {
    let name = |at: &FunctionPath| (unit_map(image, at.function).source.clone(), function_map(image, at.function).name.clone(), at.path);
    let ends_there =
        |segment: &[(String, String, u64)]| segment.last().is_some_and(|(unit, name, _)| functions.contains(&(unit.clone(), name.clone())));
    let named = counted_segments(image).counts.into_iter().map(|(segment, count)| (segment.iter().map(name).collect::<Vec<_>>(), count));
    named.filter(|(segment, count)| *count > 0 && ends_there(segment)).collect()
}
