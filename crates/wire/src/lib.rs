//! Layouts that the runtime inside an instrumented program shares with the readers of its output. Everything is little-endian, without
//! implicit padding.
//!
//! An instrumented image has a [`UnitRecord`] per compilation unit in [`UNITS_SECTION`], and counters (`u64`) in [`COUNTERS_SECTION`].
//! These counters are only a *template* that fixes each counter's offset. A thread counts in a *region*, a copy of the template in the raw
//! file ([`RawHeader`]), and finds it by adding its bias ([`BIAS_SYMBOL`]) to addresses in the template. A raw file has the regions of one
//! image, for one or many processes, and is memory-mapped while they count. Its profile is the sum of its regions. [`live`] explains how
//! files can be read while they change.
#![no_std]
#![forbid(unsafe_code)]

// Layout of a raw file. The owner of a region holds an open-file-description lock on the byte [`region_lock_byte`]. Such a lock lives as
// long as the mapping made from its file description, so the kernel releases it no matter how the process ends.
//
// 0              units_offset     path_offset   (switch_offset)   regions_offset (page aligned)
// | RawHeader    | RawUnit x n    | path bytes  | (switch page)   | region 0 | region 1 | ...   each region_stride bytes

pub mod blocks;
pub mod file_header;
pub mod layout;
pub mod live;
pub mod stream;
pub mod waits;

use file_header::FILE_HEADER_BYTES;

/// Section of the [`UnitRecord`]s. The name is a C identifier, so linkers define `__start_` and `__stop_` symbols for it.
pub const UNITS_SECTION: &str = "trodden_units";
/// Section of the counter template, which occupies no space in the file. The name is a C identifier, like [`UNITS_SECTION`].
pub const COUNTERS_SECTION: &str = "trodden_counters";
/// Section of the unit frames (maps and bitcode; see the crate `trodden-unit`). It is not loaded at run time.
pub const FRAMES_SECTION: &str = ".trodden.unit";

/// A witness sled: a no-op (`nop [rax + rax + 0x646f7274]`) that no compiler emits, at the start of each block of a program built for
/// `trodden trace record --collector compiled`. At each block whose executions it records, the collector replaces the sled by a jump.
pub const WITNESS_SLED_INSTRUCTION: [u8; 8] = *b"\x0f\x1f\x84\x00trod";

/// Thread-local `i64`, hidden in each image: the address of the thread's region minus the address of the template, or 0 if the thread has
/// no region.
pub const BIAS_SYMBOL: &str = "__trodden_bias";
/// Thread-local [`DirectThread`], hidden in each image that has units of the residual tier, which count only paths that were unknown at
/// build time.
pub const DIRECT_BIAS_SYMBOL: &str = "__trodden_direct_bias";
/// Function `() -> *mut DirectThread` in images with [`DIRECT_BIAS_SYMBOL`]. Returns the calling thread's instance.
pub const DIRECT_ADDRESS_SYMBOL: &str = "__trodden_direct_place";
/// A thread's state in an image with units of the residual tier, which count only paths that were unknown at build time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectThread {
    /// Bias that instrumented code uses to check whether the thread's region already has a count of a path, and to increment that count.
    /// It equals the thread's bias, except while [`COUNT_SYMBOL`] must see each count: then it is 0, and code reads the template, whose
    /// counters are 0.
    pub bias: i64,
    /// Address of the stack frame from which the runtime is calling [`UNTESTED_SYMBOL`], or 0 outside such a call. Only the thread itself
    /// accesses this field.
    pub callback: u64,
}

/// Three thread-local words, hidden in images that count interprocedural segments, in which callers pass contexts. The first is for a
/// call, the second for a jump; the third has the previous value of the first.
pub const CONTEXT_SYMBOL: &str = "__trodden_context";
/// Size in bytes of the three words of [`CONTEXT_SYMBOL`].
pub const CONTEXT_BYTES: usize = 24;
/// Function `() -> *mut u64` in images with [`CONTEXT_SYMBOL`]. Returns the address of the calling thread's words.
pub const CONTEXT_ADDRESS_SYMBOL: &str = "__trodden_context_place";
/// Function `() -> i64` that acquires a region for the calling thread, stores the region's bias and returns it. If out of memory, it
/// returns 0 and stores nothing; code then counts in the template, which is never read. The function preserves all registers except `rax`,
/// `r11` and flags (LLVM's `preserve_allcc`), so that a call on a cold path does not slow down its caller.
pub const ENTER_SYMBOL: &str = "__trodden_enter";

