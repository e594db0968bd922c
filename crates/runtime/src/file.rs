//! Opens raw files, in which the program's threads count, safely, and writes their headers. `trodden_wire` defines the layout.
//!
//! Invariants: before the first write, the file has been verified to be a regular file of the effective user with a single hard link, and
//! to be empty or started by a runtime. The file header's checksum is written last, with the header locked.

use crate::image::OwnImage;
use crate::output;
use crate::system::{self, Descriptor, Errno};
use crate::text::{OutputFailure, Text};
use crate::wire::file_header::{FILE_HEADER_BYTES, FILE_HEADER_CHECKSUM_OFFSET, FileHeader, HeaderError};
use crate::wire::{
    Checksum, HEADER_LOCK_BYTE, IdentityBytes, LostReason, LostThreads, RAW_FILE_LENGTH_IF_NO_SPACE, RawHeader, RawUnit,
    SWITCH_ENVIRONMENT_VARIABLE, SWITCH_ON_VALUE, region_stride,
};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGE_BYTES: u64 = 4096;
/// Minimum number of the descriptor that stays open, if possible. The program's own descriptors thus keep their usual numbers.
const MIN_DESCRIPTOR: i32 = 200;
const ADVICE_CHOOSE_OTHER_FILE: &[u8] = b"choose another file in TRODDEN_OUTPUT or remove this one";
const ADVICE_USE_WRITABLE_FOLDER: &[u8] = b"let TRODDEN_OUTPUT name a file in a folder where this program may write";

/// An open raw file of this image, with a complete header.
pub struct ImageRawFile {
    pub descriptor: Descriptor,
    pub regions_offset: u64,
    pub region_stride: u64,
    /// Offset of the page with the image's sampling switch; 0 if the image has none.
    pub switch_offset: u64,
}

/// What [`open_raw_file`] does if the file does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ActionIfFileMissing {
    Create,
    Fail,
}

/// Opens the file that `pattern` names for this process. Stores the file's name in `path`, and overwrites `scratch`.
pub fn open_raw_file(
    image: &OwnImage,
    pattern: &Text,
    missing: ActionIfFileMissing,
    path: &mut Text,
    scratch: &mut Text,
) -> Result<ImageRawFile, OutputFailure> {
    let identity = image.identity();
    let literal = output::expand_pattern(pattern, &identity, path)?;
    let descriptor = open_path(path, literal, missing)?;
    let size = check_is_own_file(&descriptor)?;
    // One header is used for all reads, instead of copies, because the stack may be small.
    let mut header = RawHeader::default();
    read_header(&descriptor, &mut header)?;
    if !is_header_complete(&header, image) {
        let _lock = HeaderLock::acquire(&descriptor)?;
        // Another process may have completed the header in the meantime.
        read_header(&descriptor, &mut header)?;
        if !is_header_complete(&header, image) {
            let size = check_is_own_file(&descriptor).unwrap_or(size);
            let given_up = size == RAW_FILE_LENGTH_IF_NO_SPACE && header.file_header == [0; FILE_HEADER_BYTES];
            if size != 0 && !FileHeader::is_unfinished(&header.file_header, image.file_kind()) && !given_up {
                return Err(explain_rejection(&header));
            }
            // Earlier processes that found no disk space have lost their counts.
            let lost = if given_up { LostThreads::default().add_thread(LostReason::Other) } else { LostThreads::default() };
            write_header(&descriptor, image, identity, lost, scratch, &mut header).inspect_err(|_| mark_file_without_space(&descriptor))?;
        }
    }
    check_header(&header, image, &identity)?;
    let descriptor = system::move_descriptor_up(descriptor, MIN_DESCRIPTOR);
    let RawHeader { regions_offset, region_stride, switch_offset, .. } = header;
    Ok(ImageRawFile { descriptor, regions_offset, region_stride, switch_offset })
}

