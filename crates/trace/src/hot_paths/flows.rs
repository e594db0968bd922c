//! Estimates how often each fragment (a part of a hot path, within one function) followed each other fragment.
//!
//! The fragments that end at an address are the rows of a table, and the fragments that start there are its columns. Each row adds up to
//! the count of its fragment, and so does each column. The cells are filled in proportion to these sums, which is exact for a single row or
//! column. Results are integers that add up to the count of each row, so that rounding loses no executions.

use super::apportion::{apportion, apportion_within_limits};
use super::fragment::{FirstProbe, Fragment, FragmentExit, FragmentFunction, FragmentStart, NumberAction, actions_of, lost_path_actions};
use crate::branch_import::ImportError;
use crate::probe_graphs::ProbeGraphs;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use trodden_binary::{BlockConnection, ProbeGraph};

/// Maximum number of passes that fit a table to its sums. They do not converge if the sums contradict each other.
const MAX_FITTING_PASSES: usize = 60;

#[derive(Clone, Debug)]
pub struct FragmentSuccessor {
    pub next: usize,
    pub count: u64,
    pub actions: Rc<[NumberAction]>,
}

pub fn find_fragment_successors(graphs: &mut ProbeGraphs, fragments: &[Fragment]) -> Result<Vec<Vec<FragmentSuccessor>>, ImportError> {
    let mut joins: Vec<Vec<FragmentSuccessor>> = vec![Vec::new(); fragments.len()];
    let mut direct: BTreeMap<(FragmentFunction, u64), FragmentGroup> = BTreeMap::new();
    let mut indirect: BTreeMap<FragmentFunction, FragmentGroup> = BTreeMap::new();
    for (number, fragment) in fragments.iter().enumerate() {
        if let FragmentStart::At(address) = fragment.start {
            direct.entry((fragment.function, address)).or_default().begin.push(number);
            indirect.entry(fragment.function).or_default().begin.push(number);
        }
        match fragment.exit {
            FragmentExit::At(address) => direct.entry((fragment.function, address)).or_default().end.push(number),
            FragmentExit::Indirect => indirect.entry(fragment.function).or_default().end.push(number),
            FragmentExit::End | FragmentExit::LeavesFunction(_) => {}
        }
    }
    // For each fragment, the number of starts that direct jumps do not account for.
    let mut left: Vec<u64> = fragments.iter().map(|f| f.count).collect();
    for group in direct.values() {
        let counts: Vec<u64> = group.begin.iter().map(|next| fragments[*next].count).collect();
        group.join(graphs, fragments, &counts, &mut joins)?;
    }
    for join in joins.iter().flatten() {
        left[join.next] = left[join.next].saturating_sub(join.count);
    }
    for group in indirect.values() {
        let counts: Vec<u64> = group.begin.iter().map(|next| left[*next]).collect();
        group.join(graphs, fragments, &counts, &mut joins)?;
    }
    Ok(joins)
}

/// Fragments that end, and the fragments that may follow them.
#[derive(Debug, Default)]
struct FragmentGroup {
    end: Vec<usize>,
    begin: Vec<usize>,
}

impl FragmentGroup {
    /// Adds the successors within the group. `counts` has the number of starts of each fragment in `begin`.
    fn join(
        &self,
        graphs: &mut ProbeGraphs,
        fragments: &[Fragment],
        counts: &[u64],
        joins: &mut [Vec<FragmentSuccessor>],
    ) -> Result<(), ImportError> {
        let mut rows = self.rows(graphs, fragments, counts)?;
        fit_flows(&mut rows, counts);
        let mut limits = column_limits(&rows, counts.len());
        for row in rows {
            let flows: Vec<f64> = row.cells.iter().map(|cell| cell.flow).collect();
            let row_limits: Vec<u64> = row.cells.iter().map(|cell| limits[cell.column]).collect();
            for (cell, count) in row.cells.into_iter().zip(apportion_within_limits(row.count, &flows, &row_limits)) {
                limits[cell.column] = limits[cell.column].saturating_sub(count);
                if count > 0 {
                    joins[row.from].push(FragmentSuccessor { next: self.begin[cell.column], count, actions: cell.link.actions });
                }
            }
        }
        Ok(())
    }

