//! Locates addresses of a program: file, function, source line, code.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;
use trodden_binary::{AddressSpace, Binary, MappedFile, SourceLocations, demangle};
use trodden_hardware::Address;

/// The files that the program has mapped, with their symbols and source lines.
pub struct MappedPlaces {
    binaries: Vec<Binary>,
    /// The debug information of each binary, which is read when it is first needed.
    lines: Vec<OnceCell<Option<SourceLocations>>>,
    mappings: Vec<MappedFile>,
}

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// The file's path.
    pub file: String,
    /// The function, if a symbol covers the address.
    pub function: Option<String>,
    /// Offset from the start of the function, or the file address if the function is unknown.
    pub offset: u64,
    /// Source file and line.
    pub line: Option<(String, u32)>,
}

impl SourcePlace {
    /// Formats the location as `function+0x12`, or as `file+0x1234` without a symbol.
    pub fn name(&self) -> String {
        let of = self.function.as_deref().unwrap_or_else(|| self.file.rsplit('/').next().unwrap_or(&self.file));
        if self.offset == 0 { of.to_owned() } else { format!("{of}+{:#x}", self.offset) }
    }
}

impl MappedPlaces {
    /// Reads the mapped files. Those that are not executables are ignored.
    pub fn new(mappings: &[MappedFile]) -> MappedPlaces {
        let paths: BTreeSet<&str> = mappings.iter().map(|m| m.path.as_str()).collect();
        let binaries: Vec<Binary> = paths.into_iter().filter_map(|p| Some(Binary::read(Path::new(p)).ok()?.with_debug_symbols())).collect();
        let lines = binaries.iter().map(|_| OnceCell::new()).collect();
        MappedPlaces { binaries, lines, mappings: mappings.to_vec() }
    }

    /// Returns the parts of the program's memory into which files are mapped.
    pub fn memory(&self) -> MappedMemory<'_> {
        let mut space = AddressSpace::new(&self.binaries);
        for mapping in &self.mappings {
            // Mappings are matched by name here, so this cannot fail.
            let _ = space.map(mapping);
        }
        MappedMemory { places: self, space }
    }
}

/// The parts of the program's memory into which files are mapped.
pub struct MappedMemory<'a> {
    places: &'a MappedPlaces,
    space: AddressSpace<'a, Binary>,
}

impl MappedMemory<'_> {
    fn find(&self, address: Address) -> Option<(usize, u64)> {
        self.space.resolve(0, address.0).find(|(file, at)| self.places.binaries[*file].is_code(*at))
    }

    /// Returns the code that starts at an address.
    pub fn code(&self, address: Address) -> Option<&[u8]> {
        let (file, at) = self.find(address)?;
        self.places.binaries[file].code_at(at)
    }

    /// Locates an address; `None` if it is not in a mapped file's code.
    pub fn place(&self, address: Address) -> Option<SourcePlace> {
        let (file, at) = self.find(address)?;
        let binary = &self.places.binaries[file];
        let symbol = binary.function_at(at);
        let lines = self.places.lines[file].get_or_init(|| SourceLocations::read(binary).ok().flatten());
        Some(SourcePlace {
            file: binary.path().display().to_string(),
            function: symbol.map(|s| demangle(&s.name)),
            offset: at - symbol.map_or(0, |s| s.address),
            line: lines.as_ref().and_then(|l| l.line(at)),
        })
    }
}