/// Code that the residual tier jumps to, with a counter's address in `rdi` and the return address in `r11`. It increments the calling
/// thread's copy of the counter, and acquires a region if necessary. When a region first counts a path, the code also records the time
/// (see [`FunctionRecord`]). It preserves all registers except `r10`, `r11` and flags.
pub const COUNT_SYMBOL: &str = "__trodden_count";
/// Hidden `i64` in each image with units whose threads share a region: the region's bias, or 0 before the region is acquired.
pub const SHARED_BIAS_SYMBOL: &str = "__trodden_shared_bias";
/// Function `() -> i64` that acquires the region shared by all threads, stores the region's bias and returns it. It otherwise behaves like
/// [`ENTER_SYMBOL`].
pub const ENTER_SHARED_SYMBOL: &str = "__trodden_enter_shared";

/// Section of the [`FunctionRecord`]s of the residual tier. The name is a C identifier, like [`UNITS_SECTION`].
pub const FUNCTIONS_SECTION: &str = "trodden_functions";

/// The record of a function in a unit of the residual tier. The unit's counters are followed by equally many `u64` times. The time of a
/// counter is when its region first counted the path, in nanoseconds since 1970, or 0 if that is unknown or has not happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRecord {
    /// Address of the function's first counter minus the address of this record.
    pub counters_delta: i64,
    /// Number of the function's counters.
    pub counters: u64,
    /// Distance in bytes from a counter to its time.
    pub time_offset: u64,
    /// Address of the function's linkage name (NUL-terminated) minus the address of this record.
    pub name_delta: i64,
}

/// Hidden NUL-terminated string that an image may define: the pattern for names of raw files if [`OUTPUT_ENVIRONMENT_VARIABLE`] is not set.
/// The runtime ignores it if the pattern's folder does not exist.
pub const DEFAULT_OUTPUT_SYMBOL: &str = "__trodden_default_output";
/// Hidden NUL-terminated string that an image may define: what to do at an unknown path if [`ON_UNTESTED_VARIABLE`] is not set.
pub const DEFAULT_ON_UNTESTED_SYMBOL: &str = "__trodden_default_on_untested";
/// Hidden NUL-terminated string that an image may define. In a watch, a build whose unknown paths are those that match an expression, it is
/// this expression.
pub const WATCHED_EXPRESSION_SYMBOL: &str = "__trodden_watched";
/// Environment variable: what a residual build does at an unknown path, besides counting it. The values are `report`, `abort`, `callback`,
/// and `count` (nothing else).
pub const ON_UNTESTED_VARIABLE: &str = "TRODDEN_ON_UNTESTED";
/// Environment variable: a file with paths that count as known in addition to those known at build time; see [`KnownHeader`].
pub const KNOWN_PATHS_ENVIRONMENT_VARIABLE: &str = "TRODDEN_KNOWN";
/// Weak function `(function: *const c_char, path: u64, count: u64)` that the program may define. The runtime calls it at an unknown path if
/// [`ON_UNTESTED_VARIABLE`] is `callback`.
pub const UNTESTED_SYMBOL: &str = "trodden_untested";
/// Version of files of further known paths, of kind [`file_header::FileKind::FURTHER_KNOWN_PATHS`].
pub const KNOWN_VERSION: u32 = 3;

/// Start of a file of further known paths, followed by a bit for each counter of the image's template, lowest first: 1 if the path is
/// known.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHeader {
    /// The [`file_header::FileHeader`].
    pub file_header: [u8; FILE_HEADER_BYTES],
    /// Identity of the image.
    pub image: IdentityBytes,
    /// Number of counters in the image's template.
    pub counters: u64,
    /// [`checksum`] of the bits.
    pub checksum: u64,
}

/// Returns a checksum that detects every change of a single word, and nearly all other changes. It is computed over 8-byte little-endian
/// words. The last word is padded with zeros.
pub fn checksum(bytes: &[u8]) -> u64 {
    Checksum::new().add_bytes(bytes).value()
}

