//! The most compact numbers by a solver of mixed integer programs (microlp), to hold the own search against; with the feature `milp`.
//!
//! For a span S there is a binary variable for each path and each of its numbers 0..S: every path has one number, no number two paths, and numbers are what the coefficients of the
//! lattice give (`trodden_flow::numbering::Lattice`). A coefficient whose pivot is one is an integer by itself. The solver calculates in floating point: what it finds is checked in integers,
//! that it finds nothing is as certain as its tolerances are.

use microlp::{ComparisonOp, Error, LinearExpr, OptimizationDirection, Problem, Variable};
use std::time::{Duration, Instant};
use trodden_flow::numbering::{Found, Lattice};

/// Larger problems are not given to the solver: it takes minutes for their first relaxation.
const MOST_BINARIES: u64 = 20_000;

/// Whether paths can have different numbers below `span`; the search ends at `until`.
pub fn find(lattice: &Lattice, span: u64, until: Instant) -> Found {
    let left = until.saturating_duration_since(Instant::now());
    if left == Duration::ZERO || span.saturating_mul(lattice.rows.len() as u64) > MOST_BINARIES {
        return Found::Unfinished;
    }
    let mut program = Program::new(lattice, span);
    program.problem.set_time_limit(left);
    match program.problem.solve() {
        Ok(outcome) => outcome.into_solution().map_or(Found::Unfinished, |solution| {
            let numbers: Option<Vec<i64>> = program.numbers.iter().map(|of| number(of, &|v| solution.var_value(v))).collect();
            numbers.and_then(|numbers| coefficients(lattice, &numbers)).map_or(Found::Unfinished, Found::Numbers)
        }),
        Err(Error::Infeasible) => Found::Nothing,
        // The solver gives up.
        Err(_) => Found::Unfinished,
    }
}

/// The number whose variable is one.
fn number(of: &[Variable], value: &dyn Fn(Variable) -> f64) -> Option<i64> {
    of.iter().position(|v| value(*v) > 0.5).map(|number| number as i64)
}

/// A problem, with the variables of each path's numbers in the lattice's order.
struct Program {
    problem: Problem,
    numbers: Vec<Vec<Variable>>,
}

impl Program {
    fn new(lattice: &Lattice, span: u64) -> Program {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let numbers: Vec<Vec<Variable>> = lattice.rows.iter().map(|_| (0..span).map(|_| problem.add_binary_var(0.0)).collect()).collect();
        for of in &numbers {
            problem.add_constraint(sum(of.iter().map(|v| (*v, 1.0))), ComparisonOp::Eq, 1.0);
        }
        for at in 0..span as usize {
            problem.add_constraint(sum(numbers.iter().map(|of| (of[at], 1.0))), ComparisonOp::Le, 1.0);
        }
        let coefficients: Vec<Variable> = lattice.pivots.iter().flatten().map(|pivot| coefficient(&mut problem, *pivot)).collect();
        for (row, of) in lattice.rows.iter().zip(&numbers) {
            let told = row.iter().zip(&coefficients).map(|(factor, y)| (*y, -(*factor as f64)));
            problem.add_constraint(sum(of.iter().enumerate().map(|(at, v)| (*v, at as f64)).chain(told)), ComparisonOp::Eq, 0.0);
        }
        Program { problem, numbers }
    }
}

fn coefficient(problem: &mut Problem, pivot: i64) -> Variable {
    match pivot {
        1 => problem.add_var(0.0, (f64::NEG_INFINITY, f64::INFINITY)),
        _ => problem.add_integer_var(0.0, (i32::MIN / 2, i32::MAX / 2)),
    }
}

fn sum(terms: impl Iterator<Item = (Variable, f64)>) -> LinearExpr {
    let mut sum = LinearExpr::empty();
    terms.filter(|(_, factor)| *factor != 0.0).for_each(|(variable, factor)| sum.add(variable, factor));
    sum
}