    fn rows(&self, graphs: &mut ProbeGraphs, fragments: &[Fragment], counts: &[u64]) -> Result<Vec<FlowRow>, ImportError> {
        let mut known: HashMap<(u32, FirstProbe, FragmentStart), Option<FragmentLink>> = HashMap::new();
        let mut rows: Vec<FlowRow> = Vec::new();
        for number in &self.end {
            let from = &fragments[*number];
            let mut row = FlowRow { count: from.count, from: *number, cells: Vec::new() };
            for (column, next) in self.begin.iter().enumerate().filter(|(column, _)| counts[*column] > 0) {
                let Some(block) = from.last else { continue };
                let next = &fragments[*next];
                let link = match known.entry((block, next.first, next.start)) {
                    std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::hash_map::Entry::Vacant(new) => new.insert(find_link_to_fragment(graphs, from, block, next)?),
                };
                if let Some(link) = link {
                    row.cells.push(FlowCell { column, flow: counts[column] as f64, link: link.clone() });
                }
            }
            rows.push(row);
        }
        drop_uncertain_links(&mut rows, counts.len());
        rows.retain(|row| !row.cells.is_empty());
        Ok(rows)
    }
}

/// A table row: a fragment or block that ends, and its possible successors.
pub struct FlowRow {
    /// The index of the fragment, or the block.
    pub from: usize,
    pub count: u64,
    pub cells: Vec<FlowCell>,
}

pub struct FlowCell {
    pub column: usize,
    /// Estimate of how often the column's fragment follows.
    pub flow: f64,
    pub link: FragmentLink,
}

/// The control flow from the end of a block to a fragment.
#[derive(Clone)]
pub struct FragmentLink {
    actions: Rc<[NumberAction]>,
    /// False for an indirect jump to the fragment that may pass through a block with code of its own.
    is_certain: bool,
}

impl FragmentLink {
    pub fn certain(actions: impl Into<Rc<[NumberAction]>>) -> FragmentLink {
        FragmentLink { actions: actions.into(), is_certain: true }
    }
}

/// Returns the link from a block to the first probe of a fragment; `None` if the fragment cannot follow the block.
fn find_link_to_fragment(
    graphs: &mut ProbeGraphs,
    from: &Fragment,
    block: u32,
    next: &Fragment,
) -> Result<Option<FragmentLink>, ImportError> {
    let to = match next.first {
        FirstProbe::InsideBlock(to) if to == block => return Ok(Some(FragmentLink::certain([]))),
        FirstProbe::InsideBlock(to) | FirstProbe::BlockStart(to) => to,
        FirstProbe::NoProbe => return Ok(None),
    };
    let images = graphs.images;
    let graph = graphs.graph_of(from.function)?;
    let connection = graph.connect(block, Some(to));
    let is_indirect = from.exit == FragmentExit::Indirect;
    Ok(match connection {
        BlockConnection::Unique(_) => Some(FragmentLink::certain(actions_of(graph, &connection))),
        BlockConnection::Inferred(_) if !is_indirect => Some(FragmentLink::certain(actions_of(graph, &connection))),
        // An indirect jump may lead anywhere, so a block on the way should have no code of its own.
        BlockConnection::Inferred(_) => {
            let FragmentStart::At(address) = next.start else { return Ok(None) };
            let probes = images[from.function.0].probes_between(address, address).iter().filter(|m| m.function == from.function.1);
            let mut found = probes.filter_map(|probe| actions_through_block(graph, block, probe.probe.block, to));
            match (found.next(), found.next()) {
                (Some(one), None) => Some(FragmentLink::certain(one)),
                _ => Some(FragmentLink { actions: actions_of(graph, &connection).into(), is_certain: false }),
            }
        }
        // Control did take this way, but the path's number is no longer known.
        BlockConnection::Ambiguous if !is_indirect => Some(FragmentLink::certain(lost_path_actions(graph, block, to))),
        // The fragments are parts of the same block, which ends in several branches.
        _ if to == block && !is_indirect => Some(FragmentLink::certain([])),
        _ => None,
    })
}

