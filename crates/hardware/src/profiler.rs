//! The complete profiler: a detector for each thread, hot path tables, exact profiles, and how far tables and profiles overlap, for the
//! entire run and for windows (section 5.5). All tables see the same paths, so one pass over a stream serves many configurations. Each
//! metric has separate tables; the hardware would need several tables or several runs for that.

use crate::descriptor::PathDescriptor;
use crate::detector::{CompletedPath, Detector, DetectorCounts, DetectorParameters};
use crate::error::HardwareError;
use crate::events::{EventCounts, MAX_EVENTS};
use crate::profile::{PathProfile, compute_overlap};
use crate::stream::{BranchKind, StreamEvent, ThreadId};
use crate::table::{HotPathTable, TableCounts, TableParameters, TableUpdate};
use std::collections::HashMap;

/// The quantity that tables and profiles accumulate for each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// How often the path was executed.
    Frequency,
    /// The event at this index of [`EventCounts`].
    Event(usize),
    /// The exact number of instructions on the path, for statistics. This metric has no tables.
    Instructions,
}

/// The parameters of a profiler.
#[derive(Clone, Debug)]
pub struct ProfilerParameters {
    /// Parameters of all detectors.
    pub detector: DetectorParameters,
    /// The tables. Each metric gets its own copy of them.
    pub tables: Vec<TableParameters>,
    /// The metrics to profile.
    pub metrics: Vec<Metric>,
    /// Length in instructions of the windows for the dynamic overlap. The paper uses 100 million.
    pub window: u64,
}

/// Two tables with the same parameters: one for the entire run, and one for the current window.
#[derive(Clone, Debug)]
struct MeasuredTable {
    table: HotPathTable,
    in_window: HotPathTable,
    windows: u64,
    sum: f64,
}

/// The results of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableResult {
    /// Parameters of the table.
    pub parameters: TableParameters,
    /// Storage in bits, for paths up to the detector's length limit.
    pub storage_bits: usize,
    /// Statistics of the table's updates.
    pub counts: TableCounts,
    /// Overlap of the table with the complete profile, in percent; `None` if either of them is empty.
    pub overlap: Option<f64>,
    /// Mean overlap over all windows, in percent; `None` if there was no window to measure.
    pub dynamic_overlap: Option<f64>,
    /// Number of windows that `dynamic_overlap` covers.
    pub windows: u64,
}

#[derive(Clone, Debug)]
struct MeasuredMetric {
    metric: Metric,
    complete: PathProfile,
    window: PathProfile,
    tables: Vec<MeasuredTable>,
}

impl MeasuredMetric {
    fn new(metric: Metric, tables: &[TableParameters]) -> Result<MeasuredMetric, HardwareError> {
        let run = |parameters: &TableParameters| {
            let table = HotPathTable::new(*parameters)?;
            Ok(MeasuredTable { in_window: table.clone(), table, windows: 0, sum: 0.0 })
        };
        let tables = if metric == Metric::Instructions { &[] } else { tables };
        let tables = tables.iter().map(run).collect::<Result<_, HardwareError>>()?;
        Ok(MeasuredMetric { metric, complete: PathProfile::default(), window: PathProfile::default(), tables })
    }

    /// Adds a path. Returns how many cycles the first table needs for the update (section 5.5.3): one for a hit; for a miss, the binary
    /// logarithm of the associativity, but at least one.
    fn add(&mut self, completed: &CompletedPath) -> u32 {
        let count = match self.metric {
            Metric::Frequency => 1,
            Metric::Event(at) => completed.events.0[at],
            Metric::Instructions => completed.instructions,
        };
        // A path along which the event did not occur causes no update.
        if count == 0 {
            return 0;
        }
        self.window.add(&completed.path, u64::from(count));
        let mut cycles = None;
        for run in &mut self.tables {
            let update = run.table.update(&completed.path, count);
            let miss_cycles = run.table.parameters().associativity.trailing_zeros().max(1);
            cycles.get_or_insert(if update == TableUpdate::Hit { 1 } else { miss_cycles });
            run.in_window.update(&completed.path, count);
        }
        cycles.unwrap_or(0)
    }

    fn end_window(&mut self, is_complete: bool) {
        for run in &mut self.tables {
            if is_complete && let Some(percentage) = compute_overlap(&self.window, &run.in_window.profile()) {
                run.windows += 1;
                run.sum += percentage;
            }
            run.in_window.clear();
        }
        self.complete.merge(&self.window);
        self.window.clear();
    }

    fn result(&self, run: &MeasuredTable, length_limit: u8) -> TableResult {
        TableResult {
            parameters: run.table.parameters(),
            storage_bits: run.table.parameters().storage_bits(length_limit),
            counts: run.table.counts(),
            overlap: compute_overlap(&self.complete, &run.table.profile()),
            dynamic_overlap: (run.windows > 0).then(|| run.sum / run.windows as f64),
            windows: run.windows,
        }
    }
}

