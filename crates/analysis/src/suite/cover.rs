//! The cheapest set of tests that together take all paths of all tests: weighted set cover.
//!
//! - *Greedy* (Chvatal, "A greedy heuristic for the set-covering problem", 1979): repeatedly select the test with the most new paths for
//!   its cost; then drop tests that became superfluous.
//! - *Exact*: branch and bound, after the reductions of Beasley ("An algorithm for set covering problems", 1987) and a split into parts
//!   that share no test. Lower bounds are Lagrangian, in integer arithmetic, so that rounding cannot make them wrong. If the search is
//!   stopped, the bound proven so far remains valid ([`SetCover::bound`]).

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Lagrangian multipliers are integers in units of 1/SCALE.
const MULTIPLIER_SCALE: i128 = 1 << 12;
/// Number of subgradient steps for the bound that is computed before a search, or without a search.
const FIRST_SUBGRADIENT_STEPS: u32 = 300;
/// Number of subgradient steps for the bound at each node of the search.
const SUBGRADIENT_STEPS_PER_NODE: u32 = 25;

/// A weighted set-cover problem.
#[derive(Clone, Debug, Default)]
pub struct CoverProblem {
    /// The elements of each set.
    pub sets: Vec<Vec<u32>>,
    /// The cost of each set; must be positive.
    pub costs: Vec<u64>,
}

/// Sets that cover all elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetCover {
    /// Indices of the selected sets, ascending.
    pub selected: Vec<usize>,
    /// Sum of the selected sets' costs.
    pub cost: u64,
    /// Lower bound on the cost of any cover.
    pub bound: u64,
}

impl SetCover {
    /// Returns true if this cover is proven to be the cheapest.
    pub fn is_proven(&self) -> bool {
        self.cost == self.bound
    }
}

/// The rows of the problem: for each row, the sets that contain its elements. Elements that are in the same sets share a row.
type SetsByElement = Vec<Vec<u32>>;

/// Returns the greedy cover, with a lower bound for any cover.
pub fn find_greedy_cover(problem: &CoverProblem) -> SetCover {
    let rows = build_sets_by_element(problem);
    let selected = cover_greedily(&rows, &problem.costs);
    let root = CoverPart { rows, costs: &problem.costs };
    let bound = root.find_lower_bound(&mut BTreeMap::new(), FIRST_SUBGRADIENT_STEPS, total_cost(&selected, &problem.costs));
    build_cover(selected, bound, problem)
}

/// Returns the cheapest cover, or the best one found before `should_continue`, called at each search node, returned false.
pub fn find_cheapest_cover(problem: &CoverProblem, should_continue: &mut dyn FnMut() -> bool) -> SetCover {
    let mut rows = build_sets_by_element(problem);
    let mut selected = apply_forced_decisions(&mut rows, &problem.costs);
    let mut bound = total_cost(&selected, &problem.costs);
    for rows in split_parts(rows) {
        let part = CoverPart { rows, costs: &problem.costs };
        let best = cover_greedily(&part.rows, &problem.costs);
        let lower_bound = part.find_lower_bound(&mut BTreeMap::new(), FIRST_SUBGRADIENT_STEPS, total_cost(&best, &problem.costs));
        let mut search =
            CoverSearch { costs: &problem.costs, cost: total_cost(&best, &problem.costs), best, should_continue, stopped: false };
        if search.cost > lower_bound {
            search.search_cover(&part, &mut Vec::new(), BTreeMap::new());
        }
        bound += if search.stopped { lower_bound } else { search.cost };
        selected.extend(search.best);
    }
    build_cover(selected, bound, problem)
}

fn build_cover(mut selected: Vec<u32>, bound: u64, problem: &CoverProblem) -> SetCover {
    selected.sort_unstable();
    let cost = total_cost(&selected, &problem.costs);
    SetCover { selected: selected.into_iter().map(|s| s as usize).collect(), cost, bound: bound.min(cost) }
}

fn total_cost(sets: &[u32], costs: &[u64]) -> u64 {
    sets.iter().map(|s| costs[*s as usize]).sum()
}

fn build_sets_by_element(problem: &CoverProblem) -> SetsByElement {
    let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (set, elements) in problem.sets.iter().enumerate() {
        for element in elements.iter().collect::<BTreeSet<_>>() {
            of.entry(*element).or_default().push(set as u32);
        }
    }
    let mut rows: SetsByElement = of.into_values().collect::<HashSet<_>>().into_iter().collect();
    rows.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    rows
}

/// Returns the rows that each set covers.
fn rows_by_set(rows: &SetsByElement) -> BTreeMap<u32, Vec<u32>> {
    let mut columns: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        row.iter().for_each(|set| columns.entry(*set).or_default().push(at as u32));
    }
    columns
}

