//! Describes what a build observes. The command line, compiler drivers, plugin, maps and readers all use this description.
//!
//! An [`Experiment`] has an [`Observation`], a storage ([`OutputDestination`]) and owner ([`ThreadCounters`]) of counts, and a
//! [`ProbePlacement`]. The placement affects the cost of counting and where long paths are divided, but not what a count means.
//!
//! Users write [`Settings`], a flat list ([`spelling`]). [`Experiment::new`], which is also used when maps are read, rejects settings that
//! cannot be combined ([`exclusions`]). An experiment is stored as its [`Settings`]; a change of their format requires a new
//! [`crate::MAP_VERSION`]. Files are named by [`Identity`] in an [`InputFolder`], which also contains the [`PluginRequest`].

mod axes;
mod error;
pub mod exclusions;
mod inputs;
mod request;
mod rule;
mod settings;
pub mod spelling;

pub use axes::{DominantIteration, ExperimentScheme, OutputDestination, ProbePlacement, Reach, ThreadCounters, TripCounts};
pub use error::ExperimentError;
pub(crate) use error::stored_input_identity;
pub use inputs::{InputError, InputFolder, InputPurpose};
pub use request::{EXPERIMENT_VARIABLE, PluginRequest, RequestError, UnitAction};
pub use rule::{FeatureRelation, FeatureRule, RequestedFeature, SettingsConflict};
pub use settings::{DEFAULT_MAX_PATHS, Keep, ObservationTiming, Settings, SettingsFile};
pub use spelling::{Spelling, SpellingError};

pub use crate::observe::Observe;
pub(crate) use settings::DEFAULT_TIME_LIMIT_S;

use crate::observe::{self, CopyPart, InterestingPaths, Observation};
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};

/// What a build observes, and how it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Experiment {
    observation: Observation,
    destination: OutputDestination,
    threads: ThreadCounters,
    placement: ProbePlacement,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment::new(&Settings::default()).expect("default settings do not conflict")
    }
}

impl Experiment {
    /// Creates the experiment that settings describe. Missing settings have their default values. Fails if the settings cannot be combined,
    /// or if they name a file by its path instead of its identity ([`Settings::resolve`]).
    pub fn new(settings: &Settings) -> Result<Experiment, ExperimentError> {
        exclusions::check(settings)?;
        let destination = match settings.table_slots.unwrap_or(0) {
            0 => OutputDestination::Array,
            slots => OutputDestination::Table { slots, array_paths: settings.array_paths.unwrap_or(DEFAULT_MAX_PATHS) },
        };
        Ok(Experiment {
            observation: observe::observation_of(settings)?,
            destination,
            threads: settings.threads.unwrap_or_default(),
            placement: ProbePlacement {
                max_paths: settings.max_paths.unwrap_or(DEFAULT_MAX_PATHS),
                chords: settings.chords.unwrap_or(true),
                trip_counts: settings.trip_counts.unwrap_or_default(),
                early: settings.early.unwrap_or(true),
                dominant_iteration: settings.dominant_iteration.unwrap_or_default(),
                reach: settings.reach.unwrap_or_default(),
                weights: stored_input_identity("weights", &settings.weights)?,
            },
        })
    }

    /// Returns the experiment that describes a trace of a program that was not built for profiling.
    pub fn from_trace() -> Experiment {
        let settings = Settings { observe: Some(Observe::Trace), ..Settings::default() };
        Experiment::new(&settings).expect("tracing does not conflict with the defaults")
    }

    /// Returns what the build observes.
    pub fn observation(&self) -> Observation {
        self.observation
    }

    /// Returns where counts are stored.
    pub fn destination(&self) -> OutputDestination {
        self.destination
    }

    /// Returns which counters a thread increments.
    pub fn threads(&self) -> ThreadCounters {
        self.threads
    }

    /// Returns where paths are divided, and how probes are placed.
    pub fn placement(&self) -> &ProbePlacement {
        &self.placement
    }

    /// Returns how paths are numbered.
    pub fn scheme(&self) -> ExperimentScheme {
        self.observation.observation_properties().scheme()
    }

    /// Returns the file of paths that are not counted, if all other paths are counted.
    pub fn known(&self) -> Option<Identity> {
        self.observation.observation_properties().uncounted_paths_file()
    }

    /// Returns the file of paths that tests executed, if all other paths are counted. `None` also for builds that count watched paths.
    pub fn tested_paths(&self) -> Option<Identity> {
        self.known().filter(|_| !self.is_watched())
    }

