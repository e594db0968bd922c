//! Finds the unit records and counters of this image (the executable or library that contains this copy of the runtime) in the sections
//! that the linker laid out. Invariant: the counters of all units are within the counter section; otherwise, the entire image is rejected.

use crate::text::OutputFailure;
use crate::wire::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind};
use crate::wire::stream::{STREAM_REGION_WORDS, STREAM_VERSION};
use crate::wire::{
    DirectThread, FunctionRecord, IdentityBytes, RAW_VERSION, RawUnit, UNIT_MAGIC, UNIT_VERSION, UnitRecord, image_identity,
};
use core::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// The image that contains this copy of the runtime.
#[derive(Clone, Copy)]
pub struct OwnImage {
    pub template: usize,
    pub counters: u64,
    /// Number of words in a region before its tail. Equals `counters`, except in stream builds.
    pub region_words: u64,
    /// Address of the page with the sampling switch; 0 if no unit is sampled.
    pub switch: usize,
    /// Address of the variable with the distance from the image's counters to the region that all threads share; 0 if no unit uses that
    /// region.
    pub shared: usize,
    records: &'static [UnitRecord],
}

/// Expands to the address of a symbol, or to 0 if the symbol is undefined. The address is read from the global offset table, where linkers
/// put 0 for undefined weak symbols in every kind of image.
macro_rules! address_of {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: the linker creates an entry for the symbol in the global offset table, and this table is readable.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        address
    }};
}
pub(crate) use address_of;

/// Returns the bytes of a string without its terminating NUL. libc's `strlen` may not exist.
pub fn text_bytes(address: usize) -> impl Iterator<Item = u8> {
    // SAFETY: callers pass the address of a NUL-terminated string that is never written and lives as long as this code.
    (address..).map(|at| unsafe { (at as *const u8).read_volatile() }).take_while(|byte| *byte != 0)
}

/// Returns the string at the address of a symbol that an image may define; `None` if the address is 0.
fn string_at(address: usize) -> Option<&'static [u8]> {
    // SAFETY: if an image defines such a symbol, it is a string.
    (address != 0).then(|| unsafe { core::slice::from_raw_parts(address as *const u8, text_bytes(address).count()) })
}

/// Returns the file name pattern for raw files that is built into the image; `None` if there is none.
pub fn default_output() -> Option<&'static [u8]> {
    string_at(address_of!("__trodden_default_output"))
}

/// Returns what to do at untested paths according to the image; `None` if the image does not say.
pub fn default_on_untested() -> Option<&'static [u8]> {
    string_at(address_of!("__trodden_default_on_untested"))
}

/// Returns the expression whose matching paths this build counts; `None` if it is not a build that watches an expression.
pub fn watched_expression() -> Option<&'static [u8]> {
    string_at(address_of!("__trodden_watched"))
}

/// Returns true if this image is a dynamically linked program rather than a library.
pub fn is_program() -> bool {
    const PT_INTERP: u32 = 3;
    let header = address_of!("__ehdr_start");
    if header == 0 {
        return false;
    }
    // SAFETY: linkers define the symbol where the ELF header is loaded, followed by the program headers.
    let mut headers = unsafe {
        let (first, size, count) = ((header + 32) as *const u64, (header + 54) as *const u16, (header + 56) as *const u16);
        let (first, size) = (header + first.read() as usize, usize::from(size.read()));
        (0..usize::from(count.read())).map(move |index| ((first + index * size) as *const u32).read())
    };
    headers.any(|kind| kind == PT_INTERP)
}

pub struct ResidualFunction {
    pub first: usize,
    /// Distance in bytes from a counter to the word with the time of its first increment.
    pub time_offset: usize,
    /// Address of the function's NUL-terminated linkage name.
    pub name: usize,
}

pub fn is_stream() -> bool {
    address_of!("__trodden_stream_place") != 0
}

/// Returns true if the image has residual code, which counts all paths except those known at build time.
pub fn is_residual() -> bool {
    !function_records().is_empty()
}

/// Returns the part of the calling thread's state that residual code reads; `None` if the image has no such code.
pub fn residual_thread_state() -> Option<*mut DirectThread> {
    let find = address_of!("__trodden_direct_place");
    if find == 0 {
        return None;
    }
    // SAFETY: if the symbol is defined, it is a function of this type without side effects.
    Some(unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut DirectThread>(find) }())
}

fn function_records() -> &'static [FunctionRecord] {
    let (first, end) = (address_of!("__start_trodden_functions"), address_of!("__stop_trodden_functions"));
    // SAFETY: the linker defines these symbols as the bounds of the section that contains the FunctionRecords.
    unsafe { section_records(first, end) }
}

/// Returns the records in the section between two addresses; no records if `first` is 0.
///
/// # Safety
/// The section must consist of records of type `T` without gaps, must never be written, and must live as long as this code.
unsafe fn section_records<T>(first: usize, end: usize) -> &'static [T] {
    match if first == 0 { 0 } else { end.wrapping_sub(first) / size_of::<T>() } {
        0 => &[],
        // SAFETY: the caller guarantees that the section consists of such records.
        count => unsafe { core::slice::from_raw_parts(first as *const T, count) },
    }
}

