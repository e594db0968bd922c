//! Paths reconstructed from branches must equal counted paths, on random programs that are single-stepped.
//!
//! A step takes about thirty microseconds, so the default programs execute only some ten thousand instructions.
//! `TRODDEN_ORACLE_SEEDS=FIRST-LAST` selects other programs.

use std::path::Path;
use trodden_oracle::branches::{BranchFindings, BranchSampler, check};
use trodden_oracle::check::CheckVariant;
use trodden_oracle::random::{RandomLanguage, program};
use trodden_oracle::{OracleTools, step};

/// Seed of a short program with indirect calls and indirect branches.
const RANDOM_SEEDS: [u64; 1] = [5];

#[test]
fn paths_from_a_trace_of_all_branches_equal_counted_paths() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let mut all = Vec::new();
    for seed in seeds() {
        let variants = CheckVariant::variants_for_seed(seed);
        // Check all levels of optimisation if seeds were selected, otherwise only two.
        let chosen =
            variants.iter().filter(|v| std::env::var_os("TRODDEN_ORACLE_SEEDS").is_some() || ["-O0", "-O2"].contains(&&*v.options[0]));
        for variant in chosen {
            let place = folder.path().join(format!("{seed}{}", variant.options[0]));
            std::fs::create_dir(&place).unwrap();
            let found = findings(seed, variant, &tools, &place);
            println!(
                "seed {seed} {variant:?}: functions executed {}, uncertain {:?}, without addresses {:?}, broken {}, overlaps {:.3?}",
                found.executed, found.uncertain, found.without_addresses, found.broken, found.overlaps
            );
            all.push(found);
        }
    }
    let differences: Vec<&String> = all.iter().flat_map(|f| &f.differences).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(all.iter().all(|f| f.broken == 0 && f.executed > 1 && f.uncertain.is_empty() && f.without_addresses.is_empty()));
    // The overlap is below 1, since paths with calls to the C library have more branches than a window holds.
    assert!(all.iter().all(|f| f.overlaps[0] > 0.3 && f.overlaps[0] >= f.overlaps[1] - 0.02), "{all:#?}");
}

fn findings(seed: u64, variant: &CheckVariant, tools: &OracleTools, place: &Path) -> BranchFindings {
    let program = program(seed);
    let source = place.join(if program.language == RandomLanguage::C { "subject.c" } else { "subject.cpp" });
    std::fs::write(&source, &program.text).unwrap();
    let samplers =
        [BranchSampler { size: 32, interval: 0 }, BranchSampler { size: 16, interval: 0 }, BranchSampler { size: 32, interval: 40 }];
    let kind = if seed.is_multiple_of(2) { "-static" } else { "-static-pie" };
    check(&[source], program.language, variant, kind, &samplers, tools, place).unwrap()
}

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("TRODDEN_ORACLE_SEEDS") else { return RANDOM_SEEDS.to_vec() };
    let (first, last) = text.split_once('-').expect("TRODDEN_ORACLE_SEEDS is FIRST-LAST");
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[test]
fn windows_contain_the_latest_branches_first() {
    let trace = "7/7 PERF_RECORD_COMM: p:7/7\n7/7 10 => 20\n7/7 24 => 0\n7/7 0 => 26\n7/7 30 => 40\n";
    let expected = "7/7 PERF_RECORD_COMM: p:7/7
7/7 20 0x10/0x20/P/-/-/0
7/7 26 0xffffffff81000000/0x26/P/-/-/0 0x10/0x20/P/-/-/0
7/7 40 0x30/0x40/P/-/-/0 0xffffffff81000000/0x26/P/-/-/0
";
    assert_eq!(step::sample_windows(trace, 2, 0), expected);
}
