//! A stack frame of the traced program with the path that its function is executing, updated block by block.

use super::tally::BranchPathTally;
use trodden_binary::{BlockConnection, NumberStep, ProbeGraph, ProbedFunction};
use trodden_flow::Edge;

#[derive(Clone, Debug)]
pub struct FramePathState {
    /// Sum of the path-number increments on the edges taken so far.
    pub sum: i64,
    /// Number of the stretch (the straight-line run between two branches) in which the path began.
    pub first_stretch: u64,
    /// Numbers of the prefixes of this path that end at calls that may not return.
    pub reached: Vec<i64>,
    pub blocks: u64,
}

#[derive(Clone, Debug)]
pub struct BranchFrame {
    pub image: usize,
    pub function: ProbedFunction,
    /// The last block that was seen, and the number of its stretch.
    pub last_block: Option<(u32, u64)>,
    /// True if the function was called and none of its blocks was seen yet.
    pub is_fresh: bool,
    /// The current path, if its start was seen.
    pub path: Option<FramePathState>,
    /// True if the path has ended and no other path has begun in the frame.
    pub is_done: bool,
    /// If control has left the function, the range of addresses to which it may return.
    pub return_range: Option<(u64, u64)>,
}

impl BranchFrame {
    /// Creates a frame for a function none of whose blocks was seen yet.
    pub fn unknown(image: usize, function: ProbedFunction) -> BranchFrame {
        BranchFrame { image, function, last_block: None, is_fresh: false, path: None, is_done: false, return_range: None }
    }

    /// Counts the current path as lost, since its continuation is unknown.
    pub fn count_path_as_lost(&self, tally: &mut BranchPathTally) {
        if !self.is_done {
            tally.losses.incomplete += 1;
        }
    }
}

/// A frame, and what is needed to update it with the next event in its function.
pub struct BranchFrameUpdate<'a> {
    pub frame: &'a mut BranchFrame,
    pub flow: &'a mut ProbeGraph,
    pub tally: &'a mut BranchPathTally,
    pub stretch: u64,
    /// Number of branch records per sample (window); `None` for a trace of all branches.
    pub window: Option<u64>,
}

impl BranchFrameUpdate<'_> {
    pub fn enter_block(&mut self, block: u32) {
        match self.frame.last_block {
            None if self.frame.is_fresh && self.frame.path.is_none() => match block {
                0 => self.frame.path = Some(FramePathState { sum: 0, first_stretch: self.stretch, reached: Vec::new(), blocks: 0 }),
                _ => self.abandon_uncertain_path(&BlockConnection::None),
            },
            None => {}
            Some((before, _)) => {
                let connection = self.flow.connect(before, Some(block));
                self.follow_connection(&connection);
            }
        }
        self.frame.is_fresh = false;
        self.frame.last_block = Some((block, self.stretch));
        self.tally.losses.blocks += 1;
        if let Some(path) = &mut self.frame.path {
            path.blocks += 1;
        }
        self.note_path_ending_at_call(block, false);
        self.end_path_within_block(block, false);
    }

    fn abandon_uncertain_path(&mut self, connection: &BlockConnection) {
        *self.tally.uncertain.entry((self.frame.image, self.frame.function)).or_default() += 1;
        match connection {
            BlockConnection::Ambiguous => self.tally.losses.ambiguous += 1,
            _ => self.tally.losses.inconsistent += 1,
        }
        self.frame.path = None;
        self.frame.is_done = false;
    }

    fn follow_connection(&mut self, connection: &BlockConnection) {
        match connection {
            BlockConnection::Unique(edges) => self.advance_along_edges(edges),
            BlockConnection::Inferred(edges) => {
                self.tally.losses.inferred += 1;
                self.advance_along_edges(edges);
            }
            BlockConnection::Ambiguous | BlockConnection::None => self.abandon_uncertain_path(connection),
        }
    }

    fn advance_along_edges(&mut self, edges: &[Edge]) {
        for &edge in edges {
            match self.flow.step(edge) {
                NumberStep::Add(value) => {
                    if let Some(path) = &mut self.frame.path {
                        path.sum = path.sum.wrapping_add(value);
                    }
                }
                NumberStep::End(value) => {
                    self.finish_path(value);
                    self.frame.is_done = true;
                }
                NumberStep::Cut(leave, enter) => {
                    self.finish_path(leave);
                    let first_stretch = self.frame.last_block.map_or(self.stretch, |(_, stretch)| stretch);
                    self.frame.path = Some(FramePathState { sum: enter, first_stretch, reached: Vec::new(), blocks: 0 });
                }
                NumberStep::Dead => self.abandon_uncertain_path(&BlockConnection::None),
            }
        }
    }

    /// Ends the path, which is counted if its start was seen.
    fn finish_path(&mut self, value: i64) {
        let Some(path) = self.frame.path.take() else {
            self.frame.count_path_as_lost(self.tally);
            return;
        };
        let weight = observation_weight(self.window, self.stretch, path.first_stretch);
        let key = |id: i64| (self.frame.image, self.frame.function, id);
        self.tally.count(key(path.sum.wrapping_add(value)), weight);
        path.reached.iter().for_each(|id| self.tally.count(key(*id), weight));
        self.tally.whole_paths += 1;
        self.tally.losses.blocks_counted += path.blocks;
    }

    /// Notes the path that ends at a call in `block`, if that call may not return.
    pub fn note_path_ending_at_call(&mut self, block: u32, marked: bool) {
        if let (Some(value), Some(path)) = (self.flow.reach(block, marked), &mut self.frame.path) {
            path.reached.push(path.sum.wrapping_add(value));
        }
    }

    /// Ends the current path if paths may end within `block`.
    pub fn end_path_within_block(&mut self, block: u32, marked: bool) {
        if let Some(edge) = self.flow.end(block, marked).filter(|_| !self.frame.is_done) {
            self.advance_along_edges(&[edge]);
        }
    }

    pub fn handle_function_exit(&mut self, by_condition: bool) {
        let Some((block, _)) = self.frame.last_block.filter(|_| !self.frame.is_done) else {
            self.frame.count_path_as_lost(self.tally);
            return;
        };
        let connection = match by_condition {
            true => self.flow.connect_folded(block),
            false => self.flow.connect(block, None),
        };
        self.follow_connection(&connection);
    }
}

/// Returns the number of executions that one observation of a path represents. The path spans the records from the one before its first
/// stretch to the one after its last.
pub fn observation_weight(window: Option<u64>, stretch: u64, first_stretch: u64) -> f64 {
    let Some(window) = window else { return 1.0 };
    let spanned = stretch.saturating_sub(first_stretch) + 2;
    let positions = (window + 1).saturating_sub(spanned).max(1);
    window as f64 / positions as f64
}
