//! How much of the sequential cost the slowest copy has, for every strategy and 2, 4 and 8 copies, from stored profiles; and the averages.
//!
//! `cargo run --release -p trodden-profile --example partitions -- PROFILE...`
//!
//! Who calls whom is not in profiles, so `p3` divides all procedures here; `trodden plan` knows call sites from the program's bitcode.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;
use trodden_flow::partition::bound::{Bound, bound};
use trodden_flow::partition::{Measure, Options, Procedure, Strategy, hits, plan};
use trodden_profile::Profile;
use trodden_profile::procedures::measured;

const STRATEGIES: [Strategy; 3] = [Strategy::Pbl, Strategy::P3, Strategy::Weighted];
const COPIES: [usize; 3] = [2, 4, 8];

/// Shares of the slowest copy: in the sequential cost, and in what plans can aim at.
#[derive(Default)]
struct Sums {
    profiles: u32,
    of_sequential: f64,
    of_aim: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut sums = BTreeMap::<String, Sums>::new();
    println!(
        "{:<24} {:>6} {:>2} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}",
        "profile", "hits", "k", "ideal", "path", "proven", "pbl", "p3", "weighted"
    );
    for file in std::env::args().skip(1) {
        let profile = Profile::read(Path::new(&file))?;
        let procedure =
            |(_, unit, function): (_, &trodden_profile::UnitProfile, &_)| measured(function, &unit.counts_of(function).collect::<Vec<_>>());
        let procedures: Vec<Procedure> = profile.functions().map(procedure).collect::<Result<_, _>>()?;
        for measure in [Measure::All, Measure::Labels] {
            for copies in COPIES {
                row(&file, &procedures, measure, copies, &mut sums);
            }
        }
    }
    for (what, Sums { profiles, of_sequential, of_aim }) in &sums {
        let count = f64::from(*profiles);
        println!(
            "{what}: {:.1} % of sequential, {:.2} times the aim, on average of {profiles}",
            100.0 * of_sequential / count,
            of_aim / count
        );
    }
    Ok(())
}

fn row(file: &str, procedures: &[Procedure], measure: Measure, copies: usize, sums: &mut BTreeMap<String, Sums>) {
    let bound: Bound = bound(procedures, copies, measure);
    let share = |hits: u64| 100.0 * hits as f64 / bound.sequential.max(1) as f64;
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let [ideal, path, proven] = [bound.ideal, bound.path, bound.proven()].map(share);
    print!("{name:<24} {:>6} {copies:>2} {ideal:>7.1} {path:>7.1} {proven:>7.1}", format!("{measure:?}"));
    let started = Instant::now();
    for strategy in STRATEGIES {
        let options = Options { copies, all_procedures: true, fold_again: false, measure };
        let slowest = hits::slowest(procedures, &plan(procedures, strategy, &options), measure);
        print!(" {:>9.1}", share(slowest));
        let sum = sums.entry(format!("{measure:?}, {copies} copies, {strategy:?}")).or_default();
        sum.profiles += 1;
        sum.of_sequential += slowest as f64 / bound.sequential.max(1) as f64;
        sum.of_aim += slowest as f64 / bound.aim().max(1) as f64;
    }
    println!("   {:.1} s", started.elapsed().as_secs_f64());
}
