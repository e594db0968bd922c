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
    file: usize,
    bias: u64,
}

/// The memory of all processes, as far as it holds certain files.
#[derive(Debug)]
pub struct AddressSpace<'a, F> {
    files: &'a [F],
    by_process: HashMap<u32, Vec<Mapped>>,
    /// Where an address is looked up that no mapping of its own process explains.
    of_any: Vec<Mapped>,
}

impl<'a, F: Loadable> AddressSpace<'a, F> {
    /// Files that are loaded where they say are there from the start; others need a mapping.
    pub fn new(files: &'a [F]) -> AddressSpace<'a, F> {
        let fixed = files.iter().enumerate().filter(|(_, file)| file.is_fixed());
        let whole = |(number, _): (usize, &F)| Mapped { start: 0, end: u64::MAX, file: number, bias: 0 };
        AddressSpace { files, by_process: HashMap::new(), of_any: fixed.map(whole).collect() }
    }

    /// A process maps a file. Files are recognised by name, without the folder.
    ///
    /// # Errors
    /// The file is one of this name and another build.
    pub fn map(&mut self, mapping: &MappedFile) -> Result<(), BinaryError> {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        for (number, file) in self.files.iter().enumerate() {
            if file.is_fixed() || file.path().file_name().is_none_or(|n| n != name) {
                continue;
            }
            if let (Some(ran), Some(here)) = (mapping.build_id.as_deref(), file.build_id())
                && ran != here
            {
                let what = format!("it is build {here}, and build {ran} ran ({}): name the file that ran", mapping.path);
                return Err(BinaryError::Addresses { image: file.path().to_owned(), what });
            }
            if let Some(bias) = file.load_bias(mapping.start, mapping.offset) {
                let mapped = Mapped { start: mapping.start, end: mapping.start.saturating_add(mapping.length), file: number, bias };
                self.by_process.entry(mapping.process).or_default().push(mapped);
                self.of_any.push(mapped);
            }
        }
        Ok(())
    }

    /// A process has the mappings of its parent.
    pub fn fork(&mut self, process: u32, parent: u32) {
        if process != parent {
            let inherited = self.by_process.get(&parent).cloned().unwrap_or_default();
            self.by_process.insert(process, inherited);
        }
    }

    /// The files that may lie at an address of a process, best first: place of the file, address as the file has it.
    /// The latest mapping comes first, and those of other processes only where this one has none.
    pub fn resolve(&self, process: u32, address: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let own = self.by_process.get(&process).into_iter().flatten();
        let here = own.rev().chain(self.of_any.iter().rev()).filter(move |m| (m.start..m.end).contains(&address));
        here.map(move |m| (m.file, address.wrapping_sub(m.bias)))
    }
}