/// A hardware path profiler.
#[derive(Debug)]
pub struct Profiler {
    parameters: ProfilerParameters,
    detectors: HashMap<ThreadId, Detector>,
    ended_counts: DetectorCounts,
    threads: u64,
    metrics: Vec<MeasuredMetric>,
    branches: [[u64; 2]; 6],
    instructions: u64,
    window_start: u64,
    /// Number of instructions on paths with 0, 1, 2, ... branches.
    instructions_by_length: Vec<u64>,
}

impl ProfilerParameters {
    /// Returns the memory that the tables use, in bytes. Complete profiles need additional memory, which grows with the program.
    pub fn table_memory(&self) -> u64 {
        let bytes_per_metric: u64 = self.tables.iter().map(|t| 2 * HotPathTable::memory(t)).sum();
        bytes_per_metric * self.metrics.iter().filter(|m| **m != Metric::Instructions).count() as u64
    }
}

impl Profiler {
    /// Returns the memory used, in bytes.
    pub fn memory(&self) -> u64 {
        let profiles: u64 = self.metrics.iter().map(|m| m.complete.memory() + m.window.memory()).sum();
        self.parameters.table_memory() + profiles + self.detectors.values().map(Detector::memory).sum::<u64>()
    }

    /// Creates a profiler.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(parameters: ProfilerParameters) -> Result<Profiler, HardwareError> {
        parameters.detector.check()?;
        if parameters.window == 0 {
            return Err(HardwareError::parameter("window", 0, "at least 1 instruction"));
        }
        if parameters.metrics.iter().any(|m| matches!(m, Metric::Event(at) if *at >= MAX_EVENTS)) {
            return Err(HardwareError::parameter("events", parameters.metrics.len(), "at most 8"));
        }
        let metrics = parameters.metrics.iter().map(|m| MeasuredMetric::new(*m, &parameters.tables)).collect::<Result<_, _>>()?;
        Ok(Profiler {
            detectors: HashMap::new(),
            ended_counts: DetectorCounts::default(),
            threads: 0,
            metrics,
            branches: Default::default(),
            instructions: 0,
            window_start: 0,
            instructions_by_length: vec![0; usize::from(parameters.detector.length_limit) + 1],
            parameters,
        })
    }

    /// Processes an event of a thread, and calls `observe` for each completed path. `events` are the event counts since the thread's last
    /// branch. Returns how many cycles the hardware needs: one for each operation on the path stack, plus those for the first table of
    /// the first metric.
    ///
    /// # Errors
    /// Does not fail in practice: the only possible error is a parameter out of range, and [`Profiler::new`] rejects those.
    pub fn process_event(
        &mut self,
        thread: ThreadId,
        event: &StreamEvent,
        events: &EventCounts,
        observe: &mut impl FnMut(ThreadId, &CompletedPath),
    ) -> Result<u32, HardwareError> {
        match event {
            StreamEvent::Branch(branch) => {
                self.branches[branch.kind as usize][usize::from(branch.is_taken)] += 1;
                self.instructions += u64::from(branch.instructions);
            }
            StreamEvent::End(instructions) => self.instructions += u64::from(*instructions),
            _ => {}
        }
        let detector = match self.detectors.entry(thread) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.threads += 1;
                new.insert(Detector::new(self.parameters.detector)?)
            }
        };
        let (metrics, instructions_by_length) = (&mut self.metrics, &mut self.instructions_by_length);
        let operations = detector.counts().operations;
        let mut cycles = 0;
        detector.process_event(event, events, &mut |completed| {
            instructions_by_length[usize::from(completed.path.length)] += u64::from(completed.instructions);
            for (number, metric) in metrics.iter_mut().enumerate() {
                let needed = metric.add(completed);
                cycles += if number == 0 { needed } else { 0 };
            }
            observe(thread, completed);
        });
        cycles += (detector.counts().operations - operations) as u32;
        if let StreamEvent::End(_) = event
            && let Some(detector) = self.detectors.remove(&thread)
        {
            self.ended_counts.add(&detector.counts());
        }
        if self.instructions - self.window_start >= self.parameters.window {
            self.metrics.iter_mut().for_each(|m| m.end_window(true));
            self.window_start = self.instructions;
        }
        Ok(cycles)
    }

    /// Ends the stream. The last window is incomplete; it counts for the dynamic overlap only if no window is complete.
    pub fn finish(&mut self) {
        for (_, detector) in self.detectors.drain() {
            self.ended_counts.add(&detector.counts());
        }
        let is_only = self.window_start == 0;
        self.metrics.iter_mut().for_each(|m| m.end_window(is_only));
    }

    /// Returns the number of instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns the number of threads so far.
    pub fn threads(&self) -> u64 {
        self.threads
    }

    /// Returns how many branches of a kind were executed: `[not taken, taken]`.
    pub fn branches(&self, kind: BranchKind) -> [u64; 2] {
        self.branches[kind as usize]
    }

    /// Returns the detector statistics, summed over all threads that have ended. [`Profiler::finish`] ends all threads.
    pub fn detector_counts(&self) -> DetectorCounts {
        self.ended_counts
    }

    /// Returns the number of instructions on paths with 0, 1, 2, ... branches (figure 5.3).
    pub fn instructions_by_length(&self) -> &[u64] {
        &self.instructions_by_length
    }

    /// Returns a metric's complete profile, up to the end of the last window, or `None` if the metric is not profiled.
    pub fn complete_path_profile(&self, metric: Metric) -> Option<&PathProfile> {
        self.metrics.iter().find(|m| m.metric == metric).map(|m| &m.complete)
    }

    /// Returns the content of a metric's table, by table index. Returns `None` if the metric is not profiled or the index is out of
    /// range.
    pub fn table_profile(&self, metric: Metric, table: usize) -> Option<PathProfile> {
        self.metrics.iter().find(|m| m.metric == metric)?.tables.get(table).map(|run| run.table.profile())
    }

    /// Returns the results of all tables for a metric.
    pub fn results(&self, metric: Metric) -> Vec<TableResult> {
        let limit = self.parameters.detector.length_limit;
        let runs = self.metrics.iter().filter(|m| m.metric == metric);
        runs.flat_map(|m| m.tables.iter().map(move |run| m.result(run, limit))).collect()
    }
}

