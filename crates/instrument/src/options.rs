//! How units are to be instrumented: the request that `TRODDEN_EXPERIMENT` names, with the files of earlier profiles
//! that its experiment names by their content, read.
//!
//! The plugin has no command line of its own; clang hands it none. What can be asked for together was checked where the
//! [`Experiment`] was made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use trodden_flow::PlanOptions;
use trodden_flow::dag::Entries;
use trodden_flow::program::{Choices, DominantCounting, TripCounting};
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::experiment::{
    DominantIteration, EXPERIMENT_VARIABLE, InputError, InputFolder, InputKind, Keep, Observation, OutputDestination, Paths, PluginRequest,
    Reach, RequestError, TripCounts, UnitAction,
};
use trodden_unit::{
    EventSource, Experiment, Identity, KnownPaths, NoKnownPaths, NoParts, NoSegments, NoTransformationPlan, TransformationPlan,
};
use trodden_unit::{FunctionParts, NoWeights, SegmentSet, Weights};

pub use trodden_unit::experiment::{ExperimentScheme, Threads};

/// Functions that count in tables may have this many paths and are cut beyond: so that all paths of a program can be numbered together.
const MOST_IN_TABLE: u64 = 1 << 52;
/// All paths of a unit's functions that count in tables.
const MOST_IN_TABLES: u64 = 1 << 56;

/// How units are instrumented.
#[derive(Clone, Debug)]
pub struct PluginOptions {
    /// What the unit's map says of it.
    pub experiment: Experiment,
    /// Cutting and placement.
    pub plan: PlanOptions,
    /// When counts are made.
    pub choices: Choices,
    /// Count at every call that it was reached, not only at those that might not come back by themselves: so that
    /// callers' paths are known too when a signal ends the program.
    pub reach_all: bool,
    /// Count it at calls of functions that the unit defines, too.
    pub reach_calls: bool,
    /// Write a stream of paths and calls instead of counting.
    pub stream: bool,
    /// Where the flight recorder of a stream build writes if no variable says so when it runs: a pattern of files.
    pub recorder: Option<OsString>,
    /// Keep the unit's bitcode, so that other variants can be made of it.
    pub keep_bitcode: bool,
    /// Measured frequencies of edges.
    pub weights: Option<Rc<Weights>>,
    /// Known paths, which the tier `residual` does not count.
    pub known: Option<Rc<KnownPaths>>,
    /// Known are all paths but those that are watched for.
    pub watches: bool,
    /// Paths that are interesting: all others are counted together.
    pub interesting: Option<Rc<KnownPaths>>,
    /// Interprocedural segments: these are counted in the place of paths.
    pub segments: Option<Rc<SegmentSet>>,
    /// How long the scheme `ppp-optimal` may search for the numbers of one function, in seconds.
    pub time_limit_s: u64,
    /// What this copy of a program counts.
    pub parts: Option<Rc<FunctionParts>>,
    /// The unit of which this one is made, as the program has it that is divided among copies.
    pub origin: Option<Identity>,
    /// Executions of a copy's probes are counted, too.
    pub count_hits: bool,
    /// Write what the unit's blocks compute to this file, and make no code.
    pub properties: Option<PathBuf>,
    /// Change the code as this plan says, and count nothing.
    pub apply: Option<Rc<TransformationPlan>>,
    /// What is put into the code.
    pub tier: CountingTier,
    /// Of the tier `addresses`: equal ends of blocks are not merged, so that every block has an address, and the code is a little longer.
    pub no_tail_merging: bool,
    /// Which paths there are.
    pub scheme: ExperimentScheme,
    /// Slots of the tables of functions with more than [`PluginOptions::array_paths`] paths; 0: there are no tables, and such functions are
    /// cut.
    pub table_slots: u64,
    /// Most paths of a function that counts in an array, where there are tables.
    pub array_paths: u64,
    /// Who counts in a region.
    pub threads: Threads,
    /// Take LLVM's edge counters, with which the unit was compiled, out of it, and note where they were.
    pub placeholders: bool,
    /// These are the counters of clang's or rustc's coverage; the unit's mapping of them to regions of its sources stays in the program.
    pub coverage: bool,
    /// Sum this up for each path.
    pub events: Option<EventSource>,
}

