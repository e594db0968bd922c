//! The watched files that are mapped into the process: the program, and the shared libraries that the user named.
//!
//! A library is watched from the moment its code is mapped, before any of it has run, so that its constructors are recorded whether the
//! loader maps it at the start or `dlopen` later. Addresses in library `n` have `n` in their upper bits ([`trodden_binary::linked`]), so
//! that one number identifies an address in any file.

use crate::CollectError;
use crate::mappings::mappings;
use crate::ptrace::Tid;
use crate::subject::{Executable, MAX_INJECTED_AREA_DISTANCE, TracedProcess, area_size};
use std::ops::Range;
use std::path::Path;
use trodden_binary::Binary;
use trodden_binary::linked::{base_address, split_address};

/// Distance in bytes from a library down to its area, the memory for the collector's code. Other libraries are mapped just below the
/// library, and a jump must reach the area.
const PREFERRED_AREA_DISTANCE: u64 = 1 << 30;
/// Number of addresses that are tried for an area.
const MAX_MAPPING_ATTEMPTS: u64 = 8;

/// A shared library to watch.
#[derive(Clone, Debug)]
pub struct Library {
    /// The library's file. Its addresses contain the library's number.
    pub executable: Executable,
    number: usize,
    binary: Binary,
    /// File offset of the last code segment to be mapped.
    offset: u64,
}

impl Library {
    /// Reads a library, and gives it this number, starting at 1.
    ///
    /// # Errors
    /// The file is not a shared library for x86-64, or has no code.
    pub fn read(path: &Path, number: usize) -> Result<Self, CollectError> {
        let fault = |fault: String| CollectError::Executable { path: path.to_owned(), fault };
        let path = path.canonicalize().map_err(|e| fault(format!("cannot be read: {e}")))?;
        let mut executable = Executable::read(&path)?;
        let binary = Binary::read(&path).map_err(|e| fault(format!("cannot be watched: {e}")))?;
        let code = binary.segments().iter().filter(|s| s.is_executable).max_by_key(|s| s.file_offset);
        let offset = code.ok_or_else(|| fault("has no code".to_owned()))?.file_offset & !0xfff;
        let by = base_address(number);
        let moved = |range: &Range<u64>| range.start + by..range.end + by;
        executable.code = executable.code.iter().map(moved).collect();
        executable.span = moved(&executable.span);
        executable.entry += by;
        Ok(Self { executable, number, binary, offset })
    }

    /// Returns true if a mapping is this library's code. `file` is the path from which the mapped file can be read.
    fn is_mapped(&self, file: &Path, offset: u64) -> bool {
        if offset != self.offset {
            return false;
        }
        let name = std::fs::read_link(file).unwrap_or_else(|_| file.to_owned());
        // If the program sees a copy of its folder, it maps the file under a different path.
        name == self.executable.path
            || name.file_name() == self.executable.path.file_name() && std::fs::read(file).is_ok_and(|bytes| bytes == self.binary.data())
    }

    /// Returns what to add to the library's numbered addresses if its code is mapped at `start`.
    fn bias(&self, start: u64) -> Option<u64> {
        Some(self.binary.load_bias(start, self.offset)?.wrapping_sub(base_address(self.number)))
    }
}

/// A watched file that is mapped into the process.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file's number; 0 is the program.
    pub number: usize,
    pub code: Vec<Range<u64>>,
    /// The difference, with wrap-around, between addresses in memory and numbered file addresses.
    pub bias: u64,
    /// The area for slots or copies.
    pub area: Range<u64>,
}

/// The program and the watched libraries that are mapped into the process; the program comes first.
#[derive(Clone, Debug)]
pub struct Images(Vec<Image>);

impl Images {
    pub fn new(subject: &TracedProcess, executable: &Executable) -> Self {
        Self(vec![Image::new(0, executable, subject.bias, subject.injected_area())])
    }

