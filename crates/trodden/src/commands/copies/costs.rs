//! What copies cost: times of each, hits of its probes as they follow from the merged profile, and what bounds them.

use super::CopyRun;
use super::make::PathPartition;
use super::spec::CopyTimes;
use crate::cli::{COPY_STRATEGIES, Copies, HITS, word, word_for};
use crate::notes::{note, warn};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_flow::partition::lower_bound::{LowerBound, bound};
use trodden_flow::partition::{CopyPlan, Measure, Part, Procedure, hits};
use trodden_profile::copies::MergedCopies;
use trodden_profile::{FunctionPaths, ImageProfile, Profile, UnitProfile};
use trodden_report::words::plural;
use trodden_unit::FunctionMap;

/// What programs count that know some paths.
const UNKNOWN: &str = "unknown";
/// What copies count with `--edges`.
const EDGES: &str = "edges";
/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Costs of all copies.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    schema_version: u32,
    /// Path of the program.
    pub program: String,
    /// How the counting was divided.
    pub strategy: &'static str,
    engine: String,
    /// Which hits were to be small, and are reported: `all`, or `labels`.
    pub hits_counted: &'static str,
    /// One for each copy.
    pub copies: Vec<CopyCosts>,
    /// Place of the copy that took longest.
    pub slowest_copy: usize,
    /// Hits of the copy that has most.
    pub hits_of_slowest: u64,
    /// Hits of a program that counts everything (sequential Ball-Larus).
    pub sequential_hits: u64,
    /// That divided by the number of copies.
    pub ideal_hits: u64,
    /// No plan for so many copies has less.
    pub proven_hits: u64,
    /// By what share of the ideal hits the copy that has most is above them; not known where hits are not.
    pub distance_from_ideal: Option<f64>,
    /// What share of the time of one program that counts all the slowest copy saves; negative if it takes longer. Not
    /// known without that program's run.
    pub saving: Option<f64>,
    /// Paths on whose counts several copies agree.
    pub confirmed_paths: u64,
    /// The program without counting, and with all of it, each run alone.
    pub baseline: Option<Baseline>,
    /// Where copies differ.
    pub diverged: Vec<String>,
    /// What is counted: `paths`, `unknown` paths only, whose hits are not known, and 0 here, or `edges`.
    counted: &'static str,
}

/// Costs of one copy.
#[derive(Clone, Debug, Serialize)]
pub struct CopyCosts {
    /// Wall time.
    pub wall_ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Where it ran.
    pub host: String,
    /// How often it was started.
    pub attempts: u32,
    /// Functions in which it counts.
    pub functions: usize,
    probes: usize,
    /// Executions of labels and counts.
    pub hits: u64,
    /// Executions of labels alone.
    label_hits: u64,
    /// Executions of labels and counts, and of labels alone, as the copy itself counted them.
    pub counted: Option<[u64; 2]>,
    /// By how much of its time it is slower than the program without counting.
    pub overhead: Option<f64>,
}

impl CopyCosts {
    /// A copy's time, and the hits of its probes as they follow from what all copies counted.
    fn new(procedures: &[Procedure], plan: &CopyPlan, times: &CopyTimes) -> CopyCosts {
        let hits = hits::of_copy(procedures, plan);
        CopyCosts {
            wall_ns: times.wall_ns,
            cpu_ns: times.cpu_ns,
            host: times.host.clone(),
            attempts: 1,
            functions: plan.parts.iter().flatten().count(),
            probes: plan.parts.iter().flatten().map(Part::probes).sum(),
            hits: hits.all,
            label_hits: hits.labels,
            counted: None,
            overhead: None,
        }
    }
}

/// Times without copies.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    /// Wall time without counting.
    pub plain_ns: u64,
    /// Wall time with all counting in one program.
    pub sequential_ns: u64,
    /// Processor time without counting.
    plain_cpu_ns: u64,
    /// Processor time with all counting in one program.
    sequential_cpu_ns: u64,
}

