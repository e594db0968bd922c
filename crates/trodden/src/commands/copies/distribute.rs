//! `trodden plan PROG -k K --make FOLDER`: copies of a program to be distributed to users, each of which watches a part
//! of the paths; and reading them again when reports have come in.
//!
//! `FOLDER/program/PROG` is the program that was divided, `FOLDER/copy-0000/PROG` and so on are its copies. All else is in their maps.

use super::make::{COPY, CopiedProgram, PathPartition};
use crate::cli;
use crate::context::context;
use crate::notes::note;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_analysis::field::distributed::{DistributedCopies, DistributedCopy};
use trodden_flow::partition::PartitionPlan;
use trodden_launch::LaunchStop;
use trodden_profile::copies::PartitionedProgram;
use trodden_unit::{Identity, Image, UnitMap, parts};

/// The folder of the program itself.
const PROGRAM: &str = "program";

/// Copies that are to be made.
pub struct CopyOrder<'a> {
    program: CopiedProgram,
    file: &'a Path,
    folder: &'a Path,
    writes: Option<&'a str>,
}

impl<'a> CopyOrder<'a> {
    /// What a plan is asked for.
    ///
    /// # Errors
    /// It is for several numbers of copies or strategies, the folder is not empty, or the program's counting cannot be divided.
    pub fn new(job: &'a cli::Plan, folder: &'a Path) -> Result<CopyOrder<'a>> {
        ensure!(
            job.copies.len() == 1 && job.strategy.len() == 1,
            "--make makes the copies of one plan: give one number of copies and one strategy"
        );
        let there = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(!there, "{} is not empty: give a new folder (--make)", folder.display());
        Ok(CopyOrder { program: CopiedProgram::read(&job.program)?, file: &job.program, folder, writes: job.writes.as_deref() })
    }

    /// The program whose counting is divided.
    pub fn program(&self) -> &CopiedProgram {
        &self.program
    }

    /// Makes the copies.
    ///
    /// # Errors
    /// Bitcode or link recipe are missing, a tool fails, or the folder cannot be written.
    pub fn make(self, plan: PartitionPlan) -> Result<()> {
        trodden_launch::temporary::take_signals();
        let stop = LaunchStop::new()?;
        let whole = self.folder.join(PROGRAM);
        fs::create_dir_all(&whole).with_context(|| format!("cannot make {}", whole.display()))?;
        let name = self.file.file_name().with_context(|| format!("{} is no program", self.file.display()))?;
        fs::copy(self.file, whole.join(name)).with_context(|| format!("cannot copy {}", self.file.display()))?;
        let made = PathPartition::planned(self.program, plan).make(self.folder, false, self.writes, &stop)?;
        note(format_args!(
            "{} copies are in {}; `trodden field` says how their users' reports are made and added up",
            made.len(),
            self.folder.display()
        ));
        Ok(())
    }
}

/// Reads copies that were made in a folder.
///
/// # Errors
/// There are none, or they are not of one program.
pub fn read(folder: &Path) -> Result<DistributedCopies> {
    let none = || format!("there are no copies in {}: `trodden plan PROG -k 8 --make FOLDER` makes them", folder.display());
    let whole = Made::read(&only_file(&folder.join(PROGRAM)).with_context(none)?)?;
    let program = PartitionedProgram {
        identity: whole.image.identity,
        path: whole.file.display().to_string(),
        build_id: whole.image.build_id,
        units: whole.units,
        edges: false,
    };
    let mut folders: Vec<PathBuf> = fs::read_dir(folder).with_context(none)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    folders.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(COPY.as_bytes())));
    folders.sort();
    ensure!(!folders.is_empty(), none());
    let copy = |folder: &PathBuf| {
        let Made { image, units, .. } = Made::read(&only_file(folder)?)?;
        Ok(DistributedCopy { image: image.identity, units })
    };
    let copies = folders.iter().map(copy).collect::<Result<Vec<_>>>()?;
    Ok(DistributedCopies::new(program, copies)?)
}

/// The image and a unit of a copy.
///
/// # Errors
/// The program is none.
pub fn identity(program: &Path) -> Result<(Identity, Identity)> {
    let Made { image, units, .. } = Made::read(program)?;
    match units.iter().find(|(_, map)| parts::origin(map).is_some()) {
        Some((unit, _)) => Ok((image.identity, *unit)),
        None => {
            bail!("{} is no copy that watches a part of the paths: `trodden plan PROG -k 8 --make FOLDER` makes such", program.display())
        }
    }
}

/// A program with its maps.
struct Made {
    file: PathBuf,
    image: Image,
    units: Vec<(Identity, Arc<UnitMap>)>,
}

impl Made {
    fn read(file: &Path) -> Result<Made> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let image = Image::read(&bytes).with_context(|| file.display().to_string())?;
        let store = context().store().ok();
        let map = |unit: Identity| {
            let frame = image.frame(unit, store.as_ref())?;
            let frame = frame.with_context(|| {
                format!("{}: the map of unit {unit} is neither in it nor in the unit store: set TRODDEN_STORE", file.display())
            })?;
            Ok((unit, Arc::new(frame.map()?)))
        };
        let units = image.units.iter().map(|placed| map(placed.unit)).collect::<Result<_>>()?;
        Ok(Made { file: file.to_owned(), image, units })
    }
}

/// The file in a folder that holds one.
fn only_file(folder: &Path) -> Result<PathBuf> {
    let read = || format!("cannot read {}", folder.display());
    let files: Vec<PathBuf> = fs::read_dir(folder).with_context(read)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let files: Vec<&PathBuf> = files.iter().filter(|path| path.is_file() && path.extension().is_none_or(|e| e != "raw")).collect();
    match files[..] {
        [one] => Ok(one.clone()),
        _ => bail!("{} holds {} files, not one program", folder.display(), files.len()),
    }
}
