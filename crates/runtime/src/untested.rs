//! Handles, in residual builds, the execution of a path that was unknown when the program was built.
//!
//! Instrumented code itself counts a path that the thread has taken before, and jumps to `__trodden_count` for other paths.
//! `__trodden_count` calls [`handle_count`] when the thread's counter becomes 1, in order to record the time. It calls it for every
//! execution while [`UNTESTED_PATH_ACTION`] is set, because further paths are known (`TRODDEN_KNOWN`), or because of `TRODDEN_ON_UNTESTED`:
//! `report` prints a line when a path is new in the thread's region, `abort` prints and raises SIGABRT, and `callback` calls the program's
//! function `trodden_untested(function, path, count)`.
//!
//! Everything is async-signal-safe. If the callback itself takes untested paths, it is not called for them ([`CallbackFrame`]).

use crate::clock;
use crate::image::{self, OwnImage, address_of};
use crate::output;
use crate::stub;
use crate::system::{self, Descriptor, O_CLOEXEC, O_RDONLY};
use crate::text::{self, OutputFailure, Text};
use crate::wire::file_header::{FileHeader, FileKind, HeaderError};
use crate::wire::layout::Layout;
use crate::wire::{self, KNOWN_PATHS_ENVIRONMENT_VARIABLE, KNOWN_VERSION, KnownHeader, ON_UNTESTED_VARIABLE};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

const ACTION_COUNT: u8 = 0;
const ACTION_REPORT: u8 = 1;
const ACTION_ABORT: u8 = 2;
const ACTION_CALLBACK: u8 = 3;
const HAS_MORE_KNOWN: u8 = 4;

/// What to do when an untested path is taken, plus [`HAS_MORE_KNOWN`] if further paths are known. While it is nonzero, [`handle_count`]
/// counts instead of `__trodden_count`.
pub static UNTESTED_PATH_ACTION: AtomicU8 = AtomicU8::new(ACTION_COUNT);
/// Address of a bitmap with one bit for each counter of the image: 1 if the path is in the file that `TRODDEN_KNOWN` names. 0 if the
/// variable is not set.
static KNOWN_BITMAP: AtomicUsize = AtomicUsize::new(0);
/// Whether vector registers wider than 128 bits must be saved: 0 for unknown, 1 for no, 2 for yes.
static HAS_WIDE_VECTORS: AtomicU8 = AtomicU8::new(0);

const UNKNOWN_ACTION_FAILURE: OutputFailure =
    OutputFailure::new(b"TRODDEN_ON_UNTESTED must be count, report, abort or callback", b"untested paths are only counted");
const NO_CALLBACK_FAILURE: OutputFailure =
    OutputFailure::new(b"the program does not define the function trodden_untested", b"untested paths are only counted");
const UNREADABLE_KNOWN_FAILURE: OutputFailure = OutputFailure::new(
    b"it cannot be read",
    b"name a file that `trodden export known --for PROGRAM` wrote; only paths known to the build are known",
);
const WRONG_IMAGE_FAILURE: OutputFailure = OutputFailure::new(b"it contains no known paths of this program", ADVICE_WRITE_FILE_AGAIN);
const OTHER_VERSION_FAILURE: OutputFailure = OutputFailure::new(b"a different version of trodden wrote it", ADVICE_WRITE_FILE_AGAIN);
const CORRUPT_FAILURE: OutputFailure = OutputFailure::new(b"it is corrupt", ADVICE_WRITE_FILE_AGAIN);
const NO_MEMORY_FAILURE: OutputFailure =
    OutputFailure::new(b"it does not fit into memory", b"let the program have more memory; only paths known to the build are known");
const ADVICE_WRITE_FILE_AGAIN: &[u8] = b"write it again with `trodden export known --for PROGRAM`; only paths known to the build are known";

/// Reads the settings when the image starts, from the environment or, if they are not set there, from the image. Overwrites both buffers.
pub fn prepare_untested_settings(text: &mut Text, scratch: &mut Text) {
    if !image::is_residual() {
        return;
    }
    clock::prepare_clock();
    let mut acting = find_action(text, scratch);
    if output::find_environment_variable(KNOWN_PATHS_ENVIRONMENT_VARIABLE, text, scratch) && !text.bytes().is_empty() {
        match load_known_paths(text, &OwnImage::from_linker()) {
            Ok(address) => {
                KNOWN_BITMAP.store(address, Relaxed);
                acting |= HAS_MORE_KNOWN;
            }
            Err(failure) => print_failure(text, failure, scratch),
        }
    }
    UNTESTED_PATH_ACTION.store(acting, Relaxed);
}

