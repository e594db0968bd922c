//! Random programs that count interesting paths, with every numbering scheme: exact schemes must agree with a full profile, and the others
//! must report that they are not exact.

use crate::plain;
use trodden_flow::NumberingScheme;
use trodden_oracle::interesting::{InterestingFindings, compare};
use trodden_oracle::random::RandomNumbers;
use trodden_oracle::{OracleTools, random};
use trodden_profile::exactness::InexactnessReason;

/// Seeds of programs in C and C++, unless `TRODDEN_ORACLE_SEEDS=FIRST-LAST` is set.
const RANDOM_SEEDS: std::ops::RangeInclusive<u64> = 0..=1;

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("TRODDEN_ORACLE_SEEDS") else { return RANDOM_SEEDS.collect() };
    let (first, last) = text.split_once('-').expect("TRODDEN_ORACLE_SEEDS is FIRST-LAST");
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[test]
fn counts_of_interesting_paths_equal_those_of_a_full_profile() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let mut all = InterestingFindings::default();
    for seed in seeds() {
        let program = random::program(seed);
        let (level, words) = [("-O2", ""), ("-O1", "max-paths=16"), ("-O3", "threads=atomic"), ("-O0", "chords=off")][seed as usize % 4];
        let place = |name: &str| folder.path().join(format!("{seed}/{name}"));
        let full = plain::execute(&plain::build(&program, level, words, &[], &tools, &place("full")), &[]);
        // Try a third of the schemes on each program.
        for scheme in NumberingScheme::ALL.into_iter().filter(|s| (*s as u64 + seed).is_multiple_of(3)) {
            let (share, mut dice) = ([20, 60, 95][(seed as usize + scheme as usize / 3) % 3], RandomNumbers::new(seed ^ scheme as u64));
            let mut interesting = full.profile.clone();
            for unit in interesting.images.iter_mut().flat_map(|i| &mut i.units) {
                unit.counts.executions.retain(|_| dice.below(100) < share);
            }
            let file = place(&format!("{}.paths", scheme.name()));
            std::fs::write(&file, interesting.known_paths().unwrap().to_bytes()).unwrap();
            let words = format!("{words} scheme={} interesting={}", scheme.name(), file.display());
            let done = plain::execute(&plain::build(&program, level, &words, &[], &tools, &place(scheme.name())), &[]);
            assert_eq!(done.outcome, full.outcome, "seed {seed} {}", scheme.name());
            let found = compare(&full.profile, &done.profile).unwrap();
            if scheme.is_exact() {
                assert_eq!(found.differences, [""; 0], "seed {seed} {level} {}", scheme.name());
            } else if found.misplaced > 0 {
                assert!(
                    done.profile.inexactness_reasons().iter().any(|i| matches!(i, InexactnessReason::Aliases { .. })),
                    "seed {seed}: {found:?}"
                );
            }
            let reported = done
                .profile
                .inexactness_reasons()
                .iter()
                .any(|i| matches!(i, InexactnessReason::Interesting { executions, .. } if u128::from(*executions) == found.others));
            assert!(reported || scheme == NumberingScheme::BallLarus || found.misplaced > 0, "seed {seed} {}: {found:?}", scheme.name());
            all.functions += found.functions;
            all.executed += found.executed;
            all.others += found.others;
        }
    }
    let programs = seeds().len();
    assert!(all.functions > 10 * programs && all.executed > 30 * programs && all.others > 100, "{all:?}");
}
