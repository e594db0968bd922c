//! Splits a path that the hot-path detector has found into fragments, one for each function, and translates each fragment into updates of
//! the function's current path number.
//!
//! The probes along the code are the executed blocks; the function's graph says how the path's number changes between two blocks. A jump
//! into another function is a tail call, after which a new fragment begins.

use super::{HotPath, HotPathExit};
use crate::branch_import::ImportError;
use crate::probe_graphs::ProbeGraphs;
use trodden_binary::instruction::BranchInstruction;
use trodden_binary::{BlockConnection, NumberStep, PlacedProbe, ProbeGraph, ProbedFunction};
use trodden_flow::Edge;
use trodden_profile::UnattributedBranches;
use trodden_unit::probes::ProbeEvent;

/// The index of an image, and one of its functions.
pub type FragmentFunction = (usize, ProbedFunction);

/// An update of the number of the current path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberAction {
    /// A path begins with this number.
    Begin(i64),
    Add(i64),
    /// A call that may not return: the number plus this value is counted as a path.
    Reach(i64),
    /// The path ends, and this value is added to its number.
    Finish(i64),
    /// The number is no longer known.
    Lose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FragmentStart {
    /// At the function's entry, where a path begins.
    Entry,
    /// In the middle of the function, at this file address.
    At(u64),
}

/// The first probe on a fragment that starts in the middle of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FirstProbe {
    BlockStart(u32),
    InsideBlock(u32),
    /// No probe at all: the code is the remainder of the block before it, such as the jump after a backward branch that was not taken.
    NoProbe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentExit {
    /// At the end of the function, or where the code is not known.
    End,
    /// After its last block; the function continues at this file address.
    At(u64),
    /// After its last block; the function continues at one of the block's successors.
    Indirect,
    /// At this instruction, which returns or makes a tail call. Only fragments without blocks have this exit, since the edge depends on
    /// the block before them.
    LeavesFunction(u64),
}

/// The part of a detector's path that is in one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    pub function: FragmentFunction,
    pub start: FragmentStart,
    pub first: FirstProbe,
    /// The fragment's last block; `None` if it has no block.
    pub last: Option<u32>,
    pub actions: Vec<NumberAction>,
    pub exit: FragmentExit,
    pub count: u64,
}

/// The location of an address: image, index of the code range, file address.
type FragmentLocation = (usize, usize, u64);

/// Appends the fragments of a path to `found`.
pub fn split_into_fragments(
    graphs: &mut ProbeGraphs,
    place: &impl Fn(u64) -> Option<FragmentLocation>,
    path: &HotPath,
    losses: &mut UnattributedBranches,
    found: &mut Vec<Fragment>,
) -> Result<(), ImportError> {
    let images = graphs.images;
    let mut current: Option<FragmentBuilder> = None;
    for (number, (first, last)) in path.runs.iter().enumerate() {
        let Some((image, range, address)) = place(*first) else {
            finish(&mut current, found, FragmentExit::End);
            continue;
        };
        let here = images[image].ranges[range];
        let (function, end) = ((image, here.function), address + (last - first));
        if current.as_ref().is_some_and(|f| f.function != function || number > 0 && address == here.start) {
            finish_at_function_exit(graphs, &mut current, found)?;
        }
        let is_entry = address == here.start;
        let builder = current.get_or_insert_with(|| FragmentBuilder::new(function, address, is_entry, path.count));
        let graph = graphs.graph_of(function)?;
        let probes: Vec<&PlacedProbe> = images[image].probes_between(address, end).iter().filter(|m| m.function == function.1).collect();
        for probe in probes.iter().skip(builder.skipped_blocks(graph, &probes, address, number > 0)) {
            builder.handle_probe(graph, probe, losses);
        }
        builder.last = end;
    }
    match path.exit {
        HotPathExit::Returned => finish_at_function_exit(graphs, &mut current, found)?,
        HotPathExit::At(address) => match (place(address), &current) {
            (Some((image, range, at)), Some(f)) if (image, images[image].ranges[range].function) == f.function => {
                // A jump to the function's start is a recursive tail call.
                if at == images[image].ranges[range].start {
                    finish_at_function_exit(graphs, &mut current, found)?;
                }
                finish(&mut current, found, FragmentExit::At(at));
            }
            _ => finish_at_function_exit(graphs, &mut current, found)?,
        },
        HotPathExit::Indirect => finish(&mut current, found, FragmentExit::Indirect),
        HotPathExit::Unknown => finish(&mut current, found, FragmentExit::End),
    }
    Ok(())
}

