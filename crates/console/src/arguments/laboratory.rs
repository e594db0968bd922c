//! Choices that only the laboratory offers: published methods that exist to be compared with trodden's own, and tuning.
//!
//! `trodden-lab with` takes them as options and hands them to `trodden` in [`LABORATORY_VARIABLE`], each word percent-encoded. `trodden`
//! itself has no options for them. Choices of different commands are different structures, whose headings in help name the commands:
//! [`GivenChoice::commands`] reads them from there.

use super::choices::{Choice, one_of, spelled};
use super::compression::METHODS;
use super::partition::{COPY_STRATEGIES, HITS, ProfitableChoices};
use super::times::an_hour_at_most;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, ValueEnum};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;
use trodden_sequence::CompressionMethod;
use trodden_unit::experiment::spelling::{MOST_PATHS, decode, encode};
use trodden_unit::experiment::{ExperimentScheme, Keep, Observe, Reach, Settings, Threads};
use trodden_wire::stream::MOST_REGIONS;
use trodden_witness::DistributionStrategy;

/// Variable that holds choices, in the syntax of their options.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// Choices for a command of `trodden`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct LaboratoryChoices {
    /// How programs are built.
    #[command(flatten)]
    pub counting: CountingChoices,
    /// How variants are built.
    #[command(flatten)]
    pub variant: VariantChoices,
    /// What a faster program is made from.
    #[command(flatten)]
    pub guided: GuidedChoices,
    /// How paths are divided.
    #[command(flatten)]
    pub division: DivisionChoices,
    /// What copies are to do besides.
    #[command(flatten)]
    pub copies: CopyChoices,
    /// How whole streams are recorded.
    #[command(flatten)]
    pub streams: StreamChoices,
    /// How traces are recorded.
    #[command(flatten)]
    pub tracing: TraceChoices,
    /// How waiting time is recorded.
    #[command(flatten)]
    pub waiting: WaitChoices,
    /// What reports say besides.
    #[command(flatten)]
    pub reporting: ReportChoices,
    /// How coverage is shown.
    #[command(flatten)]
    pub coverage: CoverageChoices,
}

/// How paths are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "build, instrument, cc, c++, cargo trodden")]
pub struct CountingChoices {
    /// Numbering of paths.
    #[arg(long, value_parser = spelled::<ExperimentScheme>())]
    pub scheme: Option<ExperimentScheme>,
    /// Cut functions that have more paths than this.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_PATHS))]
    pub max_paths: Option<u64>,
    /// Count functions with more paths than --array-paths in a table of N slots instead of cutting them (0 = cut them).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=MOST_PATHS))]
    pub table_slots: Option<u64>,
    /// Maximum paths of a function that counts in an array, where there are tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_PATHS))]
    pub array_paths: Option<u64>,
    /// Counters that a thread increments: its own (no contention), or shared ones (atomic increments). Both are exact.
    #[arg(long, value_parser = spelled::<Threads>())]
    pub threads: Option<Threads>,
    /// Count on the chords of a spanning tree instead of every edge that has a value.
    #[arg(long, value_parser = spelled::<bool>())]
    pub chords: Option<bool>,
    /// Calls at which arrival is counted, so that paths which never returned are known.
    #[arg(long, value_parser = spelled::<Reach>())]
    pub reach: Option<Reach>,
    /// What to keep of each unit; other variants of a program need the bitcode.
    #[arg(long, value_parser = spelled::<Keep>())]
    pub keep: Option<Keep>,
    /// Count nothing: leave room in each block for a witness of `trodden trace record --collector compiled`.
    #[arg(long)]
    pub witnesses: bool,
    /// With build's --addresses: whether code generation may merge equal ends of blocks, which then lose their addresses.
    #[arg(long, value_parser = spelled::<bool>())]
    pub tail_merging: Option<bool>,
}

