//! Computes how often each function of a program is called, from the number of executions of each call site per call of its function.
//!
//! Source: Wu and Larus, "Static branch frequency and program profile analysis" (MICRO 1994). The vector x of the numbers of calls to the
//! functions is the solution of x = r + Mx, where r are the calls from outside, and M has the number of calls to each function per call of
//! each caller. The equations are solved separately for each group of mutually recursive functions, callers first. Estimated recursions may
//! be infinite, so a group's equations may have no solution or a negative one: if the spectral radius of its matrix exceeds 1 -
//! 1/[`MAX_RECURSIVE_CALLS_PER_CALL`], all calls of the group are scaled down to that radius. A group that is never called from outside is
//! entered once, through its first function.

/// Maximum number of calls to a self-recursive function per call from outside.
pub const MAX_RECURSIVE_CALLS_PER_CALL: f64 = 64.0;
/// Maximum number of iterations of a solver. At the maximum spectral radius, 64 iterations reduce the error by a factor of e.
const MAX_SOLVER_ITERATIONS: usize = 4096;
/// An iterative solution has converged when its relative change is below this.
const SOLVER_TOLERANCE: f64 = 1e-12;

/// A call site and its executions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedCall {
    /// The calling function.
    pub caller: usize,
    /// The called function.
    pub callee: usize,
    /// Number of executions per call of the caller.
    pub executions: f64,
}

/// Returns the number of calls to each function. `roots` holds the number of calls to each function from outside.
pub fn call_frequencies(roots: &[f64], calls: &[WeightedCall]) -> Vec<f64> {
    let mut out: Vec<Vec<WeightedCall>> = vec![Vec::new(); roots.len()];
    calls.iter().for_each(|call| out[call.caller].push(*call));
    let mut called = roots.to_vec();
    let group_of = find_recursion_groups(&out);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); roots.len()];
    (0..roots.len()).for_each(|function| members[group_of[function]].push(function));
    // Callees have lower group numbers than their callers, so the reverse order visits callers first.
    for group in members.iter().rev().filter(|group| !group.is_empty()) {
        let is_inner = |call: &WeightedCall| group_of[call.callee] == group_of[group[0]];
        let inner: Vec<WeightedCall> = group.iter().flat_map(|f| &out[*f]).filter(|call| is_inner(call)).copied().collect();
        if !inner.is_empty() {
            if group.iter().all(|function| called[*function] == 0.0) {
                called[group[0]] = 1.0;
            }
            solve_recursion_group(group, &damp_recursion(group, &inner), &mut called);
        }
        for call in group.iter().flat_map(|f| &out[*f]).filter(|call| !is_inner(call)) {
            called[call.callee] += called[call.caller] * call.executions;
        }
    }
    called
}

/// Solves the equations of one group. `called` contains the numbers of calls from outside the group, and receives the solution.
fn solve_recursion_group(group: &[usize], inner: &[WeightedCall], called: &mut [f64]) {
    let outside: Vec<f64> = called.to_vec();
    for _ in 0..MAX_SOLVER_ITERATIONS {
        let next = compute_next_iteration(group, inner, called, &outside);
        let is_settled = group.iter().all(|f| (next[*f] - called[*f]).abs() <= SOLVER_TOLERANCE * next[*f]);
        called.copy_from_slice(&next);
        if is_settled {
            break;
        }
    }
}

/// Computes one iteration of the solution, which is the sum of the calls from outside and those from within the group.
fn compute_next_iteration(group: &[usize], inner: &[WeightedCall], called: &[f64], outside: &[f64]) -> Vec<f64> {
    let mut next = called.to_vec();
    group.iter().for_each(|function| next[*function] = outside[*function]);
    inner.iter().for_each(|call| next[call.callee] += called[call.caller] * call.executions);
    next
}

