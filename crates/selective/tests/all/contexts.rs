//! Preferential numbering over contexts and paths: on random graphs, each interesting pair of a context and a path has a separate counter,
//! and all other pairs are counted by the last counter.

use std::collections::BTreeSet;
use trodden_flow::dag::Entries;
use trodden_flow::placement::Probes;
use trodden_flow::{Dag, Numbering, Origin};
use trodden_selective::contexts::preferential_contexts;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

#[test]
fn each_interesting_pair_has_a_separate_counter() {
    let (mut seen, mut others, mut compact, mut chords) = (0, 0, 0, 0);
    for seed in 0..6_000 {
        let mut random = Random::new(seed ^ 0x1ccc);
        let dag = Dag::new(&graph(&mut random, 9, 18, CycleKind::Some), &[], Entries::Shared);
        let Ok(all) = Numbering::ball_larus(&dag) else { continue };
        let Some(paths) = all_paths(&dag, 60) else { continue };
        // Only paths that begin at the function's entry have a context.
        let begins = |path: &&Vec<_>| path.first().is_some_and(|edge| !matches!(dag.edge(*edge).origin, Origin::Enter(_)));
        let first: Vec<_> = paths.iter().filter(begins).collect();
        let Some(_) = first.first() else { continue };
        let contexts = random.below(6) as u32;
        let bits = all.paths().next_power_of_two().trailing_zeros();
        let pairs: BTreeSet<(u32, u64)> = (0..1 + random.below(8))
            .map(|_| (random.below(u64::from(contexts) + 1) as u32, all.id(first[random.index(first.len())])))
            .collect();
        let pairs: Vec<(u32, u64)> = pairs.into_iter().collect();
        let found = preferential_contexts((&dag, &all), (contexts, bits), &pairs, 4).unwrap();
        seen += 1;
        let last = found.ending.counter_count() - 1;
        compact += u64::from(last == pairs.len() as u64);
        let weights: Vec<f64> = dag.edges().iter().map(|_| random.below(9) as f64).collect();
        let probes = Probes::on_chords(&dag, &found.values, &weights);
        chords += u64::from(probes.increments() != found.values);
        let mut words = BTreeSet::new();
        for context in 0..=contexts {
            for path in &first {
                let sum = |values: &[i64]| path.iter().map(|e| values[e.index()]).fold(found.starts[context as usize], i64::wrapping_add);
                let register = sum(&found.values);
                assert_eq!(sum(probes.increments()), register, "seed {seed}: chords keep sums");
                let (key, word) = (u64::from(context) << bits | all.id(path), found.ending.counter_of(register));
                assert_eq!(register as u64 & found.ending.identity_mask().unwrap(), key, "seed {seed}: the register lacks the key");
                match pairs.contains(&(context, all.id(path))) {
                    true => {
                        assert_eq!(found.keys[word as usize], Some(key), "seed {seed}");
                        assert!(words.insert(word), "seed {seed}: two pairs have the same counter");
                    }
                    false => {
                        assert_eq!(word, last, "seed {seed}: {context}, {path:?}");
                        others += 1;
                    }
                }
            }
        }
        assert_eq!(words.len(), pairs.len(), "seed {seed}");
    }
    assert!(
        seen > 1_000 && others > 5_000 && compact > 500 && chords > 500,
        "{seen} graphs, {others} other pairs, {compact} compact, {chords}"
    );
}
