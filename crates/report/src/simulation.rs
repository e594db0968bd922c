//! Reports on simulations of the hardware path profiler, as text and JSON.

use crate::words;
use anyhow::Result;
use serde::Serialize;
use std::io::Write;
use trodden_hardware::character::{LengthPoint, MetricSkew, PathCharacteristics, ProfileAgreement, characterize_paths};
use trodden_hardware::processor::ProcessorEvent;
use trodden_hardware::{
    BranchKind, DetectorCounts, DetectorParameters, LaneTiming, Metric, PathDescriptor, PathProfile, Profiler, ProfilerParameters,
    SimulationLane, TableResult, compute_overlap, count_paths_for_share,
};
use trodden_trace::simulation::{InstructionStep, InstructionWalk, MappedMemory, MappedPlaces, SourcePlace, walk};

const SCHEMA_VERSION: u32 = 1;
const DEFAULT_MAX_PATHS: usize = 10;

/// Limits on the length of a report.
#[derive(Clone, Copy, Debug)]
pub struct SimulationView {
    /// Maximum number of paths. `None` means 10 in text, and all in JSON.
    pub top: Option<usize>,
    /// Maximum number of instructions shown per path; 0 shows all.
    pub steps: usize,
}

/// Results of simulating one configuration of the profiler.
pub struct SimulationReport<'a> {
    shown: SimulationView,
    origin: &'a str,
    iterations: Option<u64>,
    detector: DetectorParameters,
    profiler: &'a Profiler,
    memory: MappedMemory<'a>,
    tables: Vec<TableResult>,
    timing: Option<LaneTiming>,
    events: Vec<ProcessorEvent>,
    first_table: PathProfile,
    complete: Vec<(PathDescriptor, u64)>,
    character: PathCharacteristics,
}

#[derive(Debug, Serialize)]
struct ReportJson<'a> {
    schema_version: u32,
    source: &'a str,
    instructions: u64,
    /// Additional iterations of string instructions such as `rep movsb`, which are not counted as instructions; null for recordings.
    string_iterations: Option<u64>,
    threads: u64,
    branches: BranchesJson,
    detector: DetectorJson,
    /// Overlap of the profile in the first path table with the complete profile, in percent.
    overlap: Option<f64>,
    tables: Vec<TableJson>,
    /// Results for each counted event, each from a table of its own. Real hardware would need as many tables, or a run for each event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<EventJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processor: Option<ProcessorJson>,
    distinct_paths: usize,
    instructions_by_length: &'a [u64],
    /// Share of the execution that the hottest paths account for, as cumulative distributions.
    skew: Vec<MetricSkew>,
    /// Percentage of instructions that are on paths with at most a given number of branches.
    lengths: Vec<LengthPoint>,
    /// Agreement between the profiles of two models of power consumption; `None` unless both were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    power_models: Option<ProfileAgreement>,
    paths: Vec<PathJson>,
}

#[derive(Debug, Serialize)]
struct EventJson {
    event: &'static str,
    total: u64,
    paths: usize,
    /// Overlap of the path profile weighted by the event with the path profile by frequency, in percent. Both profiles are complete.
    overlap_with_frequency: Option<f64>,
    tables: Vec<TableJson>,
}

#[derive(Debug, Serialize)]
struct ProcessorJson {
    cycles: u64,
    instructions_per_cycle: f64,
    l1_misses: u64,
    l2_misses: u64,
    mispredictions: u64,
    queue_stall_cycles: u64,
    slowdown_percent: Option<f64>,
    slowdown_percent_frozen_predictions: Option<f64>,
}

#[derive(Debug, Serialize)]
struct BranchesJson {
    retired: u64,
    by_kind: Vec<BranchKindJson>,
}

#[derive(Debug, Serialize)]
struct BranchKindJson {
    kind: &'static str,
    taken: u64,
    not_taken: u64,
}

#[derive(Debug, Serialize)]
struct DetectorJson {
    paths: u64,
    splits: u64,
    stack_overflows: u64,
    deepest_stack: u64,
    underflows: u64,
    repairs: u64,
    /// Repairs of the path stack, as after `longjmp`, that were guessed because the source does not record stack pointers.
    guessed_repairs: u64,
    stack_switches: u64,
    unmatched_returns: u64,
    unfinished: u64,
    signals: u64,
    gaps: u64,
}

#[derive(Debug, Serialize)]
struct TableJson {
    table: String,
    storage_bits: usize,
    hits: u64,
    misses: u64,
    replacements: u64,
    overlap: Option<f64>,
    dynamic_overlap: Option<f64>,
    windows: u64,
}

