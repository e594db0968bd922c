//! The cycle-stepped model, which is slow but simple to check against table 5.3. Each cycle commits from the head of the reorder buffer,
//! issues the oldest instructions whose operands are ready, dispatches, and fetches. This model and [`super::FastModel`] share the code of
//! caches, predictor and branch queue, and the latencies and units of instruction classes, but no other timing code.

use super::cache::{CacheAccess, CacheHierarchy};
use super::fast::{latency_cycles, unit_index};
use super::instruction::{Instruction, InstructionClass, NO_REGISTER};
use super::parameters::ProcessorParameters;
use super::predictor::{Prediction, PredictionOutcome, Predictor};
use super::queue::BranchQueue;
use super::{ProcessorEvent, ProcessorTotals, add_count};
use crate::error::HardwareError;
use crate::events::{CounterWidth, EventCounts};
use crate::stream::RetiredBranch;
use std::collections::VecDeque;

/// More than this number of instructions must be waiting before a cycle is simulated, so that fetch does not run out of them.
const MIN_WAITING_INSTRUCTIONS: usize = 64;

/// An instruction between fetch and commit.
#[derive(Clone, Debug)]
struct InFlightInstruction {
    instruction: Instruction,
    branch: Option<RetiredBranch>,
    prediction: Option<Prediction>,
    events: EventCounts,
    fetched: u64,
    dispatched: u64,
    /// Numbers of the instructions whose results this instruction uses.
    needs: [Option<u64>; 5],
    /// Cycle in which the result is available; `None` before issue.
    completed: Option<u64>,
}

impl InFlightInstruction {
    fn outcome(&self) -> Option<PredictionOutcome> {
        self.prediction.map(|p| p.outcome)
    }

    fn is_memory(&self) -> bool {
        self.instruction.load.is_some() || self.instruction.store.is_some()
    }
}

/// The cycle-stepped processor model.
#[derive(Clone, Debug)]
pub struct ReferenceModel {
    parameters: ProcessorParameters,
    caches: CacheHierarchy,
    predictor: Predictor,
    queue: BranchQueue,
    cycle: u64,
    waiting: VecDeque<(Instruction, Option<RetiredBranch>)>,
    fetch_queue: VecDeque<InFlightInstruction>,
    reorder_buffer: VecDeque<InFlightInstruction>,
    /// Number of the instruction at the head of the reorder buffer.
    head_number: u64,
    memory_operations: usize,
    /// For each register, the number of the last instruction that writes it.
    writers: Vec<Option<u64>>,
    busy: [Vec<u64>; 2],
    fetched_block: u64,
    /// Result of fetching the current block, including the cost of the first level. It is counted with the block's first instruction.
    pending_fetch: CacheAccess,
    /// Fetch waits until this cycle. If `waits_for` is a number, it also waits until the branch with this number is dispatched (after a
    /// misfetch) or completed (after a misprediction).
    fetch_from: u64,
    waits_for: Option<u64>,
    next_number: u64,
    block: EventCounts,
    last_commit: u64,
    totals: ProcessorTotals,
}

