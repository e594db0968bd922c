//! The one-pass model, which computes a few timestamps per instruction, in program order. Each stage handles an instruction in the
//! earliest cycle that width, buffer space, operands and functional units allow, given all earlier instructions. The oldest instruction
//! therefore gets units and issue slots first, as in an age-ordered scheduler. Unlike [`super::ReferenceModel`], this model accesses the
//! caches in program order.

use super::cache::CacheHierarchy;
use super::instruction::{Instruction, InstructionClass, NO_REGISTER};
use super::parameters::ProcessorParameters;
use super::predictor::{Prediction, PredictionOutcome, Predictor};
use super::queue::BranchQueue;
use super::{ProcessorEvent, ProcessorTotals, add_count};
use crate::error::HardwareError;
use crate::events::EventCounts;
use crate::stream::RetiredBranch;
use std::collections::VecDeque;

/// Number of cycles for which slot usage is recorded. A cycle's record is overwritten by that of the cycle this many cycles later; its
/// slots then count as free.
const SLOT_HORIZON_CYCLES: usize = 1 << 12;
/// Number of recent stores that loads may wait for.
const MAX_RECENT_STORES: usize = 1 << 10;

/// The one-pass processor model.
#[derive(Clone, Debug)]
pub struct FastModel {
    parameters: ProcessorParameters,
    caches: CacheHierarchy,
    predictor: Predictor,
    queue: BranchQueue,
    /// Branches that have not trained the predictor yet: the cycle in which they commit, the branch, and its prediction.
    updates: VecDeque<(u64, RetiredBranch, Prediction)>,
    fetch: PipelineStage,
    dispatch: PipelineStage,
    commit: PipelineStage,
    /// The earliest cycle in which the next instruction can be fetched.
    redirect: u64,
    fetched_block: u64,
    /// For each instruction in one of these three buffers, the cycle in which it leaves the buffer, by dispatch or commit.
    in_fetch_queue: VecDeque<u64>,
    in_reorder_buffer: VecDeque<u64>,
    in_load_store_queue: VecDeque<u64>,
    ready: Vec<u64>,
    stores: Vec<(u64, u64)>,
    issue: CycleSlots,
    units: [CycleSlots; 5],
    busy: [Vec<u64>; 2],
    block: EventCounts,
    totals: ProcessorTotals,
    frozen: Option<PredictionOutcome>,
    last_outcome: Option<PredictionOutcome>,
}

/// A stage that works in program order: its current cycle, and how many instructions it has handled in that cycle.
#[derive(Clone, Copy, Debug, Default)]
struct PipelineStage {
    cycle: u64,
    used_slots: u64,
}

impl PipelineStage {
    /// Handles an instruction in the first cycle with a free slot, from `earliest` on. Returns that cycle.
    fn reserve(&mut self, earliest: u64, width: u64) -> u64 {
        let cycle = self.next_free_cycle(earliest, width);
        self.used_slots = if cycle > self.cycle { 1 } else { self.used_slots + 1 };
        self.cycle = cycle;
        cycle
    }

    /// Returns the first cycle, from `earliest` on, in which the stage can handle the next instruction.
    fn next_free_cycle(&self, earliest: u64, width: u64) -> u64 {
        if earliest > self.cycle { earliest } else { self.cycle + u64::from(self.used_slots == width) }
    }
}

/// How often a resource is used in each cycle.
#[derive(Clone, Debug)]
struct CycleSlots {
    used: Vec<(u64, u16)>,
    limit: u16,
}

impl CycleSlots {
    fn new(limit: usize) -> CycleSlots {
        CycleSlots { used: vec![(u64::MAX, 0); SLOT_HORIZON_CYCLES], limit: limit.min(usize::from(u16::MAX)) as u16 }
    }

    fn is_free(&self, cycle: u64) -> bool {
        let (of, used) = self.used[cycle as usize % SLOT_HORIZON_CYCLES];
        of != cycle || used < self.limit
    }

    fn reserve(&mut self, cycle: u64) {
        let slot = &mut self.used[cycle as usize % SLOT_HORIZON_CYCLES];
        *slot = if slot.0 == cycle { (cycle, slot.1 + 1) } else { (cycle, 1) };
    }
}