/// Opens an absolute path folder by folder. If requested, creates missing folders to which only the user has access. Follows symbolic links
/// only in the first `literal` bytes of the path, which were not expanded from `%` sequences.
fn open_path(path: &mut Text, literal: usize, missing: ActionIfFileMissing) -> Result<Descriptor, OutputFailure> {
    let cannot = |error| OutputFailure::from_errno(b"it cannot be opened", error, ADVICE_USE_WRITABLE_FOLDER);
    let folder_flags = system::O_PATH | system::O_DIRECTORY | system::O_CLOEXEC;
    let mut folder = system::open_at(&Descriptor::CURRENT_FOLDER, b"/\0", folder_flags, 0).map_err(cannot)?;
    let mut start = 1;
    while let Some(length) = path.bytes().get(start..).and_then(|rest| rest.iter().position(|&byte| byte == b'/')) {
        let end = start + length;
        if length > 0 {
            let links = if end >= literal { system::O_NOFOLLOW } else { 0 };
            path.set_byte(end, 0);
            let next = open_folder(&folder, path.with_nul(start), folder_flags | links, missing);
            path.set_byte(end, b'/');
            folder = next.map_err(|error| OutputFailure::from_errno(b"its folder cannot be opened", error, ADVICE_USE_WRITABLE_FOLDER))?;
        }
        start = end + 1;
    }
    // With O_NONBLOCK, opening does not block the program if the path names a pipe.
    let flags = system::O_RDWR | system::O_NOFOLLOW | system::O_CLOEXEC | system::O_NONBLOCK | system::O_NOCTTY;
    let flags = if missing == ActionIfFileMissing::Create { flags | system::O_CREAT } else { flags };
    system::open_at(&folder, path.with_nul(start), flags, 0o600).map_err(cannot)
}

fn open_folder(folder: &Descriptor, name: &[u8], flags: i32, missing: ActionIfFileMissing) -> Result<Descriptor, Errno> {
    match system::open_at(folder, name, flags, 0) {
        Err(system::ENOENT) if missing == ActionIfFileMissing::Create => {
            match system::create_folder_at(folder, name, 0o700) {
                Ok(()) | Err(system::EEXIST) => {}
                Err(error) => return Err(error),
            }
            system::open_at(folder, name, flags, 0)
        }
        other => other,
    }
}

/// Rejects files that another user may have placed there. Returns the file's size.
fn check_is_own_file(file: &Descriptor) -> Result<u64, OutputFailure> {
    let stat = system::stat(file).map_err(|error| OutputFailure::from_errno(b"it cannot be examined", error, ADVICE_CHOOSE_OTHER_FILE))?;
    if !stat.is_regular() {
        return Err(OutputFailure::new(b"it is not a regular file", ADVICE_CHOOSE_OTHER_FILE));
    }
    if stat.uid != system::effective_user_id() {
        return Err(OutputFailure::new(b"it belongs to a different user", ADVICE_CHOOSE_OTHER_FILE));
    }
    if stat.nlink > 1 {
        return Err(OutputFailure::new(b"it has more than one name (hard links)", ADVICE_CHOOSE_OTHER_FILE));
    }
    Ok(stat.size as u64)
}

/// The lock on a raw file's header, held until this value is dropped.
pub struct HeaderLock<'a>(&'a Descriptor);

impl HeaderLock<'_> {
    pub fn acquire(file: &Descriptor) -> Result<HeaderLock<'_>, OutputFailure> {
        lock(file, HEADER_LOCK_BYTE).map(|()| HeaderLock(file))
    }
}

