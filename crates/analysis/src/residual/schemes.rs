//! `trodden-lab schemes`: untested segments across calls by both schemes of section 3.5.2 of Vaswani's thesis, compared with each
//! other, and untested paths beside them.
//!
//! | scheme | builds of the program | runs of the tests |
//! |---|---|---|
//! | 1 | one that writes its whole program path; the field's, with the segments of that | 1 |
//! | 2 | I: counts paths up to calls; II: counts what follows those; III: the field's, with what II counted | 2 |
//!
//! Each stage is a command of trodden's own, run as a user would run it.

use super::cost::Costs;
use crate::segments::{NamedPath, ObservedSegments};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trodden_stored::Folders;
use trodden_text::names::Name;

/// What stands for the program in a command.
const PLACE: &str = "{}";
/// Segments have one call: the second scheme's stage I knows the paths up to each.
const DEPTH: usize = 1;

/// What the schemes found.
pub struct Schemes {
    /// Both schemes.
    pub schemes: [Scheme; 2],
    /// What the builds cost.
    pub costs: Costs,
}

/// What one scheme found.
pub struct Scheme {
    /// Stages before the field, in words.
    pub stages: &'static str,
    /// Runs of the tests.
    pub runs: usize,
    /// How long these took together.
    pub time: Duration,
    /// Segments that the tests executed.
    pub tested: usize,
    /// Segments of the field that they did not execute.
    pub untested: BTreeSet<Vec<NamedPath>>,
    /// How often those were executed.
    pub executions: u64,
}

/// What is run.
pub struct SchemeJob<'a> {
    /// The program, which keeps its bitcode.
    pub program: &'a Path,
    /// A shell command that runs the tests.
    pub tests: &'a str,
    /// A shell command that runs the program as the field does.
    pub field: &'a str,
    /// How often the field's command is run with each build, to measure its processor time.
    pub rounds: u32,
    /// The program `trodden`, which makes and records the builds.
    pub trodden: &'a Path,
    /// Processor time of all children that have ended, in ns.
    pub cpu_time: fn() -> u64,
}

impl Schemes {
    /// Makes the builds in a folder and runs them; gives the profiles of the field that are to be reported, too.
    ///
    /// # Errors
    /// A stage fails.
    pub fn compare(job: &SchemeJob, folder: &Path, folders: &Folders) -> Result<(Schemes, Vec<String>)> {
        for (option, command) in [("--tests", job.tests), ("--field", job.field)] {
            ensure!(
                command.contains(PLACE),
                "{option} {command}: nothing in it stands for the program: write {PLACE} where its name belongs"
            );
        }
        let stages = Stages { job, folder, folders };
        let (first, segments) = stages.whole_program_path()?;
        let (second, paths) = stages.three_stages()?;
        let known = stages.instrument("residual", &["--residual", words(&paths)?], REACHES_CALLS)?;
        let unknown = stages.record(&known, job.field, &[])?;
        let (counts_segments, across_calls) = (stages.place("segments")?, stages.place("stage-2")?);
        let (plain, every) = (stages.instrument("plain", &["--addresses"], "")?, stages.instrument("paths", &[], "")?);
        let builds = [
            ("nothing is counted", &*plain),
            ("all paths", &*every),
            // What counting all paths of the code with its callees inlined counts.
            ("all paths across calls", &*across_calls),
            ("untested segments", &*counts_segments),
            ("untested paths", &*known),
        ];
        let costs = Costs::measure(&builds, |build| Ok(job.field.replace(PLACE, words(build)?)), job.rounds, job.cpu_time)?;
        let profiles = [&unknown.0, &segments].map(|file| words(file).map(str::to_owned));
        Ok((Schemes { schemes: [first, second], costs }, profiles.into_iter().collect::<Result<_>>()?))
    }
}

/// Choices of a build that counts at which calls its paths arrive.
const REACHES_CALLS: &str = "--reach calls";

struct Stages<'a> {
    job: &'a SchemeJob<'a>,
    folder: &'a Path,
    folders: &'a Folders,
}

