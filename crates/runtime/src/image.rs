//! What the linker put together: the unit records of this image and the size of its counters.
//!
//! Invariant: every unit's counters lie within the section of counters, or the image is refused as a whole.

use crate::text::Failure;
use crate::wire::head::{FileHead, FileKind, HEAD_BYTES};
use crate::wire::stream::{REGION_WORDS, STREAM_VERSION};
use crate::wire::{DirectThread, FunctionRecord, Identity, RAW_VERSION, RawUnit, UNIT_MAGIC, UNIT_VERSION, UnitRecord, image_identity};
use core::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// The image this code is linked into.
#[derive(Clone, Copy)]
pub struct Image {
    /// Address of the first counter of the template.
    pub template: usize,
    /// Number of counters.
    pub counters: u64,
    /// Words of a region before its tail: as many, but of streams.
    pub region_words: u64,
    /// Address of the page with the switch of the sample tier; 0 if no unit is of that tier.
    pub switch: usize,
    /// Address of the bias of the region that all threads share; 0 if no unit has its threads share one.
    pub shared: usize,
    records: &'static [UnitRecord],
}

/// Address of a symbol that may not exist (then 0); by way of the global offset table, where linkers put 0 for those in every kind of
/// image.
macro_rules! address_of {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads one word of the global offset table.
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

/// The bytes of a text before its NUL. (Nothing of libc finds its end.)
pub fn text_bytes(address: usize) -> impl Iterator<Item = u8> {
    // SAFETY: callers know of a text there that ends in NUL, is never written and lives as long as this code.
    (address..).map(|at| unsafe { (at as *const u8).read_volatile() }).take_while(|byte| *byte != 0)
}

/// A text that the image may define, by the address of its symbol.
fn text_at(address: usize) -> Option<&'static [u8]> {
    // SAFETY: who defines such a symbol puts a text there.
    (address != 0).then(|| unsafe { core::slice::from_raw_parts(address as *const u8, text_bytes(address).count()) })
}

/// The pattern of raw files that the image itself names.
pub fn default_output() -> Option<&'static [u8]> {
    text_at(address_of!("__trodden_default_output"))
}

/// What to do at untested paths, as the image itself says.
pub fn default_on_untested() -> Option<&'static [u8]> {
    text_at(address_of!("__trodden_default_on_untested"))
}

/// The expression that unknown paths match, if that is why they are unknown.
pub fn watched() -> Option<&'static [u8]> {
    text_at(address_of!("__trodden_watched"))
}

/// Whether this image is a program that names a dynamic loader, not a library.
pub fn is_program() -> bool {
    const PT_INTERP: u32 = 3;
    let header = address_of!("__ehdr_start");
    if header == 0 {
        return false;
    }
    // SAFETY: linkers define the symbol where the ELF header is loaded, with the program headers behind it.
    let mut headers = unsafe {
        let (first, size, count) = ((header + 32) as *const u64, (header + 54) as *const u16, (header + 56) as *const u16);
        let (first, size) = (header + first.read() as usize, usize::from(size.read()));
        (0..usize::from(count.read())).map(move |index| ((first + index * size) as *const u32).read())
    };
    headers.any(|kind| kind == PT_INTERP)
}

/// A function of the residual tier.
pub struct ResidualFunction {
    /// Address of its first counter in the template.
    pub first: usize,
    /// Bytes from a counter to the word for its time.
    pub to_times: usize,
    /// Address of its linkage name, a text that ends in NUL.
    pub name: usize,
}

/// Whether the image's code writes streams.
pub fn is_stream() -> bool {
    address_of!("__trodden_stream_place") != 0
}

/// Whether the image has functions of the residual tier.
pub fn is_residual() -> bool {
    !function_records().is_empty()
}

/// The calling thread's bias by which code of the residual tier counts itself, if the image has such code.
pub fn direct_place() -> Option<*mut DirectThread> {
    let find = address_of!("__trodden_direct_place");
    if find == 0 {
        return None;
    }
    // SAFETY: units define a function of that name and type, which touches nothing.
    Some(unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut DirectThread>(find) }())
}

fn function_records() -> &'static [FunctionRecord] {
    let (first, end) = (address_of!("__start_trodden_functions"), address_of!("__stop_trodden_functions"));
    // SAFETY: the linker's bounds of the section that holds FunctionRecords.
    unsafe { records(first, end) }
}

/// The records of a section; none if there is no section.
///
/// # Safety
/// The section between the addresses holds such records without gaps, is never written, and lives as long as this code.
unsafe fn records<T>(first: usize, end: usize) -> &'static [T] {
    match if first == 0 { 0 } else { end.wrapping_sub(first) / size_of::<T>() } {
        0 => &[],
        // SAFETY: by the caller's contract.
        count => unsafe { core::slice::from_raw_parts(first as *const T, count) },
    }
}