/// Returns the function to which a counter belongs. `counter` is the address of the counter in the image; `None` if no function has it.
pub fn find_function_of_counter(counter: usize) -> Option<ResidualFunction> {
    let records = function_records();
    // Linkers usually put the records of all units in the same order as their counters, so the first guess is right. Otherwise, all records
    // are searched.
    let end_of_earlier = records.partition_point(|record| first_counter(record) <= counter);
    let likely = end_of_earlier.checked_sub(1).and_then(|at| records.get(at));
    let record = likely.filter(|r| contains_counter(r, counter)).or_else(|| records.iter().find(|r| contains_counter(r, counter)))?;
    let name = (&raw const *record as usize).wrapping_add(record.name_delta as usize);
    Some(ResidualFunction { first: first_counter(record), time_offset: record.time_offset as usize, name })
}

fn first_counter(record: &FunctionRecord) -> usize {
    (&raw const *record as usize).wrapping_add(record.counters_delta as usize)
}

fn contains_counter(record: &FunctionRecord, counter: usize) -> bool {
    counter.wrapping_sub(first_counter(record)) / size_of::<u64>() < record.counters as usize
}

impl OwnImage {
    /// Reads the bounds of the sections, which the linker defines. An image without units counts nothing.
    pub fn from_linker() -> OwnImage {
        let (template, stop) = (address_of!("__start_trodden_counters"), address_of!("__stop_trodden_counters"));
        let (first, end) = (address_of!("__start_trodden_units"), address_of!("__stop_trodden_units"));
        // SAFETY: the linker defines these symbols as the bounds of the section that contains the UnitRecords.
        let records = unsafe { section_records(first, end) };
        let switch = address_of!("__trodden_switch");
        let shared = address_of!("__trodden_shared_bias");
        let counters = (stop.wrapping_sub(template) / size_of::<u64>()) as u64;
        let region_words = if is_stream() { STREAM_REGION_WORDS } else { counters };
        OwnImage { template, switch, shared, counters, region_words, records }
    }

    pub fn file_kind(&self) -> FileKind {
        if is_stream() { FileKind::STREAM_FILE } else { FileKind::RAW_COUNTS }
    }

    pub fn file_header(&self) -> &'static [u8; FILE_HEADER_BYTES] {
        const COUNTS_HEADER: [u8; FILE_HEADER_BYTES] = FileHeader::new(FileKind::RAW_COUNTS, RAW_VERSION).to_bytes();
        const STREAM_HEADER: [u8; FILE_HEADER_BYTES] = FileHeader::new(FileKind::STREAM_FILE, STREAM_VERSION).to_bytes();
        if is_stream() { &STREAM_HEADER } else { &COUNTS_HEADER }
    }

    /// Returns the variable with the distance from the image's counters to the region that all threads share; `None` if no unit uses that
    /// region.
    pub fn shared_bias(&self) -> Option<&'static AtomicI64> {
        // SAFETY: the pointer is null, or points to a word that instrumented code defines for this purpose and that lives as long as this
        // code.
        unsafe { (self.shared as *const AtomicI64).as_ref() }
    }

    /// Returns the address of the region that all threads share; 0 if there is none yet.
    pub fn shared_region(&self) -> usize {
        match self.shared_bias().map_or(0, |bias| bias.load(SeqCst)) {
            0 => 0,
            bias => self.template.wrapping_add(bias as usize),
        }
    }

    /// Returns some address in this image, that of its unit records.
    pub fn address(&self) -> usize {
        self.records.as_ptr() as usize
    }

    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty() || self.counters == 0
    }

    /// Checks the versions of the unit records, and that their counters are within the counter section.
    pub fn check(&self) -> Result<(), OutputFailure> {
        let whole = self.records.iter().all(|record| record.magic == UNIT_MAGIC && record.version == UNIT_VERSION);
        let inside = self.units().all(|unit| unit.first <= self.counters && unit.counters <= self.counters - unit.first);
        match whole && inside {
            true => Ok(()),
            false => Err(OutputFailure::new(
                b"its unit records do not match this runtime",
                b"rebuild all of its parts with one version of trodden",
            )),
        }
    }

    pub fn identity(&self) -> IdentityBytes {
        image_identity(self.records.iter().map(|record| (record.unit, record.counters)))
    }

    /// Returns the units, in the format in which raw files list them.
    pub fn units(&self) -> impl Iterator<Item = RawUnit> + '_ {
        self.records.iter().map(|record| {
            let counters = (&raw const *record as usize).wrapping_add(record.counters_delta as usize);
            // A unit without counters has no position among the counters.
            let first = if record.counters == 0 { 0 } else { counters.wrapping_sub(self.template) / size_of::<u64>() };
            RawUnit { unit: record.unit, first: first as u64, counters: record.counters }
        })
    }
}
