//! What a build is to observe: one typed, versioned value that the command line, the drivers, the plugin, maps and
//! readers share.
//!
//! An [`Experiment`] answers four questions: *which paths* ([`Paths`]), *what of them* ([`Observation`]), *when*
//! ([`Timing`]) and *where to* ([`OutputDestination`], [`Threads`]). How probes are placed is beside these ([`ProbePlacement`]): it
//! changes what counting costs and where long paths are cut, and nothing of what a count means.
//!
//! People say [`Settings`]: a flat list of what they ask for, each with one spelling ([`spelling`]). The one constructor
//! is [`Experiment::new`]; it refuses what makes no sense by the one list in [`exclusions`]. An experiment names the
//! files of earlier profiles by [`Identity`], never by a path: they lie in an [`InputFolder`] under that name. It
//! travels to the plugin in a [`PluginRequest`], a file of such a folder, and to readers in the unit's map.
//!
//! Invariant: a value that came from bytes went through the same constructor, so no combination on the list exists.
//! Wire format: that of the [`Settings`] which make it, in the order of their fields. A change is a new
//! [`crate::MAP_VERSION`].

mod axes;
pub mod exclusions;
mod inputs;
mod request;
mod settings;
pub mod spelling;

pub use axes::*;
pub use exclusions::Excluded;
pub use inputs::{InputError, InputFolder, InputKind};
pub use request::{EXPERIMENT_VARIABLE, PluginRequest, RequestError, UnitAction};
pub use settings::{DEFAULT_MAX_PATHS, Keep, Observe, Settings, SettingsFile, Timing};
pub use spelling::{Spelling, SpellingError};

use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a build is to observe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Experiment {
    paths: Paths,
    observation: Observation,
    when: Timing,
    destination: OutputDestination,
    threads: Threads,
    placement: ProbePlacement,
}

/// Why settings are no experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// The settings contradict each other, or lack something.
    #[error(transparent)]
    Excluded(#[from] Excluded),
    /// A file has not been read yet.
    #[error("{key} names the file {file}, which has no identity yet: resolve the settings first \
        (`Settings::resolve`)", file = file.display())]
    Unresolved {
        /// The setting's key.
        key: &'static str,
        /// The file.
        file: PathBuf,
    },
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
        let observation = match (settings.events, settings.observe.unwrap_or_default()) {
            (Some(event), _) => Observation::Sums(event),
            (None, Observe::Counts) => Observation::Counts,
            (None, Observe::EdgeProfile) => Observation::EdgeProfile,
            (None, Observe::Coverage) => Observation::Coverage { mcdc: false },
            (None, Observe::Mcdc) => Observation::Coverage { mcdc: true },
            (None, Observe::Stream) => Observation::Stream,
            (None, Observe::Addresses) => Observation::Addresses { merge_tails: settings.tail_merging.unwrap_or(true) },
            (None, Observe::Trace) => Observation::Trace,
        };
        let destination = match settings.table_slots.unwrap_or(0) {
            0 => OutputDestination::Array,
            slots => OutputDestination::Table { slots, array_paths: settings.array_paths.unwrap_or(DEFAULT_MAX_PATHS) },
        };
        Ok(Experiment {
            paths: paths(settings)?,
            observation,
            when: settings.when.unwrap_or_default(),
            destination,
            threads: settings.threads.unwrap_or_default(),
            placement: ProbePlacement {
                max_paths: settings.max_paths.unwrap_or(DEFAULT_MAX_PATHS),
                chords: settings.chords.unwrap_or(true),
                trip_counts: settings.trip_counts.unwrap_or_default(),
                early: settings.early.unwrap_or(true),
                dominant_iteration: settings.dominant_iteration.unwrap_or_default(),
                reach: settings.reach.unwrap_or_default(),
                weights: stored("weights", &settings.weights)?,
            },
        })
    }

    /// The experiment of paths that were followed in an execution from outside: nothing was built for it.
    pub fn from_trace() -> Experiment {
        let settings = Settings { observe: Some(Observe::Trace), ..Settings::default() };
        Experiment::new(&settings).expect("a trace contradicts no default")
    }

    /// Which paths.
    pub fn paths(&self) -> Paths {
        self.paths
    }

    /// What of them.
    pub fn observation(&self) -> Observation {
        self.observation
    }

    /// Where to.
    pub fn destination(&self) -> OutputDestination {
        self.destination
    }

    /// Who writes there.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// Where paths are cut and probes go.
    pub fn placement(&self) -> &ProbePlacement {
        &self.placement
    }

    /// The numbering of paths.
    pub fn scheme(&self) -> ExperimentScheme {
        match self.paths {
            Paths::Interesting { numbering: Some(numbering), .. } => ExperimentScheme::Interesting(numbering),
            Paths::Unknown { by: Recognition::Preferential, .. } | Paths::Segments { numbering: SegmentNumbering::Preferential, .. } => {
                ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Ppp)
            }
            Paths::Segments { numbering: SegmentNumbering::Minimal, .. } => {
                ExperimentScheme::Interesting(trodden_flow::NumberingScheme::KnownTable)
            }
            Paths::Segments { numbering: SegmentNumbering::PreciseSelective, .. } => {
                ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Pspp)
            }
            _ => ExperimentScheme::BallLarus,
        }
    }

    /// The file of the paths that are not counted, of a build that counts all others.
    pub fn known(&self) -> Option<Identity> {
        match self.paths {
            Paths::Unknown { known, .. } | Paths::Watched { others: known } => Some(known),
            Paths::Part(part) => part.known,
            Paths::All | Paths::Interesting { .. } | Paths::Segments { .. } => None,
        }
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
        matches!(self.paths, Paths::Watched { .. })
    }

    /// The file of the segments that are counted in the place of paths, if any are.
    pub fn segments(&self) -> Option<Identity> {
        match self.paths {
            Paths::Segments { set, .. } => Some(set),
            _ => None,
        }
    }

    /// Whether the unit counts only while its image's switch is on.
    pub fn is_sampled(&self) -> bool {
        self.when == Timing::Bursts
    }

    /// What is summed up for each path besides its count, if anything.
    pub fn events(&self) -> Option<EventSource> {
        match self.observation {
            Observation::Sums(event) => Some(event),
            _ => None,
        }
    }

    /// Whether nothing is counted: blocks are marked, so that their addresses are known.
    pub fn marks_addresses(&self) -> bool {
        matches!(self.observation, Observation::Addresses { .. })
    }

    /// Whether it is noted where LLVM's edge counters would be.
    pub fn has_edge_profile(&self) -> bool {
        self.observation == Observation::EdgeProfile
    }

    /// Whether it is noted where the counters of source-based coverage would be.
    pub fn has_coverage(&self) -> bool {
        matches!(self.observation, Observation::Coverage { .. })
    }

    /// The part of one of several copies of a program, if this is a copy.
    pub fn part(&self) -> Option<CopyPart> {
        match self.paths {
            Paths::Part(part) => Some(part),
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

/// Which paths settings ask for, after the check that these make sense.
fn paths(settings: &Settings) -> Result<Paths, ExperimentError> {
    let known = stored("known", &settings.known)?;
    if let Some((file, origin)) = stored("part", &settings.part)?.zip(settings.origin) {
        return Ok(Paths::Part(CopyPart { file, origin, known, count_hits: settings.count_hits.unwrap_or(false) }));
    }
    if let Some(set) = stored("interesting", &settings.interesting)? {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::Interesting(numbering)) => Some(numbering),
            Some(_) => None,
            // A stream says which path it was by the number of all builds.
            None if settings.observe == Some(Observe::Stream) => None,
            None => Some(trodden_flow::NumberingScheme::KnownTable),
        };
        return Ok(Paths::Interesting { set, numbering, time_limit_s: settings.time_limit_s.unwrap_or(settings::DEFAULT_TIME_LIMIT_S) });
    }
    if let Some(set) = stored("segments", &settings.segments)? {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::BallLarus) => SegmentNumbering::BallLarus,
            Some(ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Pspp)) => SegmentNumbering::PreciseSelective,
            Some(ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Ppp)) => SegmentNumbering::Preferential,
            _ => SegmentNumbering::Minimal,
        };
        return Ok(Paths::Segments { set, numbering });
    }
    if let Some(others) = stored("watched", &settings.watched)? {
        return Ok(Paths::Watched { others });
    }
    let by = match settings.scheme {
        Some(ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Ppp)) => Recognition::Preferential,
        _ => Recognition::Region,
    };
    Ok(known.map_or(Paths::All, |known| Paths::Unknown { known, by }))
}

