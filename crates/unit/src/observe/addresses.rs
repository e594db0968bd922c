//! Addresses of blocks: nothing is counted, and no code is changed.

use super::{Admission, CounterWords, Kind, Observation, Observe, Observed};
use crate::experiment::{Choice, Relation, Rule, Settings};

/// Where blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockAddresses {
    /// Code generation may merge equal ends of blocks, which then have one address.
    pub merge_tails: bool,
}

pub(super) static KIND: Kind = Kind {
    option: "--addresses (observe=addresses)",
    observes: "addresses of blocks, without any count",
    apart: None,
    is_asked: is_asked_for,
    read: |settings| {
        let merge_tails = settings.tail_merging.unwrap_or(true);
        Ok(Some(Observation::BlockAddresses(BlockAddresses { merge_tails })))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "nothing is counted there", remedy: "leave --scheme out" },
    tables: Admission::Refused { reason: "nothing is counted there", remedy: "leave --table-slots out" },
    shared_counters: Admission::Refused { reason: "nothing is counted there", remedy: "leave --threads out" },
    rules: &[Rule {
        one: Choice { spelling: "--tail-merging", is_made: |settings| settings.tail_merging.is_some() },
        relation: Relation::Needs,
        other: Choice { spelling: "--addresses (observe=addresses)", is_made: is_asked_for },
        reason: "only there does a block need an address of its own",
        remedy: "leave it out, or build with --addresses",
    }],
};

fn is_asked_for(settings: &Settings) -> bool {
    settings.observe == Some(Observe::Addresses)
}

impl Observed for BlockAddresses {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Addresses);
        settings.tail_merging = Some(self.merge_tails).filter(|merge| !merge);
    }

    fn words(&self) -> CounterWords {
        CounterWords::Nothing
    }
}