/// Returns how many of the hottest paths account for a share (0 to 1) of all counts (figure 5.2). `hottest` must be in descending
/// order.
pub fn count_paths_for_share(hottest: &[(PathDescriptor, u64)], share: f64) -> usize {
    let total: u64 = hottest.iter().map(|(_, count)| count).sum();
    let mut sum = 0;
    for (number, (_, count)) in hottest.iter().enumerate() {
        if sum as f64 >= share * total as f64 {
            return number;
        }
        sum += count;
    }
    hottest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{MappingPreset, OperationMapping};
    use crate::stream::{Address, RetiredBranch};

    /// Returns the events of a thread that runs a loop with two paths, where one path is three times as frequent as the other.
    fn events() -> Vec<StreamEvent> {
        let conditional = |address: u64, target: u64, is_taken: bool| {
            StreamEvent::Branch(RetiredBranch {
                address: Address(address),
                target: Address(target),
                fall_through: Address(address + 2),
                kind: BranchKind::Conditional,
                is_taken,
                instructions: 5,
                stack: None,
            })
        };
        let mut events = vec![StreamEvent::Begin(Address(0x100))];
        for at in 0..40 {
            events.push(conditional(0x110, 0x120, at % 4 == 0));
            events.push(conditional(0x130, 0x100, true));
        }
        events.push(StreamEvent::End(3));
        events
    }

    fn profiler(window: u64) -> Profiler {
        let table = TableParameters { entries: 1, associativity: 1, ..TableParameters::PUBLISHED };
        let mut profiler = Profiler::new(ProfilerParameters {
            detector: DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1)),
            tables: vec![TableParameters::PUBLISHED, table],
            metrics: vec![Metric::Frequency, Metric::Event(0)],
            window,
        })
        .unwrap();
        for event in events() {
            let counts = EventCounts([2, 0, 0, 0, 0, 0, 0, 0]);
            profiler.process_event(ThreadId(4), &event, &counts, &mut |_, _| {}).unwrap();
        }
        profiler.finish();
        profiler
    }

    #[test]
    fn one_pass_serves_all_tables_and_metrics() {
        let profiler = profiler(1000);
        assert_eq!((profiler.instructions(), profiler.threads()), (403, 1));
        assert_eq!(profiler.branches(BranchKind::Conditional), [30, 50]);
        let complete = profiler.complete_path_profile(Metric::Frequency).unwrap();
        assert_eq!(complete.hottest_paths().iter().map(|(p, c)| (p.outcomes, *c)).collect::<Vec<_>>(), [(0b10, 30), (0b11, 10)]);
        assert_eq!(profiler.complete_path_profile(Metric::Event(0)).unwrap().total(), 160);
        let results = profiler.results(Metric::Frequency);
        assert_eq!(results[0].overlap, Some(100.0));
        // Each of the 512 entries stores a start, a length of at most 32, outcomes and an accumulator.
        assert_eq!(results[0].storage_bits, 512 * (48 + 6 + 32 + 32));
        assert_eq!(results[0].parameters.storage_bits(64), 512 * (48 + 7 + 64 + 32));
        // The table's single entry contains the path that was completed last.
        assert_eq!((results[1].overlap, results[1].windows), (Some(75.0), 1));
        assert_eq!(profiler.instructions_by_length()[..3], [0, 0, 400]);
        assert_eq!(count_paths_for_share(&complete.hottest_paths(), 0.7), 1);
        assert_eq!(count_paths_for_share(&complete.hottest_paths(), 0.8), 2);
    }

    #[test]
    fn windows_begin_with_empty_tables() {
        let profiler = profiler(40);
        let results = profiler.results(Metric::Frequency);
        assert_eq!((results[0].windows, results[0].dynamic_overlap), (10, Some(100.0)));
        // The last iteration of each window takes the more frequent path.
        assert_eq!(results[1].dynamic_overlap, Some(75.0));
        assert_eq!(profiler.complete_path_profile(Metric::Frequency).unwrap().total(), 40);
    }
}
