//! Unknown paths: all are counted but those that are known, as from the tests of a program (a residual build).

use super::{Admission, CounterWords, Kind, Observation, Observed};
use crate::Identity;
use crate::experiment::{ExperimentScheme, Settings, SettingsFile, identity};
use trodden_flow::NumberingScheme;

/// Counts of all paths but the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownPaths {
    /// The file of the known paths.
    pub known: Identity,
    /// How they are recognised.
    pub by: Recognition,
}

/// How a residual build recognises known paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recognition {
    /// By where control is: code of its own for known paths, which an edge outside of them leaves.
    #[default]
    Region,
    /// By the number at the path's end, as published: preferential numbering, checked against the Ball-Larus number.
    Preferential,
}

pub(super) static KIND: Kind = Kind {
    option: "--residual (known=FILE)",
    observes: "counts of unknown paths only",
    apart: None,
    is_asked: |settings| settings.known.is_some(),
    read: |settings| {
        let by = match settings.scheme {
            Some(ExperimentScheme::Interesting(NumberingScheme::Ppp)) => Recognition::Preferential,
            _ => Recognition::Region,
        };
        Ok(identity("known", &settings.known)?.map(|known| Observation::UnknownPaths(UnknownPaths { known, by })))
    },
    restricted_by: &[],
    numberings: &[NumberingScheme::Ppp],
    other_numberings: Admission::Refused {
        reason: "--residual says itself which paths are counted",
        remedy: "leave one out, or take --scheme ppp",
    },
    tables: Admission::Refused { reason: "each unknown path has a word of its own", remedy: "leave one out" },
    shared_counters: Admission::Refused {
        reason: "times are noted by the thread that counts first",
        remedy: "let each thread have counters of its own",
    },
    rules: &[],
};

impl Observed for UnknownPaths {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.known = Some(SettingsFile::Stored(self.known));
    }

    fn scheme(&self) -> ExperimentScheme {
        match self.by {
            Recognition::Region => ExperimentScheme::BallLarus,
            Recognition::Preferential => ExperimentScheme::Interesting(NumberingScheme::Ppp),
        }
    }

    fn words(&self) -> CounterWords {
        CounterWords::CountAndTime
    }

    fn uncounted(&self) -> Option<Identity> {
        Some(self.known)
    }
}