/// Returns a group's calls, scaled down if their recursion would be infinite or too deep.
fn damp_recursion(group: &[usize], inner: &[WeightedCall]) -> Vec<WeightedCall> {
    let (max_radius, radius) = (1.0 - 1.0 / MAX_RECURSIVE_CALLS_PER_CALL, spectral_radius(group, inner));
    let factor = if radius > max_radius { max_radius / radius } else { 1.0 };
    inner.iter().map(|call| WeightedCall { executions: call.executions * factor, ..*call }).collect()
}

/// Computes the spectral radius of a group's matrix M, by power iteration on I + M, whose dominant eigenvalue is unique even if M's is not.
fn spectral_radius(group: &[usize], inner: &[WeightedCall]) -> f64 {
    let size = group.iter().max().map_or(0, |f| f + 1);
    let mut vector = vec![0.0; size];
    group.iter().for_each(|function| vector[*function] = 1.0 / group.len() as f64);
    let mut radius = 0.0;
    for _ in 0..MAX_SOLVER_ITERATIONS {
        let next = compute_next_iteration(group, inner, &vector, &vector);
        let sum: f64 = group.iter().map(|f| next[*f]).sum();
        let is_settled = (sum - 1.0 - radius).abs() <= SOLVER_TOLERANCE * sum;
        radius = sum - 1.0;
        vector = next.into_iter().map(|value| value / sum).collect();
        if is_settled {
            break;
        }
    }
    radius
}

/// Returns, for each function, the number of its group of mutually recursive functions. Groups only call groups with lower numbers.
fn find_recursion_groups(out: &[Vec<WeightedCall>]) -> Vec<usize> {
    let mut search = StronglyConnectedComponentSearch {
        out,
        order: vec![None; out.len()],
        low: vec![0; out.len()],
        stack: Vec::new(),
        group: vec![None; out.len()],
        next: (0, 0),
    };
    for function in 0..out.len() {
        if search.order[function].is_none() {
            search.visit_function(function);
        }
    }
    search.group.into_iter().map(|group| group.expect("each function is in a group")).collect()
}

/// Tarjan's search for strongly connected components.
struct StronglyConnectedComponentSearch<'a> {
    out: &'a [Vec<WeightedCall>],
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    group: Vec<Option<usize>>,
    /// The next free position in the depth-first order, and the next free group number.
    next: (usize, usize),
}

