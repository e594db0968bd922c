//! Profile-guided optimisation by edges and paths: `trodden pgo`.
//!
//! The program is built with LLVM's edge counters and trained. Then it is built with that edge profile and with paths counted, and trained
//! again. The paths give a transformation plan, which is applied to the bitcode of the second build, so the plan refers to exactly the code
//! that is transformed. The caller decides how to train the program, and how to derive the plan.

mod building;
pub mod hot_paths;

use crate::context::DriverContext;
use crate::experiment;
use crate::profdata;
use crate::variant::{self, Defaults};
use anyhow::{Context, Result, ensure};
use building::ProgramBuilder;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::Profile;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::{Settings, TransformationPlan};

/// A profile-guided build to run.
#[derive(Debug)]
pub struct GuidedBuild {
    /// The build command.
    pub command: Vec<OsString>,
    /// Shell command that removes the results of the previous build; run before each build.
    pub clean: Option<String>,
    /// The program to optimise, if the build makes several.
    pub program: Option<PathBuf>,
    /// True to pass the drivers only in variables such as `CC`, and not also on the search path.
    pub only_variables: bool,
    /// True to record addresses of blocks in the second build, instead of counting paths.
    pub addresses: bool,
    /// Path of the optimised program. Defaults to the program's name with `.fast`, in the working folder.
    pub output: Option<PathBuf>,
}

/// Trains a program that counts paths, and derives a transformation plan.
pub type TrainForPlan<'a> = &'a dyn Fn(&Path) -> Result<TransformationPlan>;

/// Functions that train the built programs.
pub struct Training<'a> {
    /// Trains the first program, and returns its profile.
    pub edges: &'a dyn Fn(&Path) -> Result<Profile>,
    /// Trains the second program, and returns a plan. `None` to use only the edge profile.
    pub paths: Option<TrainForPlan<'a>>,
}

/// The result of a profile-guided build.
#[derive(Debug)]
pub struct GuidedProgram {
    /// Path of the optimised program.
    pub output: PathBuf,
    /// The edge profile in LLVM's indexed format.
    pub profile: Vec<u8>,
}

/// Runs a profile-guided build.
///
/// # Errors
/// Fails if a build, a training or a tool fails, or if it is unclear which program to optimise.
pub fn run(context: &DriverContext, job: &GuidedBuild, training: &Training) -> Result<GuidedProgram> {
    let folder = context.folder("trodden-pgo-")?;
    let file = folder.path().join("edges.profdata");
    log::info!("1 of 5: building to collect an edge profile");
    let builder = ProgramBuilder::from_job(context, job)?;
    let program = builder.run(None)?;
    log::info!("2 of 5: training");
    let profile = profdata::indexed(context, &(training.edges)(&program)?)?;
    fs::write(&file, &profile).with_context(|| format!("cannot write {}", file.display()))?;
    let purpose = if job.addresses { "recording addresses of blocks" } else { "counting paths" };
    log::info!("3 of 5: building with the edge profile, {purpose}");
    let again = builder.run(Some(&file))?;
    ensure!(
        again == program,
        "the second build produced {}, but the first build {}. Choose one of them with --program",
        again.display(),
        program.display()
    );
    let plan = match training.paths {
        None => TransformationPlan::default(),
        Some(train) => {
            log::info!("4 of 5: training again, to collect paths");
            train(&program)?
        }
    };
    log::info!("5 of 5: building the final program, without counters");
    let output = job.output.clone().unwrap_or_else(|| default_output(context, &program));
    let file = folder.path().join("transformation-plan");
    fs::write(&file, plan.to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    let settings = Settings { apply: Some(SettingsFile::File(file)), ..Settings::default() };
    variant::create(context, &program, &output, &experiment::resolve(context, settings)?, &Defaults::default())?;
    Ok(GuidedProgram { output, profile })
}

/// Returns `prog.fast` for `prog`, in the working folder.
fn default_output(context: &DriverContext, program: &Path) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(".fast");
    context.directory().unwrap_or(Path::new("")).join(name)
}
