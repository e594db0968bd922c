//! Converts addresses in recorded processes to functions and lines.
//!
//! A frame belongs to the program itself unless its image is in a folder of system libraries, or its source file belongs to a standard
//! library. Reports name the innermost of the program's own functions, so that the time in `memcpy` counts as that of its caller.

use crate::process_file::ProcessFile;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use trodden_binary::{Binary, SourceFrame, SourceLocations};
use trodden_text::names::DemangledName;

/// A function at an address on the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// The demangled name.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Whether the function belongs to the program itself rather than to a system library.
    pub is_own: bool,
}

struct SymbolImage {
    binary: Binary,
    lines: Option<SourceLocations>,
}

/// Reads symbols and debug information of images, and caches the frames at addresses.
#[derive(Default)]
pub struct SymbolCache {
    images: HashMap<String, Option<SymbolImage>>,
    frames: HashMap<(String, u64), Rc<[StackFrame]>>,
    /// Notes about files that could not be read.
    pub notes: BTreeSet<String>,
}

/// File name of the preload library that records calls.
pub const RECORDER_FILE_NAME: &str = "libtrodden_waits_recorder.so";

const SYSTEM_FOLDERS: &[&str] = &["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/libexec/"];

impl SymbolCache {
    /// Returns the functions at an address in a process. If functions were inlined there, there are several, innermost first. The result is
    /// never empty.
    pub fn frames(&mut self, process: &ProcessFile, address: u64) -> Rc<[StackFrame]> {
        // If several mappings contain the address, the last one is the most recent.
        let mapping = process.maps.iter().rev().find(|map| (map.start..map.end).contains(&address));
        let Some(mapping) = mapping else { return [StackFrame::unknown(format!("{address:#x}"), false)].into() };
        let in_file = address - mapping.start + mapping.offset;
        let key = (mapping.path.clone(), in_file);
        if let Some(known) = self.frames.get(&key) {
            return known.clone();
        }
        let is_program = mapping.path == process.program;
        let image = load_image(&mut self.images, &mut self.notes, &mapping.path);
        let found: Rc<[StackFrame]> = image
            .map_or_else(Vec::new, |image| {
                let bias = image.binary.load_bias(mapping.start, mapping.offset).unwrap_or(mapping.start);
                let frames = image.frames(address.wrapping_sub(bias), is_program);
                let missing = image.lines.as_ref().and_then(SourceLocations::missing_file);
                self.notes.extend(missing.map(|error| error.to_string()));
                frames
            })
            .into();
        let found = if found.is_empty() {
            let name = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            [StackFrame::unknown(format!("{name}+{in_file:#x}"), is_program || !is_system_image(&mapping.path))].into()
        } else {
            found
        };
        self.frames.insert(key, found.clone());
        found
    }
}

fn load_image<'a>(
    images: &'a mut HashMap<String, Option<SymbolImage>>,
    notes: &mut BTreeSet<String>,
    path: &str,
) -> Option<&'a SymbolImage> {
    let read = || match Binary::read(Path::new(path)) {
        Ok(binary) => {
            let binary = binary.with_debug_symbols();
            let lines = SourceLocations::read(&binary).unwrap_or_else(|error| {
                // A missing line table is no problem for a system library, because reports only need its function names.
                if !is_system_image(path) {
                    notes.insert(error.to_string());
                }
                None
            });
            Some(SymbolImage { binary, lines })
        }
        Err(error) => {
            notes.insert(format!("some functions have no names: {error}"));
            None
        }
    };
    images.entry(path.to_owned()).or_insert_with(read).as_ref()
}

fn is_system_image(path: &str) -> bool {
    path.ends_with(RECORDER_FILE_NAME) || SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

fn is_standard_library_source(file: &str) -> bool {
    file.starts_with("/rustc/") || file.contains("/rustlib/src/") || file.starts_with("/usr/include/")
}

/// Returns the name of a function without its parameters. Debug information often lacks the parameters of inlined functions, and an inlined
/// call should get the same name as an ordinary one.
fn function_name(frame: &SourceFrame) -> Option<String> {
    let symbol = frame.symbol.as_ref()?;
    let known = DemangledName::from_linkage(symbol);
    if known.full == *symbol { frame.function.clone() } else { Some(known.qualified) }
}

impl SymbolImage {
    fn frames(&self, address: u64, is_program: bool) -> Vec<StackFrame> {
        let is_own = is_program || !self.binary.path().to_str().is_some_and(is_system_image);
        // Stubs in the procedure linkage table have no symbols. The nearest symbol before them is `_init`, which belongs to another
        // section.
        let symbol =
            || self.binary.function_at(address).filter(|f| f.name != "_init").map(|f| DemangledName::from_linkage(&f.name).qualified);
        let chain = self.lines.as_ref().map(|lines| lines.frames(address)).unwrap_or_default();
        if chain.is_empty() {
            return symbol().map(|function| StackFrame { function, file: String::new(), line: 0, is_own }).into_iter().collect();
        }
        chain
            .into_iter()
            .map(|frame| {
                let function = function_name(&frame).or_else(symbol).unwrap_or_else(|| "?".into());
                let file = frame.file.unwrap_or_default();
                let is_own = is_own && !is_standard_library_source(&file);
                StackFrame { function, file, line: frame.line.unwrap_or(0), is_own }
            })
            .collect()
    }
}

impl StackFrame {
    fn unknown(function: String, is_own: bool) -> StackFrame {
        StackFrame { function, file: String::new(), line: 0, is_own }
    }
}
