//! Fetches, builds and runs the real-world programs of `corpus/`. Each program has a recipe, which is a shell script.

use crate::input::CorpusInput;
use crate::packages;
use crate::steps;
use crate::variant::{CorpusVariant, TrainingRuns};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The corpus of real-world programs, with a working folder in which they are fetched, built and run.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// Returns the corpus whose working folder is `corpus` in cargo's target folder.
    pub fn in_target() -> Corpus {
        Corpus { folder: steps::target_folder().join("corpus") }
    }

    /// Returns the corpus with this working folder.
    pub fn in_folder(folder: &Path) -> Corpus {
        Corpus { folder: folder.to_owned() }
    }

    /// Returns the programs with these names, or the `default` programs if no names are given. Also installs the Debian packages that
    /// building them requires. Fails if a name is unknown, or if a package cannot be installed.
    pub fn prepare(&self, named: &[String], default: &[&str]) -> Result<Vec<String>> {
        let default: Vec<String> = default.iter().map(|p| (*p).to_owned()).collect();
        let programs = self.programs(if named.is_empty() { &default } else { named })?;
        self.ensure_packages(&programs)?;
        Ok(programs)
    }

    /// Checks a list of program names and returns it. The name `all` stands for all programs of the corpus. Fails if a name is unknown; the
    /// error lists all programs.
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

    /// Returns a text with one line about each program.
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

    /// Fetches the sources of a Debian source package. Returns their folder.
    pub fn fetch_source(&self, package: &str) -> Result<PathBuf> {
        self.run_recipe(&mut self.recipe_command("source", package))?;
        Ok(self.folder.join("src").join(package))
    }

    /// Fetches the sources of a program, unless this has been done before.
    pub fn fetch(&self, program: &str) -> Result<()> {
        self.run_recipe(&mut self.recipe_command("fetch", program))
    }

    /// Creates the input files of a program, unless they exist.
    pub fn create_inputs(&self, program: &str) -> Result<()> {
        self.run_recipe(&mut self.recipe_command("inputs", program))
    }

    /// Builds a variant of a program, even if its executable is up to date.
    pub fn build(&self, program: &str, variant: &CorpusVariant) -> Result<()> {
        if let Some(scheme) = variant.scheme() {
            return self.build_with_scheme(program, variant, scheme);
        }
        log::info!("building {program} ({})", variant.name());
        let mut command = self.recipe_command("build", program);
        let mut variables = variant.build_environment()?;
        if let Some(trained) = variant.training_runs() {
            let file = self.export_known_paths(program, trained)?;
            let options = variables.iter_mut().filter(|(name, _)| *name == "TRODDEN_INSTRUMENT");
            options.for_each(|(_, text)| text.push(format!(" {}={}", trained.export_format(), percent_encode_path(&file))));
        }
        command.envs(variables).env("BUILD", variant.folder());
        self.run_recipe(&mut command)
    }

    /// Builds a variant that counts only those paths that the program's short run executes. It is made from the default build by
    /// instrumenting that again. `scheme` is the way to number these paths.
    fn build_with_scheme(&self, program: &str, variant: &CorpusVariant, scheme: &str) -> Result<()> {
        let stored = self.full_profile(program, CorpusInput::Train)?;
        log::info!("building {program} ({})", variant.name());
        let output = self.program(program, variant);
        if let Some(folder) = output.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut instrument = Command::new(steps::programs_folder().join("trodden"));
        instrument.arg("instrument").arg(self.program(program, &CorpusVariant::trodden())).arg("-o").arg(output);
        instrument.env(steps::LABORATORY_VARIABLE, format!("--scheme {scheme}"));
        steps::output(instrument.arg("--interesting").arg(&stored)).map(drop)
    }

    /// Exports the paths of a program's training runs to a file that the instrumentation reads. Returns the file.
    fn export_known_paths(&self, program: &str, trained: TrainingRuns) -> Result<PathBuf> {
        let stored = match trained {
            TrainingRuns::TrainAndSuite if self.suite_runs(program)? == 0 => {
                bail!(
                    "this variant needs a test suite, but {program} has none. Add one to corpus/programs/{program}.sh, or omit the variant"
                )
            }
            TrainingRuns::TrainAndSuite => {
                self.profile_inputs(program, &[CorpusInput::Train, CorpusInput::Suite], trained.file_name_part())?
            }
            TrainingRuns::Train => self.profile_inputs(program, &[CorpusInput::Train], trained.file_name_part())?,
        };
        let file = stored.with_extension(trained.export_format());
        let mut export = Command::new(steps::programs_folder().join("trodden"));
        steps::output(export.args(["export", trained.export_format()]).arg(&stored).arg("-o").arg(&file))?;
        Ok(file)
    }

    /// Builds a program with trodden's default settings, runs it, and returns the file with the run's profile. Fails if the program cannot
    /// be built or run, or if the run wrote no counts.
    pub fn full_profile(&self, program: &str, input: CorpusInput) -> Result<PathBuf> {
        self.profile_inputs(program, &[input], input.name())
    }

    /// Builds a program with trodden's default settings, runs it on each of the inputs, and returns the file with the sum of the profiles.
    /// The file's name contains `name`.
    fn profile_inputs(&self, program: &str, inputs: &[CorpusInput], name: &str) -> Result<PathBuf> {
        let trodden = CorpusVariant::trodden();
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

    /// Builds a variant of a program if its executable is missing, or is older than trodden's own programs with which it was built.
    pub fn build_once(&self, program: &str, variant: &CorpusVariant) -> Result<()> {
        let changed = |path: PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let tools = variant.tools().into_iter().filter_map(changed).max();
        let is_up_to_date = changed(self.program(program, variant)).is_some_and(|built| tools.is_none_or(|tools| tools < built));
        if is_up_to_date { Ok(()) } else { self.build(program, variant) }
    }

    /// Runs a variant of a program and returns a checksum of the program's output. `runner` is a command that runs the program, such as
    /// `perf stat`; if it is empty, the program is run directly.
    pub fn run(&self, program: &str, variant: &CorpusVariant, input: CorpusInput, runner: &str) -> Result<String> {
        self.run_build(&variant.folder(), program, variant, input, runner)
    }

    /// Runs a variant of a program like [`Corpus::run`], but removes its debug information before. It is meant for runners that cannot read
    /// clang's debug information.
    pub fn run_stripped(&self, program: &str, variant: &CorpusVariant, input: CorpusInput, runner: &str) -> Result<String> {
        let build = format!("{}-stripped", variant.folder());
        let folder = self.folder.join("bin").join(&build);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-debug", "-o"]).arg(folder.join(program)).arg(self.program(program, variant));
        steps::output(&mut strip)?;
        self.run_build(&build, program, variant, input, runner)
    }

    fn run_build(&self, build: &str, program: &str, variant: &CorpusVariant, input: CorpusInput, runner: &str) -> Result<String> {
        let counts = self.counts_folder(program, variant, input);
        // Old counts must be removed, because the instrumented program would add its own counts to them.
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

    fn counts_folder(&self, program: &str, variant: &CorpusVariant, input: CorpusInput) -> PathBuf {
        self.folder.join("counts").join(variant.folder()).join(format!("{program}.{}", input.name()))
    }

    /// Returns the path of the profile that `trodden record` wrote during the last run of a sampled variant. The profile covers all
    /// processes of the run.
    pub fn sampled_profile(&self, program: &str, variant: &CorpusVariant, input: CorpusInput) -> PathBuf {
        self.counts_folder(program, variant, input).join("sampled.trodden")
    }

    /// Builds a program with the given environment variables. The executable is written to `bin/BUILD/PROGRAM` in the working folder.
    pub fn build_as(&self, build: &str, program: &str, variables: &[(&str, OsString)]) -> Result<()> {
        log::info!("building {program} (build {build})");
        self.run_recipe(self.recipe_command("build", program).envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build))
    }

    /// Runs a program that [`Corpus::build_as`] has built, with the given environment variables. Returns a checksum of the program's
    /// output.
    pub fn run_as(&self, build: &str, program: &str, input: CorpusInput, runner: &str, variables: &[(&str, OsString)]) -> Result<String> {
        let mut command = self.recipe_command(input.name(), program);
        command.envs(variables.iter().map(|(k, v)| (k, v))).env("BUILD", build).env("RUNNER", runner);
        Ok(steps::output(&mut command)?.trim().to_owned())
    }

    /// Returns the number of runs in a program's test suite; 0 if the program has no test suite.
    pub fn suite_runs(&self, program: &str) -> Result<usize> {
        Ok(steps::output(&mut self.recipe_command("suite-lines", program))?.lines().count())
    }

    /// Returns the working folder. It contains the executables at `bin/BUILD/PROGRAM`, where BUILD is the name of a build.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the executable of a program's variant.
    pub fn program(&self, program: &str, variant: &CorpusVariant) -> PathBuf {
        self.folder.join("bin").join(variant.folder()).join(program)
    }

    /// Returns true if the program is a Rust crate, which cargo builds.
    pub fn is_rust(&self, program: &str) -> Result<bool> {
        let about = steps::output(&mut self.recipe_command("about", program))?;
        Ok(about.strip_prefix(program).is_some_and(|rest| rest.starts_with(": crate ")))
    }

    /// Returns the path of the log of a variant's last build.
    pub fn build_log(&self, program: &str, variant: &CorpusVariant) -> PathBuf {
        self.folder.join("build").join(variant.folder()).join(format!("{program}.log"))
    }

    /// Returns how long the last build of a variant took, in seconds; `None` if this was not measured.
    pub fn build_seconds(&self, program: &str, variant: &CorpusVariant) -> Option<f64> {
        let file = self.folder.join("build").join(variant.folder()).join(format!("{program}.seconds"));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn recipe_command(&self, command: &str, program: &str) -> Command {
        let mut recipe = Command::new("bash");
        recipe.arg(script()).arg(command).arg(program).arg(&self.folder);
        recipe
    }

    /// Runs the command of a recipe. The recipe itself prints its progress and errors.
    fn run_recipe(&self, command: &mut Command) -> Result<()> {
        let status = command.stdin(std::process::Stdio::null()).status().context("cannot run bash")?;
        if !status.success() {
            bail!("the build recipe in {} failed; its message is above", script().display());
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

/// Returns the path of the script that runs the programs' recipes.
pub fn script() -> PathBuf {
    steps::checkout_root().join("corpus/recipe.sh")
}

/// Percent-encodes a path. A setting of the instrumentation cannot contain spaces and some other characters directly.
fn percent_encode_path(file: &Path) -> percent_encoding::PercentEncode<'_> {
    percent_encoding::percent_encode(file.as_os_str().as_encoded_bytes(), percent_encoding::NON_ALPHANUMERIC)
}
