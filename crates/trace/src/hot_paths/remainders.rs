//! Assigns blocks to fragments in which no block starts.
//!
//! A backward branch that is not taken ends a path of the detector. What follows may be no more than the jump after it, or the remainder of
//! a block that ends in an indirect jump. Such a remainder belongs to the block before it. It is replaced by one fragment for each block
//! from which control arrived, and its count is divided among them.

use super::apportion::apportion;
use super::flows::{FlowCell, FlowRow, FragmentLink, fit_flows};
use super::fragment::{FirstProbe, Fragment, FragmentExit, FragmentFunction, FragmentStart, actions_of, connect_to_exit};
use crate::branch_import::ImportError;
use crate::probe_graphs::ProbeGraphs;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_binary::{BlockConnection, ProbeGraph};

/// Maximum number of consecutive remainders, which are parts of one block.
const MAX_CONSECUTIVE_REMAINDERS: usize = 16;

/// For each address in a function, how often control arrived there from each block.
type ArrivalCounts = HashMap<(FragmentFunction, u64), BTreeMap<u32, u64>>;

/// Assigns a block to each fragment that has none. Fragments that no block precedes are dropped.
pub fn assign_blocks_to_remainders(graphs: &mut ProbeGraphs, found: Vec<Fragment>) -> Result<Vec<Fragment>, ImportError> {
    let (rests, mut fragments): (Vec<Fragment>, Vec<Fragment>) = found.into_iter().partition(|f| f.last.is_none());
    let mut placed: Vec<Fragment> = Vec::new();
    // The counts of a remainder's fragments depend on those of the remainders before it.
    for _ in 0..MAX_CONSECUTIVE_REMAINDERS {
        let mut arrivals = arrivals(&fragments, &placed);
        add_indirect_arrivals(graphs, &fragments, &rests, &mut arrivals)?;
        let mut next = Vec::new();
        for rest in rests.iter().filter(|rest| has_following_code(rest)) {
            let FragmentStart::At(address) = rest.start else { continue };
            let Some(blocks) = arrivals.get(&(rest.function, address)) else { continue };
            let weights: Vec<f64> = blocks.values().map(|count| *count as f64).collect();
            for (block, count) in blocks.keys().zip(apportion(rest.count, &weights)).filter(|(_, count)| *count > 0) {
                next.push(assign_remainder_to_block(graphs, rest, *block, count)?);
            }
        }
        let is_done = next == placed;
        placed = next;
        if is_done {
            break;
        }
    }
    fragments.append(&mut placed);
    Ok(fragments)
}

/// Returns true if any code follows a remainder. A remainder that ends with a jump to its own start is a loop within a block, and nothing
/// follows it.
fn has_following_code(rest: &Fragment) -> bool {
    match (rest.start, rest.exit) {
        (FragmentStart::At(from), FragmentExit::At(to)) => from != to,
        (_, FragmentExit::End) => false,
        _ => true,
    }
}

fn arrivals(fragments: &[Fragment], placed: &[Fragment]) -> ArrivalCounts {
    let mut arrivals = ArrivalCounts::new();
    for fragment in fragments.iter().chain(placed) {
        if let (Some(block), FragmentExit::At(address)) = (fragment.last, fragment.exit) {
            *arrivals.entry((fragment.function, address)).or_default().entry(block).or_default() += fragment.count;
        }
    }
    arrivals
}

/// A block that starts at an address, or a remainder that starts there, identified by the address at which it continues.
type StartedBlockOrRemainder = Result<u32, u64>;
/// Number of starts in one function, by address and by the block or remainder that starts there.
type StartCounts = BTreeMap<(u64, StartedBlockOrRemainder), u64>;