/// The coefficients that give these numbers, in the lattice's order.
fn coefficients(lattice: &Lattice, numbers: &[i64]) -> Option<Vec<i64>> {
    let mut found: Vec<i64> = Vec::new();
    for ((row, pivot), number) in lattice.rows.iter().zip(&lattice.pivots).zip(numbers) {
        let known: i64 = row.iter().zip(&found).map(|(a, y)| a * y).sum();
        match pivot {
            Some(pivot) if (number - known) % pivot == 0 => found.push((number - known) / pivot),
            None if *number == known => {}
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use trodden_flow::dag::Entries;
    use trodden_flow::numbering::{Budget, NumberOptions, SearchEnd, number};
    use trodden_flow::{Dag, DagEdgeId, Graph, InterestingSet, Labelling, Node, Numbering, Scheme};
    use trodden_testkit::Random;
    use trodden_testkit::graphs::{Cycles, graph};

    /// The numbers of `count` random paths of a random graph, by the own search or by the solver.
    fn numbered(seed: u64, count: usize, nodes: u32, by_solver: bool) -> Labelling {
        let mut random = Random::new(seed);
        let (dag, all) = loop {
            let dag = Dag::new(&graph(&mut random, nodes, 5 * nodes / 2, Cycles::None), &[], Entries::PerEdge);
            let all = Numbering::ball_larus(&dag).unwrap();
            if all.paths() > count as u64 + 2 {
                break (dag, all);
            }
        };
        let mut ids = BTreeSet::new();
        while ids.len() < count {
            ids.insert(random.below(all.paths()));
        }
        let set = InterestingSet::from_ids(&dag, &all, &ids.into_iter().collect::<Vec<_>>()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let solver = |lattice: &Lattice, span: u64| find(lattice, span, until);
        let budget = Budget { solver: if by_solver { Some(&solver) } else { None }, ..Budget::default() };
        let options = NumberOptions { restarts: 0, budget, ..NumberOptions::default() };
        number(Scheme::PppOptimal, &dag, &vec![1.0; dag.edges().len()], &set, &options).unwrap()
    }

    #[test]
    fn the_solver_and_the_own_search_prove_the_same() {
        let mut worked = 0;
        let large = (0..30).map(|seed| (seed, 12, 10));
        for (seed, count, nodes) in large.chain((100..160).map(|seed| (seed, 6, 5))) {
            let (own, other) = (numbered(seed, count, nodes, false), numbered(seed, count, nodes, true));
            let (own_proof, proof) = (own.proof().unwrap(), other.proof().unwrap());
            assert!(own_proof.end != SearchEnd::BudgetSpent && proof.end != SearchEnd::BudgetSpent, "seed {seed}");
            assert_eq!((own.span().width(), own_proof.bound), (other.span().width(), proof.bound), "seed {seed}");
            worked += u32::from(proof.steps > 0);
        }
        assert!(worked >= 10, "{worked}");
    }

    #[test]
    fn the_solver_excludes_a_span_that_figure_3_6_cannot_have() {
        // Thesis, figure 3.6: from 0 by 1, 2 or 3 to 4, and by 5, 6 or 7 to 8. Six of its nine paths have no six numbers in a row.
        let ends = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8)];
        let edges = ends.map(|(from, to)| (Node(from), Node(to))).to_vec();
        let dag = Dag::new(&Graph::new(9, Node(0), Node(8), edges).unwrap(), &[], Entries::PerEdge);
        let path = |first: u32, second: u32| [first, 3 + first, 6 + second, 9 + second].map(DagEdgeId).to_vec();
        let paths = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].map(|(first, second)| path(first, second));
        let set = InterestingSet::from_paths(&dag, &Numbering::ball_larus(&dag).unwrap(), &paths).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let solver = |lattice: &Lattice, span: u64| find(lattice, span, until);
        let options = NumberOptions { budget: Budget { solver: Some(&solver), ..Budget::default() }, ..NumberOptions::default() };
        let best = number(Scheme::PppOptimal, &dag, &[1.0; 12], &set, &options).unwrap();
        let proof = best.proof().unwrap();
        assert_eq!((best.span().width(), proof.bound, proof.end), (7, 7, SearchEnd::Optimal));
    }

    #[test]
    fn thirty_paths_are_proven_by_the_solver() {
        for seed in [0x3030 ^ 2, 0x3030 ^ 1] {
            let best = numbered(seed, 30, 24, true);
            assert_eq!(best.span().width(), u128::from(best.proof().unwrap().bound), "{:?}", best.proof());
        }
    }
}