fn find_action(text: &mut Text, scratch: &mut Text) -> u8 {
    if !output::find_environment_variable(ON_UNTESTED_VARIABLE, text, scratch) {
        text.clear();
        let _ = text.extend(image::default_on_untested().unwrap_or(b"count"));
    }
    match text.bytes() {
        b"report" => ACTION_REPORT,
        b"abort" => ACTION_ABORT,
        b"callback" if find_callback() != 0 => ACTION_CALLBACK,
        b"callback" => {
            print_failure(text, &NO_CALLBACK_FAILURE, scratch);
            ACTION_COUNT
        }
        b"count" | b"" => ACTION_COUNT,
        _ => {
            print_failure(text, &UNKNOWN_ACTION_FAILURE, scratch);
            ACTION_COUNT
        }
    }
}

fn print_failure(subject: &Text, failure: &OutputFailure, line: &mut Text) {
    line.clear();
    let parts: [&[u8]; 6] =
        [b"trodden: ", subject.bytes().get(..1024).unwrap_or(subject.bytes()), b": ", failure.reason, b": ", failure.advice];
    let _ = parts.iter().try_for_each(|part| line.extend(part));
    let _ = line.push(b'\n');
    text::print_line(line.bytes());
}

/// Loads a file of further known paths of this image. Returns the address of the bitmap that it contains.
fn load_known_paths(path: &Text, image: &OwnImage) -> Result<usize, &'static OutputFailure> {
    let flags = O_RDONLY | O_CLOEXEC | system::O_NONBLOCK;
    let file = system::open_at(&Descriptor::CURRENT_FOLDER, path.with_nul(0), flags, 0).map_err(|_| &UNREADABLE_KNOWN_FAILURE)?;
    let mut header = [0u8; size_of::<KnownHeader>()];
    let have = system::read_at(&file, &mut header, 0).map_err(|_| &WRONG_IMAGE_FAILURE)?;
    let checksum = read_bitmap_checksum(header.get(..have).unwrap_or(&header), image)?;
    let length = image.counters.div_ceil(8) as usize;
    let address = system::map_zeroed_memory(length.max(1), None).map_err(|_| &NO_MEMORY_FAILURE)?;
    // SAFETY: the memory is new, has that length, and no other reference to it exists.
    let bits = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, length) };
    if read_known_bitmap(bits, &file, header.len()) && wire::checksum(bits) == checksum {
        return Ok(address);
    }
    system::unmap(address, length.max(1));
    Err(&CORRUPT_FAILURE)
}

/// Returns the checksum of the bitmap according to the file's header; an error if the file does not belong to this image.
fn read_bitmap_checksum(bytes: &[u8], image: &OwnImage) -> Result<u64, &'static OutputFailure> {
    match FileHeader::read(bytes) {
        Ok(header) if header.kind != FileKind::FURTHER_KNOWN_PATHS => return Err(&WRONG_IMAGE_FAILURE),
        Ok(header) if header.version != KNOWN_VERSION => return Err(&OTHER_VERSION_FAILURE),
        Ok(_) => {}
        Err(HeaderError::EarlierFormat) => return Err(&OTHER_VERSION_FAILURE),
        Err(HeaderError::NotTrodden) => return Err(&WRONG_IMAGE_FAILURE),
        Err(HeaderError::Truncated | HeaderError::Checksum) => return Err(&CORRUPT_FAILURE),
    }
    let header = KnownHeader::read(bytes).ok_or(&CORRUPT_FAILURE)?;
    match header.image == image.identity() && header.counters == image.counters {
        true => Ok(header.checksum),
        false => Err(&WRONG_IMAGE_FAILURE),
    }
}

/// Reads `bits` from the file, at offset `start`. Returns false if the file is too short.
fn read_known_bitmap(bits: &mut [u8], file: &Descriptor, start: usize) -> bool {
    let mut have = 0;
    while let Some(rest) = bits.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match system::read_at(file, rest, (start + have) as u64) {
            Ok(0) | Err(_) => return false,
            Ok(more) => have += more,
        }
    }
    true
}

