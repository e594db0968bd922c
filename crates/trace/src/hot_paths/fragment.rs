//! Splits a path of the detector into fragments, one for each function, and translates each into actions on the number of the unit's
//! current path.
//!
//! The probes along the code are the executed blocks; the function's graph tells what happens to the number between two of them. A jump
//! into another function is a tail call, after which a new fragment begins.

use super::{HotPath, HotPathExit};
use crate::branch_import::ImportError;
use crate::probe_graphs::ProbeGraphs;
use trodden_binary::instruction::BranchInstruction;
use trodden_binary::{Connection, NumberStep, ProbeAt, ProbeGraph, ProbedFunction};
use trodden_flow::Edge;
use trodden_profile::Losses;
use trodden_unit::probes::ProbeEvent;

/// A function of an image.
pub type FragmentFunction = (usize, ProbedFunction);

/// An action on the number of the current path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberAction {
    /// A path begins with this number.
    Begin(i64),
    /// This value is added to the number.
    Add(i64),
    /// A call that may not return: the number plus this value is counted as a path.
    Reach(i64),
    /// The path ends, and this value is added to its number.
    Finish(i64),
    /// The number is no longer known.
    Lose,
}

/// Where a fragment starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FragmentStart {
    /// At the function's entry, where a path begins.
    Entry,
    /// In the middle of the function, at this file address.
    At(u64),
}

/// What the code of a fragment that starts in the middle of a function comes to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum First {
    /// The start of this block.
    Begin(u32),
    /// A probe inside this block.
    Within(u32),
    /// No probe at all: the code is the remainder of the block before it, such as the jump after a backward branch that was not taken.
    Nothing,
}

/// Where a fragment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With the function, or where the code is not known.
    Over,
    /// After its last block; the function continues at this file address.
    At(u64),
    /// After its last block; the function continues at one of the block's successors.
    Indirect,
    /// At this instruction, which returns or makes a tail call. Only fragments without blocks have this exit, since the edge depends on
    /// the block before them.
    Leaves(u64),
}

/// The part of a detector's path that lies in one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// The function.
    pub function: FragmentFunction,
    /// Where it starts.
    pub start: FragmentStart,
    /// What it comes to first.
    pub first: First,
    /// Its last block; `None` if it has no block.
    pub last: Option<u32>,
    /// The actions along it.
    pub actions: Vec<NumberAction>,
    /// Where it ends.
    pub exit: Exit,
    /// Number of executions.
    pub count: u64,
}

/// The location of an address: image, index of the code range, file address.
type Place = (usize, usize, u64);

/// Appends the fragments of a path to `found`.
///
/// # Errors
/// A map is damaged.
pub fn fragments(
    graphs: &mut ProbeGraphs,
    place: &impl Fn(u64) -> Option<Place>,
    path: &HotPath,
    losses: &mut Losses,
    found: &mut Vec<Fragment>,
) -> Result<(), ImportError> {
    let images = graphs.images;
    let mut under_way: Option<Follower> = None;
    for (number, (first, last)) in path.runs.iter().enumerate() {
        let Some((image, range, address)) = place(*first) else {
            finish(&mut under_way, found, Exit::Over);
            continue;
        };
        let here = images[image].ranges[range];
        let (function, end) = ((image, here.function), address + (last - first));
        if under_way.as_ref().is_some_and(|f| f.function != function || number > 0 && address == here.start) {
            leave(graphs, &mut under_way, found)?;
        }
        let is_entry = address == here.start;
        let follower = under_way.get_or_insert_with(|| Follower::new(function, address, is_entry, path.count));
        let graph = graphs.of(function)?;
        let probes: Vec<&ProbeAt> = images[image].probes_in(address, end).iter().filter(|m| m.function == function.1).collect();
        for probe in probes.iter().skip(follower.passed_over(graph, &probes, address, number > 0)) {
            follower.see(graph, probe, losses);
        }
        follower.last = end;
    }
    match path.exit {
        HotPathExit::Returned => leave(graphs, &mut under_way, found)?,
        HotPathExit::At(address) => match (place(address), &under_way) {
            (Some((image, range, at)), Some(f)) if (image, images[image].ranges[range].function) == f.function => {
                // A jump to the function's start is a tail call to itself.
                if at == images[image].ranges[range].start {
                    leave(graphs, &mut under_way, found)?;
                }
                finish(&mut under_way, found, Exit::At(at));
            }
            _ => leave(graphs, &mut under_way, found)?,
        },
        HotPathExit::Indirect => finish(&mut under_way, found, Exit::Indirect),
        HotPathExit::Unknown => finish(&mut under_way, found, Exit::Over),
    }
    Ok(())
}

fn finish(under_way: &mut Option<Follower>, found: &mut Vec<Fragment>, exit: Exit) {
    let Some(follower) = under_way.take() else { return };
    let start = if follower.is_entry { FragmentStart::Entry } else { FragmentStart::At(follower.start) };
    let Follower { function, first, at, actions, count, .. } = follower;
    found.push(Fragment { function, start, first, last: at, actions, exit, count });
}

/// Ends the current fragment with a return or tail call.
fn leave(graphs: &mut ProbeGraphs, under_way: &mut Option<Follower>, found: &mut Vec<Fragment>) -> Result<(), ImportError> {
    let Some(follower) = under_way else { return Ok(()) };
    let Some(block) = follower.at else {
        let exit = Exit::Leaves(follower.last);
        finish(under_way, found, exit);
        return Ok(());
    };
    if !follower.is_done {
        let connection = leaving(graphs, follower.function, block, follower.last)?;
        follower.go(graphs.of(follower.function)?, &connection);
    }
    finish(under_way, found, Exit::Over);
    Ok(())
}

