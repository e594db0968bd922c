//! Copies of a program (`trodden plan PROG -k K --make FOLDER`) to be distributed to users, each of which watches a part
//! of the paths; and reading them again when reports have come in.
//!
//! `FOLDER/program/PROG` is the program that was divided, `FOLDER/copy-0000/PROG` and so on are its copies. All else is in their maps.

use super::CopyContext;
use super::make::{COPY, CopiedProgram, PathPartition};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_flow::partition::PartitionPlan;
use trodden_launch::LaunchStop;
use trodden_profile::copies::PartitionedProgram;
use trodden_unit::{Identity, Image, UnitMap, UnitStore, parts};

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
    /// Copies of a program in a folder, which write to files of the pattern `writes` where the environment says nothing.
    ///
    /// # Errors
    /// The folder is not empty, or the program's counting cannot be divided.
    pub fn new(program: &'a Path, folder: &'a Path, writes: Option<&'a str>, store: Option<&UnitStore>) -> Result<CopyOrder<'a>> {
        let there = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(!there, "{} is not empty: give a new folder (--make)", folder.display());
        Ok(CopyOrder { program: CopiedProgram::read(program, store)?, file: program, folder, writes })
    }

    /// The program whose counting is divided.
    pub fn program(&self) -> &CopiedProgram {
        &self.program
    }

    /// Makes the copies.
    ///
    /// # Errors
    /// Bitcode or link recipe are missing, a tool fails, or the folder cannot be written.
    pub fn make(self, plan: PartitionPlan, context: CopyContext) -> Result<()> {
        trodden_launch::temporary::take_signals();
        let stop = LaunchStop::new()?;
        let whole = self.folder.join(PROGRAM);
        fs::create_dir_all(&whole).with_context(|| format!("cannot make {}", whole.display()))?;
        let name = self.file.file_name().with_context(|| format!("{} is no program", self.file.display()))?;
        fs::copy(self.file, whole.join(name)).with_context(|| format!("cannot copy {}", self.file.display()))?;
        let made = PathPartition::planned(self.program, plan).make(self.folder, false, self.writes, &stop, context)?;
        log::info!(
            "{} copies are in {}; `trodden field` says how their users' reports are made and added up",
            made.len(),
            self.folder.display()
        );
        Ok(())
    }
}

/// A copy as its users have it.
pub struct CopyUnits {
    /// The build.
    pub image: Identity,
    /// Its units.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
}

/// Reads copies that were made in a folder, and the program that was divided.
///
/// # Errors
/// There are none, or they are not of one program.
pub fn read(folder: &Path, store: Option<&UnitStore>) -> Result<(PartitionedProgram, Vec<CopyUnits>)> {
    let none = || format!("there are no copies in {}: `trodden plan PROG -k 8 --make FOLDER` makes them", folder.display());
    let whole = Made::read(&only_file(&folder.join(PROGRAM)).with_context(none)?, store)?;
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
        let Made { image, units, .. } = Made::read(&only_file(folder)?, store)?;
        Ok(CopyUnits { image: image.identity, units })
    };
    let copies = folders.iter().map(copy).collect::<Result<Vec<_>>>()?;
    Ok((program, copies))
}

/// The image and a unit of a copy.
///
/// # Errors
/// The program is none.
pub fn identity(program: &Path, store: Option<&UnitStore>) -> Result<(Identity, Identity)> {
    let Made { image, units, .. } = Made::read(program, store)?;
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
    fn read(file: &Path, store: Option<&UnitStore>) -> Result<Made> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let image = Image::read(&bytes).with_context(|| file.display().to_string())?;
        let map = |unit: Identity| {
            let frame = image.frame(unit, store)?;
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