fn finish(current: &mut Option<FragmentBuilder>, found: &mut Vec<Fragment>, exit: FragmentExit) {
    let Some(builder) = current.take() else { return };
    let start = if builder.is_entry { FragmentStart::Entry } else { FragmentStart::At(builder.start) };
    let FragmentBuilder { function, first, at, actions, count, .. } = builder;
    found.push(Fragment { function, start, first, last: at, actions, exit, count });
}

/// Ends the current fragment with a return or tail call.
fn finish_at_function_exit(
    graphs: &mut ProbeGraphs,
    current: &mut Option<FragmentBuilder>,
    found: &mut Vec<Fragment>,
) -> Result<(), ImportError> {
    let Some(builder) = current else { return Ok(()) };
    let Some(block) = builder.at else {
        let exit = FragmentExit::LeavesFunction(builder.last);
        finish(current, found, exit);
        return Ok(());
    };
    if !builder.is_done {
        let connection = connect_to_exit(graphs, builder.function, block, builder.last)?;
        builder.advance(graphs.graph_of(builder.function)?, &connection);
    }
    finish(current, found, FragmentExit::End);
    Ok(())
}

/// Returns the connection of a block with the function's exit, for the exit through the instruction at `address`.
pub fn connect_to_exit(
    graphs: &mut ProbeGraphs,
    function: FragmentFunction,
    block: u32,
    address: u64,
) -> Result<BlockConnection, ImportError> {
    let by_condition = matches!(graphs.images[function.0].branch(address), Some(BranchInstruction::Conditional(_)));
    let graph = graphs.graph_of(function)?;
    Ok(if by_condition { graph.connect_folded(block) } else { graph.connect(block, None) })
}

struct FragmentBuilder {
    function: FragmentFunction,
    start: u64,
    is_entry: bool,
    first: FirstProbe,
    /// The last block that was seen.
    at: Option<u32>,
    /// True once an edge to the function's exit has ended the path.
    is_done: bool,
    /// Address of the last instruction.
    last: u64,
    actions: Vec<NumberAction>,
    count: u64,
}

impl FragmentBuilder {
    fn new(function: FragmentFunction, start: u64, is_entry: bool, count: u64) -> FragmentBuilder {
        let actions = if is_entry { vec![NumberAction::Begin(0)] } else { Vec::new() };
        FragmentBuilder { function, start, is_entry, first: FirstProbe::NoProbe, at: None, is_done: false, last: start, actions, count }
    }

    /// If several blocks start at the target of a jump, all but the last are empty. Returns how many of them were skipped.
    fn skipped_blocks(&self, graph: &mut ProbeGraph, probes: &[&PlacedProbe], address: u64, is_jumped_to: bool) -> usize {
        let here = probes.iter().take_while(|m| m.address == address && m.probe.event == ProbeEvent::Begin).count();
        match self.at {
            _ if here <= 1 || !is_jumped_to && self.at.is_some() => 0,
            None => {
                if self.is_entry {
                    0
                } else {
                    here - 1
                }
            }
            Some(block) => {
                let fits = |at: &usize| matches!(graph.connect(block, Some(probes[*at].probe.block)), BlockConnection::Unique(_));
                let fitting: Vec<usize> = (0..here).filter(fits).collect();
                if let [one] = fitting[..] { one } else { here - 1 }
            }
        }
    }

