//! Parameters of counting, which several commands take: syntax only. What goes together is decided by
//! [`trodden_unit::experiment::exclusions`], and files are read where the settings are resolved.

use super::choices::{Choice, one_of, spelled};
use clap::{Args, Command, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_unit::experiment::{ExperimentScheme, Keep, Observe, Reach, Settings, SettingsFile, Threads, Timing};
use trodden_unit::{EventSource, experiment::spelling::MOST_PATHS};

/// How paths are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Parameters {
    /// Numbering of paths, which only the laboratory chooses.
    #[arg(skip)]
    pub scheme: Option<ExperimentScheme>,
    /// Cut the paths of functions that have more than this many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_PATHS))]
    pub max_paths: Option<u64>,
    /// Count functions with more paths than `--array-paths` in a table of so many slots, instead of cutting their paths (0: cut them).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=MOST_PATHS))]
    pub table_slots: Option<u64>,
    /// Most paths of a function that counts in an array, where there are tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_PATHS))]
    pub array_paths: Option<u64>,
    /// Whose counters a thread increments: its own (no contention), or all threads' by atomic increments. Both are exact.
    #[arg(long, value_parser = spelled::<Threads>())]
    pub threads: Option<Threads>,
    /// Count on the chords of a spanning tree rather than on every edge with a value.
    #[arg(long, value_parser = spelled::<bool>())]
    pub chords: Option<bool>,
    /// At which calls to count that they were reached, and so to know the paths that did not come back.
    #[arg(long, value_parser = spelled::<Reach>())]
    pub reach: Option<Reach>,
    /// What to keep of each unit; other variants of a program need the bitcode.
    #[arg(long, value_parser = spelled::<Keep>())]
    pub keep: Option<Keep>,
    /// Measured frequencies (`trodden export weights`): probes go where the program hardly ever comes.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Count nothing and change no code: only note where each block lies, for `trodden import` of branches that hardware recorded.
    #[arg(long, conflicts_with_all = ["pgo", "stream"])]
    pub addresses: bool,
    /// Count nothing: only make room in each block for a witness of `trodden trace record --collector compiled`.
    #[arg(long, conflicts_with_all = ["addresses", "pgo", "stream"])]
    pub witnesses: bool,
    /// With `--addresses`: whether code generation may merge equal ends of blocks, which then lose their addresses.
    #[arg(long, value_parser = spelled::<bool>())]
    pub tail_merging: Option<bool>,
    /// Note where LLVM's edge counters would be, so that profiles can be exported for `-fprofile-use`.
    #[arg(long, conflicts_with = "stream")]
    pub pgo: bool,
    /// Have the compiler insert the counters of its source-based coverage, and compute them from the paths: for `trodden coverage`. With
    /// `=mcdc` the conditions of each decision are observed as well (C and C++).
    #[arg(long, value_parser = one_of(COVERAGES), value_name = "KIND", num_args = 0..=1, require_equals = true,
          default_missing_value = "regions", conflicts_with_all = ["addresses", "pgo", "stream", "witnesses"])]
    pub coverage: Option<Observe>,
    /// Besides counting, sum up events for each path: their number, mean and deviation. `tsc` (time) works everywhere;
    /// hardware events need a machine that counts them.
    #[arg(long, value_name = "EVENT", value_parser = spelled::<EventSource>())]
    pub events: Option<EventSource>,
    /// Count only paths that this profile does not have: a file, a run, a suite, known paths (`trodden export known`),
    /// or several of these divided by commas. Known paths cost next to nothing.
    #[arg(long, value_name = "PROFILE")]
    pub residual: Option<OsString>,
    /// Write the sequence of paths and calls instead of counting, for `trodden record --whole-program` and `--last`: counts follow from it.
    #[arg(long)]
    pub stream: bool,
    /// With --stream: programs that are simply run keep the last paths and calls of each thread in files of this pattern
    /// (%p process id, %m program, %h host), if the folder exists when they start.
    #[arg(long, value_name = "PATTERN")]
    pub flight_recorder: Option<PathBuf>,
    /// Count only in bursts, which `trodden record` or `trodden sample` ask for: next to no cost in between.
    #[arg(long)]
    pub sample: bool,
}

