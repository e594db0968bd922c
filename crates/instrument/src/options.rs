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
    DominantIteration, EXPERIMENT_VARIABLE, InputError, InputFolder, InputKind, Keep, OutputDestination, PluginRequest, Reach,
    RequestError, TripCounts, UnitAction,
};
use trodden_unit::{Experiment, FunctionParts, Identity, KnownPaths, SegmentSet, TransformationPlan, Weights};

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
    /// Where the flight recorder of a stream build writes if no variable says so when it runs: a pattern of files.
    pub recorder: Option<OsString>,
    /// Keep the unit's bitcode, so that other variants can be made of it.
    pub keep_bitcode: bool,
    /// Measured frequencies of edges.
    pub weights: Option<Rc<Weights>>,
    /// Known paths, which the tier `residual` does not count.
    pub known: Option<Rc<KnownPaths>>,
    /// Paths that are interesting: all others are counted together.
    pub interesting: Option<Rc<KnownPaths>>,
    /// Interprocedural segments: these are counted in the place of paths.
    pub segments: Option<Rc<SegmentSet>>,
    /// How long the scheme `ppp-optimal` may search for the numbers of one function, in seconds.
    pub time_limit_s: u64,
    /// What this copy of a program counts.
    pub parts: Option<Rc<FunctionParts>>,
    /// Executions of a copy's probes are counted, too.
    pub count_hits: bool,
    /// Write what the unit's blocks compute to this file, and make no code.
    pub properties: Option<PathBuf>,
    /// Change the code as this plan says, and count nothing.
    pub apply: Option<Rc<TransformationPlan>>,
    /// Slots of the tables of functions with more than [`PluginOptions::array_paths`] paths; 0: there are no tables, and such functions are
    /// cut.
    pub table_slots: u64,
    /// Most paths of a function that counts in an array, where there are tables.
    pub array_paths: u64,
    /// Take LLVM's edge counters, with which the unit was compiled, out of it, and note where they were.
    pub placeholders: bool,
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
    /// What such a file holds is something else.
    #[error("{file}: {source}", file = file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: Box<dyn std::error::Error>,
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
        let part = experiment.part();
        let (interesting, time_limit_s) = match experiment.interesting() {
            Some(paths) => (Some(read(folder, InputKind::Interesting, paths.set, KnownPaths::from_bytes)?), paths.time_limit_s),
            None => (None, 0),
        };
        // The paths that are not counted: known ones, or all but those that are watched for.
        let known = if experiment.is_watched() { InputKind::Watched } else { InputKind::Known };
        let (properties, apply) = match action {
            UnitAction::Instrument => (None, None),
            UnitAction::Describe { output } => (Some(output.into()), None),
            UnitAction::Apply(plan) => (None, Some(read(folder, InputKind::Apply, plan, TransformationPlan::from_bytes)?)),
        };
        let (table_slots, array_paths) = match experiment.destination() {
            OutputDestination::Array => (0, placement.max_paths),
            OutputDestination::Table { slots, array_paths } => (slots, array_paths),
        };
        Ok(PluginOptions {
            plan: PlanOptions { max_paths: placement.max_paths, entries: Entries::Shared, chords: placement.chords, hot_first: false },
            choices: choices(&experiment),
            reach_all: placement.reach == Reach::All,
            reach_calls: experiment.segments().is_some() || placement.reach == Reach::Calls,
            recorder,
            keep_bitcode: keep == Keep::Bitcode,
            weights: placement.weights.map(|set| read(folder, InputKind::Weights, set, Weights::from_bytes)).transpose()?,
            known: experiment.known().map(|set| read(folder, known, set, KnownPaths::from_bytes)).transpose()?,
            interesting,
            segments: experiment.segments().map(|set| read(folder, InputKind::Segments, set, SegmentSet::from_bytes)).transpose()?,
            time_limit_s,
            parts: part.map(|part| read(folder, InputKind::Part, part.file, FunctionParts::from_bytes)).transpose()?,
            count_hits: part.is_some_and(|part| part.count_hits),
            properties,
            apply,
            table_slots,
            array_paths,
            placeholders: experiment.has_edge_profile() || experiment.has_coverage(),
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

/// The passes that an experiment chooses.
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

/// What a file holds.
fn read<T, E: std::error::Error + 'static>(
    folder: &InputFolder,
    kind: InputKind,
    identity: Identity,
    from_bytes: fn(&[u8]) -> Result<T, E>,
) -> Result<Rc<T>, BadOption> {
    let bytes = folder.get(kind, identity)?;
    from_bytes(&bytes).map(Rc::new).map_err(|source| BadOption::Content { file: folder.path(identity), source: source.into() })
}
