//! The programs of `corpus/`, whose recipes are shell, driven from here.

use crate::input::Input;
use crate::packages;
use crate::steps;
use crate::variant::{Trained, Variant};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder in which programs of the corpus are fetched, built and run.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// The one in cargo's target folder.
    pub fn own() -> Corpus {
        Corpus { folder: steps::target().join("corpus") }
    }

    /// One elsewhere.
    pub fn at(folder: &Path) -> Corpus {
        Corpus { folder: folder.to_owned() }
    }

    /// The named programs, or the default ones if none is named, with what the system has to have for them.
    ///
    /// # Errors
    /// One is unknown, or packages cannot be installed.
    pub fn ready(&self, named: &[String], default: &[&str]) -> Result<Vec<String>> {
        let default: Vec<String> = default.iter().map(|p| (*p).to_owned()).collect();
        let programs = self.programs(if named.is_empty() { &default } else { named })?;
        self.ensure_packages(&programs)?;
        Ok(programs)
    }

    /// The programs named, `all` spelled out.
    ///
    /// # Errors
    /// One is unknown.
    pub fn programs(&self, named: &[String]) -> Result<Vec<String>> {
        let all: Vec<String> = steps::output(Command::new("bash").arg(script()).arg("list"))?.lines().map(str::to_owned).collect();
        if named.iter().any(|n| n == "all") {
            return Ok(all);
        }
        match named.iter().find(|n| !all.contains(n)) {
            Some(unknown) => bail!("the corpus has no program {unknown}; it has {}", all.join(", ")),
            None => Ok(named.to_vec()),
        }
    }

    /// What the recipes say of all programs, a line each.
    ///
    /// # Errors
    /// The recipes cannot be asked.
    pub fn about(&self) -> Result<String> {
        steps::output(self.recipe("about", "all").env("BUILD", "plain"))
    }

    /// Installs what the builds of these programs need.
    ///
    /// # Errors
    /// It cannot be installed.
    pub fn ensure_packages(&self, programs: &[String]) -> Result<()> {
        let mut packages = Vec::new();
        for program in programs {
            packages.extend(steps::output(&mut self.recipe("packages", program))?.split_whitespace().map(str::to_owned));
        }
        packages.sort();
        packages.dedup();
        packages::ensure_packages(&packages)
    }

    /// Fetches any Debian source package; gives the folder of its sources.
    ///
    /// # Errors
    /// It cannot be fetched.
    pub fn source(&self, package: &str) -> Result<PathBuf> {
        self.step(&mut self.recipe("source", package))?;
        Ok(self.folder.join("src").join(package))
    }

    /// Fetches a program's sources, if they are not there.
    ///
    /// # Errors
    /// They cannot be fetched.
    pub fn fetch(&self, program: &str) -> Result<()> {
        self.step(&mut self.recipe("fetch", program))
    }

    /// Makes a program's input files, if they are not there.
    ///
    /// # Errors
    /// The recipe failed.
    pub fn inputs(&self, program: &str) -> Result<()> {
        self.step(&mut self.recipe("inputs", program))
    }

    /// Builds a variant.
    ///
    /// # Errors
    /// The recipe failed.
    pub fn build(&self, program: &str, variant: &Variant) -> Result<()> {
        if let Some(scheme) = variant.scheme() {
            return self.build_chosen(program, variant, scheme);
        }
        log::info!("building {program}, {}", variant.name());
        let mut command = self.recipe("build", program);
        let mut variables = variant.build_environment()?;
        if let Some(trained) = variant.trained() {
            let file = self.learnt(program, trained)?;
            let options = variables.iter_mut().filter(|(name, _)| *name == "TRODDEN_INSTRUMENT");
            options.for_each(|(_, text)| text.push(format!(" {}={}", trained.name(), encoded(&file))));
        }
        command.envs(variables).env("BUILD", variant.folder());
        self.step(&mut command)
    }

    /// Makes trodden's build again, to count the paths of its short run by a scheme.
    fn build_chosen(&self, program: &str, variant: &Variant, scheme: &str) -> Result<()> {
        let stored = self.full_profile(program, Input::Train)?;
        log::info!("building {program}, {}", variant.name());
        let output = self.program(program, variant);
        if let Some(folder) = output.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut instrument = Command::new(steps::target().join("release/trodden"));
        instrument.arg("instrument").arg(self.program(program, &Variant::trodden())).arg("-o").arg(output);
        instrument.env(steps::LABORATORY_VARIABLE, format!("--scheme {scheme}"));
        steps::output(instrument.arg("--interesting").arg(&stored)).map(drop)
    }

    /// What a program's earlier runs say, for variants that go by it.
    fn learnt(&self, program: &str, trained: Trained) -> Result<PathBuf> {
        let stored = match trained {
            Trained::KnownWithSuite if self.suite_runs(program)? == 0 => {
                bail!("{program} has no suite: write one in corpus/programs/{program}.sh, or leave out the variant")
            }
            Trained::KnownWithSuite => self.profile_of(program, &[Input::Train, Input::Suite], trained.runs())?,
            Trained::Known => self.profile_of(program, &[Input::Train], trained.runs())?,
        };
        let file = stored.with_extension(trained.name());
        let mut export = Command::new(steps::target().join("release/trodden"));
        steps::output(export.args(["export", trained.name()]).arg(&stored).arg("-o").arg(&file))?;
        Ok(file)
    }

    /// The stored profile of a program's run, as trodden counts by default.
    ///
    /// # Errors
    /// It cannot be built or run, or nothing was counted.
    pub fn full_profile(&self, program: &str, input: Input) -> Result<PathBuf> {
        self.profile_of(program, &[input], input.name())
    }

    /// The same of several runs together.
    fn profile_of(&self, program: &str, inputs: &[Input], name: &str) -> Result<PathBuf> {
        let trodden = Variant::trodden();
        self.inputs(program)?;
        self.build_once(program, &trodden)?;
        for input in inputs {
            self.run(program, &trodden, *input, "")?;
        }
        let stored = self.stored(program, name);
        if let Some(folder) = stored.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut collect = Command::new(steps::target().join("release/trodden"));
        collect.args(["import", "--no-store", "-o"]).arg(&stored);
        steps::output(collect.args(inputs.iter().map(|input| self.counts(program, &trodden, *input))))?;
        std::path::absolute(&stored).context("there is no current folder")
    }

    /// Where the stored profile of a program's runs is.
    fn stored(&self, program: &str, runs: &str) -> PathBuf {
        self.folder.join("profiles").join(format!("{program}.{runs}.trodden"))
    }

    /// Builds a variant, if it is not there or older than the tools that build it.
    ///
    /// # Errors
    /// The recipe failed.
    pub fn build_once(&self, program: &str, variant: &Variant) -> Result<()> {
        let changed = |path: PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let tools = variant.tools().into_iter().filter_map(changed).max();
        let is_up_to_date = changed(self.program(program, variant)).is_some_and(|built| tools.is_none_or(|tools| tools < built));
        if is_up_to_date { Ok(()) } else { self.build(program, variant) }
    }

    /// Runs a variant behind the command `runner`, and gives a checksum of what it printed.
    ///
    /// # Errors
    /// The run failed.
    pub fn run(&self, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        self.run_build(&variant.folder(), program, variant, input, runner)
    }

    /// The same with a copy of the program that has no debug information, for tools that cannot read it.
    ///
    /// # Errors
    /// The copy cannot be made, or the run failed.
    pub fn run_stripped(&self, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        let build = format!("{}-stripped", variant.folder());
        let folder = self.folder.join("bin").join(&build);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-debug", "-o"]).arg(folder.join(program)).arg(self.program(program, variant));
        steps::output(&mut strip)?;
        self.run_build(&build, program, variant, input, runner)
    }

    fn run_build(&self, build: &str, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        let counts = self.counts(program, variant, input);
        // Counts of earlier runs would be added to.
        if counts.exists() {
            std::fs::remove_dir_all(&counts).with_context(|| format!("cannot empty {}", counts.display()))?;
        }
        std::fs::create_dir_all(&counts).with_context(|| format!("cannot make {}", counts.display()))?;
        let mut command = self.recipe(input.name(), program);
        if variant.is_recorded() {
            command = recorded(&command, &self.sampled_profile(program, variant, input));
        }
        command.envs(variant.run_environment(&counts)).env("BUILD", build).env("RUNNER", runner);
        Ok(steps::output(&mut command)?.trim().to_owned())
    }

    /// The folder of what a run counts.
    fn counts(&self, program: &str, variant: &Variant, input: Input) -> PathBuf {
        self.folder.join("counts").join(variant.folder()).join(format!("{program}.{}", input.name()))
    }

    /// The profile of the last run of a variant that a recorder samples: of all its processes together.
    pub fn sampled_profile(&self, program: &str, variant: &Variant, input: Input) -> PathBuf {
        self.counts(program, variant, input).join("sampled.trodden")
    }

    /// Builds under a name of its own, with these variables.
    ///
    /// # Errors
    /// The recipe failed.
    pub fn build_as(&self, build: &str, program: &str, variables: &[(&str, OsString)]) -> Result<()> {
        log::info!("building {program}, {build}");
        self.step(self.recipe("build", program).envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build))
    }

    /// Runs what [`Corpus::build_as`] made; gives a checksum of what it printed.
    ///
    /// # Errors
    /// The run failed.
    pub fn run_as(&self, build: &str, program: &str, input: Input, runner: &str, variables: &[(&str, OsString)]) -> Result<String> {
        let mut command = self.recipe(input.name(), program);
        command.envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build).env("RUNNER", runner);
        Ok(steps::output(&mut command)?.trim().to_owned())
    }

    /// How many runs a program's suite has; 0 if it has none.
    ///
    /// # Errors
    /// The recipe cannot be asked.
    pub fn suite_runs(&self, program: &str) -> Result<usize> {
        Ok(steps::output(&mut self.recipe("suite-lines", program))?.lines().count())
    }

    /// Where things are: `bin/BUILD/PROGRAM`, and room for more.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a variant's program is.
    pub fn program(&self, program: &str, variant: &Variant) -> PathBuf {
        self.folder.join("bin").join(variant.folder()).join(program)
    }

    /// Whether a program is Rust's: cargo builds it.
    ///
    /// # Errors
    /// The recipe cannot be asked.
    pub fn is_rust(&self, program: &str) -> Result<bool> {
        let about = steps::output(&mut self.recipe("about", program))?;
        Ok(about.strip_prefix(program).is_some_and(|rest| rest.starts_with(": crate ")))
    }

    /// What a variant's build says.
    pub fn build_log(&self, program: &str, variant: &Variant) -> PathBuf {
        self.folder.join("build").join(variant.folder()).join(format!("{program}.log"))
    }

    /// Seconds that a variant's build took.
    pub fn build_seconds(&self, program: &str, variant: &Variant) -> Option<f64> {
        let file = self.folder.join("build").join(variant.folder()).join(format!("{program}.seconds"));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn recipe(&self, command: &str, program: &str) -> Command {
        let mut recipe = Command::new("bash");
        recipe.arg(script()).arg(command).arg(program).arg(&self.folder);
        recipe
    }

    /// Recipes say themselves what they do, and what went wrong.
    fn step(&self, command: &mut Command) -> Result<()> {
        let status = command.stdin(std::process::Stdio::null()).status().context("cannot run bash")?;
        if !status.success() {
            bail!("the recipe in {} failed; its message is above", script().display());
        }
        Ok(())
    }
}

/// A command under a recorder that samples the programs which it runs.
fn recorded(command: &Command, profile: &Path) -> Command {
    let mut recorder = Command::new(steps::target().join("release/trodden"));
    recorder.args(["record", "--burst", "500us", "--no-store", "-o"]).arg(profile).arg("--");
    recorder.arg(command.get_program()).args(command.get_args());
    recorder
}

/// The script that fetches, builds and runs.
pub fn script() -> PathBuf {
    steps::root().join("corpus/recipe.sh")
}

/// A file's name as a setting's value: drivers read `%XX` as a byte.
fn encoded(file: &Path) -> percent_encoding::PercentEncode<'_> {
    percent_encoding::percent_encode(file.as_os_str().as_encoded_bytes(), percent_encoding::NON_ALPHANUMERIC)
}
