//! The two builds of `trodden pgo`. This module derives the build command, makes each build start from scratch, and finds the program that
//! the build linked.
//!
//! A cargo command becomes `cargo trodden build` with a separate target folder. This folder is emptied before each build, because cargo
//! does not rebuild when only the profile changes. Other build commands may call `cargo trodden build` themselves, so the counters are
//! selected by environment variables.

use super::ProfileGuidedBuild;
use crate::assets;
use crate::build::{self, BuildJob};
use crate::cargo::CargoWorkspace;
use crate::cc::pgo::PROFILE_USE_VARIABLE;
use crate::context::DriverContext;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_unit::experiment::Observe;
use trodden_unit::{InstrumentedImage, Settings};

#[derive(Debug)]
pub struct ProgramBuilder<'a> {
    context: &'a DriverContext,
    job: &'a ProfileGuidedBuild,
    command: Vec<OsString>,
    cargo: Option<CargoBuild>,
}

#[derive(Debug, Default)]
struct CargoBuild {
    /// The target folder to empty before each build; `None` if the user selected one.
    folder: Option<PathBuf>,
    /// The rustup toolchain that the user selects with `cargo +NAME`.
    toolchain: Option<String>,
}

impl ProgramBuilder<'_> {
    /// Analyses the user's build command. Fails if the command runs a cargo subcommand other than `build`, or if cargo does not report its
    /// target folder.
    pub fn from_job<'a>(context: &'a DriverContext, job: &'a ProfileGuidedBuild) -> Result<ProgramBuilder<'a>> {
        let Some((program, rest)) = job.command.split_first() else { bail!("the build command is missing. Write it after `--`") };
        if Path::new(program).file_name() != Some(OsStr::new("cargo")) {
            return Ok(ProgramBuilder { context, job, command: job.command.clone(), cargo: None });
        }
        let mut arguments = rest.to_vec();
        let toolchain = arguments.first().and_then(|w| w.to_str()?.strip_prefix('+').map(str::to_owned));
        arguments.drain(..usize::from(toolchain.is_some()));
        if arguments.first().is_some_and(|w| w == "trodden") {
            arguments.remove(0);
        }
        let verb = arguments.first().map_or("nothing".into(), |w| w.to_string_lossy());
        ensure!(
            ["build", "b"].contains(&&*verb),
            "the cargo command must be `cargo build`, not `cargo {verb}`. Name the command to run with --train"
        );
        let own_folder = !arguments.iter().any(|w| w.to_string_lossy().starts_with("--target-dir"));
        let folder = if own_folder { Some(CargoWorkspace::read(context, &arguments)?.target_folder.join("trodden/pgo")) } else { None };
        let mut command: Vec<OsString> = vec![assets::create_cargo_driver(context, &context.store()?)?.into(), "trodden".into()];
        command.extend(arguments);
        if let Some(folder) = &folder {
            command.splice(3..3, ["--target-dir".into(), folder.into()]);
        }
        Ok(ProgramBuilder { context, job, command, cargo: Some(CargoBuild { folder, toolchain }) })
    }

    /// Runs one of the two builds: the second one, with the edge profile `profile`, or the first one, with LLVM's counters, if `profile` is
    /// `None`. Returns the program. Fails if the build fails, links nothing new, or links several programs.
    pub fn run(&self, profile: Option<&Path>) -> Result<PathBuf> {
        self.clean()?;
        let mut variables: Vec<(&'static str, OsString)> = profile.map(|p| (PROFILE_USE_VARIABLE, p.into())).into_iter().collect();
        variables.extend(self.cargo.iter().flat_map(|c| &c.toolchain).map(|name| ("RUSTUP_TOOLCHAIN", name.into())));
        let observe = match profile {
            None => Some(Observe::EdgeProfile),
            Some(_) => self.job.addresses.then_some(Observe::Addresses),
        };
        // Cargo selects compilers by its own variables, and build scripts must be linked by the compilers on the search path.
        let only_variables = self.job.only_variables || self.cargo.is_some();
        let settings = Settings { observe, ..Settings::default() };
        let built = build::run(self.context, &BuildJob { lto: false, only_variables, settings, command: self.command.clone(), variables })?;
        ensure!(built.status.success(), "the build failed ({})", built.status);
        ensure!(built.compiled, "the build did not call trodden's compilers: {}", self.compiler_hint());
        let program = self.choose_program(built.images.iter().map(|image| find_hard_link(image)).collect())?;
        self.check_program(&program, profile.is_none())?;
        Ok(program)
    }

    fn clean(&self) -> Result<()> {
        if let Some(folder) = self.cargo.as_ref().and_then(|c| c.folder.as_ref()).filter(|f| f.exists()) {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove the folder {} before the build", folder.display()))?;
        }
        if let Some(clean) = &self.job.clean {
            let status = Command::new("sh").arg("-c").arg(clean).status().context("cannot run sh")?;
            ensure!(status.success(), "the --clean command `{clean}` failed ({status})");
        }
        Ok(())
    }

    /// Chooses the program to optimise among the images that a build linked.
    fn choose_program(&self, images: Vec<PathBuf>) -> Result<PathBuf> {
        if let Some(program) = &self.job.program {
            return Ok(std::path::absolute(program)?);
        }
        match images.as_slice() {
            [one] => Ok(one.clone()),
            [] => bail!("the build did not link any instrumented program: {}", self.rebuild_hint()),
            several => {
                let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
                let also = if self.cargo.is_some() { ", or build one alone with cargo's --bin" } else { "" };
                bail!("the build produced {} programs and libraries ({}). Choose one with --program{also}", several.len(), names.join(", "))
            }
        }
    }

    /// Checks that this build has linked the program. A program from an earlier build is recognised by its LLVM counters, which it must
    /// have if and only if `has_counters` is true.
    fn check_program(&self, program: &Path, has_counters: bool) -> Result<()> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
        let found = image.frames.iter().filter_map(|f| f.map().ok()).any(|m| m.experiment.has_edge_profile());
        ensure!(found == has_counters, "the build did not rebuild {}: {}", program.display(), self.rebuild_hint());
        Ok(())
    }

    fn rebuild_hint(&self) -> String {
        match &self.job.clean {
            Some(clean) => format!("the --clean command `{clean}` does not remove the previous build. Pass a command that does"),
            None => format!("pass a command to --clean that removes the previous build ({})", self.clean_example()),
        }
    }

    fn compiler_hint(&self) -> String {
        let up_to_date =
            if self.job.clean.is_some() { String::new() } else { format!("if everything was up to date, {}; ", self.rebuild_hint()) };
        format!(
            "{up_to_date}if the build calls its compiler by an absolute path, pass it $CC and $CXX, as in `trodden pgo ... -- sh -c \
                'make CC=\"$CC\" CXX=\"$CXX\"'`"
        )
    }

    fn clean_example(&self) -> &'static str {
        if self.cargo.is_some() { "`cargo clean` with the same --target-dir" } else { "`make clean`" }
    }
}

/// Returns the path under which a user runs an image that cargo linked. Cargo links `deps/prog-0123456789abcdef`, and creates the hard link
/// `prog` in the folder above `deps`.
fn find_hard_link(image: &Path) -> PathBuf {
    let folder = image.parent().filter(|f| f.ends_with("deps")).and_then(Path::parent);
    let same = |path: &PathBuf| match (fs::metadata(path), fs::metadata(image)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    let entries = folder.and_then(|f| fs::read_dir(f).ok()).into_iter().flatten().flatten();
    entries.map(|e| e.path()).find(same).unwrap_or_else(|| image.to_owned())
}
