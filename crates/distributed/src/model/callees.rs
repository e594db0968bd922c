//! Determines the possible callees of calls, and the possible behaviour of opaque callees.

use super::ModelBuilder;
use super::ObservedTargets;
use crate::imports::{UntracedCodeAssumption, assumed_behaviour, strip_symbol_version};
use trodden_binary::graph::{CallKind, CallReturns, CallSite, CodeCallee};
use trodden_witness::{Opaque, ProgramCall, WitnessFunctionId};

const CALLS_BACK_AND_RETURNS: Opaque = Opaque { returns: true, ends_run: false, unwinds: false, calls_back: true };

impl ModelBuilder<'_> {
    fn observed_callees(&self, call: &CallSite, observed: &ObservedTargets) -> (Vec<WitnessFunctionId>, Option<Opaque>) {
        let targets = || observed.targets.range((call.address, 0)..=(call.address, u64::MAX)).map(|(_, target)| *target);
        let callees: Vec<WitnessFunctionId> = targets().filter_map(|t| self.ids.get(&t).copied()).collect();
        let others = || targets().filter(|t| !self.ids.contains_key(t));
        let other = match others().next() {
            Some(target) if self.graphs.function_entered_at(target).is_some() => Some(self.behaviour_of_opaque(target)),
            Some(_) => Some(Opaque::RETURNS),
            None => callees.is_empty().then_some(Opaque::RETURNS),
        };
        (callees, other)
    }

    /// Returns true if execution may resume at an address after unwinding. Once a run has been observed, only the observed addresses are
    /// possible.
    pub(super) fn may_land_at(&self, place: u64) -> bool {
        self.observed.is_none_or(|o| o.landed.contains(&place))
    }

    /// Returns the assumed behaviour of an imported function that is called at `address`. If the function throws, but no throw was observed
    /// at this call, the model assumes that the call ends the run.
    fn behaviour_of_import(&self, name: &str, address: u64) -> Opaque {
        let may = self.image.behaviour_of_import(name, self.assumption);
        let never = assumed_behaviour(strip_symbol_version(name), UntracedCodeAssumption::Usual).unwinds
            && self.observed.is_some_and(|o| !o.throws.contains(&address));
        Self::restrict_unwinding(may, self.unwinds && !never)
    }

    /// If the program cannot unwind, replaces the outcome "unwinds" by "ends the run".
    fn restrict_unwinding(may: Opaque, unwinds: bool) -> Opaque {
        match may.unwinds && !unwinds {
            true => Opaque { unwinds: false, ends_run: may.ends_run || !may.returns, ..may },
            false => may,
        }
    }

    /// Returns the callee of a call. If the call imports a function that a traced file exports, that function is the callee.
    pub(super) fn resolve_callee(&self, call: &CallSite) -> CodeCallee {
        match &call.callee {
            CodeCallee::Import(name) => {
                self.image.exports.get(strip_symbol_version(name)).map_or_else(|| call.callee.clone(), |entry| CodeCallee::Function(*entry))
            }
            other => other.clone(),
        }
    }

    /// Returns the callees of a call that are traced, and the assumed behaviour of those that are not.
    pub(super) fn model_call(&self, call: &CallSite) -> ProgramCall {
        let known = |entry: &u64| self.ids.get(entry).copied();
        let (callees, other) = match &self.resolve_callee(call) {
            CodeCallee::Function(entry) => match known(entry) {
                Some(id) => (vec![id], None),
                None => (Vec::new(), Some(self.behaviour_of_opaque(*entry))),
            },
            CodeCallee::Import(name) => (Vec::new(), Some(self.behaviour_of_import(name, call.address))),
            // Only the observed targets of an indirect tail call are modelled. If callbacks from other files were possible too, the trace
            // could not distinguish them from direct calls of traced functions.
            CodeCallee::Indirect if call.kind != CallKind::Call && self.observed.is_some() => {
                self.observed_callees(call, self.observed.expect("it is there"))
            }
            CodeCallee::Indirect => match assumed_behaviour("", self.assumption) {
                // Untraced callees may call back the same functions that the call may enter directly, and the trace does not distinguish
                // the two.
                other if other.calls_back => (Vec::new(), Some(Self::restrict_unwinding(other, self.unwinds))),
                other => (vec![self.dispatcher], Some(other)),
            },
            CodeCallee::OneOf(entries) => {
                let callees: Vec<WitnessFunctionId> = entries.iter().filter_map(known).collect();
                let other = (callees.len() < entries.len()).then_some(CALLS_BACK_AND_RETURNS);
                (callees, other)
            }
        };
        let never = call.returns == CallReturns::Never;
        let tail = call.kind != CallKind::Call;
        // Callbacks of a tail-called function are modelled after the return of this function. If the callee may return, it is assumed not
        // to end the run.
        let by_jump = |o: Opaque| Opaque { calls_back: o.calls_back && !o.returns, ends_run: o.ends_run && !o.returns, ..o };
        let other = other.map(|o| if tail { by_jump(o) } else { o });
        let ended = self.observed.is_some_and(|o| o.ended_before.is_some() && o.ended_before == call.return_address);
        // If the run ended in this call, functions that were registered to run at exit may have been called back from it.
        let other = other.map(|o| Opaque { ends_run: o.ends_run || ended, calls_back: o.calls_back || ended, ..o });
        let other = other.map(|o| if never && o.returns { Opaque { returns: false, ends_run: !o.unwinds, ..o } } else { o });
        ProgramCall { callees, opaque: other, keeps_frame: !tail }
    }

    fn behaviour_of_opaque(&self, entry: u64) -> Opaque {
        let function = self.graphs.function_entered_at(entry).map(|f| self.graphs.function(f));
        match function {
            Some(f) => Opaque { returns: f.returns, ends_run: !f.returns, unwinds: false, calls_back: !f.calls.is_empty() },
            None => CALLS_BACK_AND_RETURNS,
        }
    }
}
