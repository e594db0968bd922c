//! Addresses of recorded processes to functions and lines.
//!
//! A frame is the program's own if its file is neither in the system's library folders nor the source of a standard library: reports
//! name the
//! innermost such frame, so that the time of `memcpy` is that of its caller.

use crate::process_file::ProcessFile;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use trodden_binary::{Binary, SourceFrame, SourceLocations};
use trodden_text::names::Name;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// Its name, demangled.
    pub function: String,
    /// Source file; empty where it is not known.
    pub file: String,
    /// 0 where it is not known.
    pub line: u32,
    /// Whether it is the program's, and of no library of the system.
    pub is_own: bool,
}

struct Image {
    binary: Binary,
    lines: Option<SourceLocations>,
}

/// What is known of addresses so far.
#[derive(Default)]
pub struct Symbols {
    images: HashMap<String, Option<Image>>,
    frames: HashMap<(String, u64), Rc<[StackFrame]>>,
    /// What could not be read.
    pub notes: BTreeSet<String>,
}

/// The file of the preload library that records.
pub const RECORDER: &str = "libtrodden_waits_recorder.so";

/// Folders of libraries that are not the program's.
const SYSTEM: &[&str] = &["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/libexec/"];

impl Symbols {
    /// The chain of functions at an address of a process, innermost first.
    pub fn frames(&mut self, process: &ProcessFile, address: u64) -> Rc<[StackFrame]> {
        // Later lines are of later mappings.
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

fn image<'a>(images: &'a mut HashMap<String, Option<Image>>, notes: &mut BTreeSet<String>, path: &str) -> Option<&'a Image> {
    let read = || match Binary::read(Path::new(path)) {
        Ok(binary) => {
            let lines = SourceLocations::read(&binary).unwrap_or_else(|error| {
                // Of libraries that are not the program's, names of functions are enough.
                if !is_system(path) {
                    notes.insert(error.to_string());
                }
                None
            });
            Some(Image { binary, lines })
        }
        Err(error) => {
            notes.insert(format!("no names of its functions: {error}"));
            None
        }
    };
    images.entry(path.to_owned()).or_insert_with(read).as_ref()
}

fn is_system(path: &str) -> bool {
    path.ends_with(RECORDER) || SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Sources of standard libraries, as their debug information names them.
fn is_standard(file: &str) -> bool {
    file.starts_with("/rustc/") || file.contains("/rustlib/src/") || file.starts_with("/usr/include/")
}

/// A function's name without parameters: debug information of inlined functions often has none, and steps of both are to be the same.
fn name(frame: &SourceFrame) -> Option<String> {
    let symbol = frame.symbol.as_ref()?;
    let known = Name::from_linkage(symbol);
    if known.full == *symbol { frame.function.clone() } else { Some(known.qualified) }
}

impl Image {
    fn frames(&self, address: u64, is_program: bool) -> Vec<StackFrame> {
        let is_own = is_program || !self.binary.path().to_str().is_some_and(is_system);
        // Stubs of calls to shared libraries have no symbol: the one in front of them is that of the section before.
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
