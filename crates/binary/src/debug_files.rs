//! Opens the file with a binary's debug information or symbols: the binary itself or a separate debug file.
//!
//! A separate debug file is in the system's debug folder under the build ID, has the name in the section `.gnu_debuglink`, or comes from
//! the source that the program has set ([`set_debug_file_source`]), which is asked last. A debug file may refer to another one, in which
//! dwz has put what several debug files share (`.gnu_debugaltlink`).

use crate::elf::{Binary, SymbolSource, parse_elf, read_functions, to_hex};
use crate::error::BinaryError;
use gimli::{EndianArcSlice, RunTimeEndian, SectionId};
use object::{CompressionFormat, Object, ObjectSection};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// The content of a section with debug information.
pub type DebugSlice = EndianArcSlice<RunTimeEndian>;

type FindDebugFile = dyn Fn(&str) -> Option<PathBuf> + Send + Sync;

/// A source of debug files that are not on this machine, with the answers that it has given.
struct DebugFileSource {
    find: Box<FindDebugFile>,
    answers: Mutex<HashMap<String, Option<PathBuf>>>,
}

static SOURCE: OnceLock<DebugFileSource> = OnceLock::new();

/// Sets the source of debug files that are not on this machine. `find` returns the path of the debug file with a build ID (in hexadecimal
/// digits). It is called at most once for each build ID. Only the first call of this function has an effect.
pub fn set_debug_file_source(find: impl Fn(&str) -> Option<PathBuf> + Send + Sync + 'static) {
    let _ = SOURCE.set(DebugFileSource { find: Box::new(find), answers: Mutex::default() });
}

fn ask_source(build_id: &str) -> Option<PathBuf> {
    let source = SOURCE.get()?;
    // The lock is held while the source is asked, so that other threads wait for the answer instead of asking again.
    let mut answers = source.answers.lock().unwrap_or_else(PoisonError::into_inner);
    answers.entry(build_id.to_owned()).or_insert_with(|| (source.find)(build_id)).clone()
}

/// An ELF file in memory that may contain debug information.
pub struct DebugInfoFile<'a> {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub data: Cow<'a, [u8]>,
}

/// Opens the binary itself or a separate debug file, whichever is the first that `is_wanted` accepts. A separate debug file must have the
/// binary's build ID. Returns `None` if there is no such file.
pub fn open<'a>(binary: &'a Binary, is_wanted: impl Fn(&object::File) -> bool) -> Option<DebugInfoFile<'a>> {
    if object::File::parse(binary.data()).is_ok_and(|file| is_wanted(&file)) {
        return Some(DebugInfoFile { path: binary.path().to_owned(), data: binary.data().into() });
    }
    let from_source = || binary.build_id().and_then(ask_source);
    let files = find_installed_files(binary).into_iter().chain(std::iter::once_with(from_source).flatten());
    let mut files = files.filter_map(|path| DebugInfoFile::read(path, binary.build_id()));
    files.find(|file| file.parse().is_some_and(|file| is_wanted(&file)))
}

impl Binary {
    /// Adds the function symbols of the separate debug file, if there is one and the file itself was stripped of its symbol table.
    pub fn with_debug_symbols(mut self) -> Binary {
        let is_stripped = self.functions().iter().all(|f| f.source == SymbolSource::Dynamic);
        let file = if is_stripped { open(&self, has_symbols) } else { None };
        let functions = file.and_then(|file| Some(read_functions(&parse_elf(&file.path, &file.data).ok()?)));
        functions.into_iter().for_each(|functions| self.add_functions(functions));
        self
    }
}

/// Returns true if a file has line tables.
pub fn has_lines(file: &object::File) -> bool {
    file.section_by_name(".debug_line").is_some_and(|section| section.size() > 0)
}

/// Returns true if a file has a full symbol table.
pub fn has_symbols(file: &object::File) -> bool {
    file.section_by_name(".symtab").is_some_and(|section| section.size() > 0)
}

