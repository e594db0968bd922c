//! `trodden-lab schemes`: compares the two schemes of section 3.5.2 of Vaswani's thesis for untested segments across calls, along with
//! untested paths.
//!
//! | scheme | builds of the program | runs of the tests |
//! |---|---|---|
//! | 1 | one that writes its whole program path; the field's, which knows the segments in it | 1 |
//! | 2 | I: counts paths up to calls; II: counts what follows them; III: the field's, which knows what II counted | 2 |
//! Each stage is run as a command of `trodden`.

use super::cost::BuildCosts;
use crate::segments::{NamedPath, ObservedSegments};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trodden_stored::Folders;
use trodden_text::names::DemangledName;

const PLACEHOLDER: &str = "{}";
/// Number of calls in a segment. It is one, because stage I of the second scheme knows the paths up to each call.
const SEGMENT_DEPTH: usize = 1;

/// Results of both schemes.
pub struct SchemeResults {
    /// The results of scheme 1 and scheme 2.
    pub schemes: [SchemeResult; 2],
    /// Costs of the builds.
    pub costs: BuildCosts,
}

/// Results of one scheme.
pub struct SchemeResult {
    /// How the scheme finds the tested segments: `whole program path` or `three stages`.
    pub stages: &'static str,
    /// Number of runs of the tests.
    pub runs: usize,
    /// Total time of the tests' runs.
    pub time: Duration,
    /// Number of segments that the tests executed.
    pub tested: usize,
    /// Segments that production runs executed and the tests did not.
    pub untested: BTreeSet<Vec<NamedPath>>,
    /// Number of executions of the untested segments.
    pub executions: u64,
}

/// The parameters of a comparison of both schemes.
pub struct SchemeComparison<'a> {
    /// The program. Its bitcode must be available.
    pub program: &'a Path,
    /// A shell command that runs the tests.
    pub tests: &'a str,
    /// A shell command that runs the program as in production.
    pub field: &'a str,
    /// Number of runs of the production command with each build, to measure processor time.
    pub rounds: u32,
    /// The `trodden` executable, which instruments and records the builds.
    pub trodden: &'a Path,
    /// Returns the processor time of all terminated children, in nanoseconds.
    pub cpu_time: fn() -> u64,
}

impl SchemeResults {
    /// Builds the variants of the program in a folder and runs them. Also returns the files of the profiles to report.
    pub fn compare(job: &SchemeComparison, folder: &Path, folders: &Folders) -> Result<(SchemeResults, Vec<String>)> {
        for (option, command) in [("--tests", job.tests), ("--field", job.field)] {
            ensure!(
                command.contains(PLACEHOLDER),
                "{option} `{command}` does not contain {PLACEHOLDER}. Write {PLACEHOLDER} in place of the program's path"
            );
        }
        let stages = SchemeStages { job, folder, folders };
        let (first, segments) = stages.run_whole_program_path()?;
        let (second, paths) = stages.run_three_stages()?;
        let known = stages.instrument("residual", &["--residual", path_str(&paths)?], REACH_CALLS_OPTION)?;
        let unknown = stages.record(&known, job.field, &[])?;
        let (counts_segments, across_calls) = (stages.build_path("segments")?, stages.build_path("stage-2")?);
        let (plain, every) = (stages.instrument("plain", &["--addresses"], "")?, stages.instrument("paths", &[], "")?);
        let builds = [
            ("nothing is counted", &*plain),
            ("all paths", &*every),
            // The stage-2 build counts all paths of the code with its callees inlined.
            ("all paths across calls", &*across_calls),
            ("untested segments", &*counts_segments),
            ("untested paths", &*known),
        ];
        let costs = BuildCosts::measure(&builds, |build| Ok(job.field.replace(PLACEHOLDER, path_str(build)?)), job.rounds, job.cpu_time)?;
        let profiles = [&unknown.0, &segments].map(|file| path_str(file).map(str::to_owned));
        Ok((SchemeResults { schemes: [first, second], costs }, profiles.into_iter().collect::<Result<_>>()?))
    }
}

const REACH_CALLS_OPTION: &str = "--reach calls";

struct SchemeStages<'a> {
    job: &'a SchemeComparison<'a>,
    folder: &'a Path,
    folders: &'a Folders,
}