/// Waits for the lock on a byte of the file. No process holds the lock for long, but the wait is limited, because the holder may be
/// stopped.
pub fn lock(file: &Descriptor, byte: i64) -> Result<(), OutputFailure> {
    // There is one attempt per millisecond. A holder needs only microseconds.
    const MAX_WAIT_MS: u32 = 5_000;
    let mut result = system::lock_byte(file, byte, true);
    for _ in 0..MAX_WAIT_MS {
        match result {
            // Another process holds the lock.
            Err(system::EAGAIN | system::EACCES) => system::sleep_ms(1),
            _ => break,
        }
        result = system::lock_byte(file, byte, true);
    }
    result
        .map_err(|error| OutputFailure::from_errno(b"it cannot be locked", error, b"let TRODDEN_OUTPUT name a file on a local file system"))
}

impl Drop for HeaderLock<'_> {
    fn drop(&mut self) {
        let _ = system::lock_byte(self.0, HEADER_LOCK_BYTE, false);
    }
}

/// Reads the header as far as the file contains it, and fills the rest with zeros.
fn read_header(file: &Descriptor, header: &mut RawHeader) -> Result<(), OutputFailure> {
    // SAFETY: a RawHeader consists of integers without padding; the slice is the header's only borrow.
    let bytes = unsafe { core::slice::from_raw_parts_mut((&raw mut *header).cast::<u8>(), size_of::<RawHeader>()) };
    bytes.fill(0);
    system::read_at(file, bytes, 0)
        .map(drop)
        .map_err(|error| OutputFailure::from_errno(b"it cannot be read", error, ADVICE_CHOOSE_OTHER_FILE))
}

fn is_header_complete(header: &RawHeader, image: &OwnImage) -> bool {
    FileHeader::read(&header.file_header).is_ok_and(|found| found.kind == image.file_kind())
}

fn explain_rejection(header: &RawHeader) -> OutputFailure {
    match FileHeader::read(&header.file_header) {
        Err(HeaderError::EarlierFormat) => OTHER_VERSION_FAILURE,
        Err(HeaderError::Checksum) => CORRUPT_FAILURE,
        _ => OutputFailure::new(b"it is not a raw profile", ADVICE_CHOOSE_OTHER_FILE),
    }
}

const OTHER_VERSION_FAILURE: OutputFailure = OutputFailure::new(b"a different version of trodden wrote it", ADVICE_CHOOSE_OTHER_FILE);
const CORRUPT_FAILURE: OutputFailure = OutputFailure::new(b"its header is corrupt", ADVICE_CHOOSE_OTHER_FILE);

fn check_header(header: &RawHeader, image: &OwnImage, identity: &IdentityBytes) -> Result<(), OutputFailure> {
    if header.file_header != *image.file_header() {
        return Err(OTHER_VERSION_FAILURE);
    }
    if header.image != *identity || header.counters != image.counters || header.units != image.len() {
        return Err(OutputFailure::new(
            b"it contains counts of a different image",
            b"put %m into the name in TRODDEN_OUTPUT, or remove the file",
        ));
    }
    let switch_is_sound = header.switch_offset.is_multiple_of(PAGE_BYTES) && header.switch_offset < header.regions_offset;
    let sound = header.regions_offset.is_multiple_of(PAGE_BYTES)
        && header.regions_offset != 0
        && header.regions_offset < 1 << 40
        && switch_is_sound
        && (header.switch_offset != 0) == (image.switch != 0);
    if !sound || header.region_stride != region_stride(image.region_words) {
        return Err(CORRUPT_FAILURE);
    }
    Ok(())
}