    /// Returns whether all paths are counted except those listed in a file. Such a unit also records when each path was first executed, in
    /// one more word per counter.
    pub fn is_residual(&self) -> bool {
        self.known().is_some()
    }

    /// Returns whether only watched paths are counted, which an expression selects.
    pub fn is_watched(&self) -> bool {
        matches!(self.observation, Observation::WatchedPaths(_))
    }

    /// Returns the file of segments (paths across calls) that are counted instead of paths; `None` if paths are counted.
    pub fn segments(&self) -> Option<Identity> {
        match self.observation {
            Observation::SegmentCounts(segments) => Some(segments.set),
            _ => None,
        }
    }

    /// Returns the file of paths over iterations (sequences of consecutive paths) that are counted instead of paths; `None` if paths are
    /// counted.
    pub fn iterations(&self) -> Option<Identity> {
        match self.observation {
            Observation::IterationCounts(iterations) => Some(iterations.set),
            _ => None,
        }
    }

    /// Returns the set of interesting paths, if the build observes only these paths, or only the functions that have such paths.
    pub fn interesting(&self) -> Option<InterestingPaths> {
        self.observation.observation_properties().interesting_paths()
    }

    /// Returns whether the program counts only in bursts, while its sampling switch is on.
    pub fn is_sampled(&self) -> bool {
        matches!(self.observation, Observation::CountsInBursts(_))
    }

    /// Returns the event that is summed for each path in addition to counting the path; `None` if no event is summed.
    pub fn events(&self) -> Option<EventSource> {
        match self.observation {
            Observation::EventSums(sums) => Some(sums.event),
            _ => None,
        }
    }

    /// Returns whether the build records the addresses of blocks instead of counting paths.
    pub fn marks_block_addresses(&self) -> bool {
        matches!(self.observation, Observation::BlockAddresses(_))
    }

    /// Returns whether the map has placeholders for LLVM's edge counters.
    pub fn has_edge_profile(&self) -> bool {
        matches!(self.observation, Observation::EdgeProfileCounts(_))
    }

    /// Returns whether the map has placeholders for the counters of LLVM's source-based coverage.
    pub fn has_coverage(&self) -> bool {
        matches!(self.observation, Observation::CoverageCounts(_))
    }

    /// Returns the part of the paths that is counted, if this build is one of several instrumented copies of a program.
    pub fn part(&self) -> Option<CopyPart> {
        match self.observation {
            Observation::CopyPart(part) => Some(part),
            _ => None,
        }
    }

    /// Returns the input files of the build, each with its purpose.
    pub fn inputs(&self) -> Vec<(InputPurpose, Identity)> {
        let mut settings = Settings::from(self);
        let stored = |kind: InputPurpose| Some((kind, kind.setting_mut(&mut settings).as_ref()?.stored()?));
        InputPurpose::ALL.into_iter().filter_map(stored).collect()
    }
}

impl TryFrom<Settings> for Experiment {
    type Error = ExperimentError;

    fn try_from(settings: Settings) -> Result<Experiment, ExperimentError> {
        Experiment::new(&settings)
    }
}

impl From<Experiment> for Settings {
    fn from(experiment: Experiment) -> Settings {
        Settings::from(&experiment)
    }
}

/// Converts an experiment to settings: those that differ from their defaults, and some that are always included.
impl From<&Experiment> for Settings {
    fn from(experiment: &Experiment) -> Settings {
        let placement = &experiment.placement;
        let mut settings = Settings {
            scheme: Some(experiment.scheme()),
            max_paths: Some(placement.max_paths),
            chords: Some(placement.chords),
            trip_counts: Some(placement.trip_counts),
            early: Some(placement.early),
            dominant_iteration: Some(placement.dominant_iteration).filter(|d| *d != DominantIteration::default()),
            reach: Some(placement.reach),
            weights: placement.weights.map(SettingsFile::Stored),
            threads: Some(experiment.threads).filter(|t| *t != ThreadCounters::default()),
            ..Settings::default()
        };
        if let OutputDestination::Table { slots, array_paths } = experiment.destination {
            (settings.table_slots, settings.array_paths) = (Some(slots), Some(array_paths));
        }
        experiment.observation.observation_properties().write_to_settings(&mut settings);
        settings
    }
}

#[cfg(test)]
mod tests;