impl Stages<'_> {
    /// Scheme 1: gives the field's profile, too.
    fn whole_program_path(&self) -> Result<(Scheme, PathBuf)> {
        let writes = self.instrument("stream", &["--stream"], "")?;
        let (tests, time) = self.record(&writes, self.job.tests, &["--whole-program"])?;
        let streams = tests.with_extension("trodden.streams");
        let deployed = self.instrument("segments", &["--segments", &format!("tested:{}", words(&streams)?)], "")?;
        let (profile, _) = self.record(&deployed, self.job.field, &[])?;
        Ok((Scheme::new("whole program path", 1, time, (&profile, self.folders))?, profile))
    }

    /// Scheme 2: gives the paths of the tests, too.
    fn three_stages(&self) -> Result<(Scheme, PathBuf)> {
        let counts_paths = self.instrument("stage-1", &[], REACHES_CALLS)?;
        let (paths, first) = self.record(&counts_paths, self.job.tests, &[])?;
        let follows = self.instrument("stage-2", &["--segments", &format!("calls:{}", words(&paths)?)], "")?;
        let (segments, second) = self.record(&follows, self.job.tests, &[])?;
        let deployed = self.instrument("stage-3", &["--segments", &format!("tested:{}", words(&segments)?)], "")?;
        let (profile, _) = self.record(&deployed, self.job.field, &[])?;
        Ok((Scheme::new("three stages", 2, first + second, (&profile, self.folders))?, paths))
    }

    /// Where a build lies: under the program's own name, since some programs do what their names say, and with names of one length, since
    /// some keep theirs.
    fn place(&self, name: &str) -> Result<PathBuf> {
        Ok(self
            .folder
            .join(format!("{name:-<8}"))
            .join(self.job.program.file_name().with_context(|| format!("{} does not name a program", self.job.program.display()))?))
    }

    /// Makes a build of the program; choices are those of the laboratory.
    fn instrument(&self, name: &str, options: &[&str], choices: &str) -> Result<PathBuf> {
        let output = self.place(name)?;
        trodden_profile::temporary::create_folders(output.parent().unwrap_or(self.folder))?;
        log::info!("making the build `{name}`");
        let arguments = [OsStr::new("instrument"), self.job.program.as_os_str(), OsStr::new("-o"), output.as_os_str()];
        self.trodden(arguments.into_iter().chain(options.iter().map(OsStr::new)), choices)?;
        Ok(output)
    }

    /// Runs a command with a build; gives the profile, and how long it took.
    fn record(&self, build: &Path, command: &str, options: &[&str]) -> Result<(PathBuf, Duration)> {
        let kind = if command == self.job.field { "field" } else { "tests" };
        let output = build.with_file_name(format!("{kind}.trodden"));
        let command = command.replace(PLACE, words(build)?);
        log::info!("running {command}");
        let before = [OsStr::new("record"), OsStr::new("--no-store"), OsStr::new("-o"), output.as_os_str()];
        let behind = ["--", "sh", "-c", &command].map(OsStr::new);
        let begun = Instant::now();
        let ran = self.trodden(before.into_iter().chain(options.iter().map(OsStr::new)).chain(behind), "");
        let time = begun.elapsed();
        match ran {
            Err(error) if !output.is_file() => return Err(error),
            Err(error) => log::warn!("{error}; what it counted is used"),
            Ok(()) => {}
        }
        Ok((output, time))
    }

    /// Runs a command of this tool; what it says is shown if it fails.
    fn trodden<'w>(&self, arguments: impl Iterator<Item = &'w OsStr>, choices: &str) -> Result<()> {
        let mut command = Command::new(self.job.trodden);
        let output = command
            .args(arguments)
            .env("TRODDEN_LABORATORY", choices)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("cannot run trodden")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", output.status, said.trim());
        Ok(())
    }
}

fn words(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

impl Scheme {
    /// What a field program found.
    fn new(stages: &'static str, runs: usize, time: Duration, (profile, folders): (&Path, &Folders)) -> Result<Scheme> {
        let observed = ObservedSegments::load(words(profile)?, DEPTH, folders)?;
        let (tested, _) = observed.asked(DEPTH, false);
        let untested = observed.named(DEPTH).into_iter().filter(|(segment, _)| !tested.contains(segment));
        let untested: Vec<(Vec<NamedPath>, u64)> = untested.collect();
        let executions = untested.iter().map(|(_, count)| count).sum();
        let untested = untested.into_iter().map(|(segment, _)| segment).collect();
        Ok(Scheme { stages, runs, time, tested: tested.len(), untested, executions })
    }
}

impl Schemes {
    /// The names of the segments that one finds and the other does not.
    pub fn alone(&self, which: usize) -> Vec<String> {
        let [this, other] = [&self.schemes[which], &self.schemes[1 - which]];
        let name = |(_, name, path): &NamedPath| format!("{}:{path}", Name::from_linkage(name).short);
        let segment = |s: &Vec<NamedPath>| s.iter().map(name).collect::<Vec<_>>().join(" > ");
        this.untested.difference(&other.untested).map(segment).collect()
    }
}
