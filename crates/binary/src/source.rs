//! Finds the source locations of addresses in DWARF debug information.
//!
//! The debug information is in the file itself or in a separate debug file. The latter is found in the system's debug folder by its build
//! ID, or by the name in the section `.gnu_debuglink`. Addresses are virtual addresses as in the ELF file.

use crate::elf::{Binary, to_hex};
use crate::error::BinaryError;
use crate::names::{demangle, restore_fortran_name};
use addr2line::Context;
use gimli::{EndianArcSlice, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEBUG_FOLDER: &str = "/usr/lib/debug";

type DebugSlice = EndianArcSlice<RunTimeEndian>;

/// A function in the chain of inlined calls at an address, with the source location in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// Demangled name of the function; `None` if the debug information does not contain it.
    pub function: Option<String>,
    /// Linkage name of the function or, without one, its name in the debug information.
    pub symbol: Option<String>,
    /// Path of the source file; `None` if unknown.
    pub file: Option<String>,
    /// Line number, starting at 1; `None` if unknown.
    pub line: Option<u32>,
    /// Column number, starting at 1; `None` if unknown.
    pub column: Option<u32>,
}

/// The source locations of a binary's code.
pub struct SourceLocations {
    context: Context<DebugSlice>,
    /// Address ranges of the code. Line entries outside them are ignored, since those of code that the linker has removed remain at address
    /// 0.
    code: Vec<Range<u64>>,
    /// File from which the debug information was read.
    pub file: PathBuf,
}

