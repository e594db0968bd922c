//! Where each function's counts are kept, and what the map says of it.

use super::Unit;
use super::planning::is_local;
use crate::counting::{Counters, Flushing};
use crate::interesting;
use crate::llvm::Value;
use crate::options::Threads;
use crate::sample::{CountedPaths, PlannedFunction};
use trodden_flow::Node;
use trodden_flow::numbering::NumberedPaths;
use trodden_flow::program::Cells;
use trodden_unit::{CountTable, EventWords, FunctionMap, LabelWords, Storage, shape};

impl Unit {
    /// Enters a function into the map.
    pub(super) fn enter(&mut self, planned: PlannedFunction) {
        let storage = self.storage(&planned);
        self.enter_with(planned, storage);
    }

    /// The same, where it counts there.
    pub(super) fn enter_with(&mut self, planned: PlannedFunction, storage: Storage) {
        let PlannedFunction { function, position, cfg, program, counted, .. } = planned;
        let (blocks, edges, program) = match counted {
            Some(counted) => (counted.blocks, counted.edges, counted.program),
            None => (cfg.blocks, cfg.edges, program),
        };
        let NumberedPaths { dag, numbering } = program.paths();
        let counters = numbering.paths();
        let words = match &storage {
            Storage::Array => counters,
            Storage::Table(table) => CountTable::words(table.slots),
            Storage::Interesting(interesting) => interesting.words,
            Storage::Labels(labels) => labels.range().end - labels.range().start,
            Storage::Segments(segments) => segments.words,
            Storage::Events(events) => events.words,
        };
        if let Storage::Table(_) = &storage {
            self.in_tables += counters;
        }
        self.map.functions.push(FunctionMap {
            name: function.name(),
            local: is_local(function),
            position,
            shape: shape(&blocks, &edges),
            code: cfg.code,
            first_counter: self.map.counters,
            counters,
            storage,
            blocks,
            edges,
            dag: dag.edges().to_vec(),
            values: numbering.values().to_vec(),
            cuts: program.dag().cuts().iter().map(|c| (c.edge, c.reason)).collect(),
            by_trip_count: program.by_trip_count(),
            calls: cfg.calls,
        });
        self.map.counters += words;
    }

    /// Where the next function's counts are kept.
    fn storage(&self, planned: &PlannedFunction) -> Storage {
        match planned.program.cells() {
            Cells::Interesting(cells) => Storage::Interesting(interesting::described(cells, self.map.counters)),
            Cells::Labels { labels, cells, .. } => Storage::Labels(LabelWords {
                first_word: self.map.counters,
                words: *cells,
                with_hits: self.options.count_hits,
                labels: labels.clone(),
            }),
            Cells::Paths if self.options.in_table(planned.program.paths().numbering.paths()) => {
                Storage::Table(CountTable { first_word: self.map.counters, slots: self.options.table_slots })
            }
            Cells::Paths | Cells::Preferential(_) => match &planned.counted {
                Some(counted) => Storage::Events(self.event_words(planned, counted)),
                None => Storage::Array,
            },
        }
    }

    /// The words of the next function's events.
    fn event_words(&self, planned: &PlannedFunction, counted: &CountedPaths) -> EventWords {
        let NumberedPaths { dag, numbering } = planned.program.paths();
        let blocks = (0..).map(Node).zip(planned.cfg.blocks.iter().zip(&counted.blocks));
        EventWords {
            first_word: self.map.counters,
            words: numbering.paths(),
            calls: counted.besides.clone(),
            up_to_calls: blocks.filter(|(_, (a, b))| a != b).map(|(node, (block, _))| (node, block.up_to_calls)).collect(),
            dag: dag.edges().to_vec(),
            values: numbering.values().to_vec(),
        }
    }

    /// Where and how the next function counts, for the probes.
    pub(super) fn counters(&self, base: Value, planned: &PlannedFunction) -> Counters<'static> {
        let (table, hits) = match self.storage(planned) {
            Storage::Array | Storage::Interesting(_) | Storage::Segments(_) | Storage::Events(_) => (None, None),
            Storage::Labels(labels) => (None, labels.hits()),
            Storage::Table(table) => (Some(table), None),
        };
        Counters {
            table,
            atomic: self.options.experiment.threads() == Threads::Atomic,
            hits,
            flushing: Flushing::Jumping,
            ..Counters::own(base, self.map.counters)
        }
    }
}