fn cover_greedily(rows: &SetsByElement, costs: &[u64]) -> Vec<u32> {
    let mut columns = rows_by_set(rows);
    let (mut open, mut selected) = (vec![true; rows.len()], Vec::new());
    let mut left = rows.len();
    while left > 0 {
        columns.values_mut().for_each(|c| c.retain(|row| open[*row as usize]));
        // The best set covers the most uncovered rows relative to its cost. Of equal sets, it is the first.
        let better = |a: (&u32, &Vec<u32>), b: (&u32, &Vec<u32>)| {
            let weigh = |n: usize, other: u32| n as u128 * u128::from(costs[other as usize]);
            weigh(b.1.len(), *a.0) > weigh(a.1.len(), *b.0)
        };
        let best = columns.iter().reduce(|a, b| if better(a, b) { b } else { a });
        let Some((&set, _)) = best else { break };
        let covered = columns.remove(&set).unwrap_or_default();
        left -= covered.len();
        covered.iter().for_each(|row| open[*row as usize] = false);
        selected.push(set);
    }
    drop_redundant_sets(rows, selected, costs)
}

/// Drops sets whose rows are also covered by the other sets, the most expensive set first.
fn drop_redundant_sets(rows: &SetsByElement, mut selected: Vec<u32>, costs: &[u64]) -> Vec<u32> {
    let mut times: Vec<u32> = rows.iter().map(|row| row.iter().filter(|s| selected.contains(s)).count() as u32).collect();
    let columns = rows_by_set(rows);
    let mut order = selected.clone();
    order.sort_by_key(|s| std::cmp::Reverse(costs[*s as usize]));
    for set in order {
        let own = &columns[&set];
        if own.iter().all(|row| times[*row as usize] > 1) {
            own.iter().for_each(|row| times[*row as usize] -= 1);
            selected.retain(|s| *s != set);
        }
    }
    selected
}

/// Reduces `rows` by the decisions that are forced, and returns the sets that these decisions select. Some cheapest cover contains all of
/// these sets.
fn apply_forced_decisions(rows: &mut SetsByElement, costs: &[u64]) -> Vec<u32> {
    let mut selected = Vec::new();
    loop {
        let before = (rows.len(), rows.iter().map(Vec::len).sum::<usize>());
        let forced: BTreeSet<u32> = rows.iter().filter(|r| r.len() == 1).map(|r| r[0]).collect();
        rows.retain(|row| !row.iter().any(|s| forced.contains(s)));
        selected.extend(forced);
        drop_implied_rows(rows);
        drop_dominated_sets(rows, costs);
        if before == (rows.len(), rows.iter().map(Vec::len).sum::<usize>()) {
            return selected;
        }
    }
}

fn is_subset(small: &[u32], large: &[u32]) -> bool {
    let mut rest = large.iter();
    small.len() <= large.len() && small.iter().all(|s| rest.by_ref().any(|l| l == s))
}

/// Removes each row whose sets include all sets of a different row, because a cover of the different row also covers it.
fn drop_implied_rows(rows: &mut SetsByElement) {
    rows.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    rows.dedup();
    let columns = rows_by_set(rows);
    let mut implied = vec![false; rows.len()];
    for (at, row) in rows.iter().enumerate() {
        if implied[at] {
            continue;
        }
        // A row that contains all these sets also contains the rarest of them.
        let rarest = row.iter().map(|s| &columns[s]).min_by_key(|c| c.len());
        for other in rarest.into_iter().flatten().map(|o| *o as usize).filter(|o| *o > at) {
            implied[other] = implied[other] || is_subset(row, &rows[other]);
        }
    }
    let mut at = 0..;
    rows.retain(|_| !implied[at.next().expect("endless")]);
}

/// Removes sets whose rows are all covered by a different set that costs no more.
fn drop_dominated_sets(rows: &mut SetsByElement, costs: &[u64]) {
    let columns = rows_by_set(rows);
    let mut gone = BTreeSet::new();
    for (set, own) in &columns {
        let Some(rarest) = own.iter().map(|row| &rows[*row as usize]).min_by_key(|r| r.len()) else { continue };
        let dominates = |other: &&u32| {
            let (mine, theirs) = (costs[*set as usize], costs[**other as usize]);
            let equal = columns[*other].len() == own.len() && mine == theirs;
            *other != set && !gone.contains(*other) && theirs <= mine && is_subset(own, &columns[*other]) && (!equal || *other < set)
        };
        if rarest.iter().find(dominates).is_some() {
            gone.insert(*set);
        }
    }
    rows.iter_mut().for_each(|row| row.retain(|s| !gone.contains(s)));
}