impl FastModel {
    /// Creates a processor.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(parameters: ProcessorParameters) -> Result<FastModel, HardwareError> {
        parameters.check()?;
        let p = &parameters;
        Ok(FastModel {
            caches: CacheHierarchy::new(p),
            predictor: Predictor::new(&p.predictor),
            queue: BranchQueue::new(p.branch_queue),
            updates: VecDeque::new(),
            fetch: PipelineStage::default(),
            dispatch: PipelineStage::default(),
            commit: PipelineStage::default(),
            redirect: 0,
            fetched_block: u64::MAX,
            in_fetch_queue: VecDeque::with_capacity(p.fetch_queue),
            in_reorder_buffer: VecDeque::with_capacity(p.reorder_buffer),
            in_load_store_queue: VecDeque::with_capacity(p.load_store_queue),
            ready: vec![0; 256],
            stores: vec![(u64::MAX, 0); MAX_RECENT_STORES],
            issue: CycleSlots::new(p.width as usize),
            units: [p.integer_units, p.multiply_units, p.float_units, p.float_multiply_units, p.memory_ports].map(CycleSlots::new),
            busy: [vec![0; p.multiply_units], vec![0; p.float_multiply_units]],
            block: EventCounts::default(),
            totals: ProcessorTotals::default(),
            frozen: None,
            last_outcome: None,
            parameters,
        })
    }

    /// Returns the outcome of the last branch's prediction, or `None` if no branch has retired.
    pub fn last_outcome(&self) -> Option<PredictionOutcome> {
        self.last_outcome
    }

    /// Makes the next branch prediction have this outcome, taken from a run of the same instructions on a processor without a branch queue.
    /// Any difference in timing between the two runs is then due to the profiler.
    pub fn freeze_next_prediction(&mut self, outcome: PredictionOutcome) {
        self.frozen = Some(outcome);
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> ProcessorTotals {
        ProcessorTotals { cycles: self.commit.cycle + 1, ..self.totals }
    }

    /// Retires an instruction. If it is a branch, calls `profile` with the events since the previous branch; `profile` returns how many
    /// cycles the profiler needs.
    pub fn retire(
        &mut self,
        instruction: &Instruction,
        branch: Option<&RetiredBranch>,
        profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32,
    ) {
        let mut events = EventCounts::default();
        add_count(&mut events, ProcessorEvent::Instructions, 1);
        let fetched = self.fetch_instruction(instruction, &mut events);
        let prediction = branch.map(|b| self.predict_branch(b, fetched));
        let dispatched = self.dispatch_instruction(instruction, fetched);
        let completed = self.execute_instruction(instruction, dispatched, &mut events);
        if let (Some(branch), Some(prediction)) = (branch, &prediction) {
            self.delay_fetch_after_branch(branch, prediction.outcome, dispatched, completed, &mut events);
        }
        let committed = self.commit_instruction(completed, branch.is_some(), &mut events);
        self.in_reorder_buffer.push_back(committed);
        if instruction.load.is_some() || instruction.store.is_some() {
            self.in_load_store_queue.push_back(committed);
        }
        self.totals.add(&events);
        self.block.add(&events, crate::events::CounterWidth::WIDEST);
        if let (Some(branch), Some(prediction)) = (branch, prediction) {
            let cycles = profile(branch, &std::mem::take(&mut self.block));
            self.queue.enqueue(committed, cycles);
            self.updates.push_back((committed, *branch, prediction));
        }
    }

    fn fetch_instruction(&mut self, instruction: &Instruction, events: &mut EventCounts) -> u64 {
        let mut earliest = self.redirect;
        if self.in_fetch_queue.len() == self.parameters.fetch_queue {
            earliest = earliest.max(self.in_fetch_queue.pop_front().unwrap_or(0));
        }
        let block = instruction.address.0 / self.parameters.l1_instruction.block;
        if block != self.fetched_block {
            self.fetched_block = block;
            let access = self.caches.fetch(instruction.address.0);
            access.add_misses_to_events(events, self.parameters.power.instruction_cache);
            if access.l1_misses > 0 {
                // The miss is detected in the cycle in which the instruction would have been fetched.
                earliest = self.fetch.next_free_cycle(earliest, self.parameters.width) + access.cycles;
            }
        }
        self.fetch.reserve(earliest, self.parameters.width)
    }

    fn predict_branch(&mut self, branch: &RetiredBranch, fetched: u64) -> Prediction {
        while self.updates.front().is_some_and(|(committed, ..)| *committed < fetched) {
            if let Some((_, committed, made)) = self.updates.pop_front() {
                self.predictor.update(&committed, &made);
            }
        }
        let mut prediction = self.predictor.predict(branch);
        prediction.outcome = self.frozen.take().unwrap_or(prediction.outcome);
        self.last_outcome = Some(prediction.outcome);
        prediction
    }

    fn dispatch_instruction(&mut self, instruction: &Instruction, fetched: u64) -> u64 {
        let mut earliest = fetched + 1;
        if self.in_reorder_buffer.len() == self.parameters.reorder_buffer {
            earliest = earliest.max(self.in_reorder_buffer.pop_front().unwrap_or(0));
        }
        let is_memory = instruction.load.is_some() || instruction.store.is_some();
        if is_memory && self.in_load_store_queue.len() == self.parameters.load_store_queue {
            earliest = earliest.max(self.in_load_store_queue.pop_front().unwrap_or(0));
        }
        let dispatched = self.dispatch.reserve(earliest, self.parameters.width);
        self.in_fetch_queue.push_back(dispatched);
        dispatched
    }

    /// Issues and executes an instruction. Returns the cycle in which its result is available.
    fn execute_instruction(&mut self, instruction: &Instruction, dispatched: u64, events: &mut EventCounts) -> u64 {
        let mut earliest = dispatched + 1;
        for source in instruction.sources.iter().filter(|s| **s != NO_REGISTER) {
            earliest = earliest.max(self.ready[usize::from(*source)]);
        }
        if let Some(load) = instruction.load {
            let (granule, ready) = self.stores[load.0 as usize / 8 % MAX_RECENT_STORES];
            if granule == load.0 / 8 {
                earliest = earliest.max(ready);
            }
        }
        let is_memory = instruction.load.is_some() || instruction.store.is_some();
        let issued = self.issue_instruction(instruction.class, is_memory, earliest);
        let mut completed = issued + latency_cycles(&self.parameters, instruction.class);
        for address in [instruction.load, instruction.store].into_iter().flatten() {
            let access = self.caches.access_data(address.0);
            access.add_misses_to_events(events, self.parameters.power.data_cache);
            if instruction.load == Some(address) {
                completed = completed.max(issued + access.cycles);
            }
        }
        if let Some(store) = instruction.store {
            self.stores[store.0 as usize / 8 % MAX_RECENT_STORES] = (store.0 / 8, completed);
        }
        for destination in instruction.destinations.iter().filter(|d| **d != NO_REGISTER) {
            self.ready[usize::from(*destination)] = completed;
        }
        completed
    }

    fn issue_instruction(&mut self, class: InstructionClass, is_memory: bool, earliest: u64) -> u64 {
        let unit = unit_index(class, is_memory);
        let divider = match class {
            InstructionClass::Divide => Some(0),
            InstructionClass::FloatDivide => Some(1),
            _ => None,
        };
        let free = divider.map(|d| (0..self.busy[d].len()).min_by_key(|at| self.busy[d][*at]).map_or((d, 0), |at| (d, at)));
        let mut cycle = earliest.max(free.map_or(0, |(d, at)| self.busy[d][at]));
        while !self.issue.is_free(cycle) || !self.units[unit].is_free(cycle) {
            cycle += 1;
        }
        self.issue.reserve(cycle);
        self.units[unit].reserve(cycle);
        if let Some((divider, at)) = free {
            self.busy[divider][at] = cycle + latency_cycles(&self.parameters, class);
        }
        cycle
    }

    /// Delays the next fetch as the branch and its prediction require, and counts a misprediction.
    fn delay_fetch_after_branch(
        &mut self,
        branch: &RetiredBranch,
        outcome: PredictionOutcome,
        dispatched: u64,
        completed: u64,
        events: &mut EventCounts,
    ) {
        if branch.is_taken {
            // The rest of the fetch cycle is lost.
            self.redirect = self.redirect.max(self.fetch.cycle + 1);
        }
        match outcome {
            PredictionOutcome::Right => {}
            PredictionOutcome::Misfetch => self.redirect = self.redirect.max(dispatched + 1),
            PredictionOutcome::Misprediction => {
                add_count(events, ProcessorEvent::Mispredictions, 1);
                self.redirect = self.redirect.max(completed + self.parameters.predictor.misprediction_cycles);
            }
        }
    }

    fn commit_instruction(&mut self, completed: u64, is_branch: bool, events: &mut EventCounts) -> u64 {
        let before = self.commit.cycle;
        let mut next = self.commit;
        let mut committed = next.reserve(completed + 1, self.parameters.width);
        if is_branch {
            let room = self.queue.first_cycle_with_room(committed);
            if room > committed {
                self.totals.queue_stalls += room - committed;
                next = self.commit;
                committed = next.reserve(room, self.parameters.width);
            }
        }
        self.commit = next;
        add_count(events, ProcessorEvent::StallCycles, u32::try_from((committed - before).saturating_sub(1)).unwrap_or(u32::MAX));
        committed
    }
}

/// Returns the latency of an instruction in cycles, excluding memory access.
pub(super) fn latency_cycles(parameters: &ProcessorParameters, class: InstructionClass) -> u64 {
    match class {
        InstructionClass::Integer => 1,
        InstructionClass::Multiply => parameters.multiply_cycles,
        InstructionClass::Divide => parameters.divide_cycles,
        InstructionClass::Float => parameters.float_cycles,
        InstructionClass::FloatMultiply => parameters.float_multiply_cycles,
        InstructionClass::FloatDivide => parameters.float_divide_cycles,
    }
}

/// Returns the index of the kind of functional unit that an instruction occupies in its issue cycle.
pub(super) fn unit_index(class: InstructionClass, is_memory: bool) -> usize {
    match class {
        _ if is_memory => 4,
        InstructionClass::Integer => 0,
        InstructionClass::Multiply | InstructionClass::Divide => 1,
        InstructionClass::Float => 2,
        InstructionClass::FloatMultiply | InstructionClass::FloatDivide => 3,
    }
}
