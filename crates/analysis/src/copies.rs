//! What copies of a program cost that share its counting: times of each, hits of its probes as they follow from what all counted, and what
//! bounds them.

use serde::Serialize;
use trodden_flow::part::{Measure, Part};
use trodden_partition::lower_bound::{LowerBound, bound};
use trodden_partition::{CopyPlan, Procedure, hits};
use trodden_profile::copies::{CopyMeasurements, CopyTimes};

/// What programs count that know some paths.
const UNKNOWN: &str = "unknown";
/// What copies count with `--divide edges`.
const EDGES: &str = "edges";
/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// How copies were asked for, in the words of the command line.
#[derive(Clone, Debug)]
pub struct CopyChoices {
    /// How the counting was divided.
    pub strategy: &'static str,
    /// Who ran the copies.
    pub engine: String,
    /// Which hits were to be small.
    pub measure: Measure,
    /// The word for that.
    pub hits: &'static str,
}

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
    /// Hits of a program that counts everything (sequential Ball-Larus), its labels placed by the frequencies that divided the counting.
    pub sequential_hits: u64,
    /// That divided by the number of copies.
    pub ideal_hits: u64,
    /// Lower bound for this number of copies: in no plan has the slowest copy fewer hits.
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
    pub label_hits: u64,
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
    pub fn new(measured: &CopyMeasurements, choices: &CopyChoices) -> Costs {
        let (procedures, copies) = (&measured.procedures, measured.times.len());
        let bound = if measured.edges { of_edges(measured) } else { of_paths(measured, choices.measure) };
        let of_copy = |at: usize| {
            let counted = measured.counted_hits.as_ref().map(|hits| hits[at]);
            let attempts = measured.attempts.get(at).copied().unwrap_or(1);
            CopyCosts { attempts, counted, ..CopyCosts::new(procedures, &measured.plans[at], &measured.times[at]) }
        };
        let costs: Vec<CopyCosts> = (0..copies).map(of_copy).collect();
        let most = |c: &CopyCosts| if choices.measure == Measure::All { c.hits } else { c.label_hits };
        let hits_of_slowest = costs.iter().map(most).max().unwrap_or(0);
        // What known paths executed is not counted: no hits follow.
        let is_known = !measured.is_residual && bound.ideal > 0;
        let mut all = Costs {
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
            proven_hits: bound.proven(),
            confirmed_paths: measured.confirmed,
            baseline: None,
            diverged: Vec::new(),
            counted: match (measured.is_residual, measured.edges) {
                (true, _) => UNKNOWN,
                (false, true) => EDGES,
                (false, false) => "paths",
            },
        };
        if let Some([plain, sequential]) = &measured.baseline {
            all.add_baseline(plain, sequential);
        }
        all
    }

    /// Whether the hits of probes are known: not of programs that count unknown paths only.
    pub fn knows_hits(&self) -> bool {
        self.counted != UNKNOWN
    }

    /// Adds the times of the program without counting and with all of it.
    fn add_baseline(&mut self, plain: &CopyTimes, sequential: &CopyTimes) {
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
}

/// What bounds copies that count paths, beside a program that counts all of them by the same knowledge of frequencies.
fn of_paths(measured: &CopyMeasurements, measure: Measure) -> LowerBound {
    let (procedures, copies) = (&measured.procedures, measured.plans.len());
    let bound = bound(procedures, copies, measure);
    measured.whole.as_ref().map_or(bound, |whole| bound.beside(hits::of_copy(procedures, whole).of(measure), copies))
}

/// What bounds copies that count edges: the counters that one program needs, of which each is in one copy.
fn of_edges(measured: &CopyMeasurements) -> LowerBound {
    let parts = measured.plans.iter().flat_map(|copy| measured.procedures.iter().zip(&copy.parts));
    let all = parts.filter_map(|(p, part)| Some((p, part.as_ref()?)));
    let counters = all.flat_map(|(p, part)| part.counted.iter().zip(&p.frequencies).filter(|(counted, _)| **counted).map(|(_, n)| *n));
    let counters: Vec<u64> = counters.collect();
    let (sequential, most) = (counters.iter().sum::<u64>(), counters.iter().copied().max().unwrap_or(0));
    let ideal = sequential.div_ceil(measured.plans.len() as u64);
    LowerBound { sequential, ideal, path: most, end: most, whole_end: most, together: 0, average: ideal }
}