/// A [`checksum`] that is computed piece by piece. The result is the checksum of the concatenated pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// Starts a checksum. The start value and the prime are those of FNV-1a. FNV-1a never carries high bits to low ones, so
    /// [`Checksum::add_word`] also shifts.
    #[allow(clippy::new_without_default, reason = "`new` is const")]
    pub const fn new() -> Checksum {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    /// Appends a piece. The length of each piece but the last must be a multiple of 8.
    pub fn add_bytes(self, bytes: &[u8]) -> Checksum {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        bytes.chunks(8).fold(self, |sum, bytes| sum.add_word(word(bytes)))
    }

    /// Appends a word.
    #[inline]
    pub const fn add_word(self, word: u64) -> Checksum {
        let product = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        Checksum(product ^ (product >> 32))
    }

    /// Returns the checksum of everything added so far.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// The switch of the sampling tier: a byte at the start of a page, hidden in each image with units of that tier. Such units count while
/// the byte is not 0. The runtime maps the page of the raw file at [`RawHeader::switch_offset`] over the switch, so that other processes
/// can flip it.
pub const SWITCH_SYMBOL: &str = "__trodden_switch";

/// The [`EventRecord`] of an image whose units sum events per path. All symbols with this prefix are in a section group named after the
/// event. Linkers keep one such group, and reject a program whose units have different events.
pub const EVENT_SYMBOL: &str = "__trodden_event";
/// [`EventRecord::kind`] of the time-stamp counter, which instrumented code reads without the kernel.
pub const EVENT_KIND_TIME_STAMP_COUNTER: u32 = u32::MAX;

/// The event that an image sums per path.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The event's type, as in `perf_event_attr`, or [`EVENT_KIND_TIME_STAMP_COUNTER`].
    pub kind: u32,
    /// Always 0.
    pub reserved: u32,
    /// The event's number, as in `perf_event_attr`.
    pub config: u64,
}

/// A thread's event counting state, in the image's thread-local memory. `__trodden_event_thread` returns its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventThread {
    /// Number of events added to paths that have ended, plus those that counting caused.
    pub spent: i64,
    /// Source of the counter's value: 0 for none; below 2^32 a file descriptor's number plus 1; otherwise the address of the counter's
    /// mapped page.
    pub source: u64,
    /// Number that is added to the counter's value: the events that the thread's earlier counters had counted, including those before a
    /// fork.
    pub base: i64,
    /// The thread's reading when the process forked.
    pub reading_at_fork: i64,
}

/// The number of events that reading the counter causes, in the image's `__trodden_event_cost`. It is subtracted from each path's sum.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCost {
    /// Number of events from the reading at function entry to the function's own code.
    pub begin: i64,
    /// Number of events from the reading at a path end to the following code.
    pub end: i64,
}

/// Environment variable with the pattern of raw files; if unset, nothing is written. `%p` process id, `%h` host name, `%m` image identity
/// (32 hexadecimal digits), `%%` a percent sign. Without `%p`, all processes share one file per image, which merges their counts.
pub const OUTPUT_ENVIRONMENT_VARIABLE: &str = "TRODDEN_OUTPUT";

/// Environment variable: whether the sampling switch is on in a new raw file ([`SWITCH_ON_VALUE`]); off if unset.
pub const SWITCH_ENVIRONMENT_VARIABLE: &str = "TRODDEN_SWITCH";
/// Value of [`SWITCH_ENVIRONMENT_VARIABLE`] that makes a program count from its first path on.
pub const SWITCH_ON_VALUE: &str = "on";

/// Version of raw files, of kind [`file_header::FileKind::RAW_COUNTS`].
pub const RAW_VERSION: u32 = 4;
/// Length of a file that consists of one zero byte: its program had no disk space for a header, and lost all its counts. In contrast, an
/// empty file was just created.
pub const RAW_FILE_LENGTH_IF_NO_SPACE: u64 = 1;
/// First field of every [`UnitRecord`].
pub const UNIT_MAGIC: u32 = 0x5452_4455;
/// Version of the [`UnitRecord`] layout.
pub const UNIT_VERSION: u32 = 2;

/// 128-bit identity of a unit or of an image, as bytes.
pub type IdentityBytes = [u8; 16];

/// The record of a compilation unit in an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    /// Always [`UNIT_MAGIC`].
    pub magic: u32,
    /// Always [`UNIT_VERSION`].
    pub version: u32,
    /// Identity of the unit: a hash of its bitcode and of how it was instrumented.
    pub unit: IdentityBytes,
    /// Address of the unit's first counter minus the address of this record, so that no relocation is needed at run time.
    pub counters_delta: i64,
    /// Number of counters (`u64`).
    pub counters: u64,
}