/// Returns true if [`handle_count`] must handle every execution of an unknown path.
pub fn is_called_for_each_count() -> bool {
    !matches!(UNTESTED_PATH_ACTION.load(Relaxed), ACTION_COUNT | ACTION_REPORT)
}

fn is_path_known(counter: usize) -> bool {
    let bits = KNOWN_BITMAP.load(Relaxed);
    let at = counter.wrapping_sub(OwnImage::from_linker().template) / size_of::<u64>();
    // SAFETY: the bitmap has a bit for each counter of the image, and is never unmapped.
    bits != 0 && unsafe { ((bits + at / 8) as *const u8).read() } >> (at % 8) & 1 == 1
}

/// Handles the execution of a path. `counter` is the address of the path's counter in the image, and `copy` that of the thread's copy. The
/// execution was already counted, unless [`UNTESTED_PATH_ACTION`] is set.
pub extern "C" fn handle_count(counter: usize, copy: usize) {
    let acting = UNTESTED_PATH_ACTION.load(Relaxed);
    if acting & HAS_MORE_KNOWN != 0 && is_path_known(counter) {
        return;
    }
    if acting != 0 {
        // SAFETY: `copy` is the address of this thread's copy. The increment is a single instruction, so that no count is lost if a signal
        // handler counts the same path.
        unsafe { asm!("inc qword ptr [{0}]", in(reg) copy, options(nostack)) };
    }
    // SAFETY: `copy` is the address of this thread's copy.
    let count = unsafe { (copy as *const u64).read_volatile() };
    let Some(function) = image::find_function_of_counter(counter) else { return };
    if count == 1 {
        // SAFETY: the word for the time is in the same region as the counter.
        unsafe { ((copy + function.time_offset) as *mut u64).write_volatile(clock::now_ns()) };
    }
    let path = (counter.wrapping_sub(function.first) / size_of::<u64>()) as u64;
    match acting & !HAS_MORE_KNOWN {
        ACTION_REPORT if count == 1 => report_path(function.name, path),
        ACTION_ABORT => {
            report_path(function.name, path);
            system::abort();
        }
        ACTION_CALLBACK => call_untested_callback(function.name, path, count),
        _ => {}
    }
}

/// Prints `trodden: untested path PATH of FUNCTION` or, in a build that watches an expression, `trodden: path PATH of FUNCTION matches
/// EXPRESSION`. The line is truncated to 255 bytes.
fn report_path(name: usize, path: u64) {
    // The buffer is short, because it is on the stack of the instrumented program.
    let mut line = [0u8; 256];
    let mut digits = [0u8; 20];
    let mut rest = path;
    let mut first = digits.len();
    loop {
        first -= 1;
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 || first == 0 {
            break;
        }
    }
    let number = digits.iter().skip(first).copied();
    let (kind, matches, expression): (&[u8], &[u8], &[u8]) = match image::watched_expression() {
        Some(expression) => (b"trodden: path ", b" matches ", expression),
        None => (b"trodden: untested path ", b"", b""),
    };
    let words = kind.iter().copied().chain(number).chain(b" of ".iter().copied()).chain(image::text_bytes(name));
    let words = words.chain(matches.iter().chain(expression).copied());
    let mut length = 0;
    for (place, byte) in line.iter_mut().take(255).zip(words) {
        *place = byte;
        length += 1;
    }
    if let Some(end) = line.get_mut(length) {
        *end = b'\n';
    }
    text::print_line(line.get(..=length).unwrap_or(&[]));
}

/// Returns the address of the program's callback; 0 if it has none.
fn find_callback() -> usize {
    address_of!("trodden_untested")
}

/// A marker on the stack while the callback runs; the thread stores its address. Because the callback may be left by `longjmp` or an
/// exception, a marker counts only if it is above the current frame and all of its marks are intact: other frames at the same place would
/// overwrite some marks.
#[repr(C)]
struct CallbackFrame {
    marks: [u64; STACK_MARK_COUNT],
}

/// Number of marks in a marker. With so many, other frames, which contain return addresses and saved registers, are very unlikely to leave
/// all of them intact.
const STACK_MARK_COUNT: usize = 64;

