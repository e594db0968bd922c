//! Counts all paths, but only in bursts ([`crate::sample`]). What is done with a function depends on the other functions, so all are
//! planned before any is changed.

use super::{Observer, plan_function};
use crate::emit;
use crate::error::InstrumentError;
use crate::llvm::{TargetMachine, Value};
use crate::sample;
use crate::unit::Unit;

pub struct CountsInBursts;

impl Observer for CountsInBursts {
    fn reason_to_skip(&self, _: &Unit, function: Value) -> Option<&'static str> {
        crate::versions::reason_not_to_double(function)
    }

    fn observe_functions(&mut self, unit: &mut Unit, functions: &[Value], _: TargetMachine) -> Result<(), InstrumentError> {
        let planned = functions.iter().map(|f| plan_function(unit, self, *f)).collect::<Result<Vec<_>, _>>()?;
        let tier = sample::SampleTier::new(unit.context, &planned, unit.options.choices.trip_counts);
        for mut planned in planned {
            let function = planned.function;
            let inserted = tier.insert(&mut planned, unit.map.counters);
            inserted.map_err(|what| InstrumentError::Probes { function: function.name(), what })?;
            unit.protect_instrumented_code(&tier.parts(function));
            unit.add_function(planned);
        }
        emit::define_sampling_switch(unit.module);
        Ok(())
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}