impl Costs {
    /// Adds up what copies cost.
    pub fn new(partition: &PathPartition, merged: &MergedCopies, copies: &[CopyRun], attempts: &[u32], options: &Copies) -> Result<Costs> {
        // What known paths executed is not counted: no hits follow.
        let residual = partition.is_residual();
        let procedures = if residual { Vec::new() } else { partition.measured(&merged.profile)? };
        let measure = options.hits;
        let bound = if partition.program.edges { of_edges(&procedures, partition) } else { bound(&procedures, copies.len(), measure) };
        let of_copy = |at: usize| {
            let counted = options.count_hits.then(|| counted_hits(&copies[at].profile));
            let attempts = attempts.get(at).copied().unwrap_or(1);
            CopyCosts { attempts, counted, ..CopyCosts::new(&procedures, &partition.copies[at], &copies[at].times) }
        };
        if copies.iter().any(|c| !c.times.fixed_addresses) {
            note("addresses of memory are random here (a container may forbid to change that): programs that go by addresses may differ");
        }
        let costs: Vec<CopyCosts> = (0..copies.len()).map(of_copy).collect();
        let most = |c: &CopyCosts| if measure == Measure::All { c.hits } else { c.label_hits };
        let hits_of_slowest = costs.iter().map(most).max().unwrap_or(0);
        let is_known = !residual && bound.ideal > 0;
        Ok(Costs {
            schema_version: SCHEMA_VERSION,
            program: partition.program.path.clone(),
            strategy: word_for(&COPY_STRATEGIES, &options.strategy),
            engine: word(options.engine),
            hits_counted: word_for(&HITS, &measure),
            slowest_copy: (0..costs.len()).max_by_key(|at| costs[*at].wall_ns).unwrap_or(0),
            hits_of_slowest,
            distance_from_ideal: is_known.then(|| hits_of_slowest as f64 / bound.ideal as f64 - 1.0),
            saving: None,
            copies: costs,
            sequential_hits: bound.sequential,
            ideal_hits: bound.ideal,
            proven_hits: bound.proven(),
            confirmed_paths: merged.confirmed,
            baseline: None,
            diverged: Vec::new(),
            counted: match (residual, partition.program.edges) {
                (true, _) => UNKNOWN,
                (false, true) => EDGES,
                (false, false) => "paths",
            },
        })
    }

    /// Whether edges are counted, not paths.
    pub fn are_of_edges(&self) -> bool {
        self.counted == EDGES
    }

    /// Adds the times of the program without counting and with all of it.
    pub fn add_baseline(&mut self, plain: &CopyTimes, sequential: &CopyTimes) {
        self.baseline = Some(Baseline {
            plain_ns: plain.wall_ns,
            sequential_ns: sequential.wall_ns,
            plain_cpu_ns: plain.cpu_ns,
            sequential_cpu_ns: sequential.cpu_ns,
        });
        for copy in &mut self.copies {
            copy.overhead = Some(copy.wall_ns as f64 / plain.wall_ns.max(1) as f64 - 1.0);
        }
        self.saving = Some(1.0 - self.slowest().wall_ns as f64 / sequential.wall_ns.max(1) as f64);
    }

    /// The copy that took longest.
    pub fn slowest(&self) -> &CopyCosts {
        &self.copies[self.slowest_copy]
    }

    /// A copy's hits of the kind that was to be small; not known of programs that count unknown paths only.
    pub fn hits(&self, copy: &CopyCosts) -> Option<u64> {
        match (self.counted, self.hits_counted) {
            (UNKNOWN, _) => None,
            (_, "all") => Some(copy.hits),
            _ => Some(copy.label_hits),
        }
    }

    /// The slowest copy beside one program that counts all, and beside the ideal: sentences.
    pub fn summary(&self) -> Vec<String> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let share = |hits: u64| 100.0 * hits as f64 / self.sequential_hits.max(1) as f64;
        let mut out = vec![format!("the slowest is copy {}: {:.3} s", self.slowest_copy, seconds(self.slowest().wall_ns))];
        if let Some(distance) = self.distance_from_ideal {
            // Labels of all copies together may be fewer than those of one program: then even most is below.
            let side = if distance < 0.0 { "below" } else { "above" };
            out.push(format!(
                "the copy with most hits has {:.1} % of the hits of one program that counts all: {:.1} % {side} the ideal, an equal \
                    share ({:.1} %); no plan can be below {:.1} %",
                share(self.hits_of_slowest),
                100.0 * distance.abs(),
                share(self.ideal_hits),
                share(self.proven_hits)
            ));
        }
        match (&self.baseline, self.saving) {
            (Some(Baseline { plain_ns, sequential_ns, .. }), Some(saving)) => {
                let over = 100.0 * (*sequential_ns as f64 / (*plain_ns).max(1) as f64 - 1.0);
                let verb = if saving < 0.0 { "takes" } else { "saves" };
                let than = if saving < 0.0 { "longer than that" } else { "of that" };
                out.push(format!(
                    "without counting {:.3} s, one program that counts all {:.3} s (overhead {over:.1} %); the slowest copy {verb} {:.1} \
                        % {than}",
                    seconds(*plain_ns),
                    seconds(*sequential_ns),
                    100.0 * saving.abs()
                ));
            }
            _ => out.push("what one program that counts all would take is not known: --baseline runs it".into()),
        }
        out
    }

    /// A table on standard error.
    pub fn report(&self) {
        let functions = |copy: &CopyCosts| plural(copy.functions as u128, "function", "functions");
        let share = |hits: u64| 100.0 * hits as f64 / self.sequential_hits.max(1) as f64;
        if self.counted != UNKNOWN {
            note(format_args!(
                "{} ({}), hits in per cent of one program that counts all",
                plural(self.copies.len() as u128, "copy", "copies"),
                self.strategy
            ));
        }
        for (at, copy) in self.copies.iter().enumerate() {
            let overhead = copy.overhead.map_or(String::new(), |o| format!(", overhead {:.1} %", 100.0 * o));
            let seconds = copy.wall_ns as f64 / 1e9;
            match self.hits(copy) {
                Some(hits) => note(format_args!("copy {at}: {seconds:.3} s, {:.1} % of hits, {}{overhead}", share(hits), functions(copy))),
                None => note(format_args!("copy {at}: {seconds:.3} s, unknown paths of {}{overhead}", functions(copy))),
            }
            if let Some([all, labels]) = copy.counted.filter(|counted| *counted != [copy.hits, copy.label_hits]) {
                warn(format_args!(
                    "copy {at} counted {all} hits and {labels} of labels, computed were {} and {}",
                    copy.hits, copy.label_hits
                ));
            }
        }
        self.summary().iter().for_each(note);
    }
}