impl StronglyConnectedComponentSearch<'_> {
    /// Visits all functions that are reachable from `root`. Does not use recursion, because call chains may be deeper than the stack.
    fn visit_function(&mut self, root: usize) {
        let mut work = vec![(root, 0)];
        while let Some((function, at)) = work.pop() {
            if at == 0 {
                (self.order[function], self.low[function]) = (Some(self.next.0), self.next.0);
                self.next.0 += 1;
                self.stack.push(function);
            }
            match self.out[function].get(at).map(|call| call.callee) {
                Some(callee) => {
                    work.push((function, at + 1));
                    match (self.order[callee], self.group[callee]) {
                        (None, _) => work.push((callee, 0)),
                        (Some(order), None) => self.low[function] = self.low[function].min(order),
                        (Some(_), Some(_)) => {}
                    }
                }
                None => self.finish_function(function, work.last().map(|(caller, _)| *caller)),
            }
        }
    }

    fn finish_function(&mut self, function: usize, caller: Option<usize>) {
        if self.order[function] == Some(self.low[function]) {
            while let Some(member) = self.stack.pop() {
                self.group[member] = Some(self.next.1);
                if member == function {
                    break;
                }
            }
            self.next.1 += 1;
        }
        if let Some(caller) = caller {
            self.low[caller] = self.low[caller].min(self.low[function]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(caller: usize, callee: usize, executions: f64) -> WeightedCall {
        WeightedCall { caller, callee, executions }
    }

    /// Solves x = r + Mx by Gaussian elimination. Returns `None` if there is no solution.
    fn solve_by_elimination(roots: &[f64], calls: &[WeightedCall]) -> Option<Vec<f64>> {
        let size = roots.len();
        let mut rows: Vec<Vec<f64>> =
            (0..size).map(|row| (0..=size).map(|c| if c == size { roots[row] } else { f64::from(u8::from(c == row)) }).collect()).collect();
        calls.iter().for_each(|c| rows[c.callee][c.caller] -= c.executions);
        for column in 0..size {
            let pivot = (column..size).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
            rows.swap(column, pivot);
            if rows[column][column].abs() < 1e-9 {
                return None;
            }
            let pivot = rows[column].clone();
            for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| *row != column) {
                let factor = row[column] / pivot[column];
                row.iter_mut().zip(&pivot).skip(column).for_each(|(entry, of_pivot)| *entry -= factor * of_pivot);
            }
        }
        Some((0..size).map(|row| rows[row][size] / rows[row][row]).collect())
    }

    #[test]
    fn frequencies_solve_the_linear_equations() {
        let mut state = 7u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut recursive = 0;
        for _ in 0..400 {
            let size = 2 + draw(7) as usize;
            // With weights this small, every recursion terminates.
            let mut calls: Vec<WeightedCall> = Vec::new();
            for caller in 0..size {
                (0..1 + draw(3)).for_each(|_| calls.push(call(caller, draw(size as u64) as usize, draw(30) as f64 / 100.0)));
            }
            let mut roots = vec![0.0; size];
            roots[0] = 1.0;
            (1..size).for_each(|f| roots[f] = if calls.iter().any(|c| c.callee == f && c.caller < f) { 0.0 } else { 1.0 });
            let (expected, found) = (solve_by_elimination(&roots, &calls).unwrap(), call_frequencies(&roots, &calls));
            for (function, (e, f)) in expected.iter().zip(&found).enumerate() {
                // By convention, a group that is never called from outside is entered once.
                let is_rootless = *e == 0.0;
                assert!(is_rootless || (e - f).abs() <= 1e-6 * e.max(1.0), "{function}: {found:?}, not {expected:?} ({roots:?} {calls:?})");
            }
            recursive += usize::from(calls.iter().any(|c| c.callee <= c.caller && c.executions > 0.0));
        }
        assert!(recursive > 100, "{recursive}");
    }

    #[test]
    fn without_recursion_calls_multiply_along_chains() {
        let calls = [call(0, 1, 10.0), call(0, 2, 2.0), call(1, 2, 3.0), call(2, 3, 0.5)];
        assert_eq!(call_frequencies(&[1.0, 0.0, 0.0, 0.0], &calls), [1.0, 10.0, 32.0, 16.0]);
    }

    #[test]
    fn infinite_recursion_is_damped() {
        // Each call makes two more calls. This recursion is damped to 64 calls per call from outside; in a pair of mutually recursive
        // functions, each gets about half of them.
        let one = call_frequencies(&[1.0], &[call(0, 0, 2.0)]);
        assert!((one[0] - MAX_RECURSIVE_CALLS_PER_CALL).abs() < 1e-6, "{one:?}");
        let pair = call_frequencies(&[1.0, 0.0, 0.0], &[call(0, 1, 5.0), call(1, 0, 5.0), call(1, 2, 1.0)]);
        assert!((pair[0] + pair[1] - MAX_RECURSIVE_CALLS_PER_CALL).abs() < 1.0 && pair[0] > pair[1] && pair[2] == pair[1], "{pair:?}");
        // A recursion that terminates is not damped.
        assert!((call_frequencies(&[1.0], &[call(0, 0, 0.75)])[0] - 4.0).abs() < 1e-6);
    }

    #[test]
    fn group_that_is_never_called_from_outside_is_entered_once() {
        let called = call_frequencies(&[1.0, 0.0, 0.0], &[call(1, 2, 1.0), call(2, 1, 0.5)]);
        assert_eq!(called[0], 1.0);
        assert!((called[1] - 2.0).abs() < 1e-6 && (called[2] - 2.0).abs() < 1e-6, "{called:?}");
    }
}
