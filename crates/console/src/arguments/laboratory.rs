//! Options of `trodden-lab with`: published methods for comparison with trodden's own methods, and tuning parameters.
//!
//! `trodden` itself has no such options. `trodden-lab with` passes them to `trodden` in the variable [`LABORATORY_VARIABLE`], with each
//! word percent-encoded. Each structure has the options for the same commands. Its help heading lists these commands, and
//! [`GivenChoice::commands`] is read from the heading.

mod tracing;

pub use tracing::{LaboratoryCollector, PlanForm, TraceChoices, WitnessCondition};

use super::choices::{parser_by_spelling, parser_of_choices};
use super::compression::COMPRESSION_METHOD_CHOICES;
use super::partition::{COPY_STRATEGY_CHOICES, HIT_MEASURE_CHOICES, ProfitableChoices};
use super::times::{parse_max_wait, parse_seconds_up_to_an_hour};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, ValueEnum};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_analysis::isolate::SuspiciousnessFormula;
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;
use trodden_sequence::CompressionMethod;
use trodden_unit::experiment::spelling::{MAX_PATHS, decode, encode};
use trodden_unit::experiment::{ExperimentScheme, Keep, Observe, Reach, Settings, ThreadCounters};
use trodden_unit::iterations::MAX_ITERATIONS;
use trodden_wire::stream::MAX_STREAM_REGION_COUNT;

/// Environment variable that contains the options of `trodden-lab with`, in command-line syntax.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// Choices for a command of `trodden`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct LaboratoryChoices {
    /// Counting options.
    #[command(flatten)]
    pub counting: CountingChoices,
    /// Variant options.
    #[command(flatten)]
    pub variant: VariantChoices,
    /// Options for profile-guided optimisation.
    #[command(flatten)]
    pub guided: GuidedChoices,
    /// Options for dividing paths among copies.
    #[command(flatten)]
    pub division: DivisionChoices,
    /// Copy options.
    #[command(flatten)]
    pub copies: CopyChoices,
    /// Options for complete streams.
    #[command(flatten)]
    pub streams: StreamChoices,
    /// Trace options.
    #[command(flatten)]
    pub tracing: TraceChoices,
    /// Options for recordings of waits.
    #[command(flatten)]
    pub waiting: WaitChoices,
    /// Report options.
    #[command(flatten)]
    pub reporting: ReportChoices,
    /// Coverage options.
    #[command(flatten)]
    pub coverage: CoverageChoices,
    /// Options for ranking suspicious paths.
    #[command(flatten)]
    pub isolation: IsolationChoices,
}

/// Counting options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "build, instrument, cc, c++, cargo trodden")]
pub struct CountingChoices {
    /// Scheme that numbers the paths.
    #[arg(long, value_parser = parser_by_spelling::<ExperimentScheme>())]
    pub scheme: Option<ExperimentScheme>,
    /// Cut the paths of functions with more than N paths.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_PATHS))]
    pub max_paths: Option<u64>,
    /// Number of table slots for functions with more than --array-paths paths (0 = cut their paths).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=MAX_PATHS))]
    pub table_slots: Option<u64>,
    /// Maximum number of paths counted in an array, if there are tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_PATHS))]
    pub array_paths: Option<u64>,
    /// Counters per thread, or shared with atomic increments; both are exact.
    #[arg(long, value_parser = parser_by_spelling::<ThreadCounters>())]
    pub threads: Option<ThreadCounters>,
    /// Place increments on the chords of a spanning tree instead of all edges with a value.
    #[arg(long, value_parser = parser_by_spelling::<bool>())]
    pub chords: Option<bool>,
    /// Calls at which paths are counted, to find calls that never returned.
    #[arg(long, value_parser = parser_by_spelling::<Reach>())]
    pub reach: Option<Reach>,
    /// Data stored for each unit; `trodden instrument` needs the bitcode.
    #[arg(long, value_parser = parser_by_spelling::<Keep>())]
    pub keep: Option<Keep>,
    /// Count nothing; add a sled to each block, for `trace record --collector compiled`.
    #[arg(long)]
    pub witnesses: bool,
    /// With --addresses: let the compiler merge equal block tails, which lose their addresses.
    #[arg(long, value_parser = parser_by_spelling::<bool>())]
    pub tail_merging: Option<bool>,
}