/// Returns the connection of a block with the function's exit, for the exit through the instruction at `address`.
pub fn leaving(graphs: &mut ProbeGraphs, function: FragmentFunction, block: u32, address: u64) -> Result<Connection, ImportError> {
    let by_condition = matches!(graphs.images[function.0].branch(address), Some(BranchInstruction::Conditional(_)));
    let graph = graphs.of(function)?;
    Ok(if by_condition { graph.connect_folded(block) } else { graph.connect(block, None) })
}

/// A fragment under construction.
struct Follower {
    function: FragmentFunction,
    start: u64,
    is_entry: bool,
    first: First,
    /// The last block that was seen.
    at: Option<u32>,
    /// True if the path ended before the end of its block.
    is_done: bool,
    /// Address of the last instruction.
    last: u64,
    actions: Vec<NumberAction>,
    count: u64,
}

impl Follower {
    fn new(function: FragmentFunction, start: u64, is_entry: bool, count: u64) -> Follower {
        let actions = if is_entry { vec![NumberAction::Begin(0)] } else { Vec::new() };
        Follower { function, start, is_entry, first: First::Nothing, at: None, is_done: false, last: start, actions, count }
    }

    /// If several blocks start at the target of a jump, all but the last are empty. Returns how many of them were skipped.
    fn passed_over(&self, graph: &mut ProbeGraph, probes: &[&ProbeAt], address: u64, is_jumped_to: bool) -> usize {
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
                let fits = |at: &usize| matches!(graph.connect(block, Some(probes[*at].probe.block)), Connection::Unique(_));
                let fitting: Vec<usize> = (0..here).filter(fits).collect();
                if let [one] = fitting[..] { one } else { here - 1 }
            }
        }
    }

    fn see(&mut self, graph: &mut ProbeGraph, probe: &ProbeAt, losses: &mut Losses) {
        let block = probe.probe.block;
        match probe.probe.event {
            ProbeEvent::Reach | ProbeEvent::End => {
                // The start of the block was not seen, so the fragment starts inside it.
                if self.at.is_none() && !self.is_entry {
                    (self.first, self.at) = (First::Within(block), Some(block));
                }
                match probe.probe.event {
                    ProbeEvent::Reach => self.reach(graph, block, true),
                    _ => self.end(graph, block, true),
                }
            }
            ProbeEvent::Begin => {
                losses.blocks = losses.blocks.saturating_add(self.count);
                match self.at {
                    Some(before) => {
                        let connection = graph.connect(before, Some(block));
                        self.note(&connection, losses);
                        self.go(graph, &connection);
                        if connection == Connection::Ambiguous {
                            self.actions.extend(lost(graph, before, block).into_iter().skip(1));
                        }
                    }
                    None if self.is_entry && block != 0 => {
                        self.note(&Connection::None, losses);
                        self.actions.push(NumberAction::Lose);
                    }
                    None => {}
                }
                if self.at.is_none() {
                    self.first = First::Begin(block);
                }
                self.at = Some(block);
                self.reach(graph, block, false);
                self.end(graph, block, false);
            }
        }
    }

    fn note(&self, connection: &Connection, losses: &mut Losses) {
        let place = match connection {
            Connection::Unique(_) => return,
            Connection::Inferred(_) => &mut losses.inferred,
            Connection::Ambiguous => &mut losses.ambiguous,
            Connection::None => &mut losses.inconsistent,
        };
        *place = place.saturating_add(self.count);
    }

    fn go(&mut self, graph: &ProbeGraph, connection: &Connection) {
        match connection {
            Connection::Unique(edges) | Connection::Inferred(edges) => {
                edges.iter().for_each(|edge| self.is_done |= take(graph, *edge, &mut self.actions));
            }
            _ => {
                self.actions.push(NumberAction::Lose);
                self.is_done = false;
            }
        }
    }

    fn reach(&mut self, graph: &ProbeGraph, block: u32, is_marked: bool) {
        self.actions.extend(graph.reach(block, is_marked).map(NumberAction::Reach));
    }

    fn end(&mut self, graph: &ProbeGraph, block: u32, is_marked: bool) {
        if let Some(edge) = graph.end(block, is_marked).filter(|_| !self.is_done) {
            self.is_done |= take(graph, edge, &mut self.actions);
        }
    }
}

/// The actions of a connection between two blocks. If it is not unique, the path's number is lost.
pub fn actions_of(graph: &ProbeGraph, connection: &Connection) -> Vec<NumberAction> {
    let mut actions = Vec::new();
    match connection {
        Connection::Unique(edges) | Connection::Inferred(edges) => edges.iter().for_each(|edge| _ = take(graph, *edge, &mut actions)),
        Connection::Ambiguous | Connection::None => actions.push(NumberAction::Lose),
    }
    actions
}

/// The actions if several paths connect two blocks: the current path is lost, but the next one may begin.
pub fn lost(graph: &ProbeGraph, from: u32, to: u32) -> Vec<NumberAction> {
    std::iter::once(NumberAction::Lose).chain(graph.begins_behind(from, to).map(NumberAction::Begin)).collect()
}

/// Appends the action of an edge. Returns true if it ends the path by leaving the function.
fn take(graph: &ProbeGraph, edge: Edge, actions: &mut Vec<NumberAction>) -> bool {
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
