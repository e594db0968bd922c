//! What a build is to observe: one typed, versioned value that the command line, the drivers, the plugin, maps and
//! readers share.
//!
//! An [`Experiment`] says what is observed ([`Observation`]: one kind, with what it takes), where counts are kept
//! ([`OutputDestination`]) and whose they are ([`Threads`]). How probes are placed is beside these ([`ProbePlacement`]): it changes what
//! counting costs and where long paths are cut, and nothing of what a count means.
//!
//! People say [`Settings`]: a flat list of what they ask for, each with one spelling ([`spelling`]). The one constructor
//! is [`Experiment::new`]; it refuses what makes no sense ([`exclusions`]). An experiment names the
//! files of earlier profiles by [`Identity`], never by a path: they lie in an [`InputFolder`] under that name. It
//! travels to the plugin in a [`PluginRequest`], a file of such a folder, and to readers in the unit's map.
//!
//! Invariant: a value that came from bytes went through the same constructor, so none that is refused exists.
//! Wire format: that of the [`Settings`] which make it, in the order of their fields. A change is a new
//! [`crate::MAP_VERSION`].

mod axes;
mod error;
pub mod exclusions;
mod inputs;
mod request;
mod rule;
mod settings;
pub mod spelling;

pub use axes::{DominantIteration, ExperimentScheme, OutputDestination, ProbePlacement, Reach, Threads, TripCounts};
pub use error::ExperimentError;
pub(crate) use error::identity;
pub use inputs::{InputError, InputFolder, InputKind};
pub use request::{EXPERIMENT_VARIABLE, PluginRequest, RequestError, UnitAction};
pub use rule::{Choice, Excluded, Relation, Rule};
pub use settings::{DEFAULT_MAX_PATHS, Keep, Settings, SettingsFile, Timing};
pub use spelling::{Spelling, SpellingError};

pub use crate::observe::Observe;
pub(crate) use settings::DEFAULT_TIME_LIMIT_S;

use crate::observe::{self, CopyPart, InterestingPaths, Observation};
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};

/// What a build is to observe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Experiment {
    observation: Observation,
    destination: OutputDestination,
    threads: Threads,
    placement: ProbePlacement,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment::new(&Settings::default()).expect("no setting contradicts another where none is made")
    }
}

impl Experiment {
    /// The experiment that settings ask for; what they do not say is as by default.
    ///
    /// # Errors
    /// The settings make no sense together, or name a file that has not been [resolved](Settings::resolve).
    pub fn new(settings: &Settings) -> Result<Experiment, ExperimentError> {
        exclusions::check(settings)?;
        let destination = match settings.table_slots.unwrap_or(0) {
            0 => OutputDestination::Array,
            slots => OutputDestination::Table { slots, array_paths: settings.array_paths.unwrap_or(DEFAULT_MAX_PATHS) },
        };
        Ok(Experiment {
            observation: observe::of_settings(settings)?,
            destination,
            threads: settings.threads.unwrap_or_default(),
            placement: ProbePlacement {
                max_paths: settings.max_paths.unwrap_or(DEFAULT_MAX_PATHS),
                chords: settings.chords.unwrap_or(true),
                trip_counts: settings.trip_counts.unwrap_or_default(),
                early: settings.early.unwrap_or(true),
                dominant_iteration: settings.dominant_iteration.unwrap_or_default(),
                reach: settings.reach.unwrap_or_default(),
                weights: identity("weights", &settings.weights)?,
            },
        })
    }

    /// The experiment of paths that were followed in an execution from outside: nothing was built for it.
    pub fn from_trace() -> Experiment {
        let settings = Settings { observe: Some(Observe::Trace), ..Settings::default() };
        Experiment::new(&settings).expect("a trace contradicts no default")
    }

    /// What is observed.
    pub fn observation(&self) -> Observation {
        self.observation
    }

    /// Where counts are kept.
    pub fn destination(&self) -> OutputDestination {
        self.destination
    }

    /// Whose counters a thread increments.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// Where paths are cut and probes go.
    pub fn placement(&self) -> &ProbePlacement {
        &self.placement
    }

    /// The numbering of paths.
    pub fn scheme(&self) -> ExperimentScheme {
        self.observation.observed().scheme()
    }

    /// The file of the paths that are not counted, of a build that counts all others.
    pub fn known(&self) -> Option<Identity> {
        self.observation.observed().uncounted()
    }

    /// The file of the paths that tests took, as far as the build knows them; others, of what is watched for, are no such.
    pub fn known_set(&self) -> Option<Identity> {
        self.known().filter(|_| !self.is_watched())
    }

    /// Whether only paths that are not known are counted. Such a unit notes when each was counted first: as many words
    /// of memory as counters lie behind these.
    pub fn is_residual(&self) -> bool {
        self.known().is_some()
    }

    /// Whether only paths that are watched for are counted.
    pub fn is_watched(&self) -> bool {
        matches!(self.observation, Observation::WatchedPaths(_))
    }

    /// The file of the segments that are counted in the place of paths, if any are.
    pub fn segments(&self) -> Option<Identity> {
        match self.observation {
            Observation::SegmentCounts(segments) => Some(segments.set),
            _ => None,
        }
    }

    /// The paths that a set names, if only these are observed, or all paths of their functions.
    pub fn interesting(&self) -> Option<InterestingPaths> {
        self.observation.observed().interesting()
    }

    /// Whether the unit counts only while its image's switch is on.
    pub fn is_sampled(&self) -> bool {
        matches!(self.observation, Observation::CountsInBursts(_))
    }

    /// What is summed up for each path besides its count, if anything.
    pub fn events(&self) -> Option<EventSource> {
        match self.observation {
            Observation::EventSums(sums) => Some(sums.event),
            _ => None,
        }
    }

    /// Whether nothing is counted: blocks are marked, so that their addresses are known.
    pub fn marks_addresses(&self) -> bool {
        matches!(self.observation, Observation::BlockAddresses(_))
    }

    /// Whether it is noted where LLVM's edge counters would be.
    pub fn has_edge_profile(&self) -> bool {
        matches!(self.observation, Observation::EdgeProfileCounts(_))
    }

    /// Whether it is noted where the counters of source-based coverage would be.
    pub fn has_coverage(&self) -> bool {
        matches!(self.observation, Observation::CoverageCounts(_))
    }

    /// The part of one of several copies of a program, if this is a copy.
    pub fn part(&self) -> Option<CopyPart> {
        match self.observation {
            Observation::CopyPart(part) => Some(part),
            _ => None,
        }
    }

    /// The files of earlier profiles that a build by this experiment reads, each with its key.
    pub fn inputs(&self) -> Vec<(InputKind, Identity)> {
        let mut settings = Settings::from(self);
        let stored = |kind: InputKind| Some((kind, kind.of(&mut settings).as_ref()?.stored()?));
        InputKind::ALL.into_iter().filter_map(stored).collect()
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

/// As [`Experiment::new`] takes them: what is not as by default, and what every map says.
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
            threads: Some(experiment.threads).filter(|t| *t != Threads::default()),
            ..Settings::default()
        };
        if let OutputDestination::Table { slots, array_paths } = experiment.destination {
            (settings.table_slots, settings.array_paths) = (Some(slots), Some(array_paths));
        }
        experiment.observation.observed().write(&mut settings);
        settings
    }
}

#[cfg(test)]
mod tests;
