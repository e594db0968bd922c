//! Hits of the slowest copy under every strategy, for stored profiles: `cargo run --release -p trodden-profile --example partitions -- FILE...`
use std::path::Path;
use std::time::Instant;
use trodden_flow::partition::{self, Measure, Options, Procedure, Strategy, bound::bound, hits};
use trodden_profile::Profile;
use trodden_profile::procedures::measured;
fn main() {
    let only_weighted = std::env::var("W").is_ok();
    let mut sums = std::collections::BTreeMap::<String, (f64, u32)>::new();
    for file in std::env::args().skip(1) {
        let p = Profile::read(Path::new(&file)).unwrap();
        let procs: Vec<Procedure> = p.functions().map(|(_, u, f)| measured(f, &u.counts_of(f).collect::<Vec<_>>()).unwrap()).collect();
        let mut single = 0;
        for q in &procs {
            for e in partition::Ends::of(&q.dag).edges() {
                if q.frequencies[e.index()] > 100_000 {
                    single = single.max(hits::of_part(q, &partition::Part::by_ends(&q.dag, &[*e], &q.frequencies, Measure::All)).all);
                }
            }
        }
        for measure in [Measure::All, Measure::Labels] {
            for k in [2, 4, 8] {
                let b = bound(&procs, k, measure);
                let t = b.sequential as f64;
                let mut line = format!(
                    "{:20} {measure:?} k={k} ideal {:.3} path {:.3} end {:.3} share {:.3} single {:.3}",
                    Path::new(&file).file_stem().unwrap().to_str().unwrap(),
                    b.ideal as f64 / t,
                    b.path as f64 / t,
                    b.end as f64 / t,
                    b.share as f64 / t,
                    single as f64 / t
                );
                for s in [Strategy::Pbl, Strategy::P3, Strategy::Weighted] {
                    if only_weighted && s != Strategy::Weighted {
                        continue;
                    }
                    let at = Instant::now();
                    let o = Options { copies: k, all_procedures: true, fold_again: false, measure };
                    let plan = partition::plan(&procs, s, &o);
                    let slow = hits::slowest(&procs, &plan, measure);
                    line += &format!(
                        " {s:?} {:.3} ({:.2} aim, {:.1}s)",
                        slow as f64 / t,
                        slow as f64 / b.aim() as f64,
                        at.elapsed().as_secs_f64()
                    );
                    let e = sums.entry(format!("{measure:?} {k} {s:?}")).or_default();
                    e.0 += slow as f64 / t;
                    e.1 += 1;
                    let e = sums.entry(format!("{measure:?} {k} {s:?} /aim")).or_default();
                    e.0 += slow as f64 / b.aim() as f64;
                    e.1 += 1;
                    let e = sums.entry(format!("{measure:?} {k} {s:?} /max(ideal,path)")).or_default();
                    e.0 += slow as f64 / b.ideal.max(b.path) as f64;
                    e.1 += 1;
                }
                println!("{line}");
            }
        }
    }
    for (k, (s, n)) in sums {
        println!("{k}: {:.3}", s / n as f64)
    }
}
