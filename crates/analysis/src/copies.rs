//! Costs of profiling a program with several instrumented copies, each of which counts some of the paths: run times, numbers of probe
//! executions (*hits*), and lower bounds on the hits.

use serde::Serialize;
use trodden_flow::part::{Measure, Part};
use trodden_partition::lower_bound::{LowerBound, bound};
use trodden_partition::{CopyPlan, Procedure, hits};
use trodden_profile::copies::{CopyMeasurements, CopyTimes};

/// Value of `CopiesCosts::counted` if only paths that were not known before are counted.
const COUNTED_UNKNOWN_PATHS_WORD: &str = "unknown";
/// Value of `CopiesCosts::counted` if each copy counts some of the edges (`--divide edges`).
const COUNTED_EDGES_WORD: &str = "edges";
const SCHEMA_VERSION: u32 = 2;

/// The user's choices on the command line for a run of several copies.
#[derive(Clone, Debug)]
pub struct RequestedCopies {
    /// Name of the strategy that divided the counting among the copies.
    pub strategy: &'static str,
    /// The engine that ran the copies.
    pub engine: String,
    /// Which probe executions the strategy minimised.
    pub measure: Measure,
    /// Name of the measure.
    pub hits: &'static str,
}

/// Costs of all copies.
#[derive(Clone, Debug, Serialize)]
pub struct CopiesCosts {
    schema_version: u32,
    /// Path of the program.
    pub program: String,
    /// Name of the strategy that divided the counting among the copies.
    pub strategy: &'static str,
    engine: String,
    /// Which probe executions were minimised and are reported: `all`, or only those of `labels`, the probes that update the path register.
    pub hits_counted: &'static str,
    /// Costs of each copy.
    pub copies: Vec<CopyCosts>,
    /// Index of the copy with the longest wall time.
    pub slowest_copy: usize,
    /// Maximum hits of any copy.
    pub hits_of_slowest: u64,
    /// Probe executions of one program that counts all paths (sequential Ball-Larus), with its labels placed by the same frequencies as in
    /// the copies.
    pub sequential_hits: u64,
    /// `sequential_hits` divided by the number of copies, rounded up.
    pub ideal_hits: u64,
    /// Lower bound on the hits of the slowest copy: however the paths are divided among this number of copies, one copy has at least this
    /// many hits.
    pub lower_bound_hits: u64,
    /// `hits_of_slowest` divided by `ideal_hits`, minus 1, or `None` if hits are unknown.
    pub distance_from_ideal: Option<f64>,
    /// Time that the slowest copy saves, as a share of the time of one program that counts everything. It is negative if the slowest copy
    /// takes longer, and `None` if that program was not run.
    pub saving: Option<f64>,
    /// Number of paths for which several copies counted the same number of executions.
    pub confirmed_paths: u64,
    /// Runs of the program without counting and with all counting, each run alone.
    pub baseline: Option<BaselineTimes>,
    /// Descriptions of differences between the copies' executions.
    pub diverged: Vec<String>,
    /// What is counted: `paths`, `edges`, or `unknown` (paths not known before; their hits are unknown and reported as 0).
    counted: &'static str,
}

/// Costs of one copy.
#[derive(Clone, Debug, Serialize)]
pub struct CopyCosts {
    /// Wall time.
    pub wall_ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Host on which the copy ran.
    pub host: String,
    /// Number of times the copy was started.
    pub attempts: u32,
    /// Number of functions in which the copy counts.
    pub functions: usize,
    probes: usize,
    /// Number of executions of all probes: of labels, which update the path register, and of counters.
    pub hits: u64,
    /// Number of executions of labels only, which update the path register.
    pub label_hits: u64,
    /// `[hits, label_hits]` as measured by the copy itself.
    pub counted: Option<[u64; 2]>,
    /// Wall time relative to the program without counting, minus 1.
    pub overhead: Option<f64>,
}