/// The start of a raw file and of a stream file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawHeader {
    /// The [`file_header::FileHeader`]. Its checksum is written last; without it the file is incomplete.
    pub file_header: [u8; FILE_HEADER_BYTES],
    /// Identity of the image: [`image_identity`] of its units.
    pub image: IdentityBytes,
    /// Number of counters in each region.
    pub counters: u64,
    /// Number of [`RawUnit`]s.
    pub units: u64,
    /// Byte offset of the [`RawUnit`]s.
    pub units_offset: u64,
    /// Byte offset of the image's path, as the process saw it.
    pub path_offset: u64,
    /// Length of that path in bytes; 0 if unknown.
    pub path_len: u64,
    /// Byte offset of the first region; a multiple of the page size.
    pub regions_offset: u64,
    /// Distance in bytes between regions: [`region_stride`] of `counters`.
    pub region_stride: u64,
    /// Process that created the file.
    pub pid: u64,
    /// Time of creation: nanoseconds since 1970 (CLOCK_REALTIME).
    pub created_ns: u64,
    /// Byte offset of the page whose first byte is the image's switch ([`SWITCH_SYMBOL`]); 0 if the image has none.
    pub switch_offset: u64,
    /// [`Checksum`] of the fields between the file header and this field, of the [`RawUnit`]s and of the path.
    pub checksum: u64,
    /// Losses of threads without a region ([`LostThreads`]). Changes while programs run.
    pub lost: u64,
}

impl RawHeader {
    /// Byte range of the header's fields that [`RawHeader::checksum`] covers.
    pub const CHECKSUMMED_BYTE_RANGE: core::ops::Range<usize> = FILE_HEADER_BYTES..core::mem::offset_of!(RawHeader, checksum);

    /// Computes [`RawHeader::checksum`] for a file that starts with these bytes. `None` if `bytes` end before something that the checksum
    /// covers.
    pub fn checksum_of(bytes: &[u8]) -> Option<u64> {
        let header = <RawHeader as layout::Layout>::read(bytes)?;
        let part = |offset: u64, length: u64| {
            let end = usize::try_from(offset.checked_add(length)?).ok()?;
            bytes.get(usize::try_from(offset).ok()?..end)
        };
        let units = part(header.units_offset, header.units.checked_mul(size_of::<RawUnit>() as u64)?)?;
        let path = part(header.path_offset, header.path_len)?;
        Some(Checksum::new().add_bytes(bytes.get(RawHeader::CHECKSUMMED_BYTE_RANGE)?).add_bytes(units).add_bytes(path).value())
    }
}

/// Number of threads whose counts were discarded (the low 32 bits), and the reasons (higher bits). The file header and each region have
/// such a word; readers merge all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostThreads(pub u64);

/// A reason why counts were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The disk was full, or a quota exhausted.
    NoSpace,
    /// The file would have exceeded the process's size limit (RLIMIT_FSIZE).
    SizeLimit,
    /// The file could not be opened, locked, mapped or written; standard error has the details.
    Other,
}

impl LostReason {
    /// All reasons, in the order of their bits.
    pub const ALL: [LostReason; 3] = [LostReason::NoSpace, LostReason::SizeLimit, LostReason::Other];

    const fn bit(self) -> u64 {
        1 << (32 + self as u64)
    }
}

impl LostThreads {
    const THREAD_COUNT_MASK: u64 = u32::MAX as u64;

    /// Adds a thread that lost its counts for this reason.
    #[inline]
    pub const fn add_thread(self, reason: LostReason) -> LostThreads {
        let threads = self.0 & LostThreads::THREAD_COUNT_MASK;
        let threads = if threads == LostThreads::THREAD_COUNT_MASK { threads } else { threads + 1 };
        LostThreads(self.0 & !LostThreads::THREAD_COUNT_MASK | threads | reason.bit())
    }

    /// Returns the number of threads.
    pub const fn threads(self) -> u64 {
        self.0 & LostThreads::THREAD_COUNT_MASK
    }

    /// Returns true if `reason` is among the reasons.
    pub const fn has_reason(self, reason: LostReason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// Merges two words.
    pub const fn merge(self, other: LostThreads) -> LostThreads {
        let threads = self.threads() + other.threads();
        let threads = if threads > LostThreads::THREAD_COUNT_MASK { LostThreads::THREAD_COUNT_MASK } else { threads };
        LostThreads((self.0 | other.0) & !LostThreads::THREAD_COUNT_MASK | threads)
    }
}

/// A unit of the image in a raw file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawUnit {
    /// Identity of the unit, as in [`UnitRecord`].
    pub unit: IdentityBytes,
    /// Index of the unit's first counter within a region.
    pub first: u64,
    /// Number of the unit's counters.
    pub counters: u64,
}

layout::layouts! {
    UnitRecord { magic, version, unit, counters_delta, counters }
    RawHeader {
        file_header, image, counters, units, units_offset, path_offset, path_len, regions_offset, region_stride, pid, created_ns,
        switch_offset, checksum, lost,
    }
    RawUnit { unit, first, counters }
    KnownHeader { file_header, image, counters, checksum }
}

/// Returns the offset of the byte whose lock represents ownership of region `index`. The offset is far beyond the end of the raw file.
#[inline]
pub const fn region_lock_byte(index: u64) -> i64 {
    (1 << 62) + index as i64
}