impl DebugInfoFile<'_> {
    /// Reads a file. Returns `None` if it cannot be read, is not an ELF file, or has another build ID than the given one.
    pub fn read(path: PathBuf, build_id: Option<&str>) -> Option<DebugInfoFile<'static>> {
        // Binaries that nobody has checked may name devices, which are endless, or pipes, which nobody may write to.
        if !std::fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let file = DebugInfoFile { data: std::fs::read(&path).ok()?.into(), path };
        let own = file.parse()?.build_id().ok().flatten().map(to_hex);
        build_id.is_none_or(|id| own.as_deref() == Some(id)).then_some(file)
    }

    fn parse(&self) -> Option<object::File<'_>> {
        object::File::parse(&*self.data).ok()
    }

    /// Reads the DWARF sections, including those of a file of dwz.
    pub fn read_dwarf(&self) -> Result<gimli::Dwarf<DebugSlice>, BinaryError> {
        let mut dwarf = gimli::Dwarf::load(self.section_reader(|id| Some(id.name()))?)?;
        if let Some(shared) = self.open_shared() {
            dwarf.load_sup(shared.section_reader(|id| Some(id.name()))?)?;
        }
        Ok(dwarf)
    }

    /// Returns a function that reads sections. `name_of` returns the name of a section. A section that the file does not have is empty.
    pub fn section_reader(
        &self,
        name_of: fn(SectionId) -> Option<&'static str>,
    ) -> Result<impl Fn(SectionId) -> Result<DebugSlice, BinaryError>, BinaryError> {
        let corrupt = |what: String| BinaryError::corrupt(&self.path, format!("debug information: {what}"));
        let file = object::File::parse(&*self.data).map_err(|e| corrupt(e.to_string()))?;
        Ok(move |id| {
            let section = name_of(id).and_then(|name| file.section_by_name(name));
            let content = section.map_or(Ok(Vec::new()), |section| read_section(&section));
            let content = content.map_err(|what| corrupt(format!("{}: {what}", name_of(id).unwrap_or_default())))?;
            Ok(EndianArcSlice::new(Arc::from(content), RunTimeEndian::Little))
        })
    }

    fn open_shared(&self) -> Option<DebugInfoFile<'static>> {
        let file = self.parse()?;
        let (name, id) = file.gnu_debugaltlink().ok()??;
        let (name, id) = (std::str::from_utf8(name).ok()?, to_hex(id));
        // The name is relative to the folder of the file itself, not to that of a link to it.
        let beside = self.path.canonicalize().ok()?.parent()?.join(name);
        let files = [beside].into_iter().chain(path_of_build_id(&id)).chain(std::iter::once_with(|| ask_source(&id)).flatten());
        files.into_iter().find_map(|path| DebugInfoFile::read(path, Some(&id)))
    }
}

/// Returns the content of a section, and decompresses it if necessary (`SHF_COMPRESSED`: zlib, Zstandard).
fn read_section<'data>(section: &impl ObjectSection<'data>) -> Result<Vec<u8>, String> {
    let stored = section.compressed_data().map_err(|e| e.to_string())?;
    let size = stored.uncompressed_size;
    let decoder: Box<dyn Read> = match stored.format {
        CompressionFormat::None => return Ok(stored.data.to_vec()),
        CompressionFormat::Zlib => Box::new(flate2::read::ZlibDecoder::new(stored.data)),
        CompressionFormat::Zstandard => Box::new(zstd::Decoder::new(stored.data).map_err(|e| e.to_string())?),
        other => return Err(format!("compression {other:?} is not supported")),
    };
    // Reads at most one byte more than the header claims, without allocating memory for the claimed size, which may be wrong.
    let mut content = Vec::new();
    decoder.take(size.saturating_add(1)).read_to_end(&mut content).map_err(|e| e.to_string())?;
    match content.len() as u64 == size {
        true => Ok(content),
        false => Err(format!("its decompressed size differs from the {size} bytes in its header")),
    }
}

fn path_of_build_id(id: &str) -> Option<PathBuf> {
    let (first, rest) = id.split_at_checked(2)?;
    Some(Path::new(DEBUG_FOLDER).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Returns the paths of this machine under which a binary's debug file may exist.
pub fn find_installed_files(binary: &Binary) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = binary.build_id().and_then(path_of_build_id).into_iter().collect();
    let link = object::File::parse(binary.data()).ok().and_then(|f| f.gnu_debuglink().ok().flatten().map(|(name, _)| name.to_vec()));
    if let Some(name) = link.and_then(|n| String::from_utf8(n).ok()) {
        let folder = binary.path().canonicalize().ok().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
        let below = folder.strip_prefix("/").unwrap_or(&folder).to_owned();
        files.extend([folder.join(&name), folder.join(".debug").join(&name), Path::new(DEBUG_FOLDER).join(below).join(&name)]);
    }
    files
}