/// The identity of a file that settings name.
fn stored(key: &'static str, input: &Option<SettingsFile>) -> Result<Option<Identity>, ExperimentError> {
    match input {
        None => Ok(None),
        Some(SettingsFile::Stored(identity)) => Ok(Some(*identity)),
        Some(SettingsFile::File(file)) => Err(ExperimentError::Unresolved { key, file: file.into() }),
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
        let stored = |identity: Option<Identity>| identity.map(SettingsFile::Stored);
        let mut settings = Settings {
            scheme: Some(experiment.scheme()),
            max_paths: Some(placement.max_paths),
            chords: Some(placement.chords),
            trip_counts: Some(placement.trip_counts),
            early: Some(placement.early),
            dominant_iteration: Some(placement.dominant_iteration).filter(|d| *d != DominantIteration::default()),
            reach: Some(placement.reach),
            weights: stored(placement.weights),
            threads: Some(experiment.threads).filter(|t| *t != Threads::default()),
            events: experiment.events(),
            when: Some(experiment.when).filter(|when| *when != Timing::default()),
            ..Settings::default()
        };
        if let OutputDestination::Table { slots, array_paths } = experiment.destination {
            (settings.table_slots, settings.array_paths) = (Some(slots), Some(array_paths));
        }
        match experiment.observation {
            Observation::Counts | Observation::Sums(_) => {}
            Observation::EdgeProfile => settings.observe = Some(Observe::EdgeProfile),
            Observation::Coverage { mcdc: false } => settings.observe = Some(Observe::Coverage),
            Observation::Coverage { mcdc: true } => settings.observe = Some(Observe::Mcdc),
            Observation::Stream => settings.observe = Some(Observe::Stream),
            Observation::Trace => settings.observe = Some(Observe::Trace),
            Observation::Addresses { merge_tails } => {
                settings.observe = Some(Observe::Addresses);
                settings.tail_merging = Some(merge_tails).filter(|merge| !merge);
            }
        }
        match experiment.paths {
            Paths::All => {}
            Paths::Interesting { set, numbering, time_limit_s } => {
                settings.interesting = stored(Some(set));
                settings.time_limit_s = (numbering == Some(trodden_flow::NumberingScheme::PppOptimal)).then_some(time_limit_s);
            }
            Paths::Unknown { known, .. } => settings.known = stored(Some(known)),
            Paths::Watched { others } => settings.watched = stored(Some(others)),
            Paths::Segments { set, .. } => settings.segments = stored(Some(set)),
            Paths::Part(part) => {
                (settings.part, settings.origin, settings.known) = (stored(Some(part.file)), Some(part.origin), stored(part.known));
                settings.count_hits = part.count_hits.then_some(true);
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests;
