//! Residual builds, which count all paths except known ones, such as the paths that the program's tests execute.

use super::{CounterWords, FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{ExperimentScheme, Settings, SettingsFile, stored_input_identity};
use trodden_flow::NumberingScheme;

/// Counts of all paths except the known paths in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownPaths {
    /// File of the known paths.
    pub known: Identity,
    /// How the program recognises known paths.
    pub recognition: KnownPathRecognition,
}

/// How a residual build recognises known paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KnownPathRecognition {
    /// By the executed code: known paths run in their own duplicate of the code, and control leaves this duplicate at each edge that is not
    /// on a known path.
    #[default]
    Region,
    /// By the number at the end of the path, in a preferential numbering as published. The number is checked against the Ball-Larus number.
    Preferential,
    /// By the number at the end of the path, in a precise selective numbering. A table contains the numbers of known paths.
    Selective,
}

impl KnownPathRecognition {
    /// Returns the numbering by which known paths are recognised; `None` if they are not recognised by numbers.
    pub fn numbering(self) -> Option<NumberingScheme> {
        match self {
            KnownPathRecognition::Region => None,
            KnownPathRecognition::Preferential => Some(NumberingScheme::Ppp),
            KnownPathRecognition::Selective => Some(NumberingScheme::Pspp),
        }
    }
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--residual (known=FILE)",
    observes: "counts of unknown paths only",
    conflict_remedy: None,
    is_requested: |settings| settings.known.is_some(),
    read: |settings| {
        let recognition = match settings.scheme {
            Some(ExperimentScheme::Interesting(NumberingScheme::Ppp)) => KnownPathRecognition::Preferential,
            Some(ExperimentScheme::Interesting(NumberingScheme::Pspp)) => KnownPathRecognition::Selective,
            _ => KnownPathRecognition::Region,
        };
        Ok(stored_input_identity("known", &settings.known)?.map(|known| Observation::UnknownPaths(UnknownPaths { known, recognition })))
    },
    restricted_by: &[],
    numberings: &[NumberingScheme::Ppp, NumberingScheme::Pspp],
    other_numberings: FeatureAdmission::Rejected {
        reason: "--residual already selects which paths are counted",
        remedy: "omit one of the two, or use --scheme ppp or pspp",
    },
    tables: FeatureAdmission::Rejected { reason: "each unknown path has its own counter", remedy: "omit one of the two" },
    shared_counters: FeatureAdmission::Rejected {
        reason: "the first thread that counts a path also records the time",
        remedy: "omit --threads atomic",
    },
    rules: &[],
};

impl ObservationProperties for UnknownPaths {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.known = Some(SettingsFile::Stored(self.known));
    }

    fn scheme(&self) -> ExperimentScheme {
        self.recognition.numbering().map_or(ExperimentScheme::BallLarus, ExperimentScheme::Interesting)
    }

    fn counter_words(&self) -> CounterWords {
        CounterWords::CountAndTime
    }

    fn uncounted_paths_file(&self) -> Option<Identity> {
        Some(self.known)
    }
}
