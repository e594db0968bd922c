//! One simulated configuration: a profiler and, optionally, a model of the processor around it.

use crate::detector::CompletedPath;
use crate::error::HardwareError;
use crate::events::EventCounts;
use crate::processor::{FastModel, Instruction, ProcessorEvent, ProcessorModel, ProcessorParameters, ProcessorTotals, ReferenceModel};
use crate::profiler::{Profiler, ProfilerParameters};
use crate::stream::{RetiredBranch, StreamEvent, ThreadId};
use std::collections::VecDeque;

/// A profiler, and optionally a processor model. One source of events may feed several lanes.
pub struct SimulationLane {
    /// The profiler.
    pub profiler: Profiler,
    processor: Option<LaneProcessor>,
    /// Instructions that were received before the event of their branch.
    carried: Vec<Instruction>,
    /// Events whose instructions the processor model has not committed yet.
    waiting: VecDeque<(ThreadId, StreamEvent)>,
}

struct LaneProcessor {
    memory_bytes: u64,
    main: MainProcessorModel,
    /// The same processor as `main`, but without a branch queue. `None` if `main` has no branch queue, or is the reference model.
    without_queue: Option<FastModel>,
    /// The same processor as `main`, but forced to predict branches as `without_queue` does, so that any difference in time is due to the
    /// profiler.
    frozen: Option<FastModel>,
}

enum MainProcessorModel {
    Fast(Box<FastModel>),
    Reference(Box<ReferenceModel>),
}

/// Results of the processor models.
#[derive(Clone, Copy, Debug)]
pub struct LaneTiming {
    /// Totals of the processor with the profiler.
    pub totals: ProcessorTotals,
    /// Percentage by which the profiler slows the program down; `None` without a branch queue, and for the reference model.
    pub slowdown: Option<f64>,
    /// Like `slowdown`, but with branch predictions copied from the run without the profiler.
    pub frozen_slowdown: Option<f64>,
}

impl SimulationLane {
    /// Creates a lane.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(
        parameters: ProfilerParameters,
        processor: Option<(ProcessorModel, ProcessorParameters)>,
    ) -> Result<SimulationLane, HardwareError> {
        let processor = processor.map(|(model, parameters)| LaneProcessor::new(model, parameters)).transpose()?;
        Ok(SimulationLane { profiler: Profiler::new(parameters)?, processor, carried: Vec::new(), waiting: VecDeque::new() })
    }

    /// Returns the memory used, in bytes.
    pub fn memory(&self) -> u64 {
        let waiting = self.waiting.capacity() * size_of::<(ThreadId, StreamEvent)>() + self.carried.capacity() * size_of::<Instruction>();
        self.profiler.memory() + self.processor.as_ref().map_or(0, |p| p.memory_bytes) + waiting as u64
    }

    /// Feeds events, and the instructions before them if the source provides instructions. Calls `observe` for each completed path.
    ///
    /// # Errors
    /// Does not fail in practice: the only possible error is a parameter out of range, and [`SimulationLane::new`] rejects those.
    pub fn feed(
        &mut self,
        events: &[(ThreadId, StreamEvent)],
        instructions: &[Instruction],
        observe: &mut impl FnMut(ThreadId, &CompletedPath),
    ) -> Result<(), HardwareError> {
        let Some(processor) = &mut self.processor else {
            for (thread, event) in events {
                self.profiler.process_event(*thread, event, &count_instructions(event), observe)?;
            }
            return Ok(());
        };
        self.carried.extend_from_slice(instructions);
        let mut used = 0;
        for (thread, event) in events {
            self.waiting.push_back((*thread, *event));
            let (number, branch) = match event {
                StreamEvent::Branch(branch) => (branch.instructions as usize, Some(branch)),
                StreamEvent::End(instructions) => (*instructions as usize, None),
                _ => (0, None),
            };
            let instructions = &self.carried[used..(used + number).min(self.carried.len())];
            used += instructions.len();
            let mut failure = None;
            let (profiler, waiting) = (&mut self.profiler, &mut self.waiting);
            let mut profile = |_: &RetiredBranch, events: &EventCounts| {
                process_waiting_events(profiler, waiting, events, observe).unwrap_or_else(|error| {
                    failure.get_or_insert(error);
                    0
                })
            };
            for (at, instruction) in instructions.iter().enumerate() {
                processor.retire(instruction, branch.filter(|_| at + 1 == number), &mut profile);
            }
            failure.map_or(Ok(()), Err)?;
        }
        self.carried.drain(..used);
        Ok(())
    }

    /// Ends the run: processes all events that still wait, and calls `observe` for each path that they complete.
    ///
    /// # Errors
    /// Does not fail in practice; see [`SimulationLane::feed`].
    pub fn finish(&mut self, observe: &mut impl FnMut(ThreadId, &CompletedPath)) -> Result<(), HardwareError> {
        let (profiler, waiting) = (&mut self.profiler, &mut self.waiting);
        if let Some(LaneProcessor { main: MainProcessorModel::Reference(model), .. }) = &mut self.processor {
            model.finish(&mut |_, events| process_waiting_events(profiler, waiting, events, observe).unwrap_or(0));
        }
        for (thread, event) in self.waiting.drain(..) {
            self.profiler.process_event(thread, &event, &EventCounts::default(), observe)?;
        }
        self.profiler.finish();
        Ok(())
    }

    /// Returns the results of the processor models, or `None` without a processor.
    pub fn timing(&self) -> Option<LaneTiming> {
        let processor = self.processor.as_ref()?;
        let totals = match &processor.main {
            MainProcessorModel::Fast(model) => model.totals(),
            MainProcessorModel::Reference(model) => model.totals(),
        };
        let without_queue = processor.without_queue.as_ref().map(|m| m.totals().cycles as f64);
        let slowdown = |cycles: u64| without_queue.map(|without_queue| 100.0 * (cycles as f64 - without_queue) / without_queue);
        let frozen_slowdown = processor.frozen.as_ref().and_then(|m| slowdown(m.totals().cycles));
        Some(LaneTiming { totals, slowdown: slowdown(totals.cycles), frozen_slowdown })
    }
}

