//! Translates addresses of processes to files and addresses in these files.

use crate::elf::Binary;
use crate::error::BinaryError;
use std::collections::HashMap;
use std::path::Path;

/// A mapping of a file in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// ID of the process.
    pub process: u32,
    /// Address of the first byte of the mapping in the process.
    pub start: u64,
    /// Size of the mapping in bytes.
    pub length: u64,
    /// Offset in the file of the first mapped byte.
    pub offset: u64,
    /// The file's build ID in hexadecimal, if known.
    pub build_id: Option<String>,
    /// Path of the file.
    pub path: String,
}

/// A file that can be mapped into processes.
pub trait Loadable {
    /// The file that is mapped.
    fn path(&self) -> &Path;
    /// Returns the build ID in hexadecimal, if the file has one.
    fn build_id(&self) -> Option<&str>;
    /// Returns true if the file is always loaded at the addresses for which it was linked.
    fn is_fixed(&self) -> bool;
    /// Returns the load bias for a mapping: the difference between addresses in the process and in the file. See [`Binary::load_bias`].
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
struct MappedRange {
    start: u64,
    end: u64,
    /// Index of the mapped file in [`AddressSpace::files`]; `None` for a file that is not in this set.
    file: Option<usize>,
    bias: u64,
}

/// The mappings of a given set of files in any number of processes.
#[derive(Debug)]
pub struct AddressSpace<'a, F> {
    files: &'a [F],
    by_process: HashMap<u32, Vec<MappedRange>>,
    /// Mappings that are used for processes whose own mappings were not recorded.
    any_process: Vec<MappedRange>,
}

impl<'a, F: Loadable> AddressSpace<'a, F> {
    /// Creates an address space. Files that are always loaded at the same addresses are mapped from the start; all other files need a call
    /// of `map`.
    pub fn new(files: &'a [F]) -> AddressSpace<'a, F> {
        let fixed = files.iter().enumerate().filter(|(_, file)| file.is_fixed());
        let map_everywhere = |(number, _): (usize, &F)| MappedRange { start: 0, end: u64::MAX, file: Some(number), bias: 0 };
        AddressSpace { files, by_process: HashMap::new(), any_process: fixed.map(map_everywhere).collect() }
    }

    /// Adds a mapping. The mapped file is recognised by its build ID or, without one, by its file name.
    ///
    /// # Errors
    /// Fails if the mapped file has the name of one of the files, but a different build ID.
    pub fn map(&mut self, mapping: &MappedFile) -> Result<(), BinaryError> {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        let end = mapping.start.saturating_add(mapping.length);
        let mut found = None;
        for (number, file) in self.files.iter().enumerate() {
            let is_build = mapping.build_id.is_some() && mapping.build_id.as_deref() == file.build_id();
            if !is_build && file.path().file_name().is_none_or(|n| n != name) {
                continue;
            }
            if let (Some(mapped_build), Some(file_build)) = (mapping.build_id.as_deref(), file.build_id())
                && mapped_build != file_build
            {
                let what = format!(
                    "its build ID is {file_build}, but the file that ran, {}, had {mapped_build}. Pass the file that ran",
                    mapping.path
                );
                return Err(BinaryError::NoBlockAddresses { image: file.path().to_owned(), what });
            }
            let bias = if file.is_fixed() { Some(0) } else { file.load_bias(mapping.start, mapping.offset) };
            found = found.or(bias.map(|bias| MappedRange { start: mapping.start, end, file: Some(number), bias }));
        }
        // A mapping of a file outside the set also replaces earlier mappings at its addresses.
        let mapped = found.unwrap_or(MappedRange { start: mapping.start, end, file: None, bias: 0 });
        self.by_process.entry(mapping.process).or_default().push(mapped);
        self.any_process.extend(found);
        Ok(())
    }

    /// Copies the mappings of a process to its new child process.
    pub fn fork(&mut self, process: u32, parent: u32) {
        if let Some(inherited) = self.by_process.get(&parent).filter(|_| process != parent).cloned() {
            self.by_process.insert(process, inherited);
        }
    }

    /// Returns the files that may be mapped at an address of a process, the most likely one first, each with the address in the file. If
    /// the mappings of the process are known, only the latest mapping at this address is returned. Otherwise, the mappings of all processes
    /// are returned, latest first.
    pub fn resolve(&self, process: u32, address: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let own = self.by_process.get(&process);
        let max_count = if own.is_some() { 1 } else { usize::MAX };
        let here = own.unwrap_or(&self.any_process).iter().rev().filter(move |m| (m.start..m.end).contains(&address)).take(max_count);
        here.filter_map(move |m| Some((m.file?, address.wrapping_sub(m.bias))))
    }
}