impl CopyCosts {
    /// Computes the hits of a copy's probes from the counts of all copies.
    fn new(procedures: &[Procedure], plan: &CopyPlan, times: &CopyTimes) -> CopyCosts {
        let hits = hits::copy_hits(procedures, plan);
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

/// Times of the original program, and of a single program that counts everything.
#[derive(Clone, Debug, Serialize)]
pub struct BaselineTimes {
    /// Wall time without counting.
    pub plain_ns: u64,
    /// Wall time with all counting in one program.
    pub sequential_ns: u64,
    plain_cpu_ns: u64,
    sequential_cpu_ns: u64,
}

impl CopiesCosts {
    /// Computes the costs of all copies.
    pub fn new(measured: &CopyMeasurements, choices: &RequestedCopies) -> CopiesCosts {
        let (procedures, copies) = (&measured.procedures, measured.times.len());
        let bound =
            if measured.edges { lower_bound_for_edge_copies(measured) } else { lower_bound_for_path_copies(measured, choices.measure) };
        let copy_costs = |at: usize| {
            let counted = measured.counted_hits.as_ref().map(|hits| hits[at]);
            let attempts = measured.attempts.get(at).copied().unwrap_or(1);
            CopyCosts { attempts, counted, ..CopyCosts::new(procedures, &measured.plans[at], &measured.times[at]) }
        };
        let costs: Vec<CopyCosts> = (0..copies).map(copy_costs).collect();
        let most = |c: &CopyCosts| if choices.measure == Measure::All { c.hits } else { c.label_hits };
        let hits_of_slowest = costs.iter().map(most).max().unwrap_or(0);
        // Executions of known paths are not counted, so the hits cannot be computed.
        let is_known = !measured.is_residual && bound.ideal > 0;
        let mut all = CopiesCosts {
            schema_version: SCHEMA_VERSION,
            program: measured.program.clone(),
            strategy: choices.strategy,
            engine: choices.engine.clone(),
            hits_counted: choices.hits,
            slowest_copy: (0..costs.len()).max_by_key(|at| costs[*at].wall_ns).unwrap_or(0),
            hits_of_slowest,
            distance_from_ideal: is_known.then(|| hits_of_slowest as f64 / bound.ideal as f64 - 1.0),
            saving: None,
            copies: costs,
            sequential_hits: bound.sequential,
            ideal_hits: bound.ideal,
            lower_bound_hits: bound.proven(),
            confirmed_paths: measured.confirmed,
            baseline: None,
            diverged: Vec::new(),
            counted: match (measured.is_residual, measured.edges) {
                (true, _) => COUNTED_UNKNOWN_PATHS_WORD,
                (false, true) => COUNTED_EDGES_WORD,
                (false, false) => "paths",
            },
        };
        if let Some([plain, sequential]) = &measured.baseline {
            all.add_baseline(plain, sequential);
        }
        all
    }

    /// Returns false for programs that count unknown paths only, because their hits cannot be computed.
    pub fn are_hits_known(&self) -> bool {
        self.counted != COUNTED_UNKNOWN_PATHS_WORD
    }

    fn add_baseline(&mut self, plain: &CopyTimes, sequential: &CopyTimes) {
        self.baseline = Some(BaselineTimes {
            plain_ns: plain.wall_ns,
            sequential_ns: sequential.wall_ns,
            plain_cpu_ns: plain.cpu_ns,
            sequential_cpu_ns: sequential.cpu_ns,
        });
        for copy in &mut self.copies {
            copy.overhead = Some(copy.wall_ns as f64 / plain.wall_ns.max(1) as f64 - 1.0);
        }
        self.saving = Some(1.0 - self.slowest_copy_costs().wall_ns as f64 / sequential.wall_ns.max(1) as f64);
    }

    /// Returns the copy with the longest wall time.
    pub fn slowest_copy_costs(&self) -> &CopyCosts {
        &self.copies[self.slowest_copy]
    }

    /// Returns the hits of a copy by the minimised measure, or `None` for programs that count unknown paths only.
    pub fn minimised_hits_of_copy(&self, copy: &CopyCosts) -> Option<u64> {
        match (self.counted, self.hits_counted) {
            (COUNTED_UNKNOWN_PATHS_WORD, _) => None,
            (_, "all") => Some(copy.hits),
            _ => Some(copy.label_hits),
        }
    }
}

/// Returns the lower bound for copies that count paths. It is tighter if a single program with all counts was run.
fn lower_bound_for_path_copies(measured: &CopyMeasurements, measure: Measure) -> LowerBound {
    let (procedures, copies) = (&measured.procedures, measured.plans.len());
    let bound = bound(procedures, copies, measure);
    measured.whole.as_ref().map_or(bound, |whole| bound.with_sequential(hits::copy_hits(procedures, whole).of(measure), copies))
}

/// Returns the lower bound for copies that count edges. Each counter that a single program needs is in exactly one copy.
fn lower_bound_for_edge_copies(measured: &CopyMeasurements) -> LowerBound {
    let parts = measured.plans.iter().flat_map(|copy| measured.procedures.iter().zip(&copy.parts));
    let all = parts.filter_map(|(p, part)| Some((p, part.as_ref()?)));
    let counters = all.flat_map(|(p, part)| part.counted.iter().map(|edge| p.frequencies[edge.index()]));
    let counters: Vec<u64> = counters.collect();
    let (sequential, most) = (counters.iter().sum::<u64>(), counters.iter().copied().max().unwrap_or(0));
    let ideal = sequential.div_ceil(measured.plans.len() as u64);
    LowerBound { sequential, ideal, path: most, end: most, whole_end: most, together: 0, average: ideal }
}