/// Hits that a copy counted itself: all, and of labels.
fn counted_hits(profile: &Profile) -> [u64; 2] {
    let mut sums = [0; 2];
    for (_, unit, function) in profile.functions() {
        let Some(first) = function.label_words().and_then(|words| words.hits()) else { continue };
        let word = |at: u64| unit.counts.executions_of(at);
        sums[0] += word(first + 1);
        sums[1] += word(first);
    }
    sums
}

/// What bounds copies that count edges: the counters that one program needs, of which each is in one copy.
fn of_edges(procedures: &[Procedure], partition: &PathPartition) -> LowerBound {
    let all = partition.copies.iter().flat_map(|copy| procedures.iter().zip(&copy.parts)).filter_map(|(p, part)| Some((p, part.as_ref()?)));
    let counters = all.flat_map(|(p, part)| part.counted.iter().zip(&p.frequencies).filter(|(counted, _)| **counted).map(|(_, n)| *n));
    let counters: Vec<u64> = counters.collect();
    let (sequential, most) = (counters.iter().sum::<u64>(), counters.iter().copied().max().unwrap_or(0));
    let ideal = sequential.div_ceil(partition.copies.len() as u64);
    LowerBound { sequential, ideal, path: most, end: most, whole_end: most, together: 0, average: ideal }
}

/// Functions of which two profiles of one program have other executions of edges. Images are known by their files: that
/// of copies has another identity.
pub fn different_edges(one: &Profile, other: &Profile) -> Result<Vec<String>> {
    let known: BTreeMap<&str, &ImageProfile> = other.images.iter().map(|i| (i.path.as_str(), i)).collect();
    let mut out = Vec::new();
    for image in &one.images {
        let Some(same) = known.get(image.path.as_str()) else {
            out.push(format!("`{}` ran in one and not in the other", image.path));
            continue;
        };
        for ((a, f), (b, g)) in functions(image).zip(functions(same)) {
            let edges = |unit: &UnitProfile, function| Ok(FunctionPaths::decode(function, unit.counts_of(function))?.edges);
            let (mine, own): (Result<Vec<u64>>, Result<Vec<u64>>) = (edges(a, f), edges(b, g));
            if mine? != own? {
                out.push(format!("the edges of function `{}` were executed otherwise", f.name));
            }
        }
    }
    if one.images.len() != other.images.len() {
        out.push(images_differ(one, other));
    }
    Ok(out)
}

fn functions(image: &ImageProfile) -> impl Iterator<Item = (&UnitProfile, &FunctionMap)> {
    image.units.iter().flat_map(|unit| unit.map.functions.iter().map(move |f| (unit, f)))
}

fn images_differ(one: &Profile, other: &Profile) -> String {
    format!("{} images ran in one, {} in the other", one.images.len(), other.images.len())
}

/// Functions that two profiles of the same images count differently.
pub fn differences(one: &Profile, other: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    let known: BTreeMap<_, _> = other.images.iter().map(|i| (i.identity, i)).collect();
    for image in &one.images {
        let Some(same) = known.get(&image.identity) else {
            out.push(format!("`{}` ran in one and not in the other", image.path));
            continue;
        };
        let pairs = image.units.iter().zip(&same.units);
        out.extend(pairs.flat_map(|(a, b)| differing(a, b)));
    }
    if one.images.len() != other.images.len() {
        out.push(images_differ(one, other));
    }
    out
}

fn differing(one: &UnitProfile, other: &UnitProfile) -> Vec<String> {
    let functions = one.map.functions.iter().filter(|f| one.counts_of(f).ne(other.counts_of(f)));
    functions.map(|f| format!("the paths of function `{}` were executed otherwise", f.name)).collect()
}
