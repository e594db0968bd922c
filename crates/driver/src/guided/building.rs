//! The two builds of `trodden pgo`: which command makes the program, how it starts from scratch, and which file is the program.
//!
//! Cargo's own command is turned into `cargo trodden build` with a target folder of its own, which is emptied before
//! each build: cargo goes by its own settings when it decides what is up to date, and knows nothing of profiles. Other
//! commands may call `cargo trodden build` themselves; the environment says what counters are to be made.

use super::Guided;
use crate::assets;
use crate::build::{self, BuildJob};
use crate::cargo;
use crate::cc::pgo::USE_VARIABLE;
use crate::context::DriverContext;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_unit::experiment::Observe;
use trodden_unit::{Image, Settings};

/// How the program is built.
#[derive(Debug)]
pub struct Building<'a> {
    context: &'a DriverContext,
    job: &'a Guided,
    command: Vec<OsString>,
    /// The arguments for cargo, if the command is cargo's.
    cargo: Option<Cargo>,
}

/// A build by cargo.
#[derive(Debug, Default)]
struct Cargo {
    /// The folder that is emptied before each build; `None` if the user names one.
    folder: Option<PathBuf>,
    /// rustup's toolchain (`cargo +NAME`).
    toolchain: Option<String>,
}

impl Building<'_> {
    /// Looks at what the user wants run.
    ///
    /// # Errors
    /// It is a command of cargo that does not build, or cargo cannot say where it builds.
    pub fn from_job<'a>(context: &'a DriverContext, job: &'a Guided) -> Result<Building<'a>> {
        let Some((program, rest)) = job.command.split_first() else { bail!("there is no build command behind `--`") };
        if Path::new(program).file_name() != Some(OsStr::new("cargo")) {
            return Ok(Building { context, job, command: job.command.clone(), cargo: None });
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
            "the command of cargo must be `cargo build`, not `cargo {verb}`: --train says what is run"
        );
        let own_folder = !arguments.iter().any(|w| w.to_string_lossy().starts_with("--target-dir"));
        let folder = if own_folder { Some(cargo::target_folder(context, &arguments)?.join("trodden/pgo")) } else { None };
        let mut command: Vec<OsString> = vec![assets::for_cargo(context, &context.store()?)?.into(), "trodden".into()];
        command.extend(arguments);
        if let Some(folder) = &folder {
            command.splice(3..3, ["--target-dir".into(), folder.into()]);
        }
        Ok(Building { context, job, command, cargo: Some(Cargo { folder, toolchain }) })
    }

    /// Runs the build, with markers or by an edge profile; gives the program.
    ///
    /// # Errors
    /// It fails, made nothing new, or made several programs.
    pub fn run(&self, profile: Option<&Path>) -> Result<PathBuf> {
        self.clean()?;
        let mut variables: Vec<(&'static str, OsString)> = profile.map(|p| (USE_VARIABLE, p.into())).into_iter().collect();
        variables.extend(self.cargo.iter().flat_map(|c| &c.toolchain).map(|name| ("RUSTUP_TOOLCHAIN", name.into())));
        let observe = match profile {
            None => Some(Observe::EdgeProfile),
            Some(_) => self.job.addresses.then_some(Observe::Addresses),
        };
        // Cargo learns of its compilers from variables of its own; what is on the search path links build scripts.
        let only_variables = self.job.only_variables || self.cargo.is_some();
        let settings = Settings { observe, ..Settings::default() };
        let built = build::run(self.context, &BuildJob { lto: false, only_variables, settings, command: self.command.clone(), variables })?;
        ensure!(built.status.success(), "the build fails ({})", built.status);
        ensure!(built.compiled, "the build called no compiler that trodden stands in for: {}", self.not_called());
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
            ensure!(status.success(), "the command of --clean fails ({status}): {clean}");
        }
        Ok(())
    }

    /// The program that is meant.
    fn program(&self, images: Vec<PathBuf>) -> Result<PathBuf> {
        if let Some(program) = &self.job.program {
            return Ok(std::path::absolute(program)?);
        }
        match images.as_slice() {
            [one] => Ok(one.clone()),
            [] => bail!("the build linked nothing that is counted: {}", self.not_rebuilt()),
            several => {
                let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
                let also = if self.cargo.is_some() { ", or build one alone with cargo's --bin" } else { "" };
                bail!(
                    "the build made {} programs and libraries ({}): say with --program which is meant{also}",
                    several.len(),
                    names.join(", ")
                )
            }
        }
    }

    /// Whether what is there is what this build was to make.
    fn check(&self, program: &Path, markers: bool) -> Result<()> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
        let marked = image.frames.iter().filter_map(|f| f.map().ok()).any(|m| m.experiment.has_edge_profile());
        ensure!(marked == markers, "{} was not rebuilt: {}", program.display(), self.not_rebuilt());
        Ok(())
    }

    /// Why nothing was built, and the remedy.
    fn not_rebuilt(&self) -> String {
        match &self.job.clean {
            Some(clean) => format!("the command of --clean leaves what was built before (`{clean}`): give one that removes it"),
            None => format!("give --clean the command that removes what was built before ({})", self.cleaning()),
        }
    }

    /// Why no compiler was called, and the remedy.
    fn not_called(&self) -> String {
        let up_to_date = if self.job.clean.is_some() { String::new() } else { format!("if all is up to date, {}; ", self.not_rebuilt()) };
        format!(
            "{up_to_date}if it names its compiler by its whole path, hand it trodden's, as in `trodden pgo ... -- sh -c 'make CC=\"$CC\" \
                CXX=\"$CXX\"'`"
        )
    }

    /// What `--clean` might be.
    fn cleaning(&self) -> &'static str {
        if self.cargo.is_some() { "`cargo clean` with the same --target-dir" } else { "`make clean`" }
    }
}

/// Cargo links `deps/prog-0123456789abcdef` and gives it the name `prog` in the folder above, as a hard link.
fn final_name(image: &Path) -> PathBuf {
    let folder = image.parent().filter(|f| f.ends_with("deps")).and_then(Path::parent);
    let same = |path: &PathBuf| match (fs::metadata(path), fs::metadata(image)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    let entries = folder.and_then(|f| fs::read_dir(f).ok()).into_iter().flatten().flatten();
    entries.map(|e| e.path()).find(same).unwrap_or_else(|| image.to_owned())
}
