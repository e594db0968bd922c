//! Counting options that several commands share. [`trodden_unit::experiment::exclusions`] checks which options can be combined. Parsing
//! does not open the files that options name; they are read later, when the settings are resolved.

use super::choices::{ArgumentChoice, parser_by_spelling, parser_of_choices};
use super::laboratory::CountingChoices;
use clap::{Args, Command, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_unit::EventSource;
use trodden_unit::experiment::{ObservationTiming, Observe, Settings, SettingsFile};

/// Counting options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CountingArguments {
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: CountingChoices,
    /// Place probes by measured frequencies (`trodden export weights`).
    ///
    /// Probes are then placed on rarely executed edges, which lowers the overhead.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Count nothing; store block addresses, to import hardware branch records.
    ///
    /// The code is nearly that of a plain build. `trodden record --branches` and `import` map branches to paths by the addresses.
    #[arg(long, conflicts_with_all = ["pgo", "stream"])]
    pub addresses: bool,
    /// Count edges for -fprofile-use (`trodden export profdata`).
    #[arg(long, conflicts_with = "stream")]
    pub pgo: bool,
    /// Count for `trodden coverage`; mcdc adds conditions (C, C++).
    #[arg(long, value_parser = parser_of_choices(COVERAGE_CHOICES), value_name = "KIND", num_args = 0..=1, require_equals = true,
          hide_possible_values = true, default_missing_value = "regions", conflicts_with_all = ["addresses", "pgo", "stream"])]
    pub coverage: Option<Observe>,
    /// Add up an event per path: tsc (time), a kernel or hardware event.
    ///
    /// `tsc` works on every machine. The kernel counts `task-clock` and `page-faults`; the other events need hardware counters.
    #[arg(long, value_name = "EVENT", value_parser = parser_by_spelling::<EventSource>(), hide_possible_values = true)]
    pub events: Option<EventSource>,
    /// Count only paths that are not in these profiles.
    ///
    /// Profiles are files, runs or suites, separated by commas. Known paths cost almost nothing.
    #[arg(long, value_name = "PROFILE")]
    pub residual: Option<OsString>,
    /// Write a stream of paths and calls.
    ///
    /// `trodden record --whole-program` and `--last` record it.
    #[arg(long)]
    pub stream: bool,
    /// With --stream: keep a run's last paths and calls in this file (%p: PID).
    ///
    /// In the name, %p is the process ID, %m the program and %h the host.
    #[arg(long, value_name = "PATTERN")]
    pub flight_recorder: Option<PathBuf>,
    /// Count only in bursts requested by `trodden record`.
    #[arg(long)]
    pub sample: bool,
}

const COVERAGE_CHOICES: [ArgumentChoice<Observe>; 2] = [
    (Observe::Coverage, "regions", "Regions, and thus lines, functions and branches"),
    (Observe::Mcdc, "mcdc", "Also conditions of decisions (MC/DC)"),
];

impl CountingArguments {
    /// Converts the options to build settings.
    pub fn settings(&self) -> Settings {
        Settings {
            weights: self.weights.clone().map(SettingsFile::File),
            observe: self.observation(),
            events: self.events,
            known: self.residual.as_ref().map(|profile| SettingsFile::File(profile.into())),
            recorder: self.flight_recorder.clone().map(Into::into),
            when: self.sample.then_some(ObservationTiming::Bursts),
            ..Settings::default()
        }
        .or(self.choices.settings())
    }

    /// Adds options of `trodden-lab with`. Fails if one of them conflicts with an option in `self`.
    pub fn add_laboratory_choices(&mut self, choices: &CountingChoices) -> Result<(), String> {
        if choices.witnesses && self.observation().is_some() {
            return Err(
                "--witnesses counts nothing and conflicts with --addresses, --pgo, --stream and --coverage. Omit one of them".into()
            );
        }
        self.choices = choices.clone();
        Ok(())
    }

    /// Returns what the build observes, or `None` if it counts paths. clap ensures that at most one of the four options is given.
    fn observation(&self) -> Option<Observe> {
        let requested = [(self.addresses, Observe::Addresses), (self.pgo, Observe::EdgeProfile), (self.stream, Observe::Stream)];
        let requested = requested.into_iter().find_map(|(is_given, observe)| is_given.then_some(observe));
        requested.or(self.coverage)
    }

    /// Removes the counting options and their values from a command's arguments, and parses them. Fails with clap's error if they are
    /// invalid.
    pub fn extract_from(command: &mut Vec<OsString>) -> Result<CountingArguments, clap::Error> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct ParametersLine {
            #[command(flatten)]
            parameters: CountingArguments,
        }
        let known = CountingArguments::augment_args(Command::new("build"));
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
        Ok(ParametersLine::try_parse_from(own)?.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use trodden_flow::NumberingScheme;
    use trodden_unit::Experiment;
    use trodden_unit::experiment::ExperimentScheme;

    fn extract(text: &str) -> (CountingArguments, String) {
        let mut command = text.split(' ').map(OsString::from).collect();
        let parameters = CountingArguments::extract_from(&mut command).unwrap_or_else(|e| panic!("{e}"));
        (parameters, command.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn schemes_of_interesting_paths_need_a_set_of_paths() {
        let scheme = Some(ExperimentScheme::Interesting(NumberingScheme::Ppp));
        let parameters =
            CountingArguments { choices: CountingChoices { scheme, ..CountingChoices::default() }, ..CountingArguments::default() };
        let error = Experiment::new(&parameters.settings()).unwrap_err().to_string();
        assert!(error.contains("--interesting"), "{error}");
        let watched = Settings { watched: Some(SettingsFile::File("x".into())), ..parameters.settings() };
        assert!(Experiment::new(&watched).unwrap_err().to_string().contains("cannot be combined with --watch"));
    }

    #[test]
    fn options_are_extracted_from_other_arguments() {
        let (parameters, others) = extract("run --weights=a=b --bin x --events tsc --sample --release --coverage");
        assert_eq!(others, "run --bin x --release");
        let settings = parameters.settings();
        assert_eq!(settings.to_string(), "when=bursts observe=coverage events=tsc weights=a=b");
        let mut command = vec![OsString::from("--weights")];
        assert!(CountingArguments::extract_from(&mut command).unwrap_err().to_string().contains("--weights"));
    }

    #[test]
    fn laboratory_choices_become_settings() {
        let choices = CountingChoices { max_paths: Some(9), witnesses: true, ..CountingChoices::default() };
        let mut parameters = CountingArguments::default();
        parameters.add_laboratory_choices(&choices).unwrap();
        assert_eq!(parameters.settings().to_string(), "max-paths=9 observe=trace");
        assert!(
            CountingArguments { stream: true, ..CountingArguments::default() }
                .add_laboratory_choices(&choices)
                .unwrap_err()
                .contains("--witnesses")
        );
    }
}