/// Returns the actions on the way from a block through a second one to a third, if exactly one path leads there.
fn actions_through_block(graph: &mut ProbeGraph, from: u32, by: u32, to: u32) -> Option<Vec<NumberAction>> {
    match (graph.connect(from, Some(by)), graph.connect(by, Some(to))) {
        (first @ BlockConnection::Unique(_), second @ BlockConnection::Unique(_)) => {
            Some(actions_of(graph, &first).into_iter().chain(actions_of(graph, &second)).collect())
        }
        _ => None,
    }
}

/// Drops each uncertain link whose row and column both have a certain link.
fn drop_uncertain_links(rows: &mut [FlowRow], columns: usize) {
    let mut is_certain = vec![false; columns];
    rows.iter().flat_map(|row| &row.cells).for_each(|cell| is_certain[cell.column] |= cell.link.is_certain);
    for row in rows {
        let has_certain = row.cells.iter().any(|cell| cell.link.is_certain);
        row.cells.retain(|cell| cell.link.is_certain || !has_certain || !is_certain[cell.column]);
    }
}

/// Scales the cells' flows until each row adds up to its count, and each column to its count in `counts`, scaled to the same total.
pub fn fit_flows(rows: &mut [FlowRow], counts: &[u64]) {
    let sums_before = column_sums(rows, counts.len());
    let columns_total: u64 = counts.iter().zip(&sums_before).filter(|(_, sum)| **sum > 0.0).map(|(count, _)| count).sum();
    if columns_total == 0 {
        return;
    }
    let share = rows.iter().map(|row| row.count).sum::<u64>() as f64 / columns_total as f64;
    for pass in 0..MAX_FITTING_PASSES {
        let mut is_changed = false;
        if pass > 0 {
            let sums = column_sums(rows, counts.len());
            for cell in rows.iter_mut().flat_map(|row| &mut row.cells).filter(|cell| sums[cell.column] > 0.0) {
                let factor = counts[cell.column] as f64 * share / sums[cell.column];
                is_changed |= (factor - 1.0).abs() > 1e-9;
                cell.flow *= factor;
            }
        }
        for row in rows.iter_mut() {
            let sum: f64 = row.cells.iter().map(|cell| cell.flow).sum();
            row.cells.iter_mut().for_each(|cell| cell.flow *= row.count as f64 / sum);
        }
        if pass > 0 && !is_changed {
            return;
        }
    }
}

fn column_sums(rows: &[FlowRow], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    rows.iter().flat_map(|row| &row.cells).for_each(|cell| sums[cell.column] += cell.flow);
    sums
}

/// Rounds the sums of columns to integers with the same total.
fn column_limits(rows: &[FlowRow], columns: usize) -> Vec<u64> {
    apportion(rows.iter().map(|row| row.count).sum(), &column_sums(rows, columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, cells: &[(usize, bool)]) -> FlowRow {
        let cell = |(column, is_certain): &(usize, bool)| FlowCell {
            column: *column,
            flow: 1.0,
            link: FragmentLink { is_certain: *is_certain, ..FragmentLink::certain([]) },
        };
        FlowRow { from: 0, count, cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn uncertain_links_are_kept_if_a_jump_has_no_others() {
        // The second jump is a duplicate of the first, in a block that only leads to that jump.
        let mut rows = [row(60, &[(0, true), (1, true)]), row(40, &[(0, false), (1, false)]), row(5, &[(0, false), (2, true)])];
        drop_uncertain_links(&mut rows, 3);
        let columns = rows.each_ref().map(|row| row.cells.iter().map(|cell| cell.column).collect::<Vec<_>>());
        assert_eq!(columns, [vec![0, 1], vec![0, 1], vec![2]]);
    }

    #[test]
    fn column_with_one_source_gets_its_count_from_that_source() {
        let mut rows = [row(30, &[(0, true), (1, true), (2, true)]), row(20, &[(2, true)])];
        fit_flows(&mut rows, &[10, 15, 25]);
        let flows: Vec<u64> = rows.iter().flat_map(|row| &row.cells).map(|cell| cell.flow.round() as u64).collect();
        assert_eq!(flows, [10, 15, 5, 20]);
    }
}