    fn handle_probe(&mut self, graph: &mut ProbeGraph, probe: &PlacedProbe, losses: &mut UnattributedBranches) {
        let block = probe.probe.block;
        match probe.probe.event {
            ProbeEvent::Reach | ProbeEvent::End => {
                // The start of the block was not seen, so the fragment starts inside it.
                if self.at.is_none() && !self.is_entry {
                    (self.first, self.at) = (FirstProbe::InsideBlock(block), Some(block));
                }
                match probe.probe.event {
                    ProbeEvent::Reach => self.push_reached_call(graph, block, true),
                    _ => self.push_end_within_block(graph, block, true),
                }
            }
            ProbeEvent::Begin => {
                losses.blocks = losses.blocks.saturating_add(self.count);
                match self.at {
                    Some(before) => {
                        let connection = graph.connect(before, Some(block));
                        self.count_lost_path(&connection, losses);
                        self.advance(graph, &connection);
                        if connection == BlockConnection::Ambiguous {
                            self.actions.extend(lost_path_actions(graph, before, block).into_iter().skip(1));
                        }
                    }
                    None if self.is_entry && block != 0 => {
                        self.count_lost_path(&BlockConnection::None, losses);
                        self.actions.push(NumberAction::Lose);
                    }
                    None => {}
                }
                if self.at.is_none() {
                    self.first = FirstProbe::BlockStart(block);
                }
                self.at = Some(block);
                self.push_reached_call(graph, block, false);
                self.push_end_within_block(graph, block, false);
            }
        }
    }

    fn count_lost_path(&self, connection: &BlockConnection, losses: &mut UnattributedBranches) {
        let place = match connection {
            BlockConnection::Unique(_) => return,
            BlockConnection::Inferred(_) => &mut losses.inferred,
            BlockConnection::Ambiguous => &mut losses.ambiguous,
            BlockConnection::None => &mut losses.inconsistent,
        };
        *place = place.saturating_add(self.count);
    }

    fn advance(&mut self, graph: &ProbeGraph, connection: &BlockConnection) {
        match connection {
            BlockConnection::Unique(edges) | BlockConnection::Inferred(edges) => {
                edges.iter().for_each(|edge| self.is_done |= push_action(graph, *edge, &mut self.actions));
            }
            _ => {
                self.actions.push(NumberAction::Lose);
                self.is_done = false;
            }
        }
    }

    fn push_reached_call(&mut self, graph: &ProbeGraph, block: u32, is_marked: bool) {
        self.actions.extend(graph.reach(block, is_marked).map(NumberAction::Reach));
    }

    fn push_end_within_block(&mut self, graph: &ProbeGraph, block: u32, is_marked: bool) {
        if let Some(edge) = graph.end(block, is_marked).filter(|_| !self.is_done) {
            self.is_done |= push_action(graph, edge, &mut self.actions);
        }
    }
}

/// Returns the actions of a connection between two blocks. If the connection is not unique, the path's number is lost.
pub fn actions_of(graph: &ProbeGraph, connection: &BlockConnection) -> Vec<NumberAction> {
    let mut actions = Vec::new();
    match connection {
        BlockConnection::Unique(edges) | BlockConnection::Inferred(edges) => {
            edges.iter().for_each(|edge| _ = push_action(graph, *edge, &mut actions))
        }
        BlockConnection::Ambiguous | BlockConnection::None => actions.push(NumberAction::Lose),
    }
    actions
}

/// Returns the actions if several paths connect two blocks: the current path is lost, but the next path may begin.
pub fn lost_path_actions(graph: &ProbeGraph, from: u32, to: u32) -> Vec<NumberAction> {
    std::iter::once(NumberAction::Lose).chain(graph.start_after_common_cut(from, to).map(NumberAction::Begin)).collect()
}

/// Appends the action of an edge. Returns true if the edge ends the path by leaving the function.
fn push_action(graph: &ProbeGraph, edge: Edge, actions: &mut Vec<NumberAction>) -> bool {
    match graph.step(edge) {
        NumberStep::Add(value) => actions.push(NumberAction::Add(value)),
        NumberStep::End(value) => {
            actions.push(NumberAction::Finish(value));
            return true;
        }
        NumberStep::Cut(leave, enter) => actions.extend([NumberAction::Finish(leave), NumberAction::Begin(enter)]),
        NumberStep::Dead => actions.push(NumberAction::Lose),
    }
    false
}