    /// Translates an address in memory to a file address. An address outside the code of all watched files is translated as if it were in
    /// the program.
    pub fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.image_at(address).unwrap_or(&self.0[0]).bias)
    }

    pub fn image_at(&self, address: u64) -> Option<&Image> {
        self.0.iter().find(|image| image.code.iter().any(|c| c.contains(&address)))
    }

    pub fn all(&self) -> &[Image] {
        &self.0
    }

    pub fn last(&self) -> &Image {
        &self.0[self.0.len() - 1]
    }

    /// Returns the areas that were mapped for libraries.
    pub fn areas(&self) -> impl Iterator<Item = Range<u64>> {
        self.0[1..].iter().map(|image| image.area.clone())
    }

    /// Removes and returns the libraries whose code overlaps unmapped memory.
    pub fn forget(&mut self, unmapped: &Range<u64>) -> Vec<Image> {
        let gone = |image: &Image| image.number > 0 && image.code.iter().any(|c| c.start < unmapped.end && unmapped.start < c.end);
        let (gone, left) = std::mem::take(&mut self.0).into_iter().partition(gone);
        self.0 = left;
        gone
    }

    /// Adds a library whose code was just mapped, and maps its area by a system call in the stopped `thread`. Returns a view of the process
    /// relative to the library, for setting the library's sites, or `None` if the mapping is not the library's code.
    ///
    /// # Errors
    /// No memory near the library is free, or the thread is gone.
    pub fn add(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        library: &Library,
        start: u64,
        sites: &[u64],
    ) -> Result<Option<TracedProcess>, CollectError> {
        let Some(bias) = library.bias(start) else { return Ok(None) };
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let area_size = area_size(sites_of(library.number, sites).len());
        let distances = (0..MAX_MAPPING_ATTEMPTS)
            .map(|n| PREFERRED_AREA_DISTANCE + n * area_size)
            .take_while(|distance| *distance <= MAX_INJECTED_AREA_DISTANCE);
        for place in distances.map(|distance| (start & !0xfff).wrapping_sub(distance)) {
            let got = subject.inject_system_call(
                thread,
                Some(subject.area),
                libc::SYS_mmap,
                [place, area_size, protection, flags, u64::MAX, 0],
            )?;
            if got as u64 == place {
                self.0.push(Image::new(library.number, &library.executable, bias, place..place + area_size));
                let (process, session, memory) = (subject.process, subject.session.clone(), subject.session.memory()?);
                return Ok(Some(TracedProcess {
                    process,
                    session,
                    memory,
                    bias,
                    area: place,
                    area_size,
                    fresh: false,
                    fixed_clock: false,
                }));
            }
        }
        Err(CollectError::Unexpected { what: format!("no memory near {} is free", library.executable.path.display()) })
    }
}

impl Image {
    fn new(number: usize, executable: &Executable, bias: u64, area: Range<u64>) -> Self {
        let code = executable.code.iter().map(|c| c.start.wrapping_add(bias)..c.end.wrapping_add(bias)).collect();
        Self { number, code, bias, area }
    }
}

/// Finds the library whose code a process has just mapped from a file descriptor.
pub fn find_mapped(libraries: &[Library], process: Tid, descriptor: u64, offset: u64) -> Option<&Library> {
    let file = format!("/proc/{process}/fd/{}", descriptor as i32);
    libraries.iter().find(|library| library.is_mapped(Path::new(&file), offset))
}

/// Finds the libraries whose code a process has mapped already, each with the start address of the mapping.
pub fn find_already_mapped(libraries: &[Library], process: Tid) -> std::io::Result<Vec<(&Library, u64)>> {
    let all = mappings(process)?;
    let of = |library: &Library| {
        let code = all.iter().filter(|m| m.executable && Path::new(&m.name) == library.executable.path);
        code.filter(|m| m.offset == library.offset).map(|m| m.start).next()
    };
    Ok(libraries.iter().filter_map(|library| Some((library, of(library)?))).collect())
}

/// Selects the sites of one file, each with its index in the list.
pub fn sites_of(file: usize, sites: &[u64]) -> Vec<(u32, u64)> {
    (0..).zip(sites).filter(|(_, site)| split_address(**site).0 == file).map(|(number, site)| (number, *site)).collect()
}
