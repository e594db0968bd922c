//! Residual builds of random programs: for any set of known paths, all other paths must have the counts of a full profile, and the programs
//! must behave the same. Summaries of untested paths must equal what two full profiles yield.

use crate::plain;
use std::collections::{BTreeSet, HashMap, HashSet};
use trodden_analysis::untested::{UntestedPathRecorder, UntestedSummary};
use trodden_oracle::random::{RandomLanguage, RandomNumbers, RandomProgram};
use trodden_oracle::untested::{UntestedExecutionFindings, compare};
use trodden_oracle::{OracleTools, random};
use trodden_profile::paths::PathStart;
use trodden_profile::{FunctionPaths, Profile, UnitProfile};
use trodden_unit::FunctionMap;

/// Seeds of C and C++ programs with exceptions, switches, indirect branches and threads, unless `TRODDEN_ORACLE_SEEDS=FIRST-LAST` is set.
const RANDOM_SEEDS: std::ops::RangeInclusive<u64> = 0..=2;

type Counts = HashMap<(String, u64), u64>;

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("TRODDEN_ORACLE_SEEDS") else { return RANDOM_SEEDS.collect() };
    let (first, last) = text.split_once('-').expect("TRODDEN_ORACLE_SEEDS is FIRST-LAST");
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[test]
fn exactly_the_unknown_paths_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let (mut known_paths, mut unknown_paths) = (0, 0);
    for seed in seeds() {
        let program = random::program(seed);
        let (level, words) = [("-O2", ""), ("-O1", "max-paths=16"), ("-O3", ""), ("-O0", "")][seed as usize % 4];
        let place = |name: &str| folder.path().join(format!("{seed}/{name}"));
        let full = plain::execute(&plain::build(&program, level, words, &[], &tools, &place("full")), &[]);
        for share in [0, 50, 90, 100] {
            let mut dice = RandomNumbers::new(seed ^ share);
            let mut tested = full.profile.clone();
            for unit in tested.images.iter_mut().flat_map(|i| &mut i.units) {
                unit.counts.executions.retain(|_| dice.below(100) < share);
            }
            check_summary_against_two_profiles(&tested, &full.profile);
            // Large counts make the build duplicate code for known paths.
            let times = [100_000, 1][(seed + share / 10) as usize % 2];
            tested
                .images
                .iter_mut()
                .flat_map(|i| &mut i.units)
                .flat_map(|u| &mut u.counts.executions)
                .for_each(|(_, count)| *count *= times);
            let file = place(&format!("{share}.known"));
            std::fs::write(&file, tested.known_paths().unwrap().to_bytes()).unwrap();
            let known = plain::Execution { outcome: full.outcome.clone(), profile: tested }.counts();
            let mut expected = full.counts();
            expected.retain(|path, _| !known.contains_key(path));
            // Without a scheme, known paths are recognised by the region of code that they stay in; with ppp or pspp, they are recognised
            // by their numbers, as published.
            let numbered = if share == 50 { " scheme=pspp" } else { " scheme=ppp" };
            for scheme in ["", numbered] {
                let words = format!("{words} known={}{scheme}", file.display());
                let done = plain::execute(&plain::build(&program, level, &words, &[], &tools, &place(&format!("{share}{scheme}"))), &[]);
                assert_eq!(done.outcome, full.outcome, "seed {seed}{scheme}, {share} % known");
                let differences = differences(&done.counts(), &expected);
                assert!(differences.is_empty(), "seed {seed} {level}{scheme}, {share} % known: {differences:?}");
            }
            known_paths += known.len();
            unknown_paths += expected.len();
        }
    }
    assert!(known_paths > 50 * seeds().len() && unknown_paths > 50 * seeds().len(), "{known_paths} known, {unknown_paths} unknown paths");
}

