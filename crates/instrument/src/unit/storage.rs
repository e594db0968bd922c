//! Chooses where each function counts, and builds its entry in the unit's map.

use super::Unit;
use super::planning::is_local;
use crate::counting::{CounterAccess, LoopFlushStrategy};
use crate::entry;
use crate::interesting;
use crate::llvm::{DebugLocation, Value};
use crate::options::ThreadCounters;
use crate::path_end::PathEndAction;
use crate::planned_function::{CountedPaths, PlannedFunction};
use crate::unoptimised;
use trodden_flow::Node;
use trodden_flow::numbering::NumberedPaths;
use trodden_flow::program::CounterCells;
use trodden_unit::{CountTable, EventWords, FunctionMap, LabelWords, Storage, graph_hash};

impl Unit {
    pub fn add_function(&mut self, planned: PlannedFunction) {
        let storage = self.choose_storage(&planned);
        self.add_function_with_storage(planned, storage);
    }

    pub fn add_function_with_storage(&mut self, planned: PlannedFunction, storage: Storage) {
        let PlannedFunction { function, position, cfg, program, counted, .. } = planned;
        let (blocks, graph, program) = match counted {
            Some(counted) => (counted.blocks, counted.graph, counted.program),
            None => (cfg.blocks, cfg.graph, program),
        };
        let NumberedPaths { dag, numbering } = program.paths();
        let counters = numbering.paths();
        let words = match &storage {
            Storage::Array => counters,
            Storage::Table(table) => CountTable::word_count_of_slots(table.slots),
            Storage::Interesting(interesting) => interesting.words,
            Storage::Labels(labels) => labels.range().end - labels.range().start,
            Storage::Segments(segments) => segments.words,
            Storage::Events(events) => events.words,
            Storage::Iterations(iterations) => iterations.word_count(),
        };
        if let Storage::Table(_) = &storage {
            self.paths_in_tables += counters;
        }
        self.map.functions.push(FunctionMap {
            name: function.name(),
            local: is_local(function),
            position,
            shape: graph_hash(&blocks, &graph),
            code: cfg.code,
            first_counter: self.map.counters,
            counters,
            storage,
            blocks,
            graph,
            dag: dag.origins(),
            values: numbering.values().to_vec(),
            cuts: program.dag().cuts().iter().map(|c| (c.edge, c.reason)).collect(),
            by_trip_count: program.trip_counted_back_edges(),
            calls: cfg.calls,
        });
        self.map.counters += words;
    }

    pub fn choose_storage(&self, planned: &PlannedFunction) -> Storage {
        match planned.program.cells() {
            CounterCells::Interesting(cells) => Storage::Interesting(interesting::describe_interesting_words(cells, self.map.counters)),
            CounterCells::Labels { labels, cells, .. } => Storage::Labels(LabelWords {
                first_word: self.map.counters,
                words: *cells,
                has_hits: self.options.count_hits,
                labels: labels.clone(),
            }),
            CounterCells::Paths if self.is_in_table(planned) => Storage::Table(self.table()),
            CounterCells::Paths | CounterCells::Preferential(_) => match &planned.counted {
                Some(counted) => Storage::Events(event_words(planned, counted, self.map.counters)),
                None => Storage::Array,
            },
        }
    }

    /// Returns how to count at a path's end if each path has its own count, in an array or a hash table.
    pub fn counting_in_array_or_table(&self, planned: &PlannedFunction) -> PathEndAction<'static> {
        if self.is_in_table(planned) { PathEndAction::Table(self.table()) } else { PathEndAction::Word }
    }

    fn is_in_table(&self, planned: &PlannedFunction) -> bool {
        self.options.counts_in_table(planned.program.paths().numbering.paths())
    }

    fn table(&self) -> CountTable {
        CountTable { first_word: self.map.counters, slots: self.options.table_slots }
    }

    pub fn counters<'a>(&self, base: Value, at_end: PathEndAction<'a>) -> CounterAccess<'a> {
        let atomic = self.options.experiment.threads() == ThreadCounters::Atomic;
        CounterAccess { atomic, flushing: LoopFlushStrategy::Branch, at_end, ..CounterAccess::private_to_thread(base, self.map.counters) }
    }

    /// Emits, at a function's entry, the address of the thread's counters. Unoptimised code calls a helper function for this, which keeps
    /// it short.
    pub fn emit_thread_counters(&self, planned: &PlannedFunction, location: Option<DebugLocation>) -> Value {
        match unoptimised::is_unoptimised(planned.function) {
            true => unoptimised::emit_thread_counters(self.module, planned.function, location),
            false => self.emit_thread_counters_inline(planned, location),
        }
    }

    pub fn emit_thread_counters_inline(&self, planned: &PlannedFunction, location: Option<DebugLocation>) -> Value {
        entry::emit_thread_counters(self.context, planned.function, location, planned.may_lack_region)
    }
}

/// Describes the words of a function whose graph has further events in addition to its paths.
fn event_words(planned: &PlannedFunction, counted: &CountedPaths, first_word: u64) -> EventWords {
    let NumberedPaths { dag, numbering } = planned.program.paths();
    let blocks = (0..).map(Node).zip(planned.cfg.blocks.iter().zip(&counted.blocks));
    EventWords {
        first_word,
        words: numbering.paths(),
        calls: counted.extra_edges.clone(),
        up_to_calls: blocks.filter(|(_, (a, b))| a != b).map(|(node, (block, _))| (node, block.up_to_calls)).collect(),
        dag: dag.origins(),
        values: numbering.values().to_vec(),
    }
}