/// Writes the header of an empty or unfinished file. The caller must hold the header's lock.
fn write_header(
    file: &Descriptor,
    image: &OwnImage,
    identity: IdentityBytes,
    lost: LostThreads,
    scratch: &mut Text,
    header: &mut RawHeader,
) -> Result<(), OutputFailure> {
    find_path_of_mapping(image.address(), scratch);
    fill_new_header(header, image, identity, lost, scratch.bytes());
    check_space(file, header.regions_offset, header.regions_offset)?;
    let write = |bytes: &[u8], offset| system::write_at(file, bytes, offset).map_err(write_failure);
    write(bytes_of(header), 0)?;
    let mut offset = header.units_offset;
    for unit in image.units() {
        write(bytes_of(&unit), offset)?;
        offset += size_of::<RawUnit>() as u64;
    }
    write(scratch.bytes(), header.path_offset)?;
    // This also reserves the page of the sampling switch, which other processes write.
    reserve_space(file, 0, header.regions_offset)?;
    if header.switch_offset != 0 && output::is_variable_set_to(SWITCH_ENVIRONMENT_VARIABLE, SWITCH_ON_VALUE, scratch) {
        write(&[1], header.switch_offset)?;
    }
    header.file_header = *image.file_header();
    write(header.file_header.get(FILE_HEADER_CHECKSUM_OFFSET..).unwrap_or(&[]), FILE_HEADER_CHECKSUM_OFFSET as u64)
}

/// Fills in the header of a new raw file, but leaves the checksum of its file header zero.
fn fill_new_header(header: &mut RawHeader, image: &OwnImage, identity: IdentityBytes, lost: LostThreads, path: &[u8]) {
    let units_offset = size_of::<RawHeader>() as u64;
    let path_offset = units_offset + image.len() * size_of::<RawUnit>() as u64;
    let path_len = path.len() as u64;
    let end = (path_offset + path_len).next_multiple_of(PAGE_BYTES);
    let has_switch = image.switch != 0;
    let mut file_header = *image.file_header();
    if let Some(checksum) = file_header.last_chunk_mut() {
        *checksum = [0; FILE_HEADER_BYTES - FILE_HEADER_CHECKSUM_OFFSET];
    }
    *header = RawHeader {
        file_header,
        image: identity,
        counters: image.counters,
        units: image.len(),
        units_offset,
        path_offset,
        path_len,
        regions_offset: if has_switch { end + PAGE_BYTES } else { end },
        region_stride: region_stride(image.region_words),
        pid: u64::from(system::process_id()),
        created_ns: system::now_ns(),
        switch_offset: if has_switch { end } else { 0 },
        checksum: 0,
        lost: lost.0,
    };
    header.checksum = header_checksum(header, image, path);
}

fn header_checksum(header: &RawHeader, image: &OwnImage, path: &[u8]) -> u64 {
    let fields = Checksum::new().add_bytes(bytes_of(header).get(RawHeader::CHECKSUMMED_BYTE_RANGE).unwrap_or(&[]));
    image.units().fold(fields, |sum, unit| sum.add_bytes(bytes_of(&unit))).add_bytes(path).value()
}

fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: this function is only used for RawHeader and RawUnit, which consist of integers without padding.
    unsafe { core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }
}

pub fn write_failure(error: Errno) -> OutputFailure {
    match error {
        system::ENOSPC | system::EDQUOT => NO_SPACE_FAILURE,
        _ => OutputFailure::from_errno(b"it cannot be written", error, ADVICE_USE_WRITABLE_FOLDER),
    }
}

const NO_SPACE_FAILURE: OutputFailure = OutputFailure::new(
    b"the disk has no space for its counters",
    b"free some space, or let TRODDEN_OUTPUT name a file on a different file system",
)
.with_lost_reason(LostReason::NoSpace);

/// Checks that the free disk space and the file size limit permit extending the file to `size` bytes, `added` more than now. If a page
/// could not be stored later, the kernel would kill the program.
pub fn check_space(file: &Descriptor, size: u64, added: u64) -> Result<(), OutputFailure> {
    if system::file_size_limit() < size {
        let failure = OutputFailure::new(b"it would exceed the file size limit of this process", b"raise the limit (ulimit -f)");
        return Err(failure.with_lost_reason(LostReason::SizeLimit));
    }
    let free = system::free_space(file).map_err(write_failure)?;
    if free < added { Err(NO_SPACE_FAILURE) } else { Ok(()) }
}

