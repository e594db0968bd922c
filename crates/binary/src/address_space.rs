//! Where in which file an address of a process lies.

use crate::elf::Binary;
use crate::error::BinaryError;
use std::collections::HashMap;
use std::path::Path;

/// A file mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The process.
    pub process: u32,
    /// First address.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Build id in hexadecimal digits, where it is known.
    pub build_id: Option<String>,
    /// The file.
    pub path: String,
}

/// A file that processes map.
pub trait Loadable {
    /// Its name.
    fn path(&self) -> &Path;
    /// Its build id in hexadecimal digits.
    fn build_id(&self) -> Option<&str>;
    /// It is loaded where its own addresses say.
    fn is_fixed(&self) -> bool;
    /// As [`Binary::load_bias`].
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

/// A file in the memory of a process.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    /// `None` is a file that is not one of ours.
    file: Option<usize>,
    bias: u64,
}

/// The memory of all processes, as far as it holds certain files.
#[derive(Debug)]
pub struct AddressSpace<'a, F> {
    files: &'a [F],
    by_process: HashMap<u32, Vec<Mapped>>,
    /// Where an address is looked up of a process of which no mapping is known.
    of_any: Vec<Mapped>,
}

impl<'a, F: Loadable> AddressSpace<'a, F> {
    /// Files that are loaded where they say are there from the start; others need a mapping.
    pub fn new(files: &'a [F]) -> AddressSpace<'a, F> {
        let fixed = files.iter().enumerate().filter(|(_, file)| file.is_fixed());
        let whole = |(number, _): (usize, &F)| Mapped { start: 0, end: u64::MAX, file: Some(number), bias: 0 };
        AddressSpace { files, by_process: HashMap::new(), of_any: fixed.map(whole).collect() }
    }

    /// A process maps a file. Files are recognised by build id, else by name, without the folder.
    ///
    /// # Errors
    /// The file is one of this name and another build.
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
                let what = format!("it is build {here}, and build {ran} ran ({}): name the file that ran", mapping.path);
                return Err(BinaryError::Addresses { image: file.path().to_owned(), what });
            }
            let bias = if file.is_fixed() { Some(0) } else { file.load_bias(mapping.start, mapping.offset) };
            found = found.or(bias.map(|bias| Mapped { start: mapping.start, end, file: Some(number), bias }));
        }
        // Another file hides what was there before.
        let mapped = found.unwrap_or(Mapped { start: mapping.start, end, file: None, bias: 0 });
        self.by_process.entry(mapping.process).or_default().push(mapped);
        self.of_any.extend(found);
        Ok(())
    }

    /// A process has the mappings of its parent.
    pub fn fork(&mut self, process: u32, parent: u32) {
        if let Some(inherited) = self.by_process.get(&parent).filter(|_| process != parent).cloned() {
            self.by_process.insert(process, inherited);
        }
    }

    /// The files that may lie at an address of a process, best first: place of the file, address as the file has it. Of a process whose
    /// mappings are known it is the one that was mapped last; of others any that a process has there, the latest first.
    pub fn resolve(&self, process: u32, address: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let own = self.by_process.get(&process);
        let most = if own.is_some() { 1 } else { usize::MAX };
        let here = own.unwrap_or(&self.of_any).iter().rev().filter(move |m| (m.start..m.end).contains(&address)).take(most);
        here.filter_map(move |m| Some((m.file?, address.wrapping_sub(m.bias))))
    }
}
