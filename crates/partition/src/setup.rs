//! Distributes divisible tasks over copies. A task has a setup cost in each copy that does a part of it.
//!
//! Complete tasks are assigned by longest processing time first (Graham, 1969). Then parts move away from the most expensive copy, singly
//! or together with all parts of the same task, as long as this makes the copy cheaper and leaves every copy cheaper than the most
//! expensive copy was. So a task is divided only if this saves more than the setup costs.

use std::cmp::Reverse;

const MAX_TASK_MOVES: usize = 10_000;

/// A task whose parts may be done by different copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivisibleTask {
    /// Cost that arises once in each copy that does a part.
    pub setup: u64,
    /// Cost of each part.
    pub parts: Vec<u64>,
}

/// Which copy does which part of each task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDistribution {
    /// For each task, the copy of each part.
    pub owners: Vec<Vec<usize>>,
    /// The cost of each copy.
    pub loads: Vec<u64>,
}

struct TaskMove {
    task: usize,
    parts: Vec<usize>,
    to: usize,
    loads: (u64, u64),
}

/// Distributes tasks over copies, of which there must be at least one.
pub fn distribute(tasks: &[DivisibleTask], copies: usize) -> TaskDistribution {
    let mut found = assign_whole(tasks, copies);
    for _ in 0..MAX_TASK_MOVES {
        let from = (0..copies).max_by_key(|copy| (found.loads[*copy], Reverse(*copy))).expect("there is a copy");
        let Some(best) = best_move(tasks, &found, from) else { break };
        best.parts.iter().for_each(|part| found.owners[best.task][*part] = best.to);
        (found.loads[from], found.loads[best.to]) = best.loads;
    }
    found
}

fn assign_whole(tasks: &[DivisibleTask], copies: usize) -> TaskDistribution {
    let cost = |task: &DivisibleTask| task.parts.iter().fold(task.setup, |sum, part| sum.saturating_add(*part));
    let mut order: Vec<usize> = (0..tasks.len()).filter(|task| !tasks[*task].parts.is_empty()).collect();
    order.sort_by_key(|task| (Reverse(cost(&tasks[*task])), *task));
    let mut loads = vec![0u64; copies];
    let mut owners: Vec<Vec<usize>> = tasks.iter().map(|task| vec![0; task.parts.len()]).collect();
    for task in order {
        let copy = (0..copies).min_by_key(|copy| loads[*copy]).expect("there is a copy");
        owners[task].fill(copy);
        loads[copy] = loads[copy].saturating_add(cost(&tasks[task]));
    }
    TaskDistribution { owners, loads }
}

/// Returns the move after which the more expensive of the two copies is cheapest; `None` if no move leaves both copies cheaper than `from`
/// is now.
fn best_move(tasks: &[DivisibleTask], found: &TaskDistribution, from: usize) -> Option<TaskMove> {
    let mut best: Option<TaskMove> = None;
    for (number, task) in tasks.iter().enumerate() {
        let owners = &found.owners[number];
        let own: Vec<usize> = (0..owners.len()).filter(|part| owners[*part] == from).collect();
        let mut is_set_up = vec![false; found.loads.len()];
        owners.iter().for_each(|owner| is_set_up[*owner] = true);
        let single = own.iter().map(|part| vec![*part]).filter(|_| own.len() > 1);
        for parts in single.chain((!own.is_empty()).then(|| own.clone())) {
            let cost = parts.iter().fold(0u64, |sum, part| sum.saturating_add(task.parts[*part]));
            let saved = if parts.len() == own.len() { cost.saturating_add(task.setup) } else { cost };
            for to in (0..found.loads.len()).filter(|to| *to != from) {
                let setup = if is_set_up[to] { 0 } else { task.setup };
                let loads = (found.loads[from].saturating_sub(saved), found.loads[to].saturating_add(cost).saturating_add(setup));
                let dearest = |loads: (u64, u64)| loads.0.max(loads.1);
                if dearest(loads) < best.as_ref().map_or(found.loads[from], |best| dearest(best.loads)) {
                    best = Some(TaskMove { task: number, parts: parts.clone(), to, loads });
                }
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_testkit::Random;

    fn task(setup: u64, parts: &[u64]) -> DivisibleTask {
        DivisibleTask { setup, parts: parts.to_vec() }
    }

    /// Returns the least possible cost of the most expensive copy, by trying all assignments.
    fn optimal_cost(tasks: &[DivisibleTask], copies: usize) -> u64 {
        let parts: Vec<(usize, u64)> =
            tasks.iter().enumerate().flat_map(|(at, task)| task.parts.iter().map(move |part| (at, *part))).collect();
        let assignments = (copies as u64).pow(parts.len() as u32);
        let cost = |mut assignment: u64| {
            let (mut loads, mut is_set_up) = (vec![0; copies], vec![vec![false; tasks.len()]; copies]);
            for (task, part) in &parts {
                let copy = (assignment % copies as u64) as usize;
                assignment /= copies as u64;
                let setup = if std::mem::replace(&mut is_set_up[copy][*task], true) { 0 } else { tasks[*task].setup };
                loads[copy] += part + setup;
            }
            loads.into_iter().max().unwrap()
        };
        (0..assignments).map(cost).min().unwrap()
    }

    #[test]
    fn tasks_are_divided_if_that_pays() {
        let divided = distribute(&[task(1, &[5, 4, 3]), task(0, &[1])], 2);
        assert_eq!(divided, TaskDistribution { owners: vec![vec![1, 0, 0], vec![1]], loads: vec![8, 7] });
        let whole = distribute(&[task(20, &[5, 4, 3]), task(20, &[6, 5])], 2);
        assert_eq!(whole, TaskDistribution { owners: vec![vec![0, 0, 0], vec![1, 1]], loads: vec![32, 31] });
        assert_eq!(distribute(&[], 3).loads, [0, 0, 0]);
    }

    #[test]
    fn random_tasks_cost_at_most_half_more_than_the_optimum() {
        let (mut optimal, mut all, mut divided) = (0, 0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed ^ 0x5e7);
            let tasks: Vec<DivisibleTask> = (0..1 + random.index(3))
                .map(|_| DivisibleTask { setup: random.below(6), parts: (0..1 + random.index(3)).map(|_| random.below(20)).collect() })
                .collect();
            let copies = 2 + random.index(2);
            let found = distribute(&tasks, copies);
            let mut loads = vec![0; copies];
            for (task, owners) in tasks.iter().zip(&found.owners) {
                task.parts.iter().zip(owners).for_each(|(part, copy)| loads[*copy] += part);
                (0..copies).filter(|copy| owners.contains(copy)).for_each(|copy| loads[copy] += task.setup);
                divided += usize::from(owners.iter().any(|copy| *copy != owners[0]));
            }
            assert_eq!(loads, found.loads, "seed {seed}");
            let (most, least) = (loads.into_iter().max().unwrap(), optimal_cost(&tasks, copies));
            assert!(2 * most <= 3 * least, "seed {seed}: {most} instead of {least}");
            (optimal, all) = (optimal + usize::from(most == least), all + 1);
        }
        assert!(optimal > all / 2 && divided > 50, "{optimal} of {all} are optimal, {divided} are divided");
    }
}
