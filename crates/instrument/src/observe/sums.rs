//! Sums of an event for each path, of all or of those of a set: events are read where a function begins and where its paths end
//! ([`crate::events`]).

use super::{Observer, interesting};
use crate::describe::FunctionCfg;
use crate::error::Error;
use crate::events::Events;
use crate::llvm::{Block, Module, Value};
use crate::path_end::PathEnd;
use crate::sample::PlannedFunction;
use crate::unit::{AT_PATH_ENDS, Unit};
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_flow::program::Choices;
use trodden_unit::{BlockKind, observe};

/// The observer of paths that sums up an event for each.
pub struct EventSums {
    events: Events,
    /// Only the paths of a set have sums of their own.
    of_interesting: bool,
}

impl EventSums {
    /// Declares what code refers to.
    pub fn begin(module: Module, sums: observe::EventSums) -> EventSums {
        EventSums { events: Events::declare(module, sums.event), of_interesting: sums.of.is_some() }
    }
}

impl Observer for EventSums {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        interesting::reason_to_skip(unit, function)
    }

    fn measured_edges<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        interesting::interesting_of(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn plan_again(&mut self, unit: &mut Unit, mut planned: PlannedFunction, _: &[(Block, BlockKind)]) -> Result<PlannedFunction, Error> {
        if self.of_interesting {
            interesting::plan_again(unit, &mut planned)?;
        }
        Ok(planned)
    }

    /// Events are read when a path ends, and then only.
    fn passes(&self, _: &Unit, _: &PlannedFunction) -> Choices {
        AT_PATH_ENDS
    }

    fn enter<'p>(&self, unit: &Unit, planned: &'p PlannedFunction, location: Option<LLVMMetadataRef>) -> (Value, PathEnd<'p>) {
        let entry = planned.function.entry();
        // Not by a call, which would be charged to paths. Events are read between the two.
        let base = unit.counters_in_place(planned, location);
        let events = self.events.begin(unit.module, entry, location);
        let at_end = match interesting::words(unit, planned) {
            Some(words) => PathEnd::Interesting(words, Some(events)),
            None => PathEnd::Sums(events),
        };
        (base, at_end)
    }

    fn as_dyn(&mut self) -> &mut dyn Observer {
        self
    }
}
