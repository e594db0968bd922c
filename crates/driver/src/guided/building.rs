//! The two builds of `trodden pgo`: determines the build command, starts each build from scratch, and finds the program.
//!
//! A cargo command is turned into `cargo trodden build` with its own target folder, which is emptied before each build, because cargo does
//! not rebuild when only the profile changes. Other commands may call `cargo trodden build` themselves; the environment selects the
//! counters.

use super::GuidedBuild;
use crate::assets;
use crate::build::{self, BuildJob};
use crate::cargo::Workspace;
use crate::cc::pgo::USE_VARIABLE;
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
    job: &'a GuidedBuild,
    command: Vec<OsString>,
    /// Details of the cargo build, if the command runs cargo.
    cargo: Option<Cargo>,
}

/// A build by cargo.
#[derive(Debug, Default)]
struct Cargo {
    /// The target folder that is emptied before each build; `None` if the user names one.
    folder: Option<PathBuf>,
    /// Toolchain of rustup (`cargo +NAME`).
    toolchain: Option<String>,
}

impl ProgramBuilder<'_> {
    /// Analyses the user's build command.
    ///
    /// # Errors
    /// Fails if the command runs a subcommand of cargo other than `build`, or if cargo does not report its target folder.
    pub fn from_job<'a>(context: &'a DriverContext, job: &'a GuidedBuild) -> Result<ProgramBuilder<'a>> {
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
        let folder = if own_folder { Some(Workspace::read(context, &arguments)?.target_folder.join("trodden/pgo")) } else { None };
        let mut command: Vec<OsString> = vec![assets::cargo_driver(context, &context.store()?)?.into(), "trodden".into()];
        command.extend(arguments);
        if let Some(folder) = &folder {
            command.splice(3..3, ["--target-dir".into(), folder.into()]);
        }
        Ok(ProgramBuilder { context, job, command, cargo: Some(Cargo { folder, toolchain }) })
    }

    /// Runs the first build, with LLVM's counters, or the second one, with an edge profile. Returns the program.
    ///
    /// # Errors
    /// Fails if the build fails, makes nothing new, or makes several programs.
    pub fn run(&self, profile: Option<&Path>) -> Result<PathBuf> {
        self.clean()?;
        let mut variables: Vec<(&'static str, OsString)> = profile.map(|p| (USE_VARIABLE, p.into())).into_iter().collect();
        variables.extend(self.cargo.iter().flat_map(|c| &c.toolchain).map(|name| ("RUSTUP_TOOLCHAIN", name.into())));
        let observe = match profile {
            None => Some(Observe::EdgeProfile),
            Some(_) => self.job.addresses.then_some(Observe::Addresses),
        };
        // Cargo has its own variables for compilers, and links build scripts with those on the search path.
        let only_variables = self.job.only_variables || self.cargo.is_some();
        let settings = Settings { observe, ..Settings::default() };
        let built = build::run(self.context, &BuildJob { lto: false, only_variables, settings, command: self.command.clone(), variables })?;
        ensure!(built.status.success(), "the build failed ({})", built.status);
        ensure!(built.compiled, "the build did not call trodden's compilers: {}", self.compiler_hint());
        let program = self.program(built.images.iter().map(|image| final_name(image)).collect())?;
        self.check(&program, profile.is_none())?;
        Ok(program)
    }

    fn clean(&self) -> Result<()> {
        if let Some(folder) = self.cargo.as_ref().and_then(|c| c.folder.as_ref()).filter(|f| f.exists()) {
            fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        if let Some(clean) = &self.job.clean {
            let status = Command::new("sh").arg("-c").arg(clean).status().context("cannot run sh")?;
            ensure!(status.success(), "the --clean command `{clean}` failed ({status})");
        }
        Ok(())
    }

    /// Determines the program among the images of a build.
    fn program(&self, images: Vec<PathBuf>) -> Result<PathBuf> {
        if let Some(program) = &self.job.program {
            return Ok(std::path::absolute(program)?);
        }
        match images.as_slice() {
            [one] => Ok(one.clone()),
            [] => bail!("the build linked no instrumented program: {}", self.rebuild_hint()),
            several => {
                let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
                let also = if self.cargo.is_some() { ", or build one alone with cargo's --bin" } else { "" };
                bail!("the build produced {} programs and libraries ({}). Choose one with --program{also}", several.len(), names.join(", "))
            }
        }
    }

    /// Checks that the program was made by this build: it must have LLVM's counters if and only if this build adds them.
    fn check(&self, program: &Path, has_counters: bool) -> Result<()> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
        let found = image.frames.iter().filter_map(|f| f.map().ok()).any(|m| m.experiment.has_edge_profile());
        ensure!(found == has_counters, "the build did not rebuild {}: {}", program.display(), self.rebuild_hint());
        Ok(())
    }

    /// Explains how to make the build compile everything again.
    fn rebuild_hint(&self) -> String {
        match &self.job.clean {
            Some(clean) => format!("the --clean command `{clean}` does not remove the previous build. Pass a command that does"),
            None => format!("pass a command to --clean that removes the previous build ({})", self.clean_example()),
        }
    }

    /// Explains how to make the build call the drivers.
    fn compiler_hint(&self) -> String {
        let up_to_date =
            if self.job.clean.is_some() { String::new() } else { format!("if everything was up to date, {}; ", self.rebuild_hint()) };
        format!(
            "{up_to_date}if the build calls its compiler by an absolute path, pass it $CC and $CXX, as in `trodden pgo ... -- sh -c \
                'make CC=\"$CC\" CXX=\"$CXX\"'`"
        )
    }

    /// Returns an example of a command for `--clean`.
    fn clean_example(&self) -> &'static str {
        if self.cargo.is_some() { "`cargo clean` with the same --target-dir" } else { "`make clean`" }
    }
}

/// Returns the final name of an image: cargo links `deps/prog-0123456789abcdef`, and creates a hard link `prog` in the folder above.
fn final_name(image: &Path) -> PathBuf {
    let folder = image.parent().filter(|f| f.ends_with("deps")).and_then(Path::parent);
    let same = |path: &PathBuf| match (fs::metadata(path), fs::metadata(image)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    let entries = folder.and_then(|f| fs::read_dir(f).ok()).into_iter().flatten().flatten();
    entries.map(|e| e.path()).find(same).unwrap_or_else(|| image.to_owned())
}
