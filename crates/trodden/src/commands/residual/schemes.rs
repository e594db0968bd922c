//! `trodden residual --schemes`: untested segments across calls by both schemes of section 3.5.2 of Vaswani's thesis, compared with each
//! other, and untested paths beside them.
//!
//! | scheme | builds of the program | runs of the tests |
//! |---|---|---|
//! | 1 | one that writes its whole program path; the field's, with the segments of that | 1 |
//! | 2 | I: counts paths up to calls; II: counts what follows those; III: the field's, with what II counted | 2 |
//!
//! Each stage is a command of trodden's own, run as a user would run it.

use super::cost::Costs;
use super::report;
use crate::cli::{Color, Residual};
use crate::commands::segments::{NamedPath, ObservedSegments};
use crate::notes::{note, warn};
use crate::temporary;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use trodden_report::Name;
use trodden_report::words::plural;

/// What stands for the program in a command.
const PLACE: &str = "{}";
/// Segments that are named of those that one scheme alone finds.
const NAMED: usize = 5;
/// Segments have one call: the second scheme's stage I knows the paths up to each.
const DEPTH: usize = 1;

/// What the schemes found.
pub struct Schemes {
    schemes: [Scheme; 2],
    costs: Costs,
}

struct Scheme {
    /// Stages before the field, in words.
    stages: &'static str,
    /// Runs of the tests, and how long they took together.
    runs: usize,
    time: Duration,
    tested: usize,
    untested: BTreeSet<Vec<NamedPath>>,
    executions: u64,
}

/// Makes the builds, runs them, and reports.
///
/// # Errors
/// A stage fails.
pub fn run(job: &Residual, program: &Path, color: Color) -> Result<ExitCode> {
    let (Some(tests), Some(field)) = (&job.tests, &job.field) else { bail!("--schemes needs --tests and --field") };
    for (option, command) in [("--tests", tests), ("--field", field)] {
        ensure!(command.contains(PLACE), "{option} {command}: nothing in it stands for the program: write {PLACE} where its name belongs");
    }
    let folder = temporary::folder("trodden-schemes-")?;
    let stages = Stages { program, folder: folder.path(), tests, field };
    let (first, segments) = stages.whole_program_path()?;
    let (second, paths) = stages.three_stages()?;
    let known = stages.instrument("residual", &["--residual", words(&paths)?, "--reach", "calls"])?;
    let unknown = stages.record(&known, field, &[])?;
    let (counts_segments, across_calls) = (stages.place("segments")?, stages.place("stage-2")?);
    let (plain, every) = (stages.instrument("plain", &["--addresses"])?, stages.instrument("paths", &[])?);
    let builds = [
        ("nothing is counted", &*plain),
        ("all paths", &*every),
        // What counting all paths of the code with its callees inlined counts.
        ("all paths across calls", &*across_calls),
        ("untested segments", &*counts_segments),
        ("untested paths", &*known),
    ];
    let costs = Costs::measure(&builds, |build| Ok(field.replace(PLACE, words(build)?)), job.rounds)?;
    let compared = Schemes { schemes: [first, second], costs };
    let both = |file: &PathBuf| words(file).map(str::to_owned);
    let job = Residual { profiles: vec![both(&unknown.0)?, both(&segments)?], schemes: None, ..job.clone() };
    report(&job, color, Some(&compared))
}

struct Stages<'a> {
    program: &'a Path,
    folder: &'a Path,
    tests: &'a str,
    field: &'a str,
}