/// Adds the arrivals through indirect jumps: if an address has more starts than direct jumps account for, the other arrivals came from
/// blocks that end in an indirect jump. The shares of these blocks are fitted to the counts of all targets of such jumps.
fn add_indirect_arrivals(
    graphs: &mut ProbeGraphs,
    fragments: &[Fragment],
    rests: &[Fragment],
    arrivals: &mut ArrivalCounts,
) -> Result<(), ImportError> {
    let mut jumps: BTreeMap<FragmentFunction, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut begin: BTreeMap<FragmentFunction, StartCounts> = BTreeMap::new();
    for fragment in fragments.iter().chain(rests) {
        if let (Some(block), FragmentExit::Indirect) = (fragment.last, fragment.exit) {
            *jumps.entry(fragment.function).or_default().entry(block).or_default() += fragment.count;
        }
        let start = match (fragment.first, fragment.exit) {
            (FirstProbe::BlockStart(block), _) => Ok(block),
            (FirstProbe::NoProbe, FragmentExit::At(to)) => Err(to),
            _ => continue,
        };
        if let FragmentStart::At(address) = fragment.start {
            *begin.entry(fragment.function).or_default().entry((address, start)).or_default() += fragment.count;
        }
    }
    let with_rests: BTreeSet<FragmentFunction> = rests.iter().map(|rest| rest.function).collect();
    for function in with_rests {
        if let (Some(jumps), Some(begin)) = (jumps.get(&function), begin.get(&function)) {
            let left = starts_without_direct_jumps(function, begin, arrivals);
            let counts: Vec<u64> = left.values().copied().collect();
            let mut rows = indirect_jump_rows(graphs.graph_of(function)?, jumps, begin, &left);
            fit_flows(&mut rows, &counts);
            let columns: Vec<&(u64, StartedBlockOrRemainder)> = left.keys().collect();
            for (row, cell) in rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
                if let (address, Err(_)) = columns[cell.column] {
                    *arrivals.entry((function, *address)).or_default().entry(row.from as u32).or_default() += cell.flow.round() as u64;
                }
            }
        }
    }
    Ok(())
}

/// Returns the counts of starts that direct jumps do not account for.
fn starts_without_direct_jumps(function: FragmentFunction, begin: &StartCounts, arrivals: &ArrivalCounts) -> StartCounts {
    let mut totals: HashMap<u64, u64> = HashMap::new();
    begin.iter().for_each(|((address, _), count)| *totals.entry(*address).or_default() += count);
    let left = |((address, start), count): (&(u64, StartedBlockOrRemainder), &u64)| {
        let direct: u64 = arrivals.get(&(function, *address)).map_or(0, |blocks| blocks.values().sum());
        let share = 1.0 - direct as f64 / totals[address] as f64;
        let left = (*count as f64 * share).round() as u64;
        (left > 0).then_some(((*address, *start), left))
    };
    begin.iter().filter_map(left).collect()
}

/// Builds the table of indirect jumps and their possible targets.
fn indirect_jump_rows(graph: &mut ProbeGraph, jumps: &BTreeMap<u32, u64>, begin: &StartCounts, left: &StartCounts) -> Vec<FlowRow> {
    let mut blocks: HashMap<u64, BTreeSet<u32>> = HashMap::new();
    for (address, start) in begin.keys() {
        blocks.entry(*address).or_default().extend(start.ok());
    }
    let mut rows = Vec::new();
    for (block, count) in jumps {
        let mut fits = |start: &StartedBlockOrRemainder| match start {
            Ok(to) => matches!(graph.connect(*block, Some(*to)), BlockConnection::Unique(_)),
            // The remainder may be a block without an address, or several.
            Err(to) => blocks
                .get(to)
                .into_iter()
                .flatten()
                .any(|to| matches!(graph.connect(*block, Some(*to)), BlockConnection::Unique(_) | BlockConnection::Ambiguous)),
        };
        let columns = left.iter().enumerate().filter(|(_, ((_, start), _))| fits(start));
        let cells: Vec<FlowCell> =
            columns.map(|(column, (_, count))| FlowCell { column, flow: *count as f64, link: FragmentLink::certain([]) }).collect();
        rows.extend((!cells.is_empty()).then_some(FlowRow { from: *block as usize, count: *count, cells }));
    }
    rows
}

fn assign_remainder_to_block(graphs: &mut ProbeGraphs, rest: &Fragment, block: u32, count: u64) -> Result<Fragment, ImportError> {
    let mut placed = Fragment { first: FirstProbe::InsideBlock(block), last: Some(block), count, ..rest.clone() };
    if let FragmentExit::LeavesFunction(address) = rest.exit {
        let connection = connect_to_exit(graphs, rest.function, block, address)?;
        placed.actions = actions_of(graphs.graph_of(rest.function)?, &connection);
        placed.exit = FragmentExit::End;
    }
    Ok(placed)
}
