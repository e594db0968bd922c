//! Follows a thread from branch to branch: calls, returns, and the paths of each function.
//!
//! Between two records, control runs along a straight *stretch*, from the target of the older to the source of the newer; the probes on it
//! are the executed blocks. A stack holds the active functions that were seen. Each entry has the address at which control left the
//! function, so that a return to this address resumes the function. If control arrives elsewhere in an active function, it got there by an
//! exception or `longjmp`, which ends the functions called since. If control arrives at a function's first address, that is a call.
//!
//! A path counts if its start and end were seen. A window of `w` records can contain a path that spans `n` records at `w - n + 1`
//! positions, so that long paths are seen less often than short ones. To correct this, each path counts `w / (w - n + 1)`.

use super::frame::{BranchFrame, BranchFrameUpdate, FramePathState, observation_weight};
use super::tally::BranchPathTally;
use crate::probe_graphs::ProbeGraphs;
use trodden_binary::instruction::{BranchInstruction, MAX_INSTRUCTION_LENGTH};
use trodden_binary::{BinaryError, BlockConnection, CodeRange, PlacedProbe, ProbedImage};
use trodden_unit::probes::ProbeEvent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPlace {
    /// In a function with probes: image, index of the code range, file address.
    Code(usize, usize, u64),
    Elsewhere,
    /// Outside of all programs: in the kernel, or not traced.
    Outside,
}

#[derive(Clone, Copy, Debug)]
enum ControlLocation {
    Unknown,
    /// In the function on top of the stack.
    InFunction {
        image: usize,
        range: usize,
        address: u64,
        /// First address whose probes were not handled yet.
        unseen: u64,
        /// True if control arrived by a jump. If several blocks start at the address, the first ones may have been skipped.
        jumped: bool,
    },
    Elsewhere,
}

#[derive(Clone, Debug)]
pub struct ThreadWalk {
    frames: Vec<BranchFrame>,
    position: ControlLocation,
    stretch: u64,
    /// Number of branch records per sample (window); `None` for a trace of all branches.
    window: Option<u64>,
}

pub struct ImportState<'a> {
    pub images: &'a [ProbedImage],
    pub graphs: ProbeGraphs<'a>,
    pub tally: BranchPathTally,
}

impl ThreadWalk {
    /// Starts a walk through a sample with this number of records, or, with `None`, through a trace of all branches.
    pub fn new(window: Option<u64>) -> ThreadWalk {
        ThreadWalk { frames: Vec::new(), position: ControlLocation::Unknown, stretch: 0, window }
    }

    pub fn handle_branch(&mut self, state: &mut ImportState, from: AddressPlace, to: AddressPlace) -> Result<(), BinaryError> {
        match (self.position, from) {
            (ControlLocation::InFunction { image, range, address, unseen, jumped }, AddressPlace::Code(i, r, last))
                if (i, r) == (image, range) && last >= address =>
            {
                self.follow_straight_line_code(state, image, unseen, last, jumped)?;
            }
            (ControlLocation::InFunction { image, range, address, unseen, jumped }, AddressPlace::Outside) => match to {
                // After an interrupt, control returns to the interrupted instruction.
                AddressPlace::Code(i, r, back) if (i, r) == (image, range) && back >= address => {
                    if back > address {
                        self.follow_straight_line_code(state, image, unseen, back - 1, jumped)?;
                    }
                    self.position = ControlLocation::InFunction {
                        image,
                        range,
                        address: back,
                        unseen: unseen.max(back),
                        jumped: jumped && back == address,
                    };
                    self.stretch += 1;
                    return Ok(());
                }
                _ => self.leave_top_frame(address, state.images[image].ranges[range].end),
            },
            (ControlLocation::InFunction { .. }, _) => self.break_off_paths(state),
            (ControlLocation::Elsewhere, AddressPlace::Code(..)) => self.break_off_paths(state),
            _ => {}
        }
        match from {
            AddressPlace::Code(image, range, address) => {
                if self.frames.is_empty() || matches!(self.position, ControlLocation::Unknown) {
                    let function = state.images[image].ranges[range].function;
                    self.frames.push(BranchFrame::unknown(image, function));
                }
                self.handle_departing_branch(state, (image, range, address), to)?;
            }
            _ => self.handle_arrival_from_elsewhere(state, to, false)?,
        }
        self.stretch += 1;
        Ok(())
    }

    /// Ends all current paths, since their continuations are unknown.
    pub fn cut_off(&mut self, state: &mut ImportState) {
        for frame in self.frames.drain(..) {
            frame.count_path_as_lost(&mut state.tally);
        }
        self.position = ControlLocation::Unknown;
    }

    /// Handles the end of the thread: its current paths remain unfinished.
    pub fn end(&mut self, state: &mut ImportState) {
        while let Some(frame) = self.frames.pop() {
            self.leave_path_unfinished(state, frame);
        }
        self.position = ControlLocation::Unknown;
    }