impl CountingChoices {
    /// Converts the options to build settings.
    pub fn settings(&self) -> Settings {
        Settings {
            scheme: self.scheme,
            max_paths: self.max_paths,
            table_slots: self.table_slots,
            array_paths: self.array_paths,
            threads: self.threads,
            chords: self.chords,
            reach: self.reach,
            keep: self.keep,
            observe: self.witnesses.then_some(Observe::Trace),
            tail_merging: self.tail_merging,
            ..Settings::default()
        }
    }
}

/// Options for variants of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "instrument")]
pub struct VariantChoices {
    /// Time limit per function for --scheme ppp-optimal, 1 to 3600 seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds_up_to_an_hour)]
    pub time_limit: Option<u64>,
    /// Maximum code growth by inlining or copying callees [default: 50].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub growth: Option<u32>,
}

/// Options for profile-guided optimisation.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "pgo")]
pub struct GuidedChoices {
    /// Use only the edge profile: one training, no path-based transformations.
    #[arg(long, conflicts_with = "hot_paths")]
    pub edges: bool,
    /// Take paths from this table of the hardware profiler's model.
    ///
    /// The second training then runs under QEMU; `complete` takes all paths.
    #[arg(long, value_name = "TABLE")]
    pub hot_paths: Option<String>,
    /// Minimum percentage of instructions that a copied path must save [default: 0.05].
    #[arg(long, value_name = "PERCENT")]
    pub min_share: Option<f64>,
    /// Set CC and CXX, but not the search path.
    #[arg(long)]
    pub only_variables: bool,
    /// Also write the edge profile, in LLVM's format, to this file.
    #[arg(long, value_name = "FILE")]
    pub keep_profile: Option<PathBuf>,
}

/// Options for dividing paths among copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record, fleet copies")]
pub struct DivisionChoices {
    /// Strategy that divides paths among copies [default: weighted].
    #[arg(long, value_parser = parser_of_choices(COPY_STRATEGY_CHOICES))]
    pub strategy: Option<PartitionStrategy>,
    /// Options of the strategy `p3`.
    #[command(flatten)]
    pub profitable: ProfitableChoices,
    /// Maximum number of probes per copy, instead of a strategy.
    #[arg(long, value_name = "N", conflicts_with = "strategy", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_probes: Option<u32>,
}

/// Copy options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record")]
pub struct CopyChoices {
    /// Without a stored run, use estimated frequencies, not a first run.
    #[arg(long)]
    pub no_first_run: bool,
    /// Maximum address space of each copy on this machine, in MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub memory: Option<u64>,
    /// Maximum number of times that an unfinished copy runs again [default: 2].
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Also run the program as built and without counting, to measure overheads.
    #[arg(long)]
    pub baseline: bool,
    /// Write the costs of each copy to this file (.html, else JSON).
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Definition of the hits to minimise [default: all].
    #[arg(long, value_parser = parser_of_choices(HIT_MEASURE_CHOICES))]
    pub hits: Option<Measure>,
    /// Also count executed probes in the copies (slow), to check the computed hits.
    #[arg(long)]
    pub count_hits: bool,
    /// With --divide segments: maximum number of calls in a segment [default: 1].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub segment_depth: Option<u32>,
    /// With --divide iterations: count the paths over K iterations of RUN's stream.
    ///
    /// The copies write no streams. Other paths over K iterations are counted together.
    #[arg(long, value_name = "K:RUN", value_parser = parse_iterations)]
    pub iterations: Option<RequestedIterations>,
}

/// A set of paths over consecutive loop iterations, which a build counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedIterations {
    /// Maximum number of consecutive iterations in a path.
    pub iterations: u32,
    /// The run from whose stream the counted paths are taken.
    pub run: String,
}

fn parse_iterations(text: &str) -> Result<RequestedIterations, String> {
    let (number, run) = text.split_once(':').filter(|(_, run)| !run.is_empty()).ok_or("expected K:RUN, such as 2:last")?;
    let iterations = number.parse().ok().filter(|number| (2..=MAX_ITERATIONS).contains(number));
    let iterations =
        iterations.ok_or_else(|| format!("the number of iterations must be between 2 and {MAX_ITERATIONS}, not `{number}`"))?;
    Ok(RequestedIterations { iterations, run: run.to_owned() })
}