impl CountingChoices {
    /// As settings of a build.
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

/// How variants of a program are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "instrument")]
pub struct VariantChoices {
    /// Seconds that `--scheme ppp-optimal` may search for the numbers of one function.
    #[arg(long, value_name = "SECONDS", value_parser = an_hour_at_most)]
    pub time_limit: Option<u64>,
    /// Percentage by which a unit's code may grow to inline or copy callees in counted segments (default 50; 0 = not at all).
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub growth: Option<u32>,
}

/// What a faster program is made from.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "pgo")]
pub struct GuidedChoices {
    /// Use the edge profile only: one training, no change by paths.
    #[arg(long, conflicts_with = "hot_paths")]
    pub edges: bool,
    /// Run the second training under QEMU, and take paths from the hardware profiler's model with this table (`complete`: all paths).
    #[arg(long, value_name = "TABLE")]
    pub hot_paths: Option<String>,
    /// Minimum share of the program's instructions, in percent, that a copied path must save (default 0.05).
    #[arg(long, value_name = "PERCENT")]
    pub min_share: Option<f64>,
    /// Set CC and CXX, but leave the search path alone.
    #[arg(long)]
    pub only_variables: bool,
    /// Write the edge profile, in LLVM's form, to this file as well.
    #[arg(long, value_name = "FILE")]
    pub keep_profile: Option<PathBuf>,
}

/// How the counting of paths is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record, fleet copies")]
pub struct DivisionChoices {
    /// How to divide the counting among copies.
    #[arg(long, value_parser = one_of(COPY_STRATEGIES))]
    pub strategy: Option<PartitionStrategy>,
    /// Which functions are divided.
    #[command(flatten)]
    pub profitable: ProfitableChoices,
    /// Divide so that no copy has more probes than N, in the place of a strategy; fewer copies than that takes are refused.
    #[arg(long, value_name = "N", conflicts_with = "strategy", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_probes: Option<u32>,
}

/// What copies are to do besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record")]
pub struct CopyChoices {
    /// If no run of this build is in the run store, divide by estimated frequencies instead of a first run.
    #[arg(long)]
    pub no_first_run: bool,
    /// Maximum memory of each copy on this machine (address space), in MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub memory: Option<u64>,
    /// How often a copy that did not finish is run again (default 2).
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Run the program itself and one without counting as well, each alone: for overheads, and to compare the profiles.
    #[arg(long)]
    pub baseline: bool,
    /// Write what each copy cost to this file: a page with a chart if its name ends in .html, else JSON.
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// What copies should execute little of.
    #[arg(long, value_parser = one_of(HITS))]
    pub hits: Option<Measure>,
    /// Count executions of probes in the copies as well, which slows them down: to check the computed hits.
    #[arg(long)]
    pub count_hits: bool,
}

/// How whole streams are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "record")]
pub struct StreamChoices {
    /// With record's --whole-program: how the sequence is compressed while the program runs.
    #[arg(long, value_parser = one_of(METHODS))]
    pub method: Option<CompressionMethod>,
    /// With record's --whole-program: MiB of each thread's stream that the recorder may lag behind before the thread waits.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MOST_REGIONS))]
    pub backlog: Option<u64>,
}

/// How traces are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "trace record")]
pub struct TraceChoices {
    /// Another way to see that a program comes to a place.
    #[arg(long, value_enum)]
    pub collector: Option<LaboratoryCollector>,
    /// How witnesses are distributed over the runs (default fine).
    #[arg(long, value_parser = one_of(WITNESS_STRATEGIES))]
    pub witness_strategy: Option<DistributionStrategy>,
    /// Where the costs of witnesses come from: static (estimates), first-run (a run that counts), or a trace of this build.
    #[arg(long, value_name = "static|first-run|TRACE")]
    pub witness_weights: Option<String>,
    /// Maximum number of witnesses in a run; there are more runs then.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Execute the runs on M machines (here: one after the other on each of M cores), which share the load evenly.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub machines: Option<u32>,
    /// Condition that a distribution must meet before anything runs (default pairwise).
    #[arg(long, value_enum)]
    pub check: Option<WitnessCondition>,
    /// Take the witnesses of each run from this file, as --plan=json prints it.
    #[arg(long, value_name = "FILE")]
    pub distribution: Option<PathBuf>,
    /// Run nothing: list the functions that stay opaque, and the witnesses of each run with their predicted costs.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub plan: Option<PlanForm>,
    /// Watch only what the sequence of calls needs: the trace has calls and returns, and nothing between them.
    #[arg(long)]
    pub calls: bool,
    /// Keep the partial traces in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub keep_runs: Option<PathBuf>,
}

/// How waiting time is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "waits record")]
pub struct WaitChoices {
    /// Samples per second of processor time and thread, by which code between calls is named (default 1000; 0 = none).
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub rate: Option<u32>,
}

/// What reports say besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "report")]
pub struct ReportChoices {
    /// With a recording of waits: print each wait as the difference of two paths, step by step, with its class and distance.
    #[arg(long)]
    pub explain: bool,
}

/// How coverage is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "coverage report, coverage show, export")]
pub struct CoverageChoices {
    /// Reproduce the counts of another tool. llvm-cov counts code after a call as executed although the call did not return.
    #[arg(long, value_name = "TOOL", value_enum)]
    pub like: Option<CoverageTool>,
    /// Sources compiled in the folder FROM are now in TO.
    #[arg(long, value_name = "FROM,TO")]
    pub path_equivalence: Option<String>,
}

/// A tool whose counts can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageTool {
    /// LLVM's.
    LlvmCov,
}

