//! Emits the code at the end of a path, for each way of counting ([`PathEndAction`]).

use super::{ProbeCode, RegisterValue};
use crate::counting::KnownPathLookup;
use crate::events::EventActivation;
use crate::interesting::InterestingPathCode;
use crate::llvm::{Builder, Value};
use crate::path_end::PathEndAction;
use crate::segments::SegmentCode;

impl ProbeCode<'_> {
    /// Emits `count[register + increment] += by`, in the way in which this function counts.
    pub(super) fn count(&self, builder: &Builder, register: RegisterValue, increment: i64, by: Value) {
        match self.counters.at_end {
            PathEndAction::Word | PathEndAction::Stream(_) | PathEndAction::Part(_) => {
                let address = self.counter_address(builder, builder.module.i64(), register, increment);
                self.counters.add(builder, address, by);
            }
            PathEndAction::Table(_) | PathEndAction::Unknown(_) => {
                self.defer_count(builder, register, increment, by, KnownPathLookup::NotNeeded)
            }
            PathEndAction::Sums(events) => {
                let address = self.counter_address(builder, events.cells, register, increment);
                self.charge_events_and_count(events, builder, address, by);
            }
            PathEndAction::Interesting(words, events) => {
                self.count_interesting_path((words, events), builder, self.add_increment(builder, register, increment), by)
            }
            PathEndAction::Iterations(iterations) => {
                let sum = self.register_value(self.add_increment(builder, register, increment));
                let word = iterations.emit_path_end(builder, self.edge, sum, self.counters.base);
                word.into_iter().for_each(|word| self.counters.add(builder, word, by));
            }
            PathEndAction::Segment(segments) => self.count_segment(segments, builder, self.add_increment(builder, register, increment)),
        }
    }

    /// Emits the count of the path with the cells at address `path`. If the path ends here, also adds its events.
    fn charge_events_and_count(&self, events: EventActivation, builder: &Builder, path: Value, by: Value) {
        if self.path_ends {
            events.emit_charge_to_path(builder, path);
        }
        self.counters.add(builder, path, by);
    }

    /// Emits the count of a path: in its own word if it is interesting, otherwise in the word that all other paths share. If events are
    /// summed and the path ends here, also adds its events.
    fn count_interesting_path(
        &self,
        (words, events): (InterestingPathCode, Option<EventActivation>),
        builder: &Builder,
        register: RegisterValue,
        by: Value,
    ) {
        let (module, counters) = (builder.module, &self.counters);
        let cells = events.map_or(module.i64(), |events| events.cells);
        let address = match register {
            RegisterValue::Constant(c) => {
                let word = counters.first + words.constant_word(c);
                builder.offset(cells, counters.base, module.constant(word as i64))
            }
            RegisterValue::Computed(value) => {
                let base = builder.offset(cells, counters.base, module.constant(counters.first as i64));
                builder.offset(cells, base, words.emit_index(builder, value))
            }
        };
        match events {
            Some(events) => self.charge_events_and_count(events, builder, address, by),
            None => counters.add(builder, address, by),
        }
    }

    /// Emits the code at the end of a path that is part of a segment: computes the context for what follows, and counts the segment if one
    /// ends here.
    fn count_segment(&self, segments: SegmentCode, builder: &Builder, register: RegisterValue) {
        let known = if let RegisterValue::Constant(known) = register { Some(known) } else { None };
        let word = segments.emit_path_end(builder, (self.edge, self.location), (known, self.register_value(register)), self.counters.base);
        word.into_iter().for_each(|word| self.counters.add(builder, word, builder.module.constant(1)));
    }
}
