//! What calls may enter, and what the functions there may do.

use super::Maker;
use super::ObservedCalls;
use crate::imports::{Assumption, opaque, plain};
use trodden_binary::graph::{CallKind, CallSite, CodeCallee, Returns};
use trodden_witness::{Opaque, ProgramCall, WitnessFunctionId};

const ANYTHING: Opaque = Opaque { returns: true, ends_run: false, unwinds: false, calls_back: true };

impl Maker<'_> {
    /// Whom an indirect tail call was seen to call.
    fn seen(&self, call: &CallSite, observed: &ObservedCalls) -> (Vec<WitnessFunctionId>, Option<Opaque>) {
        let targets = || observed.targets.range((call.address, 0)..=(call.address, u64::MAX)).map(|(_, target)| *target);
        let callees: Vec<WitnessFunctionId> = targets().filter_map(|t| self.ids.get(&t).copied()).collect();
        let others = || targets().filter(|t| !self.ids.contains_key(t));
        let other = match others().next() {
            Some(target) if self.graphs.function_entered_at(target).is_some() => Some(self.inside_opaque(target)),
            Some(_) => Some(Opaque::RETURNS),
            None => callees.is_empty().then_some(Opaque::RETURNS),
        };
        (callees, other)
    }

    /// Whether unwinding may lead to a place: it does not where it never led in a run like those to come.
    pub(super) fn led_to(&self, place: u64) -> bool {
        self.observed.is_none_or(|o| o.landed.contains(&place))
    }

    /// What another file's function may do, called at an address; who throws and was never called there ends the run.
    fn import(&self, name: &str, address: u64) -> Opaque {
        let may = self.image.import(name, self.assumption);
        let never = opaque(plain(name), Assumption::Usual).unwinds && self.observed.is_some_and(|o| !o.throws.contains(&address));
        Self::unwinding(may, self.unwinds && !never)
    }

    /// Where nothing is thrown, who would throw ends the run instead.
    fn unwinding(may: Opaque, unwinds: bool) -> Opaque {
        match may.unwinds && !unwinds {
            true => Opaque { unwinds: false, ends_run: may.ends_run || !may.returns, ..may },
            false => may,
        }
    }

    /// What a call names: a function of the image that other files could have by its name, too, is the image's.
    pub(super) fn target(&self, call: &CallSite) -> CodeCallee {
        match &call.callee {
            CodeCallee::Import(name) => {
                self.image.exports.get(plain(name)).map_or_else(|| call.callee.clone(), |entry| CodeCallee::Function(*entry))
            }
            other => other.clone(),
        }
    }

    /// What a call may enter.
    pub(super) fn callee(&self, call: &CallSite) -> ProgramCall {
        let known = |entry: &u64| self.ids.get(entry).copied();
        let (callees, other) = match &self.target(call) {
            CodeCallee::Function(entry) => match known(entry) {
                Some(id) => (vec![id], None),
                None => (Vec::new(), Some(self.inside_opaque(*entry))),
            },
            CodeCallee::Import(name) => (Vec::new(), Some(self.import(name, call.address))),
            // A function of another file that calls back could not be distinguished from a direct call of ours.
            CodeCallee::Indirect if call.kind != CallKind::Call && self.observed.is_some() => {
                self.seen(call, self.observed.expect("it is there"))
            }
            CodeCallee::Indirect => match opaque("", self.assumption) {
                // What is called back includes whatever could be called directly, and looks the same.
                other if other.calls_back => (Vec::new(), Some(Self::unwinding(other, self.unwinds))),
                other => (vec![self.dispatcher], Some(other)),
            },
            CodeCallee::OneOf(entries) => {
                let callees: Vec<WitnessFunctionId> = entries.iter().filter_map(known).collect();
                let other = (callees.len() < entries.len()).then_some(ANYTHING);
                (callees, other)
            }
        };
        let never = call.returns == Returns::Never;
        let tail = call.kind != CallKind::Call;
        // What ends the program for sure is not called by a jump; what is called back before a return is put behind the function's.
        let by_jump = |o: Opaque| Opaque { calls_back: o.calls_back && !o.returns, ends_run: o.ends_run && !o.returns, ..o };
        let other = other.map(|o| if tail { by_jump(o) } else { o });
        let ended = self.observed.is_some_and(|o| o.ended_before.is_some() && o.ended_before == call.return_address);
        // What is registered to run at the end is called back.
        let other = other.map(|o| Opaque { ends_run: o.ends_run || ended, calls_back: o.calls_back || ended, ..o });
        let other = other.map(|o| if never && o.returns { Opaque { returns: false, ends_run: !o.unwinds, ..o } } else { o });
        ProgramCall { callees, opaque: other, keeps_frame: !tail }
    }

    /// What a function that is not traced inside can do.
    fn inside_opaque(&self, entry: u64) -> Opaque {
        let function = self.graphs.function_entered_at(entry).map(|f| self.graphs.function(f));
        match function {
            Some(f) => Opaque { returns: f.returns, ends_run: !f.returns, unwinds: false, calls_back: !f.calls.is_empty() },
            None => ANYTHING,
        }
    }
}