impl ReferenceModel {
    /// Creates a processor.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(parameters: ProcessorParameters) -> Result<ReferenceModel, HardwareError> {
        parameters.check()?;
        Ok(ReferenceModel {
            caches: CacheHierarchy::new(&parameters),
            predictor: Predictor::new(&parameters.predictor),
            queue: BranchQueue::new(parameters.branch_queue),
            cycle: 0,
            waiting: VecDeque::new(),
            fetch_queue: VecDeque::new(),
            reorder_buffer: VecDeque::new(),
            head_number: 0,
            memory_operations: 0,
            writers: vec![None; 256],
            busy: [vec![0; parameters.multiply_units], vec![0; parameters.float_multiply_units]],
            fetched_block: u64::MAX,
            pending_fetch: CacheAccess::default(),
            fetch_from: 0,
            waits_for: None,
            next_number: 0,
            block: EventCounts::default(),
            last_commit: 0,
            totals: ProcessorTotals::default(),
            parameters,
        })
    }

    /// Retires an instruction, like [`super::FastModel::retire`], but may call `profile` only after later instructions have arrived.
    pub fn retire(
        &mut self,
        instruction: &Instruction,
        branch: Option<&RetiredBranch>,
        profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32,
    ) {
        self.waiting.push_back((*instruction, branch.copied()));
        while self.waiting.len() > MIN_WAITING_INSTRUCTIONS {
            self.simulate_cycle(profile);
        }
    }

    /// Executes all remaining instructions.
    pub fn finish(&mut self, profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32) {
        while !(self.waiting.is_empty() && self.fetch_queue.is_empty() && self.reorder_buffer.is_empty()) {
            self.simulate_cycle(profile);
        }
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> ProcessorTotals {
        ProcessorTotals { cycles: self.last_commit + 1, ..self.totals }
    }

    fn simulate_cycle(&mut self, profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32) {
        self.commit_instructions(profile);
        self.issue_ready_instructions();
        self.dispatch_instructions();
        self.fetch_instructions();
        self.cycle += 1;
    }

    fn commit_instructions(&mut self, profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32) {
        for _ in 0..self.parameters.width {
            let Some(head) = self.reorder_buffer.front() else { return };
            if head.completed.is_none_or(|completed| completed >= self.cycle) {
                return;
            }
            if head.branch.is_some() && self.queue.first_cycle_with_room(self.cycle) > self.cycle {
                self.totals.queue_stalls += 1;
                return;
            }
            let Some(mut done) = self.reorder_buffer.pop_front() else { return };
            self.head_number += 1;
            self.memory_operations -= usize::from(done.is_memory());
            let stalled = (self.cycle - self.last_commit).saturating_sub(1);
            add_count(&mut done.events, ProcessorEvent::StallCycles, u32::try_from(stalled).unwrap_or(u32::MAX));
            self.last_commit = self.cycle;
            self.totals.add(&done.events);
            self.block.add(&done.events, CounterWidth::WIDEST);
            if let (Some(branch), Some(prediction)) = (&done.branch, &done.prediction) {
                let cycles = profile(branch, &std::mem::take(&mut self.block));
                self.queue.enqueue(self.cycle, cycles);
                self.predictor.update(branch, prediction);
            }
        }
    }

    fn issue_ready_instructions(&mut self) {
        let p = self.parameters;
        let mut slots = p.width;
        let mut units = [p.integer_units, p.multiply_units, p.float_units, p.float_multiply_units, p.memory_ports];
        let mut accesses = Vec::new();
        for at in 0..self.reorder_buffer.len() {
            if slots == 0 {
                break;
            }
            let entry = &self.reorder_buffer[at];
            let unit = unit_index(entry.instruction.class, entry.is_memory());
            if entry.completed.is_some() || entry.dispatched >= self.cycle || units[unit] == 0 || !self.is_ready(entry) {
                continue;
            }
            let Some(divider) = self.find_free_divider(entry.instruction.class) else { continue };
            slots -= 1;
            units[unit] -= 1;
            if let Some((kind, place)) = divider {
                self.busy[kind][place] = self.cycle + latency_cycles(&p, self.reorder_buffer[at].instruction.class);
            }
            self.execute_instruction(at, &mut accesses);
        }
        self.distribute_data_cache_costs(&accesses);
    }

    fn is_ready(&self, entry: &InFlightInstruction) -> bool {
        entry.needs.iter().flatten().all(|number| match number.checked_sub(self.head_number) {
            Some(at) => self.reorder_buffer[at as usize].completed.is_some_and(|completed| completed <= self.cycle),
            // The producer has been committed.
            None => true,
        })
    }

    /// Finds a free divider. Returns `Some(None)` for instruction classes that need no divider, and `None` if all dividers are busy.
    fn find_free_divider(&self, class: InstructionClass) -> Option<Option<(usize, usize)>> {
        let kind = match class {
            InstructionClass::Divide => 0,
            InstructionClass::FloatDivide => 1,
            _ => return Some(None),
        };
        self.busy[kind].iter().position(|until| *until <= self.cycle).map(|at| Some((kind, at)))
    }

    fn execute_instruction(&mut self, at: usize, accesses: &mut Vec<usize>) {
        let (cycle, p) = (self.cycle, self.parameters);
        let entry = &mut self.reorder_buffer[at];
        let instruction = entry.instruction;
        let mut completed = cycle + latency_cycles(&p, instruction.class);
        for address in [instruction.load, instruction.store].into_iter().flatten() {
            let access = self.caches.access_data(address.0);
            access.add_misses_to_events(&mut entry.events, p.power.data_cache);
            add_count(&mut entry.events, ProcessorEvent::CyclePower, access.cost);
            accesses.push(at);
            if instruction.load == Some(address) {
                completed = completed.max(cycle + access.cycles);
            }
        }
        entry.completed = Some(completed);
        if entry.outcome() == Some(PredictionOutcome::Misprediction) {
            self.fetch_from = self.fetch_from.max(completed + p.predictor.misprediction_cycles);
            self.waits_for = None;
        }
    }

    /// Distributes the costs of data cache accesses. If there are several accesses in one cycle, each costs half (figure 5.5 b).
    fn distribute_data_cache_costs(&mut self, accesses: &[usize]) {
        let cost = self.parameters.power.data_cache;
        let each = if accesses.len() > 1 { cost / 2 } else { cost };
        for at in accesses {
            add_count(&mut self.reorder_buffer[*at].events, ProcessorEvent::CyclePower, each);
        }
    }

    fn dispatch_instructions(&mut self) {
        for _ in 0..self.parameters.width {
            let Some(next) = self.fetch_queue.front() else { return };
            let is_full = next.is_memory() && self.memory_operations == self.parameters.load_store_queue;
            if next.fetched >= self.cycle || self.reorder_buffer.len() == self.parameters.reorder_buffer || is_full {
                return;
            }
            let Some(mut entry) = self.fetch_queue.pop_front() else { return };
            let number = self.head_number + self.reorder_buffer.len() as u64;
            entry.dispatched = self.cycle;
            for (need, source) in entry.needs.iter_mut().zip(entry.instruction.sources) {
                *need = (source != NO_REGISTER).then(|| self.writers[usize::from(source)]).flatten();
            }
            if let Some(load) = entry.instruction.load {
                let stores = |e: &InFlightInstruction| e.instruction.store.is_some_and(|s| s.0 / 8 == load.0 / 8);
                entry.needs[4] = self.reorder_buffer.iter().rposition(stores).map(|at| self.head_number + at as u64);
            }
            for destination in entry.instruction.destinations.into_iter().filter(|d| *d != NO_REGISTER) {
                self.writers[usize::from(destination)] = Some(number);
            }
            self.memory_operations += usize::from(entry.is_memory());
            if entry.outcome() == Some(PredictionOutcome::Misfetch) {
                self.fetch_from = self.fetch_from.max(self.cycle + 1);
                self.waits_for = None;
            }
            self.reorder_buffer.push_back(entry);
        }
    }

    fn fetch_instructions(&mut self) {
        for _ in 0..self.parameters.width {
            if self.waits_for.is_some() || self.cycle < self.fetch_from || self.fetch_queue.len() == self.parameters.fetch_queue {
                return;
            }
            let Some((instruction, branch)) = self.waiting.front().copied() else { return };
            let mut events = EventCounts::default();
            let block = instruction.address.0 / self.parameters.l1_instruction.block;
            if block != self.fetched_block {
                self.fetched_block = block;
                let access = self.caches.fetch(instruction.address.0);
                self.pending_fetch = CacheAccess { cost: self.parameters.power.instruction_cache + access.cost, ..access };
                if access.l1_misses > 0 {
                    self.fetch_from = self.cycle + access.cycles;
                    return;
                }
            }
            let fetched = std::mem::take(&mut self.pending_fetch);
            add_count(&mut events, ProcessorEvent::Instructions, 1);
            fetched.add_misses_to_events(&mut events, 0);
            add_count(&mut events, ProcessorEvent::CyclePower, fetched.cost);
            self.waiting.pop_front();
            let prediction = branch.as_ref().map(|b| self.predictor.predict(b));
            let outcome = prediction.map(|p| p.outcome);
            add_count(&mut events, ProcessorEvent::Mispredictions, u32::from(outcome == Some(PredictionOutcome::Misprediction)));
            let number = self.next_number;
            self.next_number += 1;
            let (fetched, needs) = (self.cycle, [None; 5]);
            self.fetch_queue.push_back(InFlightInstruction {
                instruction,
                branch,
                prediction,
                events,
                fetched,
                dispatched: 0,
                needs,
                completed: None,
            });
            if outcome.is_some_and(|o| o != PredictionOutcome::Right) {
                self.waits_for = Some(number);
                return;
            }
            if branch.is_some_and(|b| b.is_taken) {
                return;
            }
        }
    }
}
