//! Loads split DWARF (`-gsplit-dwarf`): the functions and inlined calls that compilers write to `.dwo` files, which a package (`.dwp`) may
//! contain. Line tables and address ranges are in the linked program.
//!
//! Source: DWARF 5, sections 7.3.2 and 7.3.5, and GNU's extension of DWARF 4, which `gimli` reads.

use crate::debug_files::{DebugInfoFile, DebugSlice};
use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfPackage, DwoId, EndianArcSlice, Reader, RunTimeEndian, SectionId};
use std::cell::OnceCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The split debug information of a binary. Each file is read when it is first needed.
pub struct SplitDwarf {
    /// The binary and its separate debug file. They may be the same file.
    linked: [PathBuf; 2],
    package: OnceCell<Option<DwarfPackage<DebugSlice>>>,
    missing: OnceCell<PathBuf>,
}

impl SplitDwarf {
    /// `binary` is the path of the binary, and `debug_file` that of the file with its line tables.
    pub fn new(binary: &Path, debug_file: &Path) -> SplitDwarf {
        SplitDwarf { linked: [binary.to_owned(), debug_file.to_owned()], package: OnceCell::new(), missing: OnceCell::new() }
    }

    /// Returns the path of the binary.
    pub fn binary(&self) -> &Path {
        &self.linked[0]
    }

    /// Returns the first file that could not be found or read.
    pub fn missing(&self) -> Option<&Path> {
        self.missing.get().map(PathBuf::as_path)
    }

    /// Loads the debug information of a unit. Returns `None` if no file contains it.
    pub fn load(&self, unit: &SplitDwarfLoad<DebugSlice>) -> Option<Arc<Dwarf<DebugSlice>>> {
        let package = self.package.get_or_init(|| self.linked.iter().find_map(|file| read_package(file)));
        let packed = package.as_ref().and_then(|package| package.find_cu(unit.dwo_id, &unit.parent).ok().flatten());
        let found = packed.or_else(|| self.read_unit(unit));
        if found.is_none() {
            self.missing.get_or_init(|| self.compiled_path(unit));
        }
        found.map(Arc::new)
    }

    fn read_unit(&self, unit: &SplitDwarfLoad<DebugSlice>) -> Option<Dwarf<DebugSlice>> {
        let compiled = self.compiled_path(unit);
        // The file may have been moved together with the program.
        let moved = self.linked[0].with_file_name(compiled.file_name()?);
        let mut dwarf = [compiled, moved].into_iter().find_map(|path| read_file(path, unit.dwo_id))?;
        dwarf.make_dwo(&unit.parent);
        Some(dwarf)
    }

    /// Returns the path of the file that the compiler wrote. If the compiler was told to write relative paths, the path is relative to the
    /// folder of the binary.
    fn compiled_path(&self, unit: &SplitDwarfLoad<DebugSlice>) -> PathBuf {
        let folder = self.linked[0].parent().unwrap_or(Path::new(""));
        folder.join(path_of(unit.comp_dir.as_ref())).join(path_of(unit.path.as_ref()))
    }
}

fn path_of(name: Option<&DebugSlice>) -> PathBuf {
    name.and_then(|name| name.to_string_lossy().ok()).map(|name| PathBuf::from(&*name)).unwrap_or_default()
}

/// Reads a `.dwo` file. Returns `None` if it cannot be read or belongs to another build.
fn read_file(path: PathBuf, id: DwoId) -> Option<Dwarf<DebugSlice>> {
    let file = DebugInfoFile::read(path, None)?;
    let dwarf = Dwarf::load(file.section_reader(SectionId::dwo_name).ok()?).ok()?;
    let header = dwarf.units().next().ok()??;
    (dwarf.unit(header).ok()?.dwo_id == Some(id)).then_some(dwarf)
}

/// Reads the package beside a linked file.
fn read_package(linked: &Path) -> Option<DwarfPackage<DebugSlice>> {
    let mut path = linked.as_os_str().to_owned();
    path.push(".dwp");
    let file = DebugInfoFile::read(path.into(), None)?;
    let read = file.section_reader(SectionId::dwo_name).ok()?;
    let empty = EndianArcSlice::new(Arc::from([]), RunTimeEndian::Little);
    DwarfPackage::load(|id| read(id).map_err(Box::<dyn Error>::from), empty).ok()
}
