//! The position in the stream of executed paths that a program writes if it was built with `trodden build --stream`.
//!
//! Each sample contains the number of events that its thread has written to its stream so far, which identifies the path that was being
//! executed. The function that returns a thread's stream is a hidden symbol of the executable, so the dynamic linker cannot find it, and it
//! is looked up in the symbol table. A stripped executable has no symbol table.

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENT_COUNT, STREAM_ADDRESS_SYMBOL, STREAM_HEADER_BYTES, StreamChunkHeader, ThreadStream,
};

/// Address of the function that returns the calling thread's stream; 0 if the program writes no streams.
static STREAM_FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// SHT_SYMTAB, the section type of symbol tables.
const SYMBOL_TABLE_SECTION_TYPE: u32 = 2;
/// ET_DYN, the file type of position-independent executables.
const POSITION_INDEPENDENT_FILE_TYPE: u16 = 3;
const SECTION_HEADER_SIZE: usize = 64;
const SYMBOL_SIZE: usize = 24;

/// Finds the function that returns a thread's stream. Called once per process.
pub fn find_stream_function() {
    let path = c"/proc/self/exe";
    // SAFETY: the path is a C string.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return;
    }
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the file was just opened, and `status` is writable.
    let size = if unsafe { libc::fstat(file, &raw mut status) } == 0 { status.st_size as usize } else { 0 };
    // SAFETY: a new mapping does not affect other memory.
    let place = unsafe { libc::mmap(null_mut(), size.max(1), libc::PROT_READ, libc::MAP_PRIVATE, file, 0) };
    // SAFETY: the descriptor is this function's own, and the mapping outlives it.
    unsafe { libc::close(file) };
    if place == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the mapping has this size. Its contents do not change, because the kernel does not permit writes to a running executable.
    let image = unsafe { core::slice::from_raw_parts(place.cast::<u8>(), size) };
    STREAM_FUNCTION.store(stream_function_address(image).unwrap_or(0), Ordering::Release);
    // SAFETY: the mapping is not borrowed any more.
    unsafe { libc::munmap(place, size.max(1)) };
}

/// Returns the number of events that the calling thread has written to its stream, plus 1. Returns 0 if the number is unknown or the
/// program writes no streams. Signal handlers may call this function.
pub fn position_in_path_stream() -> u64 {
    let place = STREAM_FUNCTION.load(Ordering::Acquire);
    if place == 0 {
        return 0;
    }
    // SAFETY: the program's function has this signature, and returns the address of a thread-local variable.
    let stream = unsafe { core::mem::transmute::<usize, extern "C" fn() -> *const ThreadStream>(place)() };
    // SAFETY: the variable belongs to this thread. If this interrupts code that changes it, the code changes whole words only.
    let cursor = unsafe { (&raw const (*stream).cursor).read_volatile() };
    if cursor == 0 {
        return 1;
    }
    let (chunk, events) = match cursor % CHUNK_BYTES {
        0 => (cursor - CHUNK_BYTES, CHUNK_EVENT_COUNT),
        // The thread has filled a chunk, and the program's runtime has not moved the cursor to the next chunk yet.
        used if used < STREAM_HEADER_BYTES => return 0,
        used => (cursor - used, (used - STREAM_HEADER_BYTES) / 4),
    };
    let header = chunk as *const StreamChunkHeader;
    // SAFETY: the cursor of a thread points into a chunk, and the chunk stays mapped while the thread writes to it.
    let (state, sequence) = unsafe { ((&raw const (*header).state).read_volatile(), (&raw const (*header).sequence).read_volatile()) };
    if state == CHUNK_CURRENT { 1 + sequence * CHUNK_EVENT_COUNT + events } else { 0 }
}

/// Returns the address at which the stream function is loaded, according to the executable's symbol table; `None` if there is no such
/// symbol.
fn stream_function_address(image: &[u8]) -> Option<usize> {
    let sections = read_number(image, 0x28, 8)? as usize;
    let count = read_number(image, 0x3c, 2)? as usize;
    let section = |index: usize, at: usize, size: usize| read_number(image, sections + index * SECTION_HEADER_SIZE + at, size);
    let table = (0..count).find(|index| section(*index, 4, 4) == Some(u64::from(SYMBOL_TABLE_SECTION_TYPE)))?;
    let (begin, size) = (section(table, 0x18, 8)? as usize, section(table, 0x20, 8)? as usize);
    let names = section(section(table, 0x28, 4)? as usize, 0x18, 8)? as usize;
    let is_stream_function = |at: &usize| {
        let name = read_number(image, *at, 4).and_then(|offset| image.get(names + offset as usize..));
        name.and_then(|name| CStr::from_bytes_until_nul(name).ok()).is_some_and(|name| name.to_bytes() == STREAM_ADDRESS_SYMBOL.as_bytes())
    };
    let symbol = (begin..begin + size).step_by(SYMBOL_SIZE).find(is_stream_function)?;
    let value = read_number(image, symbol + 8, 8)? as usize;
    let entry = read_number(image, 0x18, 8)? as usize;
    if read_number(image, 0x10, 2)? as u16 != POSITION_INDEPENDENT_FILE_TYPE {
        return Some(value);
    }
    // SAFETY: the function has no pointer arguments.
    let loaded = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    Some(value + loaded.checked_sub(entry)?)
}

/// Reads the little-endian number of `size` bytes at an offset.
fn read_number(image: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = image.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