/// Options for complete streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record")]
pub struct StreamChoices {
    /// With --whole-program: compression method [default: phrases].
    #[arg(long, value_parser = parser_of_choices(COMPRESSION_METHOD_CHOICES))]
    pub method: Option<CompressionMethod>,
    /// With --whole-program: stream buffer of each thread, in MiB [default: 64].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MAX_STREAM_REGION_COUNT))]
    pub backlog: Option<u64>,
    /// With --whole-program: longest wait on a full buffer [default: 2s].
    ///
    /// After that time, the thread drops events and counts them; 0 = never block.
    #[arg(long, value_name = "TIME", value_parser = parse_max_wait)]
    pub max_wait: Option<Duration>,
}

/// Options for recordings of waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "waits record")]
pub struct WaitChoices {
    /// Samples per second of each thread's processor time [default: 1000; 0 = none].
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub rate: Option<u32>,
}

/// Report options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "report")]
pub struct ReportChoices {
    /// Print each wait as the difference of two paths, with class and distance.
    #[arg(long)]
    pub explain: bool,
}

/// Options for ranking suspicious paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "isolate")]
pub struct IsolationChoices {
    /// Formula that ranks suspicious paths [default: ochiai].
    #[arg(long, value_parser = parser_by_spelling::<SuspiciousnessFormula>())]
    pub score: Option<SuspiciousnessFormula>,
}

/// Coverage options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "coverage report, coverage show, export")]
pub struct CoverageChoices {
    /// Reproduce the counts of a different tool, even where they are wrong.
    ///
    /// llvm-cov counts code after a call as executed although the call did not return.
    #[arg(long = "like", value_name = "TOOL", value_enum)]
    pub imitated_tool: Option<CoverageTool>,
    /// Look in TO for sources that were compiled in FROM (folders).
    #[arg(long, value_name = "FROM,TO")]
    pub path_equivalence: Option<String>,
}

/// A tool whose counts can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageTool {
    /// LLVM's llvm-cov.
    LlvmCov,
}

/// The content of [`LABORATORY_VARIABLE`].
#[derive(Parser)]
#[command(name = LABORATORY_VARIABLE, no_binary_name = true, disable_help_flag = true)]
struct VariableContent {
    #[command(flatten)]
    choices: GivenChoices,
}

/// Commands by which trodden calls itself. They inherit the variable, and ignore options that apply only to the command that called them.
const INTERNAL_COMMANDS: [&[&str]; 2] = [&["copy"], &["trace", "work"]];

impl LaboratoryChoices {
    /// Reads the options of `trodden-lab with` for a command from the environment. `command` has the command's words, such as `trace` and
    /// `show`. Fails if an option in the variable is invalid or does not apply to the command.
    pub fn from_environment(command: &[&str]) -> Result<LaboratoryChoices, String> {
        let text = env::var_os(LABORATORY_VARIABLE).unwrap_or_default();
        LaboratoryChoices::choices_for_command(&text.to_string_lossy(), command)
    }

    fn choices_for_command(text: &str, command: &[&str]) -> Result<LaboratoryChoices, String> {
        const UNSET_ADVICE: &str = "Unset it and use `trodden-lab with`";
        let GivenChoices { choices, given } = parse_variable(text).map_err(|error| {
            let error = error.to_string();
            let reason = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
            format!("{LABORATORY_VARIABLE} does not contain options of `trodden-lab with`: {reason}. {UNSET_ADVICE}")
        })?;
        let is_inapplicable = |choice: &&GivenChoice| !choice.applies_to(command) && !INTERNAL_COMMANDS.contains(&command);
        match given.iter().find(is_inapplicable) {
            Some(GivenChoice { option, .. }) => Err(format!(
                "{LABORATORY_VARIABLE} contains {option}, which does not apply to `trodden {}`. {UNSET_ADVICE}",
                command.join(" ")
            )),
            None => Ok(choices),
        }
    }
}

fn parse_variable(text: &str) -> Result<GivenChoices, clap::Error> {
    Ok(VariableContent::try_parse_from(text.split_whitespace().map(decode))?.choices)
}

/// An option of `trodden-lab with`, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenChoice {
    /// Name of the option, with its dashes.
    pub option: String,
    /// The option's value; `None` for a flag.
    pub value: Option<OsString>,
    /// The commands to which the option applies.
    pub commands: Vec<String>,
}

impl GivenChoice {
    /// Returns true if the option applies to the command whose words are at the start of `words`.
    pub fn applies_to(&self, words: &[&str]) -> bool {
        self.commands.iter().any(|command| words.starts_with(&command.split(' ').collect::<Vec<_>>()))
    }
}