/// How witnesses are distributed over the runs.
const WITNESS_STRATEGIES: [Choice<DistributionStrategy>; 4] = [
    (DistributionStrategy::Fine, "fine", "Diamonds and cycles one by one, each to the run with the least load"),
    (DistributionStrategy::Function, "function", "Function by function"),
    (DistributionStrategy::Grouped, "grouped", "Diamonds that share a cycle or an edge together"),
    (DistributionStrategy::Weighted, "weighted", "By measured weights, best of all"),
];

/// A condition for distributions of witnesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WitnessCondition {
    /// For each branch and pair of successors some profile has disjoint sets of first witnesses.
    Pairwise,
    /// The two theorems of the paper.
    Paper,
}

/// The form of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanForm {
    /// For people.
    Text,
    /// For --distribution.
    Json,
}

/// Collectors of traces that exist to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaboratoryCollector {
    /// The four debug registers, which leave the code untouched: many runs.
    Hardware,
    /// Probes of the kernel with a BPF program; takes root.
    Uprobes,
}

#[derive(Parser)]
#[command(name = LABORATORY_VARIABLE, no_binary_name = true, disable_help_flag = true)]
struct OfVariable {
    #[command(flatten)]
    choices: GivenChoices,
}

/// Commands that trodden starts itself. They read the choices of the command that started them.
const STARTED_BY_TRODDEN: [&[&str]; 2] = [&["copy"], &["trace", "work"]];

impl LaboratoryChoices {
    /// The choices of the environment for a command, given by its words; none by default.
    ///
    /// # Errors
    /// The variable holds something else, or a choice that does not concern the command.
    pub fn from_environment(command: &[&str]) -> Result<LaboratoryChoices, String> {
        let text = env::var_os(LABORATORY_VARIABLE).unwrap_or_default();
        LaboratoryChoices::for_command(&text.to_string_lossy(), command)
    }

    fn for_command(text: &str, command: &[&str]) -> Result<LaboratoryChoices, String> {
        const REMEDY: &str = "Unset it, and give choices to `trodden-lab with`";
        let GivenChoices { choices, given } = parse(text).map_err(|error| {
            let error = error.to_string();
            let reason = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
            format!("{LABORATORY_VARIABLE} does not hold choices of the laboratory: {reason}. {REMEDY}")
        })?;
        let is_foreign = |choice: &&GivenChoice| !choice.concerns(command) && !STARTED_BY_TRODDEN.contains(&command);
        match given.iter().find(is_foreign) {
            Some(GivenChoice { option, .. }) => {
                Err(format!("{LABORATORY_VARIABLE} holds {option}, which does not concern `trodden {}`. {REMEDY}", command.join(" ")))
            }
            None => Ok(choices),
        }
    }
}

