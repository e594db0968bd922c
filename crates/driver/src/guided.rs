//! A program made faster by what its own runs say: `trodden pgo`.
//!
//! ```text
//! build with markers -> train -> edge profile -> build by it, paths counted -> train again -> transformation plan -> code changed by them
//! ```
//!
//! The second training counts the paths of exactly the code that the edge profile has led to, and the last step works
//! on the bitcode that was kept of it; so what paths say is not lost between two compilations. How a program is trained, and what is made
//! of its paths, is the caller's to say.

mod building;
pub mod hot_paths;

use crate::context::DriverContext;
use crate::experiment;
use crate::profdata;
use crate::variant::{self, Defaults};
use anyhow::{Context, Result, ensure};
use building::Building;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::Profile;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::{Settings, TransformationPlan};

/// A program to make.
#[derive(Debug)]
pub struct Guided {
    /// The build command.
    pub command: Vec<OsString>,
    /// A command of the shell that runs before each build and removes what the one before made.
    pub clean: Option<String>,
    /// The program that is meant, if the build makes several.
    pub program: Option<PathBuf>,
    /// Whether to leave the search path alone.
    pub only_variables: bool,
    /// Whether the second build notes addresses of blocks in the place of counting.
    pub addresses: bool,
    /// Where the program goes; by default its name with `.fast`, in the working folder.
    pub output: Option<PathBuf>,
}

/// Makes the transformation plan of a program that counts paths.
pub type PlanOfProgram<'a> = &'a dyn Fn(&Path) -> Result<TransformationPlan>;

/// What is done with the programs that are built.
pub struct Training<'a> {
    /// Trains the first one, and gives what it counted.
    pub edges: &'a dyn Fn(&Path) -> Result<Profile>,
    /// Trains the second one, and gives what its paths say; `None` to stop at what counts of edges show.
    pub paths: Option<PlanOfProgram<'a>>,
}

/// A program that was made.
#[derive(Debug)]
pub struct GuidedProgram {
    /// Where it is.
    pub output: PathBuf,
    /// The edge profile, in LLVM's form.
    pub profile: Vec<u8>,
}

/// Builds, trains, builds, trains, and makes the program.
///
/// # Errors
/// A build, a training or a tool fails, or it is not clear which program is meant.
pub fn make(context: &DriverContext, job: &Guided, training: &Training) -> Result<GuidedProgram> {
    let folder = context.folder("trodden-pgo-")?;
    let file = folder.path().join("edges.profdata");
    log::info!("1 of 5: building to collect an edge profile");
    let building = Building::from_job(context, job)?;
    let program = building.run(None)?;
    log::info!("2 of 5: training");
    let profile = profdata::indexed(context, &(training.edges)(&program)?)?;
    fs::write(&file, &profile).with_context(|| format!("cannot write {}", file.display()))?;
    log::info!("3 of 5: building by the edge profile, with {}", if job.addresses { "addresses of blocks" } else { "paths counted" });
    let again = building.run(Some(&file))?;
    ensure!(again == program, "the second build made {} instead of {}: name one with --program", again.display(), program.display());
    let plan = match training.paths {
        None => TransformationPlan::default(),
        Some(train) => {
            log::info!("4 of 5: training again, for paths");
            train(&program)?
        }
    };
    log::info!("5 of 5: making the program, with nothing counted");
    let output = job.output.clone().unwrap_or_else(|| with_ending(context, &program));
    let file = folder.path().join("transformation-plan");
    fs::write(&file, plan.to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    let settings = Settings { apply: Some(SettingsFile::File(file)), ..Settings::default() };
    variant::make(context, &program, &output, &experiment::resolve(context, settings)?, &Defaults::default())?;
    Ok(GuidedProgram { output, profile })
}

/// `prog.fast` for `prog`, in the working folder.
fn with_ending(context: &DriverContext, program: &Path) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(".fast");
    context.directory().unwrap_or(Path::new("")).join(name)
}
