//! Builds in which the addresses of blocks are recorded. They count nothing, and their code is not changed.

use super::{CounterWords, FeatureAdmission, Observation, ObservationKind, ObservationProperties, Observe};
use crate::experiment::{FeatureRelation, FeatureRule, RequestedFeature, Settings};

/// The addresses of blocks, without counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockAddresses {
    /// Whether code generation may merge equal ends of blocks, which then share an address.
    pub merge_tails: bool,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--addresses (observe=addresses)",
    observes: "addresses of blocks, without counts",
    conflict_remedy: None,
    is_requested,
    read: |settings| {
        let merge_tails = settings.tail_merging.unwrap_or(true);
        Ok(Some(Observation::BlockAddresses(BlockAddresses { merge_tails })))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --scheme" },
    tables: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --table-slots" },
    shared_counters: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --threads" },
    rules: &[FeatureRule {
        one: RequestedFeature { spelling: "--tail-merging", is_requested: |settings| settings.tail_merging.is_some() },
        relation: FeatureRelation::Needs,
        other: RequestedFeature { spelling: "--addresses (observe=addresses)", is_requested },
        reason: "only such builds need a separate address for each block",
        remedy: "omit --tail-merging, or build with --addresses",
    }],
};

fn is_requested(settings: &Settings) -> bool {
    settings.observe == Some(Observe::Addresses)
}

impl ObservationProperties for BlockAddresses {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Addresses);
        settings.tail_merging = Some(self.merge_tails).filter(|merge| !merge);
    }

    fn counter_words(&self) -> CounterWords {
        CounterWords::Nothing
    }
}