/// Extends the file to at least `start + length` bytes, and reserves disk space for the part from `start` on. If the file system cannot
/// reserve space, the program may be killed later when the disk is full.
pub fn reserve_space(file: &Descriptor, start: u64, length: u64) -> Result<(), OutputFailure> {
    match system::reserve(file, start, length) {
        Err(system::EOPNOTSUPP | system::ENOSYS) => system::resize(file, start + length),
        other => other,
    }
    .map_err(write_failure)
}

/// Marks the file as one for whose header the disk had no space; the mark itself needs none. The caller must hold the header's lock.
fn mark_file_without_space(file: &Descriptor) {
    if system::file_size_limit() >= RAW_FILE_LENGTH_IF_NO_SPACE {
        let _ = system::resize(file, 0);
        let _ = system::resize(file, RAW_FILE_LENGTH_IF_NO_SPACE);
    }
}

/// Records in the file's complete header that a thread's counts are lost.
pub fn record_lost_thread(file: &Descriptor, reason: LostReason) {
    // The word is changed atomically in mapped memory, so that no process overwrites another one's record. If the file was truncated, the
    // page may be missing.
    if system::stat(file).is_ok_and(|stat| stat.size as u64 >= PAGE_BYTES)
        && let Ok(address) = system::map_file(file, 0, PAGE_BYTES as usize, None)
    {
        add_lost_thread(address + core::mem::offset_of!(RawHeader, lost), reason);
        system::unmap(address, PAGE_BYTES as usize);
    }
}

/// Adds one thread to the [`LostThreads`] at `address`, which must be that of an aligned word in a mapped raw file.
pub fn add_lost_thread(address: usize, reason: LostReason) {
    // SAFETY: the caller guarantees that the word is mapped. All processes access it atomically, or read it through the file.
    let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
    let _ = word.fetch_update(SeqCst, SeqCst, |lost| Some(LostThreads(lost).add_thread(reason).0));
}

/// Stores in `path` the name of the file that is mapped at `address`, according to `/proc/self/maps` (proc(5)). Leaves `path` empty if the
/// name cannot be determined.
pub fn find_path_of_mapping(address: usize, path: &mut Text) {
    path.clear();
    let flags = system::O_RDONLY | system::O_CLOEXEC;
    let Ok(file) = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/maps\0", flags, 0) else { return };
    // The buffer is small, because it is on the stack of whichever thread enters first.
    let mut chunk = [0; 128];
    let mut line = MapsLineParser::default();
    while let Ok(length @ 1..) = system::read(&file, &mut chunk) {
        for &byte in chunk.get(..length).unwrap_or(&[]) {
            if byte == b'\n' {
                if line.contains(address) {
                    return;
                }
                line = MapsLineParser::default();
                path.clear();
            } else if line.feed_byte(byte) && path.push(byte).is_err() {
                path.clear();
                return;
            }
        }
    }
    path.clear();
}

/// A parser of the lines of `/proc/self/maps`: `START-END PERMISSIONS OFFSET DEVICE INODE    PATH`.
#[derive(Default)]
struct MapsLineParser {
    bounds: [usize; 2],
    is_at_end: bool,
    blanks: u32,
    is_in_path: bool,
}

impl MapsLineParser {
    /// Consumes a byte; returns true if it belongs to the path.
    fn feed_byte(&mut self, byte: u8) -> bool {
        if self.blanks == 0 {
            let [start, end] = &mut self.bounds;
            let bound = if self.is_at_end { end } else { start };
            match byte {
                b'-' => self.is_at_end = true,
                b'0'..=b'9' => *bound = *bound << 4 | usize::from(byte - b'0'),
                b'a'..=b'f' => *bound = *bound << 4 | usize::from(byte - b'a' + 10),
                _ => {}
            }
        }
        self.is_in_path |= self.blanks >= 5 && byte == b'/';
        self.blanks += u32::from(byte == b' ');
        self.is_in_path
    }

    fn contains(&self, address: usize) -> bool {
        let [start, end] = self.bounds;
        (start..end).contains(&address)
    }
}
