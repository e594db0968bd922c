//! Possible callees of calls, and the possible behaviour of opaque callees.

use super::ModelBuilder;
use super::ObservedCalls;
use crate::imports::{Assumption, opaque, unversioned};
use trodden_binary::graph::{CallKind, CallSite, CodeCallee, Returns};
use trodden_witness::{Opaque, ProgramCall, WitnessFunctionId};

const CALLS_BACK_AND_RETURNS: Opaque = Opaque { returns: true, ends_run: false, unwinds: false, calls_back: true };

impl ModelBuilder<'_> {
    fn observed_callees(&self, call: &CallSite, observed: &ObservedCalls) -> (Vec<WitnessFunctionId>, Option<Opaque>) {
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

    /// Whether unwinding may land at an address. Once a run has been observed, only the addresses where unwinding landed count.
    pub(super) fn may_land_at(&self, place: u64) -> bool {
        self.observed.is_none_or(|o| o.landed.contains(&place))
    }

    /// Returns the assumed behaviour of an imported function called at `address`. A function that throws, but was never observed to throw,
    /// ends the run.
    fn import(&self, name: &str, address: u64) -> Opaque {
        let may = self.image.import(name, self.assumption);
        let never = opaque(unversioned(name), Assumption::Usual).unwinds && self.observed.is_some_and(|o| !o.throws.contains(&address));
        Self::unwinding(may, self.unwinds && !never)
    }

    /// If the program cannot unwind, replaces unwinding with the end of the run.
    fn unwinding(may: Opaque, unwinds: bool) -> Opaque {
        match may.unwinds && !unwinds {
            true => Opaque { unwinds: false, ends_run: may.ends_run || !may.returns, ..may },
            false => may,
        }
    }

    /// The callee of a call. An imported name that a traced file exports refers to that file's function.
    pub(super) fn resolve_callee(&self, call: &CallSite) -> CodeCallee {
        match &call.callee {
            CodeCallee::Import(name) => {
                self.image.exports.get(unversioned(name)).map_or_else(|| call.callee.clone(), |entry| CodeCallee::Function(*entry))
            }
            other => other.clone(),
        }
    }

    /// Returns a call's traced callees, and the assumed behaviour of the opaque ones.
    pub(super) fn model_call(&self, call: &CallSite) -> ProgramCall {
        let known = |entry: &u64| self.ids.get(entry).copied();
        let (callees, other) = match &self.resolve_callee(call) {
            CodeCallee::Function(entry) => match known(entry) {
                Some(id) => (vec![id], None),
                None => (Vec::new(), Some(self.behaviour_of_opaque(*entry))),
            },
            CodeCallee::Import(name) => (Vec::new(), Some(self.import(name, call.address))),
            // A callback from another file could not be distinguished from a direct call of a traced function.
            CodeCallee::Indirect if call.kind != CallKind::Call && self.observed.is_some() => {
                self.observed_callees(call, self.observed.expect("it is there"))
            }
            CodeCallee::Indirect => match opaque("", self.assumption) {
                // The functions that may be called back include all possible direct callees, and the trace does not distinguish the two.
                other if other.calls_back => (Vec::new(), Some(Self::unwinding(other, self.unwinds))),
                other => (vec![self.dispatcher], Some(other)),
            },
            CodeCallee::OneOf(entries) => {
                let callees: Vec<WitnessFunctionId> = entries.iter().filter_map(known).collect();
                let other = (callees.len() < entries.len()).then_some(CALLS_BACK_AND_RETURNS);
                (callees, other)
            }
        };
        let never = call.returns == Returns::Never;
        let tail = call.kind != CallKind::Call;
        // If a tail-called function may return, it is assumed not to end the run, and its callbacks go after this function's return.
        let by_jump = |o: Opaque| Opaque { calls_back: o.calls_back && !o.returns, ends_run: o.ends_run && !o.returns, ..o };
        let other = other.map(|o| if tail { by_jump(o) } else { o });
        let ended = self.observed.is_some_and(|o| o.ended_before.is_some() && o.ended_before == call.return_address);
        // Functions registered to run at exit are called back.
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
