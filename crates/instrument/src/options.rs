//! Options of the plugin: the request file that `TRODDEN_EXPERIMENT` names, and the data from earlier profiles to which it refers by hash.
//!
//! clang passes no command line to plugins, so an environment variable names the request. [`Experiment`] has already rejected invalid
//! combinations.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use trodden_flow::PlanOptions;
use trodden_flow::dag::Entries;
use trodden_flow::program::{DominantCounting, EarlyCounting, PassChoices, TripCounting};
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::experiment::{
    DominantIteration, EXPERIMENT_VARIABLE, InputError, InputFolder, InputPurpose, Keep, OutputDestination, PluginRequest, Reach,
    RequestError, TripCounts, UnitAction,
};
use trodden_unit::{Experiment, FunctionParts, FunctionWeights, Identity, IterationSet, KnownPaths, SegmentSet, TransformationPlan};

pub use trodden_unit::experiment::{ExperimentScheme, ThreadCounters};

/// Maximum number of paths of a function that counts in a hash table. A function with more paths is cut into shorter ones, so that the
/// numbers of all paths of a program fit into one number space.
const MAX_PATHS_PER_TABLE: u64 = 1 << 52;
/// Maximum number of paths of all functions of a unit that count in hash tables.
const MAX_PATHS_IN_TABLES: u64 = 1 << 56;

#[derive(Clone, Debug)]
pub struct PluginOptions {
    /// The experiment, as recorded in the unit's map.
    pub experiment: Experiment,
    /// How paths are cut and where probes are placed.
    pub plan: PlanOptions,
    pub choices: PassChoices,
    /// Count each call as reached before it is executed, not only calls that may not return. Then the caller's path is known even if a
    /// signal ends the program during the call.
    pub reach_all: bool,
    /// Also count calls to functions that the unit defines as reached.
    pub reach_calls: bool,
    /// File name pattern for the flight recorder of a stream build, unless an environment variable overrides it at run time.
    pub recorder: Option<OsString>,
    /// Store the unit's bitcode, so that the program can be built in other variants.
    pub keep_bitcode: bool,
    pub weights: Option<Rc<FunctionWeights>>,
    /// Paths known from earlier runs, which residual builds do not count.
    pub known: Option<Rc<KnownPaths>>,
    /// Interesting paths; all other paths share one count.
    pub interesting: Option<Rc<KnownPaths>>,
    /// Interprocedural segments to count instead of paths.
    pub segments: Option<Rc<SegmentSet>>,
    /// Paths over iterations to count instead of paths.
    pub iterations: Option<Rc<IterationSet>>,
    /// Time limit for numbering one function with the scheme `ppp-optimal`, in seconds.
    pub time_limit_s: u64,
    /// The paths that this copy of the program counts, if counting is divided among copies.
    pub parts: Option<Rc<FunctionParts>>,
    /// Also count how often a copy's probes execute.
    pub count_hits: bool,
    /// Write the block properties to this file instead of generating code.
    pub properties: Option<PathBuf>,
    /// Transform the code according to this plan instead of instrumenting it.
    pub apply: Option<Rc<TransformationPlan>>,
    /// Number of cells of the hash table in which a function with more than [`PluginOptions::array_paths`] paths counts. 0 if such
    /// functions are cut instead.
    pub table_slots: u64,
    /// Maximum number of paths of a function that counts in an array, if hash tables are enabled.
    pub array_paths: u64,
    /// Remove the edge counters that LLVM inserted into the unit, and record their positions.
    pub placeholders: bool,
}

/// Why the plugin's options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginOptionsError {
    #[error(
        "the compiler plugin ignores {SETTINGS_VARIABLE}, which only trodden's drivers read (trodden cc, trodden c++, cargo trodden). \
         Compile with a driver, or set {EXPERIMENT_VARIABLE} to the file of a request"
    )]
    NotResolved,
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{file}: {source}", file = file.display())]
    Content { file: PathBuf, source: Box<dyn std::error::Error> },
}