impl std::fmt::Debug for SourceLocations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceLocations").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SourceLocations {
    /// Reads the debug information of a binary. Returns `None` if neither the binary nor a separate debug file contains any.
    ///
    /// # Errors
    /// Fails if the debug information is corrupt.
    pub fn read(binary: &Binary) -> Result<Option<SourceLocations>, BinaryError> {
        if has_lines(binary.data()) {
            return load_debug_information(binary, binary.path(), binary.data()).map(Some);
        }
        for file in find_debug_files(binary) {
            let Ok(data) = std::fs::read(&file) else { continue };
            let own = object::File::parse(&*data).ok().and_then(|f| f.build_id().ok().flatten().map(to_hex));
            let matches = binary.build_id().is_none_or(|id| own.as_deref() == Some(id));
            if matches && has_lines(&data) {
                return load_debug_information(binary, &file, &data).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the chain of inlined calls at an address, innermost first; empty if unknown.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        if !self.is_code(address) {
            return frames;
        }
        let Ok(mut chain) = self.context.find_frames(address).skip_all_loads() else { return frames };
        // If an outer frame cannot be read, the chain ends there.
        while let Ok(Some(frame)) = chain.next() {
            let language = frame.function.as_ref().and_then(|f| f.language);
            let symbol = frame.function.and_then(|f| f.raw_name().ok().map(|n| n.into_owned()));
            let readable = |symbol: &String| if is_fortran(language) { restore_fortran_name(symbol) } else { demangle(symbol) };
            let at = frame.location;
            frames.push(SourceFrame {
                function: symbol.as_ref().map(readable),
                symbol,
                file: at.as_ref().and_then(|l| l.file).map(str::to_owned),
                line: at.as_ref().and_then(|l| l.line).filter(|l| *l > 0),
                column: at.as_ref().and_then(|l| l.column).filter(|c| *c > 0),
            });
        }
        frames
    }

    /// Returns the file and line of the innermost function at an address.
    pub fn line(&self, address: u64) -> Option<(String, u32)> {
        let location = self.is_code(address).then(|| self.context.find_location(address).ok().flatten()).flatten()?;
        Some((location.file?.to_owned(), location.line.filter(|l| *l > 0)?))
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }
}

fn is_fortran(language: Option<gimli::DwLang>) -> bool {
    use gimli::{DW_LANG_Fortran03, DW_LANG_Fortran08, DW_LANG_Fortran18, DW_LANG_Fortran77, DW_LANG_Fortran90, DW_LANG_Fortran95};
    let all = [DW_LANG_Fortran77, DW_LANG_Fortran90, DW_LANG_Fortran95, DW_LANG_Fortran03, DW_LANG_Fortran08, DW_LANG_Fortran18];
    language.is_some_and(|language| all.contains(&language))
}

fn has_lines(data: &[u8]) -> bool {
    object::File::parse(data).is_ok_and(|f| f.section_by_name(".debug_line").is_some_and(|s| s.size() > 0))
}

fn load_debug_information(binary: &Binary, path: &Path, data: &[u8]) -> Result<SourceLocations, BinaryError> {
    let corrupt = |what: String| BinaryError::corrupt(path, format!("debug information: {what}"));
    let file = object::File::parse(data).map_err(|e| corrupt(e.to_string()))?;
    let section = |id: gimli::SectionId| -> Result<DebugSlice, BinaryError> {
        let content = match file.section_by_name(id.name()) {
            Some(section) => read_section(&section).map_err(|what| corrupt(format!("{}: {what}", id.name())))?,
            None => Vec::new(),
        };
        Ok(EndianArcSlice::new(Arc::from(content), RunTimeEndian::Little))
    };
    let dwarf = gimli::Dwarf::load(section)?;
    let context = Context::from_dwarf(dwarf).map_err(|e| corrupt(e.to_string()))?;
    let code = binary.segments().iter().filter(|s| s.is_executable).map(|s| s.address..s.address.saturating_add(s.size)).collect();
    Ok(SourceLocations { context, code, file: path.to_owned() })
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

fn find_debug_files(binary: &Binary) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some((first, rest)) = binary.build_id().and_then(|id| id.split_at_checked(2)) {
        files.push(Path::new(DEBUG_FOLDER).join(".build-id").join(first).join(format!("{rest}.debug")));
    }
    let link = object::File::parse(binary.data()).ok().and_then(|f| f.gnu_debuglink().ok().flatten().map(|(name, _)| name.to_vec()));
    if let Some(name) = link.and_then(|n| String::from_utf8(n).ok()) {
        let folder = binary.path().canonicalize().ok().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
        let below = folder.strip_prefix("/").unwrap_or(&folder).to_owned();
        files.extend([folder.join(&name), folder.join(".debug").join(&name), Path::new(DEBUG_FOLDER).join(below).join(&name)]);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_test_program_are_found() {
        let binary = Binary::read(&std::env::current_exe().unwrap()).unwrap();
        let lines = SourceLocations::read(&binary).unwrap().expect("tests are built with lines");
        let symbol = binary.functions().iter().find(|f| f.name.contains("lines_of_test_program_are_found") && f.size > 0).unwrap();
        let frames = lines.frames(symbol.address);
        let outer = frames.last().unwrap();
        assert!(outer.file.as_ref().unwrap().ends_with("source.rs") && outer.line.is_some(), "{outer:?}");
        assert!(outer.function.as_ref().unwrap().contains("lines_of_test_program_are_found"), "{outer:?}");
        assert!(lines.line(symbol.address).is_some());
        assert_eq!(lines.frames(0), []);
    }

    #[test]
    fn compressed_and_plain_debug_information_agree() {
        let folder = tempfile::tempdir().unwrap();
        let run = |tool: &str, words: &[&str]| {
            let status = std::process::Command::new(tool).args(words).current_dir(folder.path()).status().unwrap();
            assert!(status.success(), "{tool} {words:?}");
        };
        std::fs::write(folder.path().join("a.c"), "int f(int n) { return n + 1; }\n\nint main(int n, char **v) { return f(n) - 2; }\n")
            .unwrap();
        run("clang-22", &["-g", "-O0", "-gz=none", "a.c", "-o", "plain"]);
        let lines = |name: &str| {
            let binary = Binary::read(&folder.path().join(name)).unwrap();
            let source = SourceLocations::read(&binary).unwrap().unwrap();
            let main = binary.functions().iter().find(|f| f.name == "main").unwrap();
            (main.address..main.address + main.size).map(|at| source.frames(at)).collect::<Vec<_>>()
        };
        let plain = lines("plain");
        assert!(plain[0][0].line == Some(3), "{plain:?}");
        for kind in ["zlib", "zstd"] {
            run("llvm-objcopy-22", &[&format!("--compress-debug-sections={kind}"), "plain", kind]);
            assert_eq!(lines(kind), plain, "{kind}");
        }
        // Makes the section claim a greater size than it has.
        let mut bytes = std::fs::read(folder.path().join("zlib")).unwrap();
        let at = {
            use object::read::elf::ElfFile64;
            let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
            file.section_by_name(".debug_line").unwrap().file_range().unwrap().0 as usize
        };
        bytes[at + 8..at + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        let corrupt = Binary::parse(Path::new("corrupt"), bytes.into()).unwrap();
        assert!(SourceLocations::read(&corrupt).unwrap_err().to_string().contains(".debug_line"));
    }

    #[test]
    fn stripped_file_has_no_lines() {
        let binary = Binary::read(Path::new("/bin/true"));
        // Any stripped program is suitable. A system without one is not tested.
        if let Ok(binary) = binary
            && !has_lines(binary.data())
            && find_debug_files(&binary).iter().all(|f| !f.exists())
        {
            assert!(SourceLocations::read(&binary).unwrap().is_none());
        }
    }
}
