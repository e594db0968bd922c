//! `trodden pgo`: profile-guided optimisation with edges and paths.
//!
//! The program is built with LLVM's edge counters and run on training input. Then it is built with the resulting edge profile and with path
//! counting, and run again. A transformation plan is derived from the counted paths and applied to the bitcode of the second build, so the
//! plan refers to exactly the code that is transformed. The caller supplies functions that run the program and derive the plan.

mod building;
pub mod hot_paths;

use crate::context::DriverContext;
use crate::experiment;
use crate::profdata;
use crate::variant::{self, VariantDefaults};
use anyhow::{Context, Result, ensure};
use building::ProgramBuilder;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::Profile;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::{Settings, TransformationPlan};

/// Input of [`run`].
#[derive(Debug)]
pub struct ProfileGuidedBuild {
    /// The build command and its arguments.
    pub command: Vec<OsString>,
    /// Shell command that runs before each build and removes the results of the previous build.
    pub clean: Option<String>,
    /// The program to optimise. It is needed only if the build links several programs.
    pub program: Option<PathBuf>,
    /// True if the drivers are announced only by variables such as `CC`; false if they are also put on the search path.
    pub only_variables: bool,
    /// True if the second build records the addresses of blocks instead of counting paths.
    pub addresses: bool,
    /// Path for the optimised program. The default is the program's name with `.fast` appended, in the working folder.
    pub output: Option<PathBuf>,
}

/// A function that runs a path-counting program on training input, and derives a transformation plan from the counted paths.
pub type TrainForPlan<'a> = &'a dyn Fn(&Path) -> Result<TransformationPlan>;

/// Functions that run the program on training input after each of the two builds.
pub struct TrainingSteps<'a> {
    /// Runs the program of the first build, and returns its edge profile.
    pub edges: &'a dyn Fn(&Path) -> Result<Profile>,
    /// Runs the program of the second build, and returns a transformation plan. `None` if only the edge profile is used.
    pub paths: Option<TrainForPlan<'a>>,
}

/// The result of a profile-guided build.
#[derive(Debug)]
pub struct ProfileGuidedProgram {
    /// Path of the optimised program.
    pub output: PathBuf,
    /// The edge profile, in LLVM's indexed format.
    pub profile: Vec<u8>,
}

/// Builds, trains and optimises a program. Fails if a build, a training run or a tool fails, or if it is unclear which program to optimise.
pub fn run(context: &DriverContext, job: &ProfileGuidedBuild, training: &TrainingSteps) -> Result<ProfileGuidedProgram> {
    let folder = context.folder("trodden-pgo-")?;
    let file = folder.path().join("edges.profdata");
    log::info!("1 of 5: building to collect an edge profile");
    let builder = ProgramBuilder::from_job(context, job)?;
    let program = builder.run(None)?;
    log::info!("2 of 5: training");
    let profile = profdata::to_indexed_format(context, &(training.edges)(&program)?)?;
    fs::write(&file, &profile).with_context(|| format!("cannot write {}", file.display()))?;
    let purpose = if job.addresses { "recording addresses of blocks" } else { "counting paths" };
    log::info!("3 of 5: building with the edge profile, {purpose}");
    let again = builder.run(Some(&file))?;
    ensure!(
        again == program,
        "the second build produced {}, but the first build produced {}. Choose one of them with --program",
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
    variant::create(context, &program, &output, &experiment::resolve(context, settings)?, &VariantDefaults::default())?;
    Ok(ProfileGuidedProgram { output, profile })
}

/// Returns the path `prog.fast` in the working folder for the program `prog`.
fn default_output(context: &DriverContext, program: &Path) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(".fast");
    context.directory().unwrap_or(Path::new("")).join(name)
}