/// What coverage is counted.
const COVERAGES: [Choice<Observe>; 2] = [
    (Observe::Coverage, "regions", "Of regions, and so of lines, functions and branches"),
    (Observe::Mcdc, "mcdc", "And of the conditions of decisions (MC/DC)"),
];

impl Parameters {
    /// The parameters as settings of a build.
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
            weights: self.weights.clone().map(SettingsFile::File),
            observe: self.observe(),
            tail_merging: self.tail_merging,
            events: self.events,
            known: self.residual.as_ref().map(|profile| SettingsFile::File(profile.into())),
            recorder: self.flight_recorder.clone().map(Into::into),
            when: self.sample.then_some(Timing::Bursts),
            ..Settings::default()
        }
    }

    /// What is observed: `--addresses`, `--pgo`, `--stream` and `--witnesses` are like values of one option.
    fn observe(&self) -> Option<Observe> {
        let asked = [
            (self.addresses, Observe::Addresses),
            (self.pgo, Observe::EdgeProfile),
            (self.stream, Observe::Stream),
            (self.witnesses, Observe::Trace),
        ];
        let asked = asked.into_iter().find_map(|(is_asked, observe)| is_asked.then_some(observe));
        asked.or(self.coverage)
    }

    /// Those among the arguments of another command: takes them out, with their values.
    ///
    /// # Errors
    /// A value is missing or means nothing; the message is clap's.
    pub fn taken_from(command: &mut Vec<OsString>) -> Result<Parameters, clap::Error> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Own {
            #[command(flatten)]
            parameters: Parameters,
        }
        let known = Parameters::augment_args(Command::new("build"));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut rest = std::mem::take(command).into_iter();
        while let Some(text) = rest.next() {
            let name = text.to_str().and_then(|w| w.strip_prefix("--")).map(|w| w.split_once('=').map_or((w, false), |(n, _)| (n, true)));
            let found = name.and_then(|(name, joined)| Some((known.get_arguments().find(|a| a.get_long() == Some(name))?, joined)));
            match found {
                Some((argument, joined)) => {
                    own.push(text);
                    let value = if argument.get_action().takes_values() && !argument.is_require_equals_set() && !joined {
                        rest.next()
                    } else {
                        None
                    };
                    own.extend(value);
                }
                None => others.push(text),
            }
        }
        *command = others;
        Ok(Own::try_parse_from(own)?.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use trodden_flow::NumberingScheme;
    use trodden_unit::Experiment;

    fn taken(text: &str) -> (Parameters, String) {
        let mut command = text.split(' ').map(OsString::from).collect();
        let parameters = Parameters::taken_from(&mut command).unwrap_or_else(|e| panic!("{e}"));
        (parameters, command.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn schemes_that_count_interesting_paths_need_them_named() {
        let scheme = Some(ExperimentScheme::Interesting(NumberingScheme::Ppp));
        let parameters = Parameters { scheme, ..Parameters::default() };
        let error = Experiment::new(&parameters.settings()).unwrap_err().to_string();
        assert!(error.contains("--interesting"), "{error}");
        let watched = Settings { watched: Some(SettingsFile::File("x".into())), ..parameters.settings() };
        assert!(Experiment::new(&watched).unwrap_err().to_string().contains("does not go together with --watch"));
    }

    #[test]
    fn parameters_are_found_among_others() {
        let (parameters, others) = taken("run --max-paths=9 --bin x --weights a=b --sample --reach all --release");
        assert_eq!(others, "run --bin x --release");
        let settings = parameters.settings();
        assert_eq!(settings.to_string(), "max-paths=9 reach=all when=bursts weights=a=b");
        let mut command = vec![OsString::from("--max-paths")];
        assert!(Parameters::taken_from(&mut command).unwrap_err().to_string().contains("--max-paths"));
    }
}
