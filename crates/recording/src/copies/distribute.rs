//! `trodden fleet copies PROG -k K -o FOLDER`: makes copies of a program to distribute to users. Each copy counts some of the paths. This
//! module also reads the copies again, to merge reports.
//!
//! `FOLDER/program/PROG` is the original program. The copies are `FOLDER/copy-0000/PROG` and so on; their maps say what each copy counts.

use super::CopyContext;
use super::make::{COPY_FOLDER_PREFIX, CopiedProgram, PathPartition};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_flow::part::Measure;
use trodden_launch::StopFlag;
use trodden_partition::{PartitionOptions, PartitionPlan, PartitionStrategy, ProfitableProcedures};
use trodden_profile::copies::PartitionedProgram;
use trodden_profile::procedures::{add_call_sites, add_estimates, procedures};
use trodden_stored::named;
use trodden_unit::{Identity, InstrumentedImage, UnitCache, UnitMap, parts};

const PROGRAM_FOLDER: &str = "program";

/// Arguments of [`build_copies`].
#[derive(Clone, Copy, Debug)]
pub struct DistributedCopiesOptions<'a> {
    /// Path of the original program.
    pub program: &'a Path,
    /// The folder for the copies. It must be empty or not exist yet.
    pub folder: &'a Path,
    /// Number of copies.
    pub copies: usize,
    /// Name of a profile whose path counts guide the division; `None` to use estimated frequencies.
    pub profile: Option<&'a str>,
    /// Name pattern for the copies' output files. The environment may override it.
    pub writes: Option<&'a str>,
    /// Strategy for dividing the paths.
    pub strategy: PartitionStrategy,
    /// Strategy p3 only: which functions are divided, and into how many parts.
    pub profitable: ProfitableProcedures,
    /// Maximum number of probes per copy, as an alternative to a strategy.
    pub max_probes: Option<usize>,
}

/// Makes copies of a program that each count some of its paths. Fails if the folder is not empty or cannot be written, the profile belongs
/// to a different program, the counting cannot be divided, or a tool fails.
pub fn build_copies(job: &DistributedCopiesOptions, context: CopyContext) -> Result<()> {
    let (folder, file) = (job.folder, job.program);
    let has_entries = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!has_entries, "{} is not empty. Pass a new folder to --output", folder.display());
    let program = CopiedProgram::read(file, context.recording.units.as_ref())?;
    let plan = plan_distributed_partition(job, &program)?;
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let is_new = !folder.exists();
    let made = write_copies_to_folder(job, PathPartition::from_plan(program, plan), &stop, context);
    if made.is_err() {
        // Removes what was written, because `build_copies` rejects folders that are not empty.
        let _ = if is_new { fs::remove_dir_all(folder) } else { remove_contents(folder) };
    }
    let made = made?;
    log::info!(
        "{made} copies of the program are in {}; `trodden fleet` explains how to collect and merge the reports of their users",
        folder.display()
    );
    Ok(())
}

fn remove_contents(folder: &Path) -> io::Result<()> {
    fs::read_dir(folder)?.try_for_each(|entry| {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }
    })
}