    fn break_off_paths(&mut self, state: &mut ImportState) {
        state.tally.losses.broken += 1;
        self.cut_off(state);
    }

    fn leave_top_frame(&mut self, first: u64, last: u64) {
        if let Some(top) = self.frames.last_mut() {
            top.return_range = Some((first, last));
        }
        self.position = ControlLocation::Elsewhere;
    }

    /// Handles a branch in the function on top of the stack, to another place in this function or to other code.
    fn handle_departing_branch(
        &mut self,
        state: &mut ImportState,
        (image, range, address): (usize, usize, u64),
        to: AddressPlace,
    ) -> Result<(), BinaryError> {
        let kind = state.images[image].branch(address);
        if to == AddressPlace::Outside {
            self.leave_top_frame(address, address + MAX_INSTRUCTION_LENGTH);
            return Ok(());
        }
        match kind {
            Some(BranchInstruction::Call(_) | BranchInstruction::IndirectCall) => {
                self.leave_top_frame(address + 1, address + MAX_INSTRUCTION_LENGTH);
                match to {
                    AddressPlace::Code(i, r, target) if state.images[i].ranges[r].start == target => {
                        self.enter_function(state, i, r, target)
                    }
                    _ => self.handle_arrival_from_elsewhere(state, to, false)?,
                }
            }
            Some(BranchInstruction::Return) => {
                self.finish_top_frame(state, false)?;
                self.handle_arrival_from_elsewhere(state, to, true)?;
            }
            _ => {
                let own = state.images[image].ranges[range].function;
                match to {
                    AddressPlace::Code(i, r, target) if i == image && state.images[i].ranges[r].function == own => {
                        self.position = ControlLocation::InFunction { image, range: r, address: target, unseen: target, jumped: true };
                    }
                    _ => {
                        self.finish_top_frame(state, matches!(kind, Some(BranchInstruction::Conditional(_))))?;
                        self.handle_arrival_from_elsewhere(state, to, false)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn enter_function(&mut self, state: &ImportState, image: usize, range: usize, address: u64) {
        let function = state.images[image].ranges[range].function;
        self.frames.push(BranchFrame { is_fresh: true, ..BranchFrame::unknown(image, function) });
        self.position = ControlLocation::InFunction { image, range, address, unseen: address, jumped: true };
    }

    /// Handles the arrival of control from other code.
    fn handle_arrival_from_elsewhere(&mut self, state: &mut ImportState, to: AddressPlace, returned: bool) -> Result<(), BinaryError> {
        let AddressPlace::Code(image, range, address) = to else {
            self.position = ControlLocation::Elsewhere;
            return Ok(());
        };
        let CodeRange { start, function, .. } = state.images[image].ranges[range];
        let is_own = |f: &BranchFrame| (f.image, f.function) == (image, function);
        let is_return = |f: &BranchFrame| is_own(f) && f.return_range.is_some_and(|(first, last)| (first..=last).contains(&address));
        if let Some(at) = self.frames.iter().rposition(is_return) {
            // If the function was interrupted before an instruction, the probes there were handled already.
            let unseen = address + u64::from(self.frames[at].return_range.is_some_and(|(first, _)| first == address));
            self.unwind_to_frame(state, at);
            self.position = ControlLocation::InFunction { image, range, address, unseen, jumped: false };
            return Ok(());
        }
        if address == start && !returned {
            self.enter_function(state, image, range, address);
            return Ok(());
        }
        let next = next_block(&state.images[image], address, range);
        let mut landing = None;
        for at in (0..self.frames.len()).rev().filter(|_| !returned) {
            let Some((block, _)) = self.frames[at].last_block.filter(|_| is_own(&self.frames[at])) else { continue };
            let flow = state.graphs.graph_of((image, function))?;
            let is_connected = |n| matches!(flow.connect(block, Some(n)), BlockConnection::Unique(_) | BlockConnection::Inferred(_));
            let fits = next.is_some_and(is_connected) || flow.continuation_of_second_return(next).is_some();
            if fits {
                landing = Some(at);
                break;
            }
            landing = landing.or(Some(at));
        }
        match landing {
            Some(at) => {
                self.unwind_to_frame(state, at);
                self.restart_path_after_setjmp(state, next)?;
            }
            None => {
                self.cut_off(state);
                self.frames.push(BranchFrame::unknown(image, function));
            }
        }
        self.position = ControlLocation::InFunction { image, range, address, unseen: address, jumped: true };
        Ok(())
    }

    /// Ends all functions above index `at` on the stack. The function at that index continues.
    fn unwind_to_frame(&mut self, state: &mut ImportState, at: usize) {
        while self.frames.len() > at + 1 {
            let frame = self.frames.pop().expect("there are more");
            self.leave_path_unfinished(state, frame);
        }
        self.frames[at].return_range = None;
    }

    /// If control has arrived after a call that returns twice, the current path ends and a new one begins.
    fn restart_path_after_setjmp(&mut self, state: &mut ImportState, next: Option<u32>) -> Result<(), BinaryError> {
        let top = self.frames.last().expect("control landed in it");
        let (image, function) = (top.image, top.function);
        let flow = state.graphs.graph_of((image, function))?;
        let Some((block, sum)) =
            flow.continuation_of_second_return(next).and_then(|block| Some((block, flow.path_number_after_second_return(block)?)))
        else {
            return Ok(());
        };
        let frame = self.frames.last().expect("control landed in it").clone();
        self.leave_path_unfinished(state, frame);
        let path = Some(FramePathState { sum, first_stretch: self.stretch + 1, reached: Vec::new(), blocks: 0 });
        let top = self.frames.last_mut().expect("control landed in it");
        // The block after the call starts the path, so no connection to it is searched for. If it has an address, it is about to be seen.
        let at = (next != Some(block)).then_some((block, self.stretch + 1));
        *top = BranchFrame { path, last_block: at, is_fresh: at.is_none(), ..BranchFrame::unknown(image, function) };
        Ok(())
    }

    fn follow_straight_line_code(
        &mut self,
        state: &mut ImportState,
        image: usize,
        first: u64,
        last: u64,
        jumped: bool,
    ) -> Result<(), BinaryError> {
        let Some(top) = self.frames.last() else { return Ok(()) };
        let function = top.function;
        let images = state.images;
        let probes = images[image].probes_between(first, last);
        let skipped = if jumped { self.skipped_blocks(state, probes, first)? } else { 0 };
        for probe in probes.iter().skip(skipped).filter(|m| m.function == function) {
            self.handle_probe(state, probe)?;
        }
        Ok(())
    }

    /// If several blocks start at the target of a jump, all but the last are empty. Returns how many of them the jump has skipped.
    fn skipped_blocks(&self, state: &mut ImportState, probes: &[PlacedProbe], address: u64) -> Result<usize, BinaryError> {
        let here = probes.iter().take_while(|m| m.address == address && m.probe.event == ProbeEvent::Begin).count();
        let Some(top) = self.frames.last().filter(|_| here > 1) else { return Ok(0) };
        let Some((block, _)) = top.last_block else { return Ok(if top.is_fresh { 0 } else { here - 1 }) };
        let flow = state.graphs.graph_of((top.image, top.function))?;
        let fits = |at: &usize| matches!(flow.connect(block, Some(probes[*at].probe.block)), BlockConnection::Unique(_));
        let fitting: Vec<usize> = (0..here).filter(fits).collect();
        match fitting[..] {
            [one] => Ok(one),
            _ => Ok(here - 1),
        }
    }

    fn handle_probe(&mut self, state: &mut ImportState, at: &PlacedProbe) -> Result<(), BinaryError> {
        let (stretch, window) = (self.stretch, self.window);
        let top = self.frames.last().expect("control is in it");
        let block = at.probe.block;
        if at.probe.event == ProbeEvent::Begin && block == 0 && !top.is_fresh && top.last_block.is_some() {
            // No edge leads to the entry, so the function has called itself by a tail call.
            let (image, function) = (top.image, top.function);
            self.finish_top_frame(state, false)?;
            self.frames.push(BranchFrame { is_fresh: true, ..BranchFrame::unknown(image, function) });
        }
        let top = self.frames.last_mut().expect("control is in it");
        let flow = state.graphs.graph_of((top.image, top.function))?;
        let mut update = BranchFrameUpdate { frame: top, flow, tally: &mut state.tally, stretch, window };
        match at.probe.event {
            ProbeEvent::Begin => update.enter_block(block),
            ProbeEvent::Reach => update.note_path_ending_at_call(block, true),
            ProbeEvent::End => update.end_path_within_block(block, true),
        }
        Ok(())
    }

    /// Handles a return or tail call of the function on top of the stack.
    fn finish_top_frame(&mut self, state: &mut ImportState, by_condition: bool) -> Result<(), BinaryError> {
        let (stretch, window) = (self.stretch, self.window);
        let Some(mut frame) = self.frames.pop() else { return Ok(()) };
        let flow = state.graphs.graph_of((frame.image, frame.function))?;
        BranchFrameUpdate { frame: &mut frame, flow, tally: &mut state.tally, stretch, window }.handle_function_exit(by_condition);
        Ok(())
    }

    fn leave_path_unfinished(&self, state: &mut ImportState, mut frame: BranchFrame) {
        match frame.path.take() {
            Some(path) => {
                let weight = observation_weight(self.window, self.stretch, path.first_stretch);
                path.reached.iter().for_each(|id| state.tally.count((frame.image, frame.function, *id), weight));
            }
            None => frame.count_path_as_lost(&mut state.tally),
        }
    }
}

/// Returns the next block that starts at or after an address in the function's code range.
fn next_block(image: &ProbedImage, address: u64, range: usize) -> Option<u32> {
    let range = image.ranges[range];
    let probes = image.probes_between(address, range.end);
    probes.iter().find(|m| m.function == range.function && m.probe.event == ProbeEvent::Begin).map(|m| m.probe.block)
}