#[derive(Debug, Serialize)]
struct PathJson {
    descriptor: DescriptorJson,
    function: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    /// Number of executions in the complete profile.
    count: u64,
    share: f64,
    /// Number of executions in the first table.
    table_count: u64,
    instructions: Vec<StepJson>,
    /// The reason why the listing stops before the end of the path; `None` if it is complete.
    stopped: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct DescriptorJson {
    start: String,
    length: u8,
    /// The outcome of each branch in execution order: 1 for taken, 0 for not taken.
    outcomes: String,
}

#[derive(Debug, Serialize)]
struct StepJson {
    address: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
}

impl<'a> SimulationReport<'a> {
    /// Collects the results of one simulated configuration.
    pub fn new(
        shown: SimulationView,
        origin: &'a str,
        iterations: Option<u64>,
        parameters: &ProfilerParameters,
        lane: &'a SimulationLane,
        places: &'a MappedPlaces,
    ) -> SimulationReport<'a> {
        let profiler = &lane.profiler;
        let is_counted = |e: &ProcessorEvent| parameters.metrics.contains(&Metric::Event(*e as usize));
        let counted: Vec<Metric> = parameters.metrics.iter().copied().filter(|m| *m != Metric::Instructions).collect();
        SimulationReport {
            timing: lane.timing(),
            character: characterize_paths(profiler, &counted),
            events: ProcessorEvent::ALL.into_iter().filter(is_counted).collect(),
            shown,
            origin,
            iterations,
            detector: parameters.detector,
            profiler,
            memory: places.memory(),
            tables: profiler.results(Metric::Frequency),
            first_table: profiler.table_profile(Metric::Frequency, 0).unwrap_or_default(),
            complete: profiler.complete_path_profile(Metric::Frequency).map(PathProfile::hottest_paths).unwrap_or_default(),
        }
    }