/// Returns the event counts that are known without a processor model: only the number of instructions.
fn count_instructions(event: &StreamEvent) -> EventCounts {
    let mut counts = EventCounts::default();
    if let StreamEvent::Branch(branch) = event {
        counts.0[ProcessorEvent::Instructions as usize] = branch.instructions;
    }
    counts
}

/// Passes waiting events to the profiler, up to and including the next branch. Returns how many cycles the profiler needs for that
/// branch.
fn process_waiting_events(
    profiler: &mut Profiler,
    waiting: &mut VecDeque<(ThreadId, StreamEvent)>,
    events: &EventCounts,
    observe: &mut impl FnMut(ThreadId, &CompletedPath),
) -> Result<u32, HardwareError> {
    while let Some((thread, event)) = waiting.pop_front() {
        let is_branch = matches!(event, StreamEvent::Branch(_));
        let events = if is_branch { *events } else { EventCounts::default() };
        let cycles = profiler.process_event(thread, &event, &events, observe)?;
        if is_branch {
            return Ok(cycles);
        }
    }
    Ok(0)
}

impl LaneProcessor {
    fn new(model: ProcessorModel, parameters: ProcessorParameters) -> Result<LaneProcessor, HardwareError> {
        let has_queue = parameters.branch_queue > 0 && model == ProcessorModel::Fast;
        let fast = |parameters| FastModel::new(parameters);
        let without_queue = has_queue.then(|| fast(ProcessorParameters { branch_queue: 0, ..parameters })).transpose()?;
        let frozen = has_queue.then(|| fast(parameters)).transpose()?;
        let main = match model {
            ProcessorModel::Fast => MainProcessorModel::Fast(Box::new(fast(parameters)?)),
            ProcessorModel::Reference => MainProcessorModel::Reference(Box::new(ReferenceModel::new(parameters)?)),
        };
        let models = if has_queue { 3 } else { 1 };
        Ok(LaneProcessor { memory_bytes: models * parameters.memory(), main, without_queue, frozen })
    }

    fn retire(
        &mut self,
        instruction: &Instruction,
        branch: Option<&RetiredBranch>,
        profile: &mut impl FnMut(&RetiredBranch, &EventCounts) -> u32,
    ) {
        let mut cycles = 0;
        let mut profile_once = |branch: &RetiredBranch, events: &EventCounts| {
            cycles = profile(branch, events);
            cycles
        };
        match &mut self.main {
            MainProcessorModel::Fast(model) => model.retire(instruction, branch, &mut profile_once),
            MainProcessorModel::Reference(model) => model.retire(instruction, branch, &mut profile_once),
        }
        if let (Some(without_queue), Some(frozen)) = (&mut self.without_queue, &mut self.frozen) {
            without_queue.retire(instruction, branch, &mut |_, _| 0);
            if let Some(outcome) = branch.and_then(|_| without_queue.last_outcome()) {
                frozen.freeze_next_prediction(outcome);
            }
            frozen.retire(instruction, branch, &mut |_, _| cycles);
        }
    }
}