impl CallbackFrame {
    fn expected_stack_mark(address: usize, index: usize) -> u64 {
        (address as u64 ^ 0x7452_6f44_6445_6e21).wrapping_mul(2 * index as u64 + 1)
    }

    /// Writes the marks. Returns the marker's address.
    fn write_stack_marks(&mut self) -> usize {
        let address = &raw const *self as usize;
        for (index, word) in self.marks.iter_mut().enumerate() {
            // SAFETY: the word is part of this structure. Only `is_callback_frame_live` reads it, through its address.
            unsafe { (&raw mut *word).write_volatile(CallbackFrame::expected_stack_mark(address, index)) };
        }
        address
    }

    /// Returns true if the thread is still in the callback whose marker is at `address`. `own_end` is the end of the marker in the caller's
    /// frame.
    fn is_callback_frame_live(address: usize, own_end: usize) -> bool {
        let word = |index: usize| address + index * size_of::<u64>();
        // If the program uses several stacks, the stack with the marker may have been unmapped.
        if address < own_end || !system::is_readable(address) || !system::is_readable(word(STACK_MARK_COUNT - 1)) {
            return false;
        }
        // SAFETY: the first and the last word of the marker were just found to be readable.
        (0..STACK_MARK_COUNT)
            .all(|index| unsafe { (word(index) as *const u64).read_volatile() } == CallbackFrame::expected_stack_mark(address, index))
    }
}

/// Calls the program's callback, unless this thread is executing it already.
fn call_untested_callback(name: usize, path: u64, count: u64) {
    let Some(thread) = image::residual_thread_state() else { return };
    // SAFETY: the state is thread-local, and signal handlers that change it restore it.
    let outer = unsafe { (&raw const (*thread).callback).read_volatile() };
    let mut frame = CallbackFrame { marks: [0; STACK_MARK_COUNT] };
    if outer != 0 && CallbackFrame::is_callback_frame_live(outer as usize, (&raw const frame).wrapping_add(1) as usize) {
        return;
    }
    let address = frame.write_stack_marks();
    // SAFETY: the state is thread-local.
    unsafe { (&raw mut (*thread).callback).write_volatile(address as u64) };
    match has_wide_vectors() {
        // SAFETY: the program's function of that name has the type that `__trodden_call_wide` expects.
        true => unsafe { __trodden_call_wide(find_callback(), name, path, count) },
        false => {
            // SAFETY: the program's function of that name has this type.
            let call = unsafe { core::mem::transmute::<usize, extern "C" fn(usize, u64, u64)>(find_callback()) };
            call(name, path, count);
        }
    }
    // SAFETY: the state is thread-local.
    unsafe { (&raw mut (*thread).callback).write_volatile(outer) };
    // Erase the marks, which might otherwise appear in the frame of a later call.
    frame.marks.iter_mut().for_each(|word| {
        // SAFETY: the word is part of this structure.
        unsafe { (&raw mut *word).write_volatile(0) };
    });
}

/// Returns true if the operating system supports vector registers that `fxsave` does not save.
fn has_wide_vectors() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    if HAS_WIDE_VECTORS.load(Relaxed) == 0 {
        let wide = core::arch::x86_64::__cpuid(1).ecx & OSXSAVE != 0;
        HAS_WIDE_VECTORS.store(1 + u8::from(wide), Relaxed);
    }
    HAS_WIDE_VECTORS.load(Relaxed) == 2
}

// Calls the function in the first argument with the other three as its arguments. Preserves the x87, SSE, AVX and AVX-512 registers (mask
// 0xe7), for which at most 2688 bytes are needed in the standard layout. The header of the saved state must be zero.
global_asm!(
    stub::begin!("__trodden_call_wide"),
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 2752",
    "and rsp, -64",
    "mov r11, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov r8, rcx",
    "lea r9, [rsp + 512]",
    "xor eax, eax",
    "mov ecx, 8",
    "5:",
    "mov qword ptr [r9 + 8 * rcx - 8], rax",
    "dec ecx",
    "jnz 5b",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave64 [rsp]",
    "mov rdx, r8",
    "call r11",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    stub::end!("__trodden_call_wide"),
);

unsafe extern "C" {
    fn __trodden_call_wide(function: usize, name: usize, path: u64, count: u64);
}
