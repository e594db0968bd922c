//! Sums up a hardware event per path, for all paths or for a given set. The event counter is read at function entry and where paths end
//! ([`crate::events`]).

use super::{Observer, interesting};
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::events::EventSymbols;
use crate::llvm::{Block, DebugLocation, Module, Value};
use crate::path_end::PathEndAction;
use crate::planned_function::PlannedFunction;
use crate::unit::Unit;
use trodden_flow::program::PassChoices;
use trodden_unit::{BlockKind, observe};

pub struct EventSums {
    events: EventSymbols,
    /// True if only the interesting paths have sums of their own.
    of_interesting: bool,
}

impl EventSums {
    pub fn new(module: Module, sums: observe::EventSums) -> EventSums {
        EventSums { events: EventSymbols::declare(module, sums.event), of_interesting: sums.paths.is_some() }
    }
}

impl Observer for EventSums {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        interesting::reason_to_skip(unit, function)
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        interesting::find_interesting_paths(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn replan_function(
        &mut self,
        unit: &mut Unit,
        mut planned: PlannedFunction,
        _: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, InstrumentError> {
        if self.of_interesting {
            interesting::count_only_interesting_paths(unit, &mut planned)?;
        }
        Ok(planned)
    }

    /// Applies no pass that moves counts, because events must be read exactly where paths end.
    fn choose_passes(&self, _: &Unit, _: &PlannedFunction) -> PassChoices {
        PassChoices::COUNTING_AT_PATH_ENDS
    }

    fn emit_function_entry<'p>(
        &self,
        unit: &Unit,
        planned: &'p PlannedFunction,
        location: Option<DebugLocation>,
    ) -> (Value, PathEndAction<'p>) {
        let entry = planned.function.entry();
        // The address is computed inline, since the events of a call would be charged to a path. The event counter is read after that.
        let base = unit.emit_thread_counters_inline(planned, location);
        let events = self.events.emit_read_at_entry(unit.module, entry, location);
        let at_end = match interesting::declare_path_code(unit, planned) {
            Some(words) => PathEndAction::Interesting(words, Some(events)),
            None => PathEndAction::Sums(events),
        };
        (base, at_end)
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}