impl SchemeStages<'_> {
    /// Runs scheme 1. Also returns the profile of the production run.
    fn run_whole_program_path(&self) -> Result<(SchemeResult, PathBuf)> {
        let writes = self.instrument("stream", &["--stream"], "")?;
        let (tests, time) = self.record(&writes, self.job.tests, &["--whole-program"])?;
        let streams = tests.with_extension("trodden.streams");
        let deployed = self.instrument("segments", &["--segments", &format!("tested:{}", path_str(&streams)?)], "")?;
        let (profile, _) = self.record(&deployed, self.job.field, &[])?;
        Ok((SchemeResult::new("whole program path", 1, time, (&profile, self.folders))?, profile))
    }

    /// Runs scheme 2. Also returns the profile of the paths that the tests took.
    fn run_three_stages(&self) -> Result<(SchemeResult, PathBuf)> {
        let counts_paths = self.instrument("stage-1", &[], REACH_CALLS_OPTION)?;
        let (paths, first) = self.record(&counts_paths, self.job.tests, &[])?;
        let follows = self.instrument("stage-2", &["--segments", &format!("calls:{}", path_str(&paths)?)], "")?;
        let (segments, second) = self.record(&follows, self.job.tests, &[])?;
        let deployed = self.instrument("stage-3", &["--segments", &format!("tested:{}", path_str(&segments)?)], "")?;
        let (profile, _) = self.record(&deployed, self.job.field, &[])?;
        Ok((SchemeResult::new("three stages", 2, first + second, (&profile, self.folders))?, paths))
    }

    /// Returns the path of a build. The file name is the program's own, because some programs depend on it. All folder names have the same
    /// length, because some programs store their path.
    fn build_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.folder.join(format!("{name:-<8}")).join(
            self.job
                .program
                .file_name()
                .with_context(|| format!("cannot use {} as the program: the path has no file name", self.job.program.display()))?,
        ))
    }

    /// Instruments the program. `choices` is the value of `TRODDEN_LABORATORY`, the options of `trodden-lab`.
    fn instrument(&self, name: &str, options: &[&str], choices: &str) -> Result<PathBuf> {
        let output = self.build_path(name)?;
        trodden_profile::temporary::create_folders(output.parent().unwrap_or(self.folder))?;
        log::info!("building `{name}`");
        let arguments = [OsStr::new("instrument"), self.job.program.as_os_str(), OsStr::new("-o"), output.as_os_str()];
        self.run_trodden(arguments.into_iter().chain(options.iter().map(OsStr::new)), choices)?;
        Ok(output)
    }

    /// Runs a command under `trodden record`, and returns the profile and the wall time.
    fn record(&self, build: &Path, command: &str, options: &[&str]) -> Result<(PathBuf, Duration)> {
        let kind = if command == self.job.field { "field" } else { "tests" };
        let output = build.with_file_name(format!("{kind}.trodden"));
        let command = command.replace(PLACEHOLDER, path_str(build)?);
        log::info!("running `{command}`");
        let record_arguments = [OsStr::new("record"), OsStr::new("--no-store"), OsStr::new("-o"), output.as_os_str()];
        let shell_arguments = ["--", "sh", "-c", &command].map(OsStr::new);
        let started = Instant::now();
        let ran = self.run_trodden(record_arguments.into_iter().chain(options.iter().map(OsStr::new)).chain(shell_arguments), "");
        let time = started.elapsed();
        match ran {
            Err(error) if !output.is_file() => return Err(error),
            Err(error) => log::warn!("{error}. The counts of this run are used nevertheless"),
            Ok(()) => {}
        }
        Ok((output, time))
    }

    /// Runs a command of `trodden`. On failure, the error contains the command's standard error.
    fn run_trodden<'w>(&self, arguments: impl Iterator<Item = &'w OsStr>, choices: &str) -> Result<()> {
        let mut command = Command::new(self.job.trodden);
        let output = command
            .args(arguments)
            .env("TRODDEN_LABORATORY", choices)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("cannot run `trodden`")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", output.status, stderr.trim());
        Ok(())
    }
}

fn path_str(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not valid UTF-8", path.display()))
}

impl SchemeResult {
    fn new(stages: &'static str, runs: usize, time: Duration, (profile, folders): (&Path, &Folders)) -> Result<SchemeResult> {
        let observed = ObservedSegments::load(path_str(profile)?, SEGMENT_DEPTH, folders)?;
        let (tested, _) = observed.requested_and_uncountable(SEGMENT_DEPTH, false);
        let untested = observed.counts_by_name(SEGMENT_DEPTH).into_iter().filter(|(segment, _)| !tested.contains(segment));
        let untested: Vec<(Vec<NamedPath>, u64)> = untested.collect();
        let executions = untested.iter().map(|(_, count)| count).sum();
        let untested = untested.into_iter().map(|(segment, _)| segment).collect();
        Ok(SchemeResult { stages, runs, time, tested: tested.len(), untested, executions })
    }
}

impl SchemeResults {
    /// Returns the names of the segments that scheme `which` finds and the other scheme does not.
    pub fn segments_found_only_by(&self, which: usize) -> Vec<String> {
        let [this, other] = [&self.schemes[which], &self.schemes[1 - which]];
        let name = |(_, name, path): &NamedPath| format!("{}:{path}", DemangledName::from_linkage(name).short);
        let segment = |s: &Vec<NamedPath>| s.iter().map(name).collect::<Vec<_>>().join(" > ");
        this.untested.difference(&other.untested).map(segment).collect()
    }
}
