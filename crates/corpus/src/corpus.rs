//! Fetches, builds and runs the programs of `corpus/` by calling their shell recipes.

use crate::input::Input;
use crate::packages;
use crate::steps;
use crate::variant::{TrainingRuns, Variant};
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
    /// Uses the folder `corpus` in cargo's target folder.
    pub fn in_target() -> Corpus {
        Corpus { folder: steps::target_folder().join("corpus") }
    }

    /// Uses the folder at this path.
    pub fn in_folder(folder: &Path) -> Corpus {
        Corpus { folder: folder.to_owned() }
    }

    /// Resolves program names and installs the Debian packages that the builds need. Without names, uses the `default` programs. Fails if a
    /// name is unknown, or a package cannot be installed.
    pub fn prepare(&self, named: &[String], default: &[&str]) -> Result<Vec<String>> {
        let default: Vec<String> = default.iter().map(|p| (*p).to_owned()).collect();
        let programs = self.programs(if named.is_empty() { &default } else { named })?;
        self.ensure_packages(&programs)?;
        Ok(programs)
    }

    /// Expands `all` in a list of program names to the complete corpus. Fails if a name is unknown. The message lists all programs.
    pub fn programs(&self, named: &[String]) -> Result<Vec<String>> {
        let all: Vec<String> = steps::output(Command::new("bash").arg(script()).arg("list"))?.lines().map(str::to_owned).collect();
        if named.iter().any(|n| n == "all") {
            return Ok(all);
        }
        match named.iter().find(|n| !all.contains(n)) {
            Some(unknown) => bail!("the corpus has no program `{unknown}`. Choose from {}", all.join(", ")),
            None => Ok(named.to_vec()),
        }
    }

    /// Returns a listing that describes each program in one line.
    pub fn describe_programs(&self) -> Result<String> {
        steps::output(self.recipe_command("about", "all").env("BUILD", "plain"))
    }

    /// Installs the Debian packages that the builds of these programs need.
    pub fn ensure_packages(&self, programs: &[String]) -> Result<()> {
        let mut packages = Vec::new();
        for program in programs {
            packages.extend(steps::output(&mut self.recipe_command("packages", program))?.split_whitespace().map(str::to_owned));
        }
        packages.sort();
        packages.dedup();
        packages::ensure_packages(&packages)
    }

    /// Fetches the Debian source package with this name and returns the folder of its sources.
    pub fn fetch_source(&self, package: &str) -> Result<PathBuf> {
        self.run_recipe(&mut self.recipe_command("source", package))?;
        Ok(self.folder.join("src").join(package))
    }

    /// Fetches a program's sources unless they are present.
    pub fn fetch(&self, program: &str) -> Result<()> {
        self.run_recipe(&mut self.recipe_command("fetch", program))
    }

    /// Creates a program's input files if they are missing.
    pub fn create_inputs(&self, program: &str) -> Result<()> {
        self.run_recipe(&mut self.recipe_command("inputs", program))
    }

    /// Builds a variant of a program, even if it is up to date.
    pub fn build(&self, program: &str, variant: &Variant) -> Result<()> {
        if let Some(scheme) = variant.scheme() {
            return self.build_with_scheme(program, variant, scheme);
        }
        log::info!("building {program} ({})", variant.name());
        let mut command = self.recipe_command("build", program);
        let mut variables = variant.build_environment()?;
        if let Some(trained) = variant.training_runs() {
            let file = self.export_known_paths(program, trained)?;
            let options = variables.iter_mut().filter(|(name, _)| *name == "TRODDEN_INSTRUMENT");
            options.for_each(|(_, text)| text.push(format!(" {}={}", trained.name(), percent_encode_path(&file))));
        }
        command.envs(variables).env("BUILD", variant.folder());
        self.run_recipe(&mut command)
    }

    /// Re-instruments the default build so that it counts only the paths that the short run executes. `scheme` numbers these paths.
    fn build_with_scheme(&self, program: &str, variant: &Variant, scheme: &str) -> Result<()> {
        let stored = self.full_profile(program, Input::Train)?;
        log::info!("building {program} ({})", variant.name());
        let output = self.program(program, variant);
        if let Some(folder) = output.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut instrument = Command::new(steps::programs_folder().join("trodden"));
        instrument.arg("instrument").arg(self.program(program, &Variant::trodden())).arg("-o").arg(output);
        instrument.env(steps::LABORATORY_VARIABLE, format!("--scheme {scheme}"));
        steps::output(instrument.arg("--interesting").arg(&stored)).map(drop)
    }

    /// Exports the paths of the runs that a variant is trained on, for use by its build. Returns the exported file.
    fn export_known_paths(&self, program: &str, trained: TrainingRuns) -> Result<PathBuf> {
        let stored = match trained {
            TrainingRuns::TrainAndSuite if self.suite_runs(program)? == 0 => {
                bail!("{program} has no test suite, which this variant needs. Add one to corpus/programs/{program}.sh, or omit the variant")
            }
            TrainingRuns::TrainAndSuite => self.profile_runs(program, &[Input::Train, Input::Suite], trained.runs())?,
            TrainingRuns::Train => self.profile_runs(program, &[Input::Train], trained.runs())?,
        };
        let file = stored.with_extension(trained.name());
        let mut export = Command::new(steps::programs_folder().join("trodden"));
        steps::output(export.args(["export", trained.name()]).arg(&stored).arg("-o").arg(&file))?;
        Ok(file)
    }

    /// Builds a program with trodden's default settings, runs it, and returns the file with the run's profile. Fails if the program cannot
    /// be built or run, or nothing was counted.
    pub fn full_profile(&self, program: &str, input: Input) -> Result<PathBuf> {
        self.profile_runs(program, &[input], input.name())
    }

    /// Like [`Corpus::full_profile`], but runs the program once per input and merges the profiles.
    fn profile_runs(&self, program: &str, inputs: &[Input], name: &str) -> Result<PathBuf> {
        let trodden = Variant::trodden();
        self.create_inputs(program)?;
        self.build_once(program, &trodden)?;
        for input in inputs {
            self.run(program, &trodden, *input, "")?;
        }
        let stored = self.profile_file(program, name);
        if let Some(folder) = stored.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut collect = Command::new(steps::programs_folder().join("trodden"));
        collect.args(["import", "--no-store", "-o"]).arg(&stored);
        steps::output(collect.args(inputs.iter().map(|input| self.counts_folder(program, &trodden, *input))))?;
        std::path::absolute(&stored).context("cannot determine the current folder. Change to an existing folder")
    }

    fn profile_file(&self, program: &str, runs: &str) -> PathBuf {
        self.folder.join("profiles").join(format!("{program}.{runs}.trodden"))
    }

    /// Builds a variant if its executable is missing, or older than the tools that build it.
    pub fn build_once(&self, program: &str, variant: &Variant) -> Result<()> {
        let changed = |path: PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let tools = variant.tools().into_iter().filter_map(changed).max();
        let is_up_to_date = changed(self.program(program, variant)).is_some_and(|built| tools.is_none_or(|tools| tools < built));
        if is_up_to_date { Ok(()) } else { self.build(program, variant) }
    }

    /// Runs a variant under the command `runner` (empty for none) and returns a checksum of the variant's output.
    pub fn run(&self, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        self.run_build(&variant.folder(), program, variant, input, runner)
    }

    /// Like [`Corpus::run`], but without debug information, for runners that cannot read clang's debug information.
    pub fn run_stripped(&self, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        let build = format!("{}-stripped", variant.folder());
        let folder = self.folder.join("bin").join(&build);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-debug", "-o"]).arg(folder.join(program)).arg(self.program(program, variant));
        steps::output(&mut strip)?;
        self.run_build(&build, program, variant, input, runner)
    }

    fn run_build(&self, build: &str, program: &str, variant: &Variant, input: Input, runner: &str) -> Result<String> {
        let counts = self.counts_folder(program, variant, input);
        // The instrumented program adds its counts to existing files.
        if counts.exists() {
            std::fs::remove_dir_all(&counts).with_context(|| format!("cannot remove {}", counts.display()))?;
        }
        std::fs::create_dir_all(&counts).with_context(|| format!("cannot create {}", counts.display()))?;
        let mut command = self.recipe_command(input.name(), program);
        if variant.is_sampled() {
            command = wrap_in_recorder(&command, &self.sampled_profile(program, variant, input));
        }
        command.envs(variant.run_environment(&counts)).env("BUILD", build).env("RUNNER", runner);
        Ok(steps::output(&mut command)?.trim().to_owned())
    }

    fn counts_folder(&self, program: &str, variant: &Variant, input: Input) -> PathBuf {
        self.folder.join("counts").join(variant.folder()).join(format!("{program}.{}", input.name()))
    }

    /// The profile that `trodden record` wrote during the last run of a sampled variant. It covers all processes of that run.
    pub fn sampled_profile(&self, program: &str, variant: &Variant, input: Input) -> PathBuf {
        self.counts_folder(program, variant, input).join("sampled.trodden")
    }

    /// Builds a program with these environment variables. The executable goes into the folder `bin/BUILD`.
    pub fn build_as(&self, build: &str, program: &str, variables: &[(&str, OsString)]) -> Result<()> {
        log::info!("building {program} (build {build})");
        self.run_recipe(self.recipe_command("build", program).envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build))
    }

    /// Runs a program that [`Corpus::build_as`] built, and returns a checksum of the program's output.
    pub fn run_as(&self, build: &str, program: &str, input: Input, runner: &str, variables: &[(&str, OsString)]) -> Result<String> {
        let mut command = self.recipe_command(input.name(), program);
        command.envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build).env("RUNNER", runner);
        Ok(steps::output(&mut command)?.trim().to_owned())
    }

    /// The number of runs in a program's test suite; 0 if the program has no test suite.
    pub fn suite_runs(&self, program: &str) -> Result<usize> {
        Ok(steps::output(&mut self.recipe_command("suite-lines", program))?.lines().count())
    }

    /// The working folder. The executables are at `bin/BUILD/PROGRAM`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a variant's executable.
    pub fn program(&self, program: &str, variant: &Variant) -> PathBuf {
        self.folder.join("bin").join(variant.folder()).join(program)
    }

    /// Returns true if cargo builds the program.
    pub fn is_rust(&self, program: &str) -> Result<bool> {
        let about = steps::output(&mut self.recipe_command("about", program))?;
        Ok(about.strip_prefix(program).is_some_and(|rest| rest.starts_with(": crate ")))
    }

    /// The path of the log that a variant's build writes.
    pub fn build_log(&self, program: &str, variant: &Variant) -> PathBuf {
        self.folder.join("build").join(variant.folder()).join(format!("{program}.log"))
    }

    /// The duration of a variant's build in seconds; `None` if the build was not measured.
    pub fn build_seconds(&self, program: &str, variant: &Variant) -> Option<f64> {
        let file = self.folder.join("build").join(variant.folder()).join(format!("{program}.seconds"));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn recipe_command(&self, command: &str, program: &str) -> Command {
        let mut recipe = Command::new("bash");
        recipe.arg(script()).arg(command).arg(program).arg(&self.folder);
        recipe
    }

    /// Runs a recipe. The recipe itself prints progress and errors.
    fn run_recipe(&self, command: &mut Command) -> Result<()> {
        let status = command.stdin(std::process::Stdio::null()).status().context("cannot run bash")?;
        if !status.success() {
            bail!("the recipe in {} failed; its message is above", script().display());
        }
        Ok(())
    }
}

fn wrap_in_recorder(command: &Command, profile: &Path) -> Command {
    let mut recorder = Command::new(steps::programs_folder().join("trodden"));
    recorder.args(["record", "--burst", "500us", "--no-store", "-o"]).arg(profile).arg("--");
    recorder.arg(command.get_program()).args(command.get_args());
    recorder
}

/// The path of the script that executes the recipes.
pub fn script() -> PathBuf {
    steps::checkout_root().join("corpus/recipe.sh")
}

/// Percent-encodes a path, so that it can be the value of an instrumentation setting.
fn percent_encode_path(file: &Path) -> percent_encoding::PercentEncode<'_> {
    percent_encoding::percent_encode(file.as_os_str().as_encoded_bytes(), percent_encoding::NON_ALPHANUMERIC)
}