fn parse(text: &str) -> Result<GivenChoices, clap::Error> {
    Ok(OfVariable::try_parse_from(text.split_whitespace().map(decode))?.choices)
}

/// A choice as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenChoice {
    /// The option.
    pub option: String,
    /// Its value, if it takes one.
    pub value: Option<OsString>,
    /// The commands that it concerns.
    pub commands: Vec<String>,
}

impl GivenChoice {
    /// Whether it concerns a command, given by its words; arguments may follow them.
    pub fn concerns(&self, words: &[&str]) -> bool {
        self.commands.iter().any(|command| words.starts_with(&command.split(' ').collect::<Vec<_>>()))
    }
}

/// Choices, and how they were given.
#[derive(Clone, Debug, Default)]
pub struct GivenChoices {
    /// The choices.
    pub choices: LaboratoryChoices,
    /// The same, in alphabetical order.
    pub given: Vec<GivenChoice>,
}

impl GivenChoices {
    /// As the value of [`LABORATORY_VARIABLE`].
    pub fn spelled(&self) -> String {
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

/// The options of all choices.
fn options() -> Command {
    LaboratoryChoices::augment_args(Command::new("with"))
}

/// All options, for a message.
pub fn names() -> String {
    let options = options();
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
        for option in options().get_arguments() {
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
    fn choices_are_spelled_as_options() {
        assert_eq!(LaboratoryChoices::for_command("", &["report"]).unwrap(), LaboratoryChoices::default());
        let choices = parse("--scheme ppp --strategy p3 --all-procedures --collector uprobes").unwrap().choices;
        assert_eq!(
            (choices.division.strategy, choices.tracing.collector),
            (Some(PartitionStrategy::P3), Some(LaboratoryCollector::Uprobes))
        );
        assert!(choices.division.profitable.all_procedures && !choices.copies.count_hits && choices.counting.scheme.is_some());
        let refused = |text: &str, command: &[&str]| LaboratoryChoices::for_command(text, command).unwrap_err();
        assert!(
            refused("--strategy p4", &["record"]).contains("TRODDEN_LABORATORY") && refused("--strategy p4", &["record"]).contains("p4")
        );
        assert!(refused("p3", &["record"]).contains("unexpected argument 'p3'"));
        assert!(
            refused("--strategy p3", &["build"]).contains("TRODDEN_LABORATORY holds --strategy, which does not concern `trodden build`")
        );
        assert!(refused("--collector uprobes", &["trace", "show"]).contains("`trodden trace show`"));
        assert!(LaboratoryChoices::for_command("--strategy p3", &["fleet", "copies"]).is_ok());
        assert!(LaboratoryChoices::for_command("--collector uprobes", &["trace", "work"]).is_ok());
    }

    #[test]
    fn what_is_given_is_read_again() {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            given: GivenChoices,
        }
        let line = ["--chords", "off", "--keep-profile", "a %file=\n", "--all-procedures", "--min-share=-1"];
        let given = Line::try_parse_from(line).unwrap().given;
        let choices = parse(&given.spelled()).unwrap().choices;
        assert_eq!(choices, given.choices);
        assert_eq!((choices.counting.chords, choices.guided.min_share), (Some(false), Some(-1.0)));
        assert_eq!(choices.guided.keep_profile, Some("a %file=\n".into()));
        let concerned: Vec<_> = given.given.iter().map(|choice| (&*choice.option, choice.commands.join("|"))).collect();
        let counting = "build|instrument|cc|c++|cargo trodden".to_owned();
        assert!(concerned.contains(&("--chords", counting)) && concerned.contains(&("--all-procedures", "record|fleet copies".into())));
    }
}