/// The function that a counter of the template belongs to.
pub fn function_of(counter: usize) -> Option<ResidualFunction> {
    let records = function_records();
    // Linkers put the records of all units in the order of their counters. Where one does not, they are looked through.
    let behind = records.partition_point(|record| first_counter(record) <= counter);
    let likely = behind.checked_sub(1).and_then(|at| records.get(at));
    let record = likely.filter(|r| holds(r, counter)).or_else(|| records.iter().find(|r| holds(r, counter)))?;
    let name = (&raw const *record as usize).wrapping_add(record.name_delta as usize);
    Some(ResidualFunction { first: first_counter(record), to_times: record.to_times as usize, name })
}

fn first_counter(record: &FunctionRecord) -> usize {
    (&raw const *record as usize).wrapping_add(record.counters_delta as usize)
}

fn holds(record: &FunctionRecord, counter: usize) -> bool {
    counter.wrapping_sub(first_counter(record)) / size_of::<u64>() < record.counters as usize
}

impl Image {
    /// Reads the bounds that the linker defined. No unit: nothing is counted in this image.
    pub fn from_linker() -> Image {
        let (template, stop) = (address_of!("__start_trodden_counters"), address_of!("__stop_trodden_counters"));
        let (first, end) = (address_of!("__start_trodden_units"), address_of!("__stop_trodden_units"));
        // SAFETY: the linker's bounds of the section that holds UnitRecords.
        let records = unsafe { records(first, end) };
        let switch = address_of!("__trodden_switch");
        let shared = address_of!("__trodden_shared_bias");
        let counters = (stop.wrapping_sub(template) / size_of::<u64>()) as u64;
        let region_words = if is_stream() { REGION_WORDS } else { counters };
        Image { template, switch, shared, counters, region_words, records }
    }

    /// What its files are.
    pub fn file_kind(&self) -> FileKind {
        if is_stream() { FileKind::STREAM_FILE } else { FileKind::RAW_COUNTS }
    }

    /// How they begin.
    pub fn file_head(&self) -> &'static [u8; HEAD_BYTES] {
        const COUNTS: [u8; HEAD_BYTES] = FileHead::new(FileKind::RAW_COUNTS, RAW_VERSION).to_bytes();
        const STREAM: [u8; HEAD_BYTES] = FileHead::new(FileKind::STREAM_FILE, STREAM_VERSION).to_bytes();
        if is_stream() { &STREAM } else { &COUNTS }
    }

    /// The bias of the region that all threads share.
    pub fn shared_bias(&self) -> Option<&'static AtomicI64> {
        // SAFETY: null, or a word that instrumented code defines for this purpose, and that lives as long as this code.
        unsafe { (self.shared as *const AtomicI64).as_ref() }
    }

    /// Address of the region that all threads share; 0 if there is none yet.
    pub fn shared_region(&self) -> usize {
        match self.shared_bias().map_or(0, |bias| bias.load(SeqCst)) {
            0 => 0,
            bias => self.template.wrapping_add(bias as usize),
        }
    }

    /// Address of the records: an address within this image.
    pub fn address(&self) -> usize {
        self.records.as_ptr() as usize
    }

    /// Number of units.
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() || self.counters == 0
    }

    /// Checks the records against the section of counters.
    pub fn check(&self) -> Result<(), Failure> {
        let whole = self.records.iter().all(|record| record.magic == UNIT_MAGIC && record.version == UNIT_VERSION);
        let inside = self.units().all(|unit| unit.first <= self.counters && unit.counters <= self.counters - unit.first);
        match whole && inside {
            true => Ok(()),
            false => {
                Err(Failure::new(b"its unit records do not fit this runtime", b"rebuild all of its parts with one version of trodden"))
            }
        }
    }

    /// Identity of the image.
    pub fn identity(&self) -> Identity {
        image_identity(self.records.iter().map(|record| (record.unit, record.counters)))
    }

    /// The units as a raw file names them.
    pub fn units(&self) -> impl Iterator<Item = RawUnit> + '_ {
        self.records.iter().map(|record| {
            let counters = (&raw const *record as usize).wrapping_add(record.counters_delta as usize);
            // A unit without counters has no place among them.
            let first = if record.counters == 0 { 0 } else { counters.wrapping_sub(self.template) / size_of::<u64>() };
            RawUnit { unit: record.unit, first: first as u64, counters: record.counters }
        })
    }
}
