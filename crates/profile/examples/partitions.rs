//! Prints, for every partitioning strategy and for 2, 4 and 8 instrumented copies of a program, the cost of counting in the slowest copy
//! and lower bounds for it. The costs are computed from stored profiles.
//!
//! `cargo run --release -p trodden-profile --example partitions -- PROFILE...`
//!
//! Profiles do not contain call sites, so the strategy `p3` divides all procedures here; `trodden plan` reads the call sites from the
//! program's bitcode.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use trodden_flow::part::Measure;
use trodden_partition::lower_bound::{LowerBound, bound};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures, hits, plan};
use trodden_profile::Profile;
use trodden_profile::procedures::build_measured_procedure;

const COMPARED_STRATEGIES: [(PartitionStrategy, &str); 3] =
    [(PartitionStrategy::Pbl, "pbl"), (PartitionStrategy::P3, "p3, all procedures"), (PartitionStrategy::Weighted, "weighted")];
const COPY_NUMBERS: [usize; 3] = [2, 4, 8];

/// Costs of counting and their lower bounds, in percent of the cost of a single copy that counts everything, and the ratios of costs to
/// bounds.
#[derive(Clone, Copy, Default)]
struct CostRow {
    /// Cost in the slowest copy: all executed probes (`all`), and the label probes alone (`labels`), each for the plan that minimises it.
    all: f64,
    labels: f64,
    ideal: f64,
    path: f64,
    /// Lower bounds for any plan, and for plans that never divide the paths with the same end among several copies.
    proven: f64,
    whole_ends: f64,
    /// `all` divided by `proven` and by `whole_ends`.
    over_proven: f64,
    over_whole_ends: f64,
}

impl CostRow {
    fn format_cells(&self) -> String {
        let CostRow { all, labels, ideal, path, proven, whole_ends, over_proven, over_whole_ends } = self;
        format!(
            "{labels:.1} | {all:.1} | {ideal:.1} | {path:.1} | {proven:.1} | {:+.1} | {whole_ends:.1} | {:+.1}",
            100.0 * (over_proven - 1.0),
            100.0 * (over_whole_ends - 1.0)
        )
    }

    fn add(&mut self, other: &CostRow, weight: f64) {
        let pairs = [
            (&mut self.all, other.all),
            (&mut self.labels, other.labels),
            (&mut self.ideal, other.ideal),
            (&mut self.path, other.path),
            (&mut self.proven, other.proven),
            (&mut self.whole_ends, other.whole_ends),
            (&mut self.over_proven, other.over_proven),
            (&mut self.over_whole_ends, other.over_whole_ends),
        ];
        pairs.into_iter().for_each(|(sum, value)| *sum += weight * value);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut means = BTreeMap::<(usize, usize), CostRow>::new();
    let mut longest = (Duration::ZERO, String::new());
    println!(
        "| program | k | strategy | labels | all hits | ideal | most frequent path | bound | distance | bound, whole ends | distance |"
    );
    println!("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for file in &files {
        let profile = Profile::read(Path::new(file))?;
        let procedure = |(_, unit, function): (_, &trodden_profile::UnitProfile, &_)| {
            build_measured_procedure(function, &unit.counts_of(function).collect::<Vec<_>>())
        };
        let procedures: Vec<Procedure> = profile.functions().map(procedure).collect::<Result<_, _>>()?;
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        for copies in COPY_NUMBERS {
            let bounds = [Measure::Labels, Measure::All].map(|measure| bound(&procedures, copies, measure));
            for (at, (strategy, word)) in COMPARED_STRATEGIES.iter().enumerate() {
                let started = Instant::now();
                let row = compute_row(&procedures, *strategy, copies, &bounds);
                longest = longest.max((started.elapsed() / 2, format!("{name}, {copies} copies, {word}")));
                println!("| {name} | {copies} | {word} | {} |", row.format_cells());
                means.entry((copies, at)).or_default().add(&row, 1.0 / files.len() as f64);
            }
        }
    }
    for ((copies, at), mean) in &means {
        println!("| mean of {} | {copies} | {} | {} |", files.len(), COMPARED_STRATEGIES[*at].1, mean.format_cells());
    }
    eprintln!("making a plan took at most {:.1} s ({})", longest.0.as_secs_f64(), longest.1);
    Ok(())
}

fn compute_row(procedures: &[Procedure], strategy: PartitionStrategy, copies: usize, bounds: &[LowerBound; 2]) -> CostRow {
    let slowest = |measure: Measure| {
        let options = PartitionOptions { copies, profitable: ProfitableProcedures::ALL, fold_again: false, measure };
        hits::slowest_copy_hits(procedures, &plan(procedures, strategy, &options), measure)
    };
    let (labels, all) = (slowest(Measure::Labels), slowest(Measure::All));
    let [of_labels, of_all] = bounds;
    let share = |hits: u64, bound: &LowerBound| 100.0 * hits as f64 / bound.sequential.max(1) as f64;
    CostRow {
        all: share(all, of_all),
        labels: share(labels, of_labels),
        ideal: share(of_all.ideal, of_all),
        path: share(of_all.path, of_all),
        proven: share(of_all.proven(), of_all),
        whole_ends: share(of_all.proven_for_whole_ends(), of_all),
        over_proven: all as f64 / of_all.proven().max(1) as f64,
        over_whole_ends: all as f64 / of_all.proven_for_whole_ends().max(1) as f64,
    }
}