/// Writes the copies and the program to the folder. Returns the number of copies.
fn write_copies_to_folder(
    job: &DistributedCopiesOptions,
    partition: PathPartition,
    stop: &StopFlag,
    context: CopyContext,
) -> Result<usize> {
    let (folder, file) = (job.folder, job.program);
    let original = folder.join(PROGRAM_FOLDER);
    trodden_profile::temporary::create_folders(&original).with_context(|| format!("cannot create the folder {}", original.display()))?;
    let name = file.file_name().with_context(|| format!("{} is not a program", file.display()))?;
    fs::copy(file, original.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(partition.build_copies(folder, false, job.writes, stop, context)?.len())
}

fn plan_distributed_partition(job: &DistributedCopiesOptions, program: &CopiedProgram) -> Result<PartitionPlan> {
    let units = program.units();
    let profile = job.profile.map(named::load_profile).transpose()?;
    let by = |profile: &str| format!("cannot base the partition of {} on the profile {profile}", job.program.display());
    let mut measured =
        procedures(units, profile.as_ref()).with_context(|| job.profile.map_or_else(|| job.program.display().to_string(), by))?;
    if job.strategy == PartitionStrategy::P3 {
        add_call_sites(units, &mut measured);
    }
    let basis = match profile {
        Some(_) => add_estimates(units, &measured)?,
        None => {
            log::info!(
                "the paths are divided among the copies by estimated frequencies. To use measured counts, pass a profile of the program \
                 (--weights last)"
            );
            measured
        }
    };
    let options = PartitionOptions { profitable: job.profitable, ..PartitionOptions::new(job.copies, Measure::All) };
    match job.max_probes {
        Some(max_probes) => program.divide_into_bounded_copies(&basis, max_probes, &options),
        None => program.divide(&basis, job.strategy, &options),
    }
}

/// The image and the units of one copy.
pub struct CopyUnits {
    /// Identity of the copy's image.
    pub image: Identity,
    /// The units with their maps.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
}

/// Reads the original program and the copies in a folder. Fails if the folder contains no copies, or one of them cannot be read.
pub fn read(folder: &Path, store: Option<&UnitCache>) -> Result<(PartitionedProgram, Vec<CopyUnits>)> {
    let none = || format!("found no copies in {} (create some with `trodden fleet copies PROG -k 8 -o FOLDER`)", folder.display());
    let original = LoadedProgram::read(&find_only_file(&folder.join(PROGRAM_FOLDER)).with_context(none)?, store)?;
    let program = PartitionedProgram {
        identity: original.image.identity,
        path: original.file.display().to_string(),
        build_id: original.image.build_id,
        units: original.units,
        edges: false,
    };
    let mut folders: Vec<PathBuf> = fs::read_dir(folder).with_context(none)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    folders.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(COPY_FOLDER_PREFIX.as_bytes())));
    folders.sort();
    ensure!(!folders.is_empty(), none());
    let copy = |folder: &PathBuf| {
        let LoadedProgram { image, units, .. } = LoadedProgram::read(&find_only_file(folder)?, store)?;
        Ok(CopyUnits { image: image.identity, units })
    };
    let copies = folders.iter().map(copy).collect::<Result<Vec<_>>>()?;
    Ok((program, copies))
}

/// Returns the identities of a copy's image and of the first unit in which the copy counts some of the paths.
pub fn identity(program: &Path, store: Option<&UnitCache>) -> Result<(Identity, Identity)> {
    let LoadedProgram { image, units, .. } = LoadedProgram::read(program, store)?;
    match units.iter().find(|(_, map)| parts::origin(map).is_some()) {
        Some((unit, _)) => Ok((image.identity, *unit)),
        None => {
            bail!("{} is not a copy of a program. Create copies with `trodden fleet copies PROG -k 8 -o FOLDER`", program.display())
        }
    }
}

struct LoadedProgram {
    file: PathBuf,
    image: InstrumentedImage,
    units: Vec<(Identity, Arc<UnitMap>)>,
}

impl LoadedProgram {
    fn read(file: &Path, store: Option<&UnitCache>) -> Result<LoadedProgram> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let image = InstrumentedImage::read(&bytes).with_context(|| file.display().to_string())?;
        let map = |unit: Identity| {
            let frame = image.frame(unit, store)?;
            let frame = frame.with_context(|| {
                format!(
                    "{}: the map (blocks and paths) of compilation unit {unit} is neither in the file nor in the unit cache. Set \
                     TRODDEN_CACHE to the unit cache of the build",
                    file.display()
                )
            })?;
            Ok((unit, Arc::new(frame.map()?)))
        };
        let units = image.units.iter().map(|placed| map(placed.unit)).collect::<Result<_>>()?;
        Ok(LoadedProgram { file: file.to_owned(), image, units })
    }
}

fn find_only_file(folder: &Path) -> Result<PathBuf> {
    let read = || format!("cannot read {}", folder.display());
    let files: Vec<PathBuf> = fs::read_dir(folder).with_context(read)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let files: Vec<&PathBuf> = files.iter().filter(|path| path.is_file() && path.extension().is_none_or(|e| e != "raw")).collect();
    match files[..] {
        [one] => Ok(one.clone()),
        _ => bail!("folder {} must contain exactly one program, but it has {} files", folder.display(), files.len()),
    }
}