/// What is put into the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingTier {
    /// Probes that count every path.
    Full,
    /// Probes that count while the image's switch is on; see [`crate::sample`].
    Sample,
    /// Probes that count every path but the known ones; see [`crate::residual`].
    Residual,
    /// Nothing: blocks are marked, so that their addresses are known; see [`crate::addresses`].
    Addresses,
    /// Nothing: blocks have sleds for witnesses; see [`crate::sleds`].
    Sleds,
}

/// What cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum BadOption {
    /// Settings that no driver has resolved.
    #[error(
        "{SETTINGS_VARIABLE} is read by trodden's drivers (trodden cc, trodden c++, cargo trodden), not by the plugin: compile by one of \
            them, or name the file of a request in {EXPERIMENT_VARIABLE}"
    )]
    NotResolved,
    /// The request cannot be read.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A file that it names cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The file of a copy's parts is none.
    #[error("{file}: {source}", file = file.display())]
    Parts {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoParts,
    },
    /// The file of known paths is none.
    #[error("{file}: {source}", file = file.display())]
    KnownPaths {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoKnownPaths,
    },
    /// The file of segments is none.
    #[error("{file}: {source}", file = file.display())]
    Segments {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoSegments,
    },
    /// The file is no transformation plan.
    #[error("{file}: {source}", file = file.display())]
    Transformation {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoTransformationPlan,
    },
    /// The file of weights is none.
    #[error("{file}: {source}", file = file.display())]
    Weights {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoWeights,
    },
}

impl PluginOptions {
    /// The options that the environment names, by a look-up function such as `std::env::var_os`.
    ///
    /// # Errors
    /// The request, or a file that it names, cannot be read.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<PluginOptions, BadOption> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match (set(EXPERIMENT_VARIABLE), set(SETTINGS_VARIABLE)) {
            (Some(file), _) => {
                let (request, folder) = PluginRequest::read(Path::new(&file))?;
                PluginOptions::load(request, &folder)
            }
            (None, Some(settings)) if settings.to_string_lossy().trim() != "" => Err(BadOption::NotResolved),
            (None, _) => PluginOptions::load(PluginRequest::default(), &InputFolder::at("")),
        }
    }

    /// The options of a request whose files lie in a folder.
    fn load(request: PluginRequest, folder: &InputFolder) -> Result<PluginOptions, BadOption> {
        let PluginRequest { experiment, action, keep, recorder } = request;
        let placement = experiment.placement();
        let (part, stream) = (experiment.part(), experiment.observation() == Observation::Stream);
        let (interesting, time_limit_s) = match experiment.paths() {
            Paths::Interesting { set, time_limit_s, .. } => (Some(read_paths(folder, InputKind::Interesting, set)?), time_limit_s),
            _ => (None, 0),
        };
        let known = read_known(folder, &experiment)?;
        let (properties, apply) = match action {
            UnitAction::Instrument => (None, None),
            UnitAction::Describe { output } => (Some(output.into()), None),
            UnitAction::Apply(plan) => (None, Some(read_plan(folder, plan)?)),
        };
        let (table_slots, array_paths) = match experiment.destination() {
            OutputDestination::Array => (0, placement.max_paths),
            OutputDestination::Table { slots, array_paths } => (slots, array_paths),
        };
        Ok(PluginOptions {
            plan: PlanOptions { max_paths: placement.max_paths, entries: Entries::Shared, chords: placement.chords, hot_first: false },
            choices: choices(&experiment),
            reach_all: placement.reach == Reach::All,
            // Which call a function was called from is known by the event before.
            reach_calls: stream || experiment.segments().is_some() || placement.reach == Reach::Calls,
            stream,
            recorder,
            keep_bitcode: keep == Keep::Bitcode,
            weights: placement.weights.map(|weights| read_weights(folder, weights)).transpose()?,
            known,
            watches: experiment.is_watched(),
            interesting,
            segments: experiment.segments().map(|set| read_segments(folder, set)).transpose()?,
            time_limit_s,
            parts: part.map(|part| read_parts(folder, part.file)).transpose()?,
            origin: part.map(|part| part.origin),
            count_hits: part.is_some_and(|part| part.count_hits),
            properties,
            apply,
            tier: tier(&experiment),
            no_tail_merging: experiment.observation() == Observation::Addresses { merge_tails: false },
            scheme: experiment.scheme(),
            table_slots,
            array_paths,
            threads: experiment.threads(),
            placeholders: experiment.has_edge_profile() || experiment.has_coverage(),
            coverage: experiment.has_coverage(),
            events: experiment.events(),
            experiment,
        })
    }

    /// How a function is to be planned, when the unit's tables hold `used` paths so far; see [`PluginOptions::in_table`].
    pub fn plan_of(&self, used: u64) -> PlanOptions {
        match self.table_slots {
            0 => self.plan.clone(),
            // Ever smaller, but never nothing, when the sum comes near its limit.
            _ => PlanOptions {
                max_paths: (MOST_IN_TABLES.saturating_sub(used) / 16).min(MOST_IN_TABLE).max(self.array_paths),
                ..self.plan.clone()
            },
        }
    }

    /// Whether a function with so many paths counts in a table.
    pub fn in_table(&self, paths: u64) -> bool {
        self.table_slots > 0 && paths > self.array_paths
    }
}