/// The byte of a raw file whose lock serialises writers of the header and extensions of the file.
pub const HEADER_LOCK_BYTE: i64 = (1 << 62) - 1;

/// Returns the distance in bytes between the regions of an image with `counters` counters: whole pages, with room for the holder and the
/// [`LostThreads`].
#[inline]
pub const fn region_stride(counters: u64) -> u64 {
    region_holder_offset(counters).saturating_add(16).next_multiple_of(4096)
}

/// Returns the offset of a region's holder, the `u64` after the last counter. If the mapping does not keep the region's lock alive
/// (overlay file systems, locks that belong to a process), the holder is the id of the process that owns the region; else 0. A process
/// that ends without running its destructors leaves its id there.
#[inline]
pub const fn region_holder_offset(counters: u64) -> u64 {
    counters.saturating_mul(8)
}

/// Returns the offset of a region's [`LostThreads`], the `u64` after the holder.
#[inline]
pub const fn region_lost_offset(counters: u64) -> u64 {
    region_holder_offset(counters).saturating_add(8)
}

/// Returns the identity of an image, which depends on its units, their sizes and their order.
pub fn image_identity(units: impl Iterator<Item = (IdentityBytes, u64)>) -> IdentityBytes {
    // Two independent multiply-xor hashes suffice, because the words are content hashes already.
    let (mut a, mut b) = (0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f_u64);
    let mut feed = |word: u64| {
        a = (a ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        b = (b.rotate_left(31) ^ word).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    };
    for (unit, counters) in units {
        let words = u128::from_le_bytes(unit);
        feed(words as u64);
        feed((words >> 64) as u64);
        feed(counters);
    }
    let finish = |mut x: u64| {
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^= x >> 33;
        x
    };
    (u128::from(finish(a)) | u128::from(finish(b)) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_stride_is_whole_pages_with_room_for_holder_and_losses() {
        for (counters, stride) in [(0, 4096), (1, 4096), (510, 4096), (511, 8192), (512, 8192), (513, 8192)] {
            assert_eq!(region_stride(counters), stride);
            assert!(region_lost_offset(counters) + 8 <= stride && region_lost_offset(counters) >= 8 * counters + 8);
        }
    }

    #[test]
    fn checksum_detects_one_and_two_changed_bits() {
        let bytes: [u8; 27] = core::array::from_fn(|i| (i * 37) as u8);
        let sum = checksum(&bytes);
        assert_ne!(checksum(&bytes[..26]), sum);
        assert_eq!(Checksum::new().add_bytes(&bytes[..8]).add_bytes(&bytes[8..]).value(), sum);
        for one in 0..27 * 8 {
            for other in one..27 * 8 {
                let mut changed = bytes;
                changed[one / 8] ^= 1 << (one % 8);
                if other != one {
                    changed[other / 8] ^= 1 << (other % 8);
                }
                assert_ne!(checksum(&changed), sum, "bits {one} and {other}");
            }
        }
    }

    #[test]
    fn layouts_have_no_hidden_padding() {
        assert_eq!(size_of::<UnitRecord>(), 40);
        assert_eq!(size_of::<RawHeader>(), FILE_HEADER_BYTES + 16 + 12 * 8);
        assert_eq!(size_of::<RawUnit>(), 32);
        assert_eq!((size_of::<FunctionRecord>(), size_of::<KnownHeader>()), (32, 64));
    }

    #[test]
    fn merged_losses_keep_their_reasons() {
        let one = LostThreads::default().add_thread(LostReason::NoSpace);
        let sum = one.add_thread(LostReason::NoSpace).merge(LostThreads::default().add_thread(LostReason::Other));
        assert_eq!(sum.threads(), 3);
        assert_eq!(LostReason::ALL.map(|reason| sum.has_reason(reason)), [true, false, true]);
        let all = LostThreads(u64::from(u32::MAX)).merge(one).add_thread(LostReason::SizeLimit);
        assert_eq!(all.threads(), u64::from(u32::MAX));
        assert_eq!(LostReason::ALL.map(|reason| all.has_reason(reason)), [true, true, false]);
    }

    #[test]
    fn image_identity_depends_on_units_sizes_and_order() {
        let (x, y) = (([1; 16], 3), ([2; 16], 3));
        let of = |units: &[(IdentityBytes, u64)]| image_identity(units.iter().copied());
        let all = [of(&[]), of(&[x]), of(&[y]), of(&[x, y]), of(&[y, x]), of(&[(x.0, 4)])];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert_ne!(a, b);
            }
        }
    }
}