/// An `invoke` defines its result at the end of its block. If only unknown paths reach that block, it exists only in the instrumented code.
#[test]
fn results_of_invokes_are_usable_in_the_other_version_of_the_code() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let program = RandomProgram { language: RandomLanguage::Cxx, text: include_str!("../subjects/invokes.cpp").to_owned() };
    let place = |name: &str| folder.path().join(name);
    let full = plain::execute(&plain::build(&program, "-O2", "", &[], &tools, &place("full")), &[]);
    assert_eq!(full.outcome.1, Some(0));
    for trial in 0..10 {
        let mut dice = RandomNumbers::new(trial);
        let mut tested = full.profile.clone();
        let counts = tested.images.iter_mut().flat_map(|i| &mut i.units).flat_map(|u| &mut u.counts.executions);
        counts.for_each(|(_, count)| *count *= 100_000);
        for unit in tested.images.iter_mut().flat_map(|i| &mut i.units) {
            let iterations = counters_of_iterations(unit);
            unit.counts.executions.retain(|(at, _)| match trial % 3 {
                0 => iterations.contains(at),
                1 => iterations.contains(at) || dice.below(2) == 0,
                _ => dice.below(10) < trial,
            });
        }
        let file = place(&format!("{trial}.known"));
        std::fs::write(&file, tested.known_paths().unwrap().to_bytes()).unwrap();
        let words = format!("known={}", file.display());
        let done = plain::execute(&plain::build(&program, "-O2", &words, &[], &tools, &place(&trial.to_string())), &[]);
        assert_eq!(done.outcome, full.outcome, "trial {trial}");
        let known = plain::Execution { outcome: full.outcome.clone(), profile: tested }.counts();
        let mut expected = full.counts();
        expected.retain(|path, _| !known.contains_key(path));
        let differences = differences(&done.counts(), &expected);
        assert!(differences.is_empty(), "trial {trial}: {differences:?}");
    }
}

/// A path that ends with a tail call must be looked up before the call, since the callee may never return.
#[test]
fn paths_are_looked_up_before_tail_calls_that_do_not_return() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let program = RandomProgram { language: RandomLanguage::C, text: include_str!("../subjects/tail_calls.c").to_owned() };
    let place = |name: &str| folder.path().join(name);
    let full = plain::execute(&plain::build(&program, "-O2", "", &[], &tools, &place("full")), &[]);
    assert_eq!(full.outcome.1, Some(0));
    // Each trial leaves a different quarter of the paths unknown. In one of the trials, this quarter contains the path whose tail call does
    // not return.
    for trial in 0..4 {
        let mut tested = full.profile.clone();
        for (at, (_, count)) in tested.images.iter_mut().flat_map(|i| &mut i.units).flat_map(|u| &mut u.counts.executions).enumerate() {
            *count *= if at % 2 == trial % 2 { 100_000 } else { 1 };
        }
        for unit in tested.images.iter_mut().flat_map(|i| &mut i.units) {
            let mut at = 0;
            unit.counts.executions.retain(|_| (at += 1, at % 4 != trial).1);
        }
        let file = place(&format!("{trial}.known"));
        std::fs::write(&file, tested.known_paths().unwrap().to_bytes()).unwrap();
        let words = format!("known={}", file.display());
        let done = plain::execute(&plain::build(&program, "-O2", &words, &[], &tools, &place(&trial.to_string())), &[]);
        assert_eq!(done.outcome, full.outcome, "trial {trial}");
        let known = plain::Execution { outcome: full.outcome.clone(), profile: tested }.counts();
        let mut expected = full.counts();
        expected.retain(|path, _| !known.contains_key(path));
        assert!(!expected.is_empty());
        assert_eq!(differences(&done.counts(), &expected), [], "trial {trial}");
    }
}

/// Returns the paths whose counts are not as expected, each with the actual and the expected count.
fn differences(counts: &Counts, expected: &Counts) -> Vec<((String, u64), u64, u64)> {
    let of = |counts: &Counts, path| counts.get(path).copied().unwrap_or(0);
    let paths: BTreeSet<&(String, u64)> = counts.keys().chain(expected.keys()).collect();
    let all = paths.into_iter().map(|path| (path.clone(), of(counts, path), of(expected, path)));
    all.filter(|(_, counted, expected)| counted != expected).collect()
}

/// Returns the counters of paths that do not start at their function's entry.
fn counters_of_iterations(unit: &UnitProfile) -> HashSet<u64> {
    let of = |function: &FunctionMap| -> Vec<u64> {
        let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
        paths.complete.iter().filter(|p| p.beginning != PathStart::Entry).map(|p| function.first_counter + p.id).collect()
    };
    unit.map.functions.iter().flat_map(of).collect()
}

fn check_summary_against_two_profiles(tests: &Profile, field: &Profile) {
    let (known, mut filtered, mut sightings) = (tests.known_paths().unwrap(), field.clone(), UntestedPathRecorder::default());
    sightings.add(0, &mut filtered, &known).unwrap();
    let reported = UntestedSummary::new(&filtered, &known).unwrap();
    let checked = compare(tests, field).unwrap();
    let reported = UntestedExecutionFindings {
        tested_paths: checked.tested_paths,
        executed_paths: sightings.counted.len() as u64,
        untested_paths: reported.paths,
        executions: sightings.executions,
        untested_executions: reported.executions,
        functions: reported.functions,
        untested_edges: reported.edges,
        functions_with_untested_edges: reported.functions_with_new_edges,
        untested_paths_in_functions_without_untested_edges: reported.in_functions_without_new_edges,
        all_edges_tested: reported.known_edges_only,
    };
    assert_eq!(reported, checked);
}