impl PluginOptions {
    /// Reads the options. `variable` looks up an environment variable, like `std::env::var_os`.
    ///
    /// # Errors
    /// Fails if the request, or a file to which it refers, is unreadable or invalid, or if the environment contains settings that only the
    /// drivers understand.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<PluginOptions, PluginOptionsError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match (set(EXPERIMENT_VARIABLE), set(SETTINGS_VARIABLE)) {
            (Some(file), _) => {
                let (request, folder) = PluginRequest::read(Path::new(&file))?;
                PluginOptions::load_request(request, &folder)
            }
            (None, Some(settings)) if settings.to_string_lossy().trim() != "" => Err(PluginOptionsError::NotResolved),
            (None, _) => PluginOptions::load_request(PluginRequest::default(), &InputFolder::new("")),
        }
    }

    fn load_request(request: PluginRequest, folder: &InputFolder) -> Result<PluginOptions, PluginOptionsError> {
        let PluginRequest { experiment, action, keep, recorder } = request;
        let placement = experiment.placement();
        let part = experiment.part();
        let (interesting, time_limit_s) = match experiment.interesting() {
            Some(paths) => (Some(read_input(folder, InputPurpose::Interesting, paths.set, KnownPaths::from_bytes)?), paths.time_limit_s),
            None => (None, 0),
        };
        // In a watch, the known paths are all except the watched ones.
        let known = if experiment.is_watched() { InputPurpose::Watched } else { InputPurpose::Known };
        let (properties, apply) = match action {
            UnitAction::Instrument => (None, None),
            UnitAction::Describe { output } => (Some(output.into()), None),
            UnitAction::Apply(plan) => (None, Some(read_input(folder, InputPurpose::Apply, plan, TransformationPlan::from_bytes)?)),
        };
        let (table_slots, array_paths) = match experiment.destination() {
            OutputDestination::Array => (0, placement.max_paths),
            OutputDestination::Table { slots, array_paths } => (slots, array_paths),
        };
        Ok(PluginOptions {
            plan: PlanOptions { max_paths: placement.max_paths, entries: Entries::Shared, chords: placement.chords, hot_first: false },
            choices: pass_choices(&experiment),
            reach_all: placement.reach == Reach::All,
            reach_calls: experiment.segments().is_some() || placement.reach == Reach::Calls,
            recorder,
            keep_bitcode: keep == Keep::Bitcode,
            weights: placement
                .weights
                .map(|set| read_input(folder, InputPurpose::Weights, set, FunctionWeights::from_bytes))
                .transpose()?,
            known: experiment.known().map(|set| read_input(folder, known, set, KnownPaths::from_bytes)).transpose()?,
            interesting,
            segments: experiment
                .segments()
                .map(|set| read_input(folder, InputPurpose::Segments, set, SegmentSet::from_bytes))
                .transpose()?,
            iterations: experiment
                .iterations()
                .map(|set| read_input(folder, InputPurpose::Iterations, set, IterationSet::from_bytes))
                .transpose()?,
            time_limit_s,
            parts: part.map(|part| read_input(folder, InputPurpose::Part, part.file, FunctionParts::from_bytes)).transpose()?,
            count_hits: part.is_some_and(|part| part.count_hits),
            properties,
            apply,
            table_slots,
            array_paths,
            placeholders: experiment.has_edge_profile() || experiment.has_coverage(),
            experiment,
        })
    }

    /// Returns the options for planning the next function, given that the unit's functions have `used` paths in hash tables so far.
    pub fn plan_options(&self, used: u64) -> PlanOptions {
        match self.table_slots {
            0 => self.plan.clone(),
            // The limit shrinks with the number of paths that are left, but not below `array_paths`.
            _ => PlanOptions {
                max_paths: (MAX_PATHS_IN_TABLES.saturating_sub(used) / 16).min(MAX_PATHS_PER_TABLE).max(self.array_paths),
                ..self.plan.clone()
            },
        }
    }

    pub fn counts_in_table(&self, paths: u64) -> bool {
        self.table_slots > 0 && paths > self.array_paths
    }
}

/// Returns the choices of counting passes that an experiment requests.
fn pass_choices(experiment: &Experiment) -> PassChoices {
    let placement = experiment.placement();
    PassChoices {
        trip_counts: match placement.trip_counts {
            TripCounts::Off => TripCounting::Off,
            TripCounts::Tight => TripCounting::Tight,
            TripCounts::On => TripCounting::On,
        },
        early: if placement.early { EarlyCounting::IfProfitable } else { EarlyCounting::IfNecessary },
        dominant: match placement.dominant_iteration {
            DominantIteration::Shared => DominantCounting::Shared,
            DominantIteration::Split => DominantCounting::Split,
        },
    }
}

fn read_input<T, E: std::error::Error + 'static>(
    folder: &InputFolder,
    kind: InputPurpose,
    identity: Identity,
    from_bytes: fn(&[u8]) -> Result<T, E>,
) -> Result<Rc<T>, PluginOptionsError> {
    let bytes = folder.get(kind, identity)?;
    from_bytes(&bytes).map(Rc::new).map_err(|source| PluginOptionsError::Content { file: folder.path(identity), source: source.into() })
}