impl Stages<'_> {
    /// Scheme 1: gives the field's profile, too.
    fn whole_program_path(&self) -> Result<(Scheme, PathBuf)> {
        let writes = self.instrument("stream", &["--stream"])?;
        let (tests, time) = self.record(&writes, self.tests, &["--whole-program"])?;
        let streams = tests.with_extension("trodden.streams");
        let deployed = self.instrument("segments", &["--tested-segments", words(&streams)?])?;
        let (profile, _) = self.record(&deployed, self.field, &[])?;
        Ok((Scheme::new("whole program path", 1, time, &profile)?, profile))
    }

    /// Scheme 2: gives the paths of the tests, too.
    fn three_stages(&self) -> Result<(Scheme, PathBuf)> {
        let counts_paths = self.instrument("stage-1", &["--reach", "calls"])?;
        let (paths, first) = self.record(&counts_paths, self.tests, &[])?;
        let follows = self.instrument("stage-2", &["--segments", &format!("calls:{}", words(&paths)?)])?;
        let (segments, second) = self.record(&follows, self.tests, &[])?;
        let deployed = self.instrument("stage-3", &["--tested-segments", words(&segments)?])?;
        let (profile, _) = self.record(&deployed, self.field, &[])?;
        Ok((Scheme::new("three stages", 2, first + second, &profile)?, paths))
    }

    /// Where a build lies: under the program's own name, since some programs do what their names say, and with names of one length, since
    /// some keep theirs.
    fn place(&self, name: &str) -> Result<PathBuf> {
        Ok(self.folder.join(format!("{name:-<8}")).join(self.program.file_name().context("--schemes: the program has no name")?))
    }

    /// Makes a build of the program.
    fn instrument(&self, name: &str, options: &[&str]) -> Result<PathBuf> {
        let output = self.place(name)?;
        std::fs::create_dir_all(output.parent().unwrap_or(self.folder))?;
        note(format_args!("making the build `{name}`"));
        let arguments = [OsStr::new("instrument"), self.program.as_os_str(), OsStr::new("-o"), output.as_os_str()];
        trodden(arguments.into_iter().chain(options.iter().map(OsStr::new)))?;
        Ok(output)
    }

    /// Runs a command with a build; gives the profile, and how long it took.
    fn record(&self, build: &Path, command: &str, options: &[&str]) -> Result<(PathBuf, Duration)> {
        let kind = if command == self.field { "field" } else { "tests" };
        let output = build.with_file_name(format!("{kind}.trodden"));
        let command = command.replace(PLACE, words(build)?);
        note(format_args!("running {command}"));
        let before = [OsStr::new("record"), OsStr::new("--no-store"), OsStr::new("-o"), output.as_os_str()];
        let behind = ["--", "sh", "-c", &command].map(OsStr::new);
        let begun = Instant::now();
        let ran = trodden(before.into_iter().chain(options.iter().map(OsStr::new)).chain(behind));
        let time = begun.elapsed();
        match ran {
            Err(error) if !output.is_file() => return Err(error),
            Err(error) => warn(format_args!("{error}; what it counted is used")),
            Ok(()) => {}
        }
        Ok((output, time))
    }
}

/// Runs a command of this tool; what it says is shown if it fails.
fn trodden<'w>(arguments: impl Iterator<Item = &'w OsStr>) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    let output = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).output().context("cannot run trodden")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, said.trim());
    Ok(())
}

fn words(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

impl Scheme {
    /// What a field program found.
    fn new(stages: &'static str, runs: usize, time: Duration, profile: &Path) -> Result<Scheme> {
        let observed = ObservedSegments::load(words(profile)?, DEPTH)?;
        let (tested, _) = observed.asked(DEPTH, false);
        let untested = observed.named(DEPTH).into_iter().filter(|(segment, _)| !tested.contains(segment));
        let untested: Vec<(Vec<NamedPath>, u64)> = untested.collect();
        let executions = untested.iter().map(|(_, count)| count).sum();
        let untested = untested.into_iter().map(|(segment, _)| segment).collect();
        Ok(Scheme { stages, runs, time, tested: tested.len(), untested, executions })
    }
}

impl Schemes {
    /// What one finds and the other does not.
    fn alone(&self, which: usize) -> Vec<String> {
        let [this, other] = [&self.schemes[which], &self.schemes[1 - which]];
        let name = |(_, name, path): &NamedPath| format!("{}:{path}", Name::from_linkage(name).short);
        let segment = |s: &Vec<NamedPath>| s.iter().map(name).collect::<Vec<_>>().join(" > ");
        this.untested.difference(&other.untested).map(segment).collect()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::from("How untested segments were found (depth 1)\n");
        out += "  scheme              runs of tests  their time  tested  untested  executions  found by it alone\n";
        for (at, scheme) in self.schemes.iter().enumerate() {
            out += &format!(
                "  {:<18}  {:>13}  {:>8} ms  {:>6}  {:>8}  {:>10}  {:>17}\n",
                scheme.stages,
                scheme.runs,
                scheme.time.as_millis(),
                scheme.tested,
                scheme.untested.len(),
                scheme.executions,
                self.alone(at).len()
            );
        }
        for (at, scheme) in self.schemes.iter().enumerate() {
            let alone = self.alone(at);
            let more = alone.len().saturating_sub(NAMED);
            alone.iter().take(NAMED).for_each(|name| out += &format!("  {} alone: {name}\n", scheme.stages));
            if more > 0 {
                out += &format!("  {} alone: {} more\n", scheme.stages, plural(more as u128, "segment", "segments"));
            }
        }
        out + "\n" + &self.costs.text()
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let scheme = |at: usize| {
            let scheme = &self.schemes[at];
            json!({
                "scheme": scheme.stages,
                "test_runs": scheme.runs,
                "test_time_ms": scheme.time.as_millis() as u64,
                "tested": scheme.tested,
                "untested": scheme.untested.len(),
                "executions": scheme.executions.to_string(),
                "alone": self.alone(at),
            })
        };
        json!([scheme(0), scheme(1)])
    }

    /// What it costs, as JSON.
    pub fn costs(&self) -> Value {
        self.costs.json()
    }
}
