//! Measures, within a time limit, for how many graphs the most compact path numbers are proven, and how far the remaining results are from
//! the proven bound.
//!
//! `cargo run --release --package trodden-selective --example compact_numbers -- [SECONDS [GRAPHS [CHAINS [PATHS]]]]`: at most SECONDS
//! (60) for each set of PATHS (30) random paths, through GRAPHS (200) random graphs of four sizes, and through CHAINS (5) chains of each
//! length from 3 to 14 branches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trodden_flow::dag::Entries;
use trodden_flow::{Dag, Graph, Node, Numbering, NumberingScheme};
use trodden_selective::InterestingSet;
use trodden_selective::{Budget, NumberOptions, SpanSearchEnd, number};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let mut next = |default| numbers.next().unwrap_or(default);
    let (seconds, graphs, chains, interesting) = (next(60), next(200), next(5), next(30));
    println!(
        "| graphs | number | proven | closed form | median s | longest s | span - bound of the others |\n|---|---|---|---|---|---|---|"
    );
    for (nodes, edges) in [(12, 30), (24, 60), (48, 120), (96, 240)] {
        let mut random = Random::new(u64::from(nodes));
        let dags = (0..graphs / 4).map(|_| random_dag(&mut random, nodes, edges, 2 * interesting));
        measure(&format!("random, {nodes} nodes, {edges} edges"), dags, &mut Random::new(7), interesting, seconds);
    }
    for length in 3..=14 {
        let dags = (0..chains).map(|_| chain(length));
        measure(&format!("{length} branches in a row"), dags, &mut Random::new(u64::from(length)), interesting, seconds);
    }
}

fn random_dag(random: &mut Random, nodes: u32, edges: u32, paths: u64) -> Dag {
    loop {
        let dag = Dag::new(&graph(random, nodes, edges, CycleKind::None), &[], Entries::PerEdge);
        if Numbering::ball_larus(&dag).is_ok_and(|all| all.paths() >= paths) {
            return dag;
        }
    }
}

fn chain(length: u32) -> Dag {
    let edges = (0..length).flat_map(|d| [(Node(d), Node(d + 1)); 2]).collect();
    Dag::new(&Graph::new(length + 1, Node(0), Node(length), edges).expect("a chain"), &[], Entries::PerEdge)
}

fn measure(name: &str, dags: impl Iterator<Item = Dag>, random: &mut Random, interesting: u64, limit_s: u64) {
    let (mut times_s, mut gaps, mut closed) = (Vec::new(), BTreeMap::<u64, u32>::new(), 0);
    for dag in dags {
        let all = Numbering::ball_larus(&dag).expect("few paths");
        let mut ids = BTreeSet::new();
        while (ids.len() as u64) < interesting.min(all.paths()) {
            ids.insert(random.below(all.paths()));
        }
        let set = InterestingSet::from_ids(&dag, &all, &ids.into_iter().collect::<Vec<_>>()).expect("they exist");
        let clock = Instant::now();
        let stop = || clock.elapsed() > Duration::from_secs(limit_s);
        let options = NumberOptions { budget: Budget { steps: u64::MAX, stop: &stop }, ..NumberOptions::default() };
        let best = number(NumberingScheme::PppOptimal, &dag, &vec![1.0; dag.edges().len()], &set, &options).expect("it can be numbered");
        times_s.push(clock.elapsed().as_secs_f64());
        let proof = best.proof().expect("the scheme proves");
        closed += u32::from(proof.end == SpanSearchEnd::ClosedForm);
        *gaps.entry(best.span().width() as u64 - proof.bound).or_default() += 1;
    }
    times_s.sort_by(f64::total_cmp);
    let proven = gaps.remove(&0).unwrap_or(0);
    let open: Vec<String> = gaps.iter().map(|(gap, times)| format!("{gap} ({times})")).collect();
    let (median, longest) = (times_s[times_s.len() / 2], times_s[times_s.len() - 1]);
    println!("| {name} | {} | {proven} | {closed} | {median:.2} | {longest:.1} | {} |", times_s.len(), open.join(", "));
}