/// Splits rows into parts that share no set.
fn split_parts(rows: SetsByElement) -> Vec<SetsByElement> {
    let mut part_of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut parts: Vec<SetsByElement> = Vec::new();
    for row in rows {
        let met: BTreeSet<usize> = row.iter().filter_map(|s| part_of.get(s).copied()).collect();
        let into = met.first().copied().unwrap_or_else(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        for other in met.into_iter().filter(|p| *p != into) {
            let moved = std::mem::take(&mut parts[other]);
            moved.iter().flatten().for_each(|s| _ = part_of.insert(*s, into));
            parts[into].extend(moved);
        }
        row.iter().for_each(|s| _ = part_of.insert(*s, into));
        parts[into].push(row);
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// A subproblem: the rows that remain to be covered.
struct CoverPart<'a> {
    rows: SetsByElement,
    costs: &'a [u64],
}

impl CoverPart<'_> {
    /// Returns a lower bound on the cost of a cover, which is the Lagrangian bound improved by subgradient steps (Held and Karp, 1971).
    /// `multipliers` maps a row, given by its sets, to its starting multiplier. The best multipliers found replace it.
    fn find_lower_bound(&self, multipliers: &mut BTreeMap<Vec<u32>, i128>, steps: u32, upper: u64) -> u64 {
        if self.rows.is_empty() {
            return 0;
        }
        let columns = rows_by_set(&self.rows);
        let scaled = |set: &u32| i128::from(self.costs[*set as usize]) * MULTIPLIER_SCALE;
        // A row's initial multiplier, which is its price, is an even share of the cost of its cheapest set.
        let share = |row: &Vec<u32>| row.iter().map(|s| scaled(s) / columns[s].len() as i128).min().unwrap_or(0);
        let mut prices: Vec<i128> = self.rows.iter().map(|row| multipliers.get(row).copied().unwrap_or_else(|| share(row))).collect();
        let (mut best, mut best_prices) = (0, prices.clone());
        let mut step = 2.0;
        for round in 0..steps {
            let mut covered = vec![0i128; self.rows.len()];
            let mut value: i128 = prices.iter().sum();
            for (set, own) in &columns {
                let reduced = scaled(set) - own.iter().map(|row| prices[*row as usize]).sum::<i128>();
                if reduced < 0 {
                    value += reduced;
                    own.iter().for_each(|row| covered[*row as usize] += 1);
                }
            }
            if value > best {
                (best, best_prices) = (value, prices.clone());
            }
            let norm: i128 = covered.iter().map(|c| (1 - c) * (1 - c)).sum();
            if norm == 0 || unscale_rounding_up(best) >= upper {
                break;
            }
            if round % 20 == 19 {
                step /= 1.5;
            }
            // The bound is valid for any multipliers, so the step may be rounded.
            let length = step * (i128::from(upper) * MULTIPLIER_SCALE - value).max(1) as f64 / norm as f64;
            for (price, covered) in prices.iter_mut().zip(&covered) {
                *price = (*price + (length * (1 - covered) as f64) as i128).max(0);
            }
        }
        *multipliers = self.rows.iter().cloned().zip(best_prices).collect();
        unscale_rounding_up(best)
    }
}

/// Converts a scaled bound to a cost, rounded up because costs are integers.
fn unscale_rounding_up(scaled: i128) -> u64 {
    ((scaled + MULTIPLIER_SCALE - 1) / MULTIPLIER_SCALE).max(0) as u64
}

struct CoverSearch<'a> {
    costs: &'a [u64],
    best: Vec<u32>,
    cost: u64,
    should_continue: &'a mut dyn FnMut() -> bool,
    stopped: bool,
}

impl CoverSearch<'_> {
    /// Searches for a cheaper cover of a subproblem, given the sets selected so far.
    fn search_cover(&mut self, part: &CoverPart, selected: &mut Vec<u32>, mut multipliers: BTreeMap<Vec<u32>, i128>) {
        self.stopped |= !(self.should_continue)();
        if self.stopped {
            return;
        }
        let spent = total_cost(selected, self.costs);
        let completed = cover_greedily(&part.rows, self.costs);
        if spent + total_cost(&completed, self.costs) < self.cost {
            self.cost = spent + total_cost(&completed, self.costs);
            self.best = selected.iter().chain(&completed).copied().collect();
        }
        if spent + part.find_lower_bound(&mut multipliers, SUBGRADIENT_STEPS_PER_NODE, self.cost.saturating_sub(spent)) >= self.cost {
            return;
        }
        // Some set of the shortest row is in the cover. Try the set that covers the most rows first, and exclude it afterwards.
        let Some(row) = part.rows.iter().min_by_key(|r| r.len()) else { return };
        let columns = rows_by_set(&part.rows);
        let mut sets = row.clone();
        sets.sort_by_key(|s| std::cmp::Reverse(columns[s].len()));
        for (at, set) in sets.iter().enumerate() {
            let excluded = &sets[..at];
            let open = part.rows.iter().filter(|r| !r.contains(set));
            let mut rows: SetsByElement = open.map(|r| r.iter().copied().filter(|s| !excluded.contains(s)).collect()).collect();
            if rows.iter().any(Vec::is_empty) {
                continue;
            }
            let kept = selected.len();
            selected.push(*set);
            selected.extend(apply_forced_decisions(&mut rows, self.costs));
            self.search_cover(&CoverPart { rows, costs: self.costs }, selected, multipliers.clone());
            selected.truncate(kept);
        }
    }
}