/// The options of `trodden-lab with`, both parsed and as the user wrote them.
#[derive(Clone, Debug, Default)]
pub struct GivenChoices {
    /// The parsed options.
    pub choices: LaboratoryChoices,
    /// The options that the user wrote, in the order of their definition.
    pub given: Vec<GivenChoice>,
}

impl GivenChoices {
    /// Returns the value of [`LABORATORY_VARIABLE`] that contains these options.
    pub fn to_variable_value(&self) -> String {
        let mut words = Vec::new();
        for choice in &self.given {
            let mut word = OsString::from(&choice.option);
            if let Some(value) = &choice.value {
                word.push("=");
                word.push(value);
            }
            words.push(encode(&word));
        }
        words.join(" ")
    }
}

fn all_options() -> Command {
    LaboratoryChoices::augment_args(Command::new("with"))
}

/// Returns the names of all options of `trodden-lab with`, separated by commas: `--scheme, --max-paths, …`.
pub fn option_names() -> String {
    let options = all_options();
    options.get_arguments().filter_map(|option| Some(format!("--{}", option.get_long()?))).collect::<Vec<_>>().join(", ")
}

impl Args for GivenChoices {
    fn augment_args(command: Command) -> Command {
        LaboratoryChoices::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LaboratoryChoices::augment_args_for_update(command)
    }
}

impl FromArgMatches for GivenChoices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenChoices, clap::Error> {
        let mut given = Vec::new();
        for option in all_options().get_arguments() {
            let id = option.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let name = format!("--{}", option.get_long().unwrap_or_default());
            let commands = option.get_help_heading().unwrap_or_default().split(", ").map(str::to_owned).collect::<Vec<_>>();
            let values = matches.get_raw(id).into_iter().flatten();
            match option.get_action().takes_values() {
                true => given.extend(values.map(|value| GivenChoice {
                    option: name.clone(),
                    value: Some(value.to_owned()),
                    commands: commands.clone(),
                })),
                false => given.push(GivenChoice { option: name, value: None, commands }),
            }
        }
        Ok(GivenChoices { choices: LaboratoryChoices::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenChoices::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_parsed_as_options_and_checked_for_the_command() {
        assert_eq!(LaboratoryChoices::choices_for_command("", &["report"]).unwrap(), LaboratoryChoices::default());
        let choices = parse_variable("--scheme ppp --strategy p3 --all-procedures --collector uprobes").unwrap().choices;
        assert_eq!(
            (choices.division.strategy, choices.tracing.collector),
            (Some(PartitionStrategy::P3), Some(LaboratoryCollector::Uprobes))
        );
        assert!(choices.division.profitable.all_procedures && !choices.copies.count_hits && choices.counting.scheme.is_some());
        let error = |text: &str, command: &[&str]| LaboratoryChoices::choices_for_command(text, command).unwrap_err();
        assert!(error("--strategy p4", &["record"]).contains("TRODDEN_LABORATORY") && error("--strategy p4", &["record"]).contains("p4"));
        assert!(error("p3", &["record"]).contains("unexpected argument 'p3'"));
        assert!(
            error("--strategy p3", &["build"]).contains("TRODDEN_LABORATORY contains --strategy, which does not apply to `trodden build`")
        );
        assert!(error("--collector uprobes", &["trace", "show"]).contains("`trodden trace show`"));
        assert!(LaboratoryChoices::choices_for_command("--strategy p3", &["fleet", "copies"]).is_ok());
        assert!(LaboratoryChoices::choices_for_command("--collector uprobes", &["trace", "work"]).is_ok());
    }

    #[test]
    fn choices_are_equal_after_encoding_and_parsing() {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct GivenLine {
            #[command(flatten)]
            given: GivenChoices,
        }
        let line = ["--chords", "off", "--keep-profile", "a %file=\n", "--all-procedures", "--min-share=-1"];
        let given = GivenLine::try_parse_from(line).unwrap().given;
        let choices = parse_variable(&given.to_variable_value()).unwrap().choices;
        assert_eq!(choices, given.choices);
        assert_eq!((choices.counting.chords, choices.guided.min_share), (Some(false), Some(-1.0)));
        assert_eq!(choices.guided.keep_profile, Some("a %file=\n".into()));
        let commands_by_option: Vec<_> = given.given.iter().map(|choice| (&*choice.option, choice.commands.join("|"))).collect();
        let counting = "build|instrument|cc|c++|cargo trodden".to_owned();
        assert!(
            commands_by_option.contains(&("--chords", counting))
                && commands_by_option.contains(&("--all-procedures", "record|fleet copies".into()))
        );
    }
}
