//! Conversion of addresses in recorded processes to functions and lines.
//!
//! A frame is the program's own unless its image is in a system library folder or its source belongs to a standard library. Reports name
//! the innermost own frame, so that the time of `memcpy` counts for its caller.

use crate::process_file::ProcessFile;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use trodden_binary::{Binary, SourceFrame, SourceLocations};
use trodden_text::names::Name;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// Demangled name.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Whether the function is part of the program rather than of a system library.
    pub is_own: bool,
}

struct SymbolImage {
    binary: Binary,
    lines: Option<SourceLocations>,
}

/// A cache of images and frames.
#[derive(Default)]
pub struct SymbolCache {
    images: HashMap<String, Option<SymbolImage>>,
    frames: HashMap<(String, u64), Rc<[StackFrame]>>,
    /// Notes about files that could not be read.
    pub notes: BTreeSet<String>,
}

/// File name of the recorder, a preload library.
pub const RECORDER: &str = "libtrodden_waits_recorder.so";

/// Folders of system libraries.
const SYSTEM: &[&str] = &["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/libexec/"];

impl SymbolCache {
    /// Returns the frames at an address of a process, including inlined functions, innermost first. Never empty.
    pub fn frames(&mut self, process: &ProcessFile, address: u64) -> Rc<[StackFrame]> {
        // Later entries are more recent mappings.
        let mapping = process.maps.iter().rev().find(|map| (map.start..map.end).contains(&address));
        let Some(mapping) = mapping else { return [StackFrame::unknown(format!("{address:#x}"), false)].into() };
        let in_file = address - mapping.start + mapping.offset;
        let key = (mapping.path.clone(), in_file);
        if let Some(known) = self.frames.get(&key) {
            return known.clone();
        }
        let is_program = mapping.path == process.program;
        let image = image(&mut self.images, &mut self.notes, &mapping.path);
        let found: Rc<[StackFrame]> = image
            .map_or_else(Vec::new, |image| {
                let bias = image.binary.load_bias(mapping.start, mapping.offset).unwrap_or(mapping.start);
                image.frames(address.wrapping_sub(bias), is_program)
            })
            .into();
        let found = if found.is_empty() {
            let name = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            [StackFrame::unknown(format!("{name}+{in_file:#x}"), is_program || !is_system(&mapping.path))].into()
        } else {
            found
        };
        self.frames.insert(key, found.clone());
        found
    }
}

fn image<'a>(images: &'a mut HashMap<String, Option<SymbolImage>>, notes: &mut BTreeSet<String>, path: &str) -> Option<&'a SymbolImage> {
    let read = || match Binary::read(Path::new(path)) {
        Ok(binary) => {
            let lines = SourceLocations::read(&binary).unwrap_or_else(|error| {
                // For system libraries, function names suffice.
                if !is_system(path) {
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

fn is_system(path: &str) -> bool {
    path.ends_with(RECORDER) || SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Whether a source file, as named in debug information, belongs to a standard library.
fn is_standard(file: &str) -> bool {
    file.starts_with("/rustc/") || file.contains("/rustlib/src/") || file.starts_with("/usr/include/")
}

/// Returns a function's name without parameters. The debug information for inlined functions often lacks parameters, and inlined and
/// ordinary calls should yield the same step.
fn name(frame: &SourceFrame) -> Option<String> {
    let symbol = frame.symbol.as_ref()?;
    let known = Name::from_linkage(symbol);
    if known.full == *symbol { frame.function.clone() } else { Some(known.qualified) }
}

impl SymbolImage {
    fn frames(&self, address: u64, is_program: bool) -> Vec<StackFrame> {
        let is_own = is_program || !self.binary.path().to_str().is_some_and(is_system);
        // PLT stubs have no symbol. The nearest preceding symbol is `_init`, which is in a different section.
        let symbol = || self.binary.function_at(address).filter(|f| f.name != "_init").map(|f| Name::from_linkage(&f.name).qualified);
        let chain = self.lines.as_ref().map(|lines| lines.frames(address)).unwrap_or_default();
        if chain.is_empty() {
            return symbol().map(|function| StackFrame { function, file: String::new(), line: 0, is_own }).into_iter().collect();
        }
        chain
            .into_iter()
            .map(|frame| {
                let function = name(&frame).or_else(symbol).unwrap_or_else(|| "?".into());
                let file = frame.file.unwrap_or_default();
                let is_own = is_own && !is_standard(&file);
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