    /// Writes the report as JSON.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        let total: u64 = self.complete.iter().map(|(_, count)| count).sum();
        let top = self.shown.top.unwrap_or(usize::MAX);
        let json = ReportJson {
            schema_version: SCHEMA_VERSION,
            source: self.origin,
            instructions: self.profiler.instructions(),
            string_iterations: self.iterations,
            threads: self.profiler.threads(),
            branches: branches_json(self.profiler),
            detector: detector_json(&self.profiler.detector_counts()),
            overlap: self.tables.first().and_then(|t| t.overlap),
            tables: self.tables.iter().map(table_json).collect(),
            events: self.events.iter().map(|e| self.event_json(*e)).collect(),
            processor: self.timing.as_ref().map(processor_json),
            distinct_paths: self.complete.len(),
            instructions_by_length: self.profiler.instructions_by_length(),
            skew: self.character.skew.clone(),
            lengths: self.character.lengths.clone(),
            power_models: self.character.power_models,
            paths: self.complete.iter().take(top).map(|(path, count)| self.path_json(path, *count, total)).collect(),
        };
        serde_json::to_writer_pretty(&mut *out, &json)?;
        writeln!(out)?;
        Ok(())
    }

    fn event_json(&self, event: ProcessorEvent) -> EventJson {
        let metric = Metric::Event(event as usize);
        let complete = self.profiler.complete_path_profile(metric);
        let frequency = self.profiler.complete_path_profile(Metric::Frequency);
        EventJson {
            event: event.name(),
            total: complete.map_or(0, PathProfile::total),
            paths: complete.map_or(0, PathProfile::len),
            overlap_with_frequency: complete.zip(frequency).and_then(|(one, other)| compute_overlap(one, other)),
            tables: self.profiler.results(metric).iter().map(table_json).collect(),
        }
    }

    fn path_json(&self, path: &PathDescriptor, count: u64, total: u64) -> PathJson {
        let place = self.memory.place(path.start);
        let InstructionWalk { mut steps, stopped, .. } = walk(&self.memory, &self.detector, path);
        if self.shown.steps > 0 {
            steps.truncate(self.shown.steps);
        }
        let step = |step: InstructionStep| StepJson {
            address: step.address.to_string(),
            line: self.memory.place(step.address).and_then(|p| p.line).map(|(file, line)| format!("{file}:{line}")),
            text: step.text,
            outcome: step.outcome,
        };
        PathJson {
            descriptor: DescriptorJson { start: path.start.to_string(), length: path.length, outcomes: path.outcome_digits() },
            function: place.as_ref().and_then(|p| p.function.clone()),
            offset: place.as_ref().map(|p| p.offset),
            file: place.map(|p| p.file),
            count,
            share: count as f64 / total as f64,
            table_count: self.first_table.count(path),
            instructions: steps.into_iter().map(step).collect(),
            stopped,
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        self.write_summary(out)?;
        let hottest = self.first_table.hottest_paths();
        let total = self.first_table.total();
        if let Some(first) = self.tables.first() {
            writeln!(out, "\nHot paths in the table {}:", first.parameters.name())?;
        }
        for (number, (path, count)) in hottest.iter().take(self.shown.top.unwrap_or(DEFAULT_MAX_PATHS)).enumerate() {
            self.write_path(out, number + 1, path, *count, total)?;
        }
        Ok(())
    }

    fn write_summary(&self, out: &mut dyn Write) -> Result<()> {
        let branches = branches_json(self.profiler);
        let counts = self.profiler.detector_counts();
        writeln!(out, "{}", self.origin)?;
        let instructions = group_digits(self.profiler.instructions());
        writeln!(out, "  instructions {instructions}, branches {}, threads {}", group_digits(branches.retired), self.profiler.threads())?;
        for kind in &branches.by_kind {
            let not_taken =
                if kind.kind == "conditional" { format!(", not taken {}", group_digits(kind.not_taken)) } else { String::new() };
            writeln!(out, "    {:14} {:>15}{not_taken}", kind.kind, group_digits(kind.taken + kind.not_taken))?;
        }
        let for_half = count_paths_for_share(&self.complete, 0.5);
        let for_most = count_paths_for_share(&self.complete, 0.9);
        let (paths, distinct) = (group_digits(counts.paths), group_digits(self.complete.len() as u64));
        writeln!(out, "  paths {paths}, {distinct} different; {for_half} account for half of all executions, {for_most} for 90 %")?;
        let short = self.character.lengths.get(16).map_or(100.0, |p| p.percent);
        writeln!(out, "    {short:.1} % of the instructions are on paths of at most 16 branches")?;
        for (number, singular, plural, rest) in [
            (counts.splits, "path", "paths", "split at the maximum number of branches"),
            (counts.overflows, "entry", "entries", "dropped or spilled because the path stack was full"),
            (counts.repairs - counts.guessed_repairs, "repair", "repairs", "of the path stack (longjmp, exceptions)"),
            (
                counts.guessed_repairs,
                "guessed repair",
                "guessed repairs",
                "of the path stack, at returns that match an earlier call: the source does not record stack pointers",
            ),
            (counts.switches, "switch", "switches", "between stacks of the program (coroutines, signal handlers with their own stack)"),
            (counts.interrupts, "signal", "signals", "seen"),
            (counts.gaps, "gap", "gaps", "in the stream"),
        ] {
            if number > 0 {
                writeln!(out, "    {} {rest}", words::plural(number.into(), singular, plural))?;
            }
        }
        writeln!(out, "\n  {:28} {:>9} {:>9} {:>9}", "table", "hits", "overlap", "dynamic")?;
        for table in &self.tables {
            let all = (table.counts.hits + table.counts.misses).max(1);
            let hits = format_percent(Some(100.0 * table.counts.hits as f64 / all as f64));
            let (overlap, dynamic) = (format_percent(table.overlap), format_percent(table.dynamic_overlap));
            writeln!(out, "  {:28} {hits:>9} {overlap:>9} {dynamic:>9}", table.parameters.name())?;
        }
        self.write_events(out)?;
        self.write_timing(out)
    }

    fn write_events(&self, out: &mut dyn Write) -> Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  {:18} {:>15} {:>14}   overlap of each table", "event", "total", "with frequency")?;
        for event in self.events.iter().map(|e| self.event_json(*e)) {
            let tables: Vec<String> = event.tables.iter().map(|t| format_percent(t.overlap)).collect();
            let with_frequency = format_percent(event.overlap_with_frequency);
            writeln!(out, "  {:18} {:>15} {with_frequency:>14}   {}", event.event, group_digits(event.total), tables.join("  "))?;
        }
        if let Some(ProfileAgreement { rank_correlation: Some(rank), overlap: Some(overlap) }) = self.character.power_models {
            writeln!(out, "  Agreement of the power models: rank correlation {rank:.3}, overlap {overlap:.2} %.")?;
        }
        writeln!(out, "  Each event has separate tables; real hardware would need as many tables, or a run for each event.")?;
        Ok(())
    }

    fn write_timing(&self, out: &mut dyn Write) -> Result<()> {
        let Some(timing) = self.timing.as_ref().map(processor_json) else { return Ok(()) };
        let (cycles, mispredictions) = (group_digits(timing.cycles), group_digits(timing.mispredictions));
        writeln!(out, "\n  processor: {cycles} cycles, {:.2} instructions per cycle", timing.instructions_per_cycle)?;
        let (one, two) = (group_digits(timing.l1_misses), group_digits(timing.l2_misses));
        writeln!(out, "    misses: first level {one}, second level {two}; mispredictions {mispredictions}")?;
        if let (Some(slowdown), Some(frozen)) = (timing.slowdown_percent, timing.slowdown_percent_frozen_predictions) {
            writeln!(out, "    slowdown by the profiler {slowdown:.2} %; with frozen predictions {frozen:.2} %")?;
        }
        Ok(())
    }

    fn write_path(&self, out: &mut dyn Write, number: usize, path: &PathDescriptor, count: u64, total: u64) -> Result<()> {
        let place = self.memory.place(path.start);
        let name = place.as_ref().map_or_else(|| path.start.to_string(), SourcePlace::name);
        let file = place.as_ref().map_or("?", |p| p.file.rsplit('/').next().unwrap_or(&p.file));
        let share = 100.0 * count as f64 / total as f64;
        writeln!(
            out,
            "\n{number:3}. {share:6.2} %  {}  {name} ({file}), {} {}",
            group_digits(count),
            format_branch_count(path),
            path.outcome_digits()
        )?;
        let walk = walk(&self.memory, &self.detector, path);
        let shown = if self.shown.steps == 0 { walk.steps.len() } else { self.shown.steps.min(walk.steps.len()) };
        let mut before = None;
        for step in &walk.steps[..shown] {
            let line = self.memory.place(step.address).and_then(|p| p.line);
            let source = line.as_ref().filter(|_| line != before).map(|(file, line)| format!("  ; {file}:{line}")).unwrap_or_default();
            let outcome = step.outcome.map_or("", |taken| if taken { "  -> taken" } else { "  -> not taken" });
            let mark = if step.is_jumped_to { '>' } else { ' ' };
            writeln!(out, "      {mark} {:14} {}{outcome}{source}", step.address.to_string(), step.text)?;
            before = line;
        }
        if shown < walk.steps.len() {
            let more = words::plural((walk.steps.len() - shown) as u128, "more instruction", "more instructions");
            writeln!(out, "        ... {more} (`trodden-lab simulate --steps 0` shows all)")?;
        } else if let Some(why) = walk.stopped {
            writeln!(out, "        ... {why}")?;
        }
        Ok(())
    }
}

