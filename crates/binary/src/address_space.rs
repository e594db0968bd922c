//! Translation of process addresses to files and addresses in them.

use crate::elf::Binary;
use crate::error::BinaryError;
use std::collections::HashMap;
use std::path::Path;

/// A file mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Process ID.
    pub process: u32,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub length: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Build ID in hexadecimal, if known.
    pub build_id: Option<String>,
    /// Path of the file.
    pub path: String,
}

/// A file that can be mapped into processes.
pub trait Loadable {
    /// The path of the file.
    fn path(&self) -> &Path;
    /// The build ID in hexadecimal.
    fn build_id(&self) -> Option<&str>;
    /// Whether it is loaded at its own addresses.
    fn is_fixed(&self) -> bool;
    /// See [`Binary::load_bias`].
    fn load_bias(&self, start: u64, offset: u64) -> Option<u64>;
}

impl Loadable for Binary {
    fn path(&self) -> &Path {
        Binary::path(self)
    }

    fn build_id(&self) -> Option<&str> {
        Binary::build_id(self)
    }

    fn is_fixed(&self) -> bool {
        !self.is_position_independent()
    }

    fn load_bias(&self, start: u64, offset: u64) -> Option<u64> {
        Binary::load_bias(self, start, offset)
    }
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    /// The number of the file; `None` for unknown files.
    file: Option<usize>,
    bias: u64,
}

/// The mappings of all processes, restricted to certain files.
#[derive(Debug)]
pub struct AddressSpace<'a, F> {
    files: &'a [F],
    by_process: HashMap<u32, Vec<Mapped>>,
    /// Mappings for processes that have none of their own.
    any_process: Vec<Mapped>,
}

impl<'a, F: Loadable> AddressSpace<'a, F> {
    /// Creates an address space. Files with fixed addresses are visible from the start; others need a mapping.
    pub fn new(files: &'a [F]) -> AddressSpace<'a, F> {
        let fixed = files.iter().enumerate().filter(|(_, file)| file.is_fixed());
        let whole = |(number, _): (usize, &F)| Mapped { start: 0, end: u64::MAX, file: Some(number), bias: 0 };
        AddressSpace { files, by_process: HashMap::new(), any_process: fixed.map(whole).collect() }
    }

    /// Adds a mapping. Its file is recognised by build ID, or else by file name.
    ///
    /// # Errors
    /// A file of this name is of another build.
    pub fn map(&mut self, mapping: &MappedFile) -> Result<(), BinaryError> {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        let end = mapping.start.saturating_add(mapping.length);
        let mut found = None;
        for (number, file) in self.files.iter().enumerate() {
            let is_build = mapping.build_id.is_some() && mapping.build_id.as_deref() == file.build_id();
            if !is_build && file.path().file_name().is_none_or(|n| n != name) {
                continue;
            }
            if let (Some(ran), Some(here)) = (mapping.build_id.as_deref(), file.build_id())
                && ran != here
            {
                let what = format!("it is build {here}, but build {ran} ran ({}): pass the file that ran", mapping.path);
                return Err(BinaryError::NoBlockAddresses { image: file.path().to_owned(), what });
            }
            let bias = if file.is_fixed() { Some(0) } else { file.load_bias(mapping.start, mapping.offset) };
            found = found.or(bias.map(|bias| Mapped { start: mapping.start, end, file: Some(number), bias }));
        }
        // An unknown file hides earlier mappings at its addresses.
        let mapped = found.unwrap_or(Mapped { start: mapping.start, end, file: None, bias: 0 });
        self.by_process.entry(mapping.process).or_default().push(mapped);
        self.any_process.extend(found);
        Ok(())
    }

    /// Copies the mappings of a parent to a new process.
    pub fn fork(&mut self, process: u32, parent: u32) {
        if let Some(inherited) = self.by_process.get(&parent).filter(|_| process != parent).cloned() {
            self.by_process.insert(process, inherited);
        }
    }

    /// The files that may lie at an address of a process, best first: the index of the file, and the address in it. If the process's
    /// mappings are known, this is the latest one; otherwise it is any mapping of any process, latest first.
    pub fn resolve(&self, process: u32, address: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let own = self.by_process.get(&process);
        let max_count = if own.is_some() { 1 } else { usize::MAX };
        let here = own.unwrap_or(&self.any_process).iter().rev().filter(move |m| (m.start..m.end).contains(&address)).take(max_count);
        here.filter_map(move |m| Some((m.file?, address.wrapping_sub(m.bias))))
    }
}
