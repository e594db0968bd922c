//! Checks random programs against all oracles, at all levels of optimisation and with different settings.
//!
//! Only a few seeds are tried by default. `TRODDEN_ORACLE_SEEDS=FIRST-LAST` selects others, as does `cargo xtask oracle --seeds N`.

use std::ops::RangeInclusive;
use std::path::Path;
use trodden_oracle::check::{CheckFindings, CheckVariant, check};
use trodden_oracle::{OracleTools, random};

/// A few programs that together contain every construct, since each takes seconds in five variants.
const RANDOM_SEEDS: RangeInclusive<u64> = 0..=3;

#[test]
fn random_programs_are_counted_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let seeds: Vec<u64> = seeds().collect();
    let halves = seeds.chunks(seeds.len().div_ceil(2));
    let all: Vec<CheckFindings> = std::thread::scope(|scope| {
        let threads: Vec<_> = halves.map(|half| scope.spawn(|| verify_all(half, &tools, folder.path()))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let differences: Vec<&String> = all.iter().flat_map(|f| &f.differences).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    let sum = |of: fn(&CheckFindings) -> usize| all.iter().map(of).sum::<usize>();
    // Make sure that the oracles had something to check.
    assert!(sum(|f| f.functions) > 10 * seeds.len() && sum(|f| f.unfinished) > 0 && sum(|f| f.verified_by_pgo) > 0);
}

fn verify_all(seeds: &[u64], tools: &OracleTools, folder: &Path) -> Vec<CheckFindings> {
    let mut all = Vec::new();
    for &seed in seeds {
        let program = random::program(seed);
        for variant in CheckVariant::variants_for_seed(seed) {
            let place = folder.join(format!("{seed}{}", variant.options[0]));
            std::fs::create_dir(&place).unwrap();
            let mut findings = check(&program, &variant, tools, &place).unwrap();
            findings.differences.iter_mut().for_each(|d| *d = format!("seed {seed} {variant:?}: {d}"));
            all.push(findings);
            std::fs::remove_dir_all(&place).unwrap();
        }
    }
    all
}

fn seeds() -> RangeInclusive<u64> {
    let Ok(text) = std::env::var("TRODDEN_ORACLE_SEEDS") else { return RANDOM_SEEDS };
    let (first, last) = text.split_once('-').expect("TRODDEN_ORACLE_SEEDS is FIRST-LAST");
    first.parse().unwrap()..=last.parse().unwrap()
}