fn branches_json(profiler: &Profiler) -> BranchesJson {
    let by_kind: Vec<BranchKindJson> = BranchKind::ALL
        .into_iter()
        .map(|kind| {
            let [not_taken, taken] = profiler.branches(kind);
            BranchKindJson { kind: kind.name(), taken, not_taken }
        })
        .collect();
    BranchesJson { retired: by_kind.iter().map(|k| k.taken + k.not_taken).sum(), by_kind }
}

fn detector_json(counts: &DetectorCounts) -> DetectorJson {
    DetectorJson {
        paths: counts.paths,
        splits: counts.splits,
        stack_overflows: counts.overflows,
        deepest_stack: counts.max_depth,
        underflows: counts.underflows,
        repairs: counts.repairs,
        guessed_repairs: counts.guessed_repairs,
        stack_switches: counts.switches,
        unmatched_returns: counts.unmatched_returns,
        unfinished: counts.unfinished,
        signals: counts.interrupts,
        gaps: counts.gaps,
    }
}

fn table_json(result: &TableResult) -> TableJson {
    TableJson {
        table: result.parameters.name(),
        storage_bits: result.storage_bits,
        hits: result.counts.hits,
        misses: result.counts.misses,
        replacements: result.counts.replacements,
        overlap: result.overlap,
        dynamic_overlap: result.dynamic_overlap,
        windows: result.windows,
    }
}

fn processor_json(timing: &LaneTiming) -> ProcessorJson {
    let totals = timing.totals;
    ProcessorJson {
        cycles: totals.cycles,
        instructions_per_cycle: totals.instructions as f64 / totals.cycles.max(1) as f64,
        l1_misses: totals.l1_misses,
        l2_misses: totals.l2_misses,
        mispredictions: totals.mispredictions,
        queue_stall_cycles: totals.queue_stalls,
        slowdown_percent: timing.slowdown,
        slowdown_percent_frozen_predictions: timing.frozen_slowdown,
    }
}

fn format_percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.2} %"))
}

fn format_branch_count(path: &PathDescriptor) -> String {
    if path.length == 1 { "1 branch".into() } else { format!("{} branches", path.length) }
}

fn group_digits(number: u64) -> String {
    words::count(number.into())
}
