//! Finds the source locations of addresses in DWARF debug information.
//!
//! [`debug_files`](crate::debug_files) finds the file with the debug information, and [`SplitDwarf`] the parts of it that are in `.dwo`
//! files. Addresses are virtual addresses as in the ELF file.

use crate::debug_files::{self, DebugSlice};
use crate::elf::Binary;
use crate::error::BinaryError;
use crate::names::{demangle, restore_fortran_name};
use crate::split_dwarf::SplitDwarf;
use addr2line::{Context, LookupContinuation, LookupResult};
use std::ops::Range;
use std::path::PathBuf;

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
    split: SplitDwarf,
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
        let Some(file) = debug_files::open(binary, debug_files::has_lines) else { return Ok(None) };
        let context = Context::from_dwarf(file.read_dwarf()?);
        let context = context.map_err(|e| BinaryError::corrupt(&file.path, format!("debug information: {e}")))?;
        let code = binary.segments().iter().filter(|s| s.is_executable).map(|s| s.address..s.address.saturating_add(s.size)).collect();
        Ok(Some(SourceLocations { context, split: SplitDwarf::new(binary.path(), &file.path), code, file: file.path }))
    }

    /// Returns the chain of inlined calls at an address, innermost first; empty if unknown.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        if !self.is_code(address) {
            return frames;
        }
        let mut lookup = self.context.find_frames(address);
        let chain = loop {
            lookup = match lookup {
                LookupResult::Load { load, continuation } => continuation.resume(self.split.load(&load)),
                LookupResult::Output(chain) => break chain,
            };
        };
        let Ok(mut chain) = chain else { return frames };
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

    /// Returns an error about the first file with split debug information that [`frames`](Self::frames) needed but that could not be
    /// read. Returns `None` if there was no such file. [`line`](Self::line) does not need these files.
    pub fn missing_file(&self) -> Option<BinaryError> {
        let missing = self.split.missing()?.to_owned();
        Some(BinaryError::SplitDwarf { image: self.split.binary().to_owned(), missing })
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

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection};
    use std::path::Path;

    // The test looks for its symbol and its lines.
    #[inline(never)]
    fn read_test_program() -> Binary {
        Binary::read(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn lines_of_test_program_are_found() {
        let binary = read_test_program();
        let lines = SourceLocations::read(&binary).unwrap().expect("tests are built with lines");
        let symbol = binary.functions().iter().find(|f| f.name.contains("source5tests17read_test_program") && f.size > 0).unwrap();
        let frames = lines.frames(symbol.address);
        let outer = frames.last().unwrap();
        assert!(outer.file.as_ref().unwrap().ends_with("source.rs") && outer.line.is_some(), "{outer:?}");
        assert!(outer.function.as_ref().unwrap().contains("read_test_program"), "{outer:?}");
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
            && !object::File::parse(binary.data()).is_ok_and(|file| debug_files::has_lines(&file))
            && debug_files::find_installed_files(&binary).iter().all(|f| !f.exists())
        {
            assert!(SourceLocations::read(&binary).unwrap().is_none());
        }
    }
}