/// What an experiment puts into the code.
fn tier(experiment: &Experiment) -> CountingTier {
    match experiment.observation() {
        Observation::Addresses { .. } => CountingTier::Addresses,
        Observation::Trace => CountingTier::Sleds,
        _ if experiment.is_sampled() => CountingTier::Sample,
        _ if experiment.is_residual() => CountingTier::Residual,
        _ => CountingTier::Full,
    }
}

fn choices(experiment: &Experiment) -> Choices {
    let placement = experiment.placement();
    Choices {
        trip_counts: match placement.trip_counts {
            TripCounts::Off => TripCounting::Off,
            TripCounts::Tight => TripCounting::Tight,
            TripCounts::On => TripCounting::On,
        },
        early: placement.early,
        dominant: match placement.dominant_iteration {
            DominantIteration::Shared => DominantCounting::Shared,
            DominantIteration::Split => DominantCounting::Split,
        },
    }
}

fn read_weights(folder: &InputFolder, identity: Identity) -> Result<Rc<Weights>, BadOption> {
    let bytes = folder.get(InputKind::Weights, identity)?;
    Weights::from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::Weights { file: folder.path(identity), source })
}

/// The paths that are not counted: known ones, or all but those that are watched for.
fn read_known(folder: &InputFolder, experiment: &Experiment) -> Result<Option<Rc<KnownPaths>>, BadOption> {
    let kind = if experiment.is_watched() { InputKind::Watched } else { InputKind::Known };
    experiment.known().map(|set| read_paths(folder, kind, set)).transpose()
}

fn read_paths(folder: &InputFolder, kind: InputKind, identity: Identity) -> Result<Rc<KnownPaths>, BadOption> {
    let bytes = folder.get(kind, identity)?;
    KnownPaths::from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::KnownPaths { file: folder.path(identity), source })
}

fn read_segments(folder: &InputFolder, identity: Identity) -> Result<Rc<SegmentSet>, BadOption> {
    let bytes = folder.get(InputKind::Segments, identity)?;
    SegmentSet::from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::Segments { file: folder.path(identity), source })
}

fn read_parts(folder: &InputFolder, identity: Identity) -> Result<Rc<FunctionParts>, BadOption> {
    let bytes = folder.get(InputKind::Part, identity)?;
    FunctionParts::from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::Parts { file: folder.path(identity), source })
}

fn read_plan(folder: &InputFolder, identity: Identity) -> Result<Rc<TransformationPlan>, BadOption> {
    let bytes = folder.get(InputKind::Apply, identity)?;
    TransformationPlan::from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::Transformation { file: folder.path(identity), source })
}
