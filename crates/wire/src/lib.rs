//! Layouts shared by the runtime inside a subject and by everything that reads what it wrote.
//!
//! Three things cross that border:
//!
//! 1. [`UnitRecord`]: one per compilation unit, in the allocated section [`UNITS_SECTION`] of the linked image.
//! 2. The counters: `u64` arrays, one per unit, in the section [`COUNTERS_SECTION`] (writable, no bits). The section is only a *template*:
//!    it fixes the distance of every counter from the section's start. Each thread counts in a *region* of its own, a copy of that layout
//!    elsewhere in memory, and code reaches it by adding the thread's bias ([`BIAS_SYMBOL`]) to the address of the template.
//! 3. The raw file ([`RawHeader`]): all regions of one image, of one process or of many, memory-mapped while they count.
//!
//! ```text
//! raw file   0              units_offset     path_offset   (switch_offset)   regions_offset (page aligned)
//!            | RawHeader    | RawUnit x n    | path bytes  | (switch page)   | region 0 | region 1 | ...   each region_stride bytes
//! ```
//!
//! What protects each part of a file that changes while it is read stands in [`live`].
//!
//! The profile of the file is the sum of its regions, counter by counter. A region belongs to the holder of the
//! lock on the byte [`region_lock_byte`] of the file (an open-file-description lock, which lives exactly as long as the mapping
//! made from that description), so that the kernel gives it back however a process ends.
//!
//! Everything is little-endian and has no padding that is not named.
#![no_std]
#![forbid(unsafe_code)]

pub mod blocks;
pub mod head;
pub mod layout;
pub mod live;
pub mod stream;
pub mod waits;

use head::HEAD_BYTES;

/// Section of the [`UnitRecord`]s. A C identifier, so that linkers define `__start_` and `__stop_` symbols.
pub const UNITS_SECTION: &str = "trodden_units";
/// Section of the template of counters (no bits in the file). A C identifier for the same reason.
pub const COUNTERS_SECTION: &str = "trodden_counters";
/// Section (not allocated) of the unit frames: maps and bitcode. See the crate `trodden-unit`.
pub const FRAMES_SECTION: &str = ".trodden.unit";

/// A witness sled: what stands at the beginning of blocks of programs that are built for `trodden trace record --collector compiled`,
/// which puts a jump there if the block is a witness. An instruction that does nothing (`nop [rax + rax + 0x646f7274]`), with bytes that no
/// compiler chooses.
pub const SLED: [u8; 8] = *b"\x0f\x1f\x84\x00trod";

/// Thread-local `i64`, hidden in each image: address of a thread's region minus address of the template. 0: no region acquired.
pub const BIAS_SYMBOL: &str = "__trodden_bias";
/// Thread-local [`DirectThread`], hidden in each image that has units of the residual tier.
pub const DIRECT_BIAS_SYMBOL: &str = "__trodden_direct_bias";
/// Function `() -> *mut DirectThread` of such images: where the calling thread's is.
pub const DIRECT_PLACE_SYMBOL: &str = "__trodden_direct_place";
/// A thread of an image with units of the residual tier.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectThread {
    /// By it code finds the thread's copy of a counter, to see for itself whether the path was counted before in its region, and to count
    /// it then. It is as the bias, but 0 as long as [`COUNT_SYMBOL`] has to see each count: what code finds is the template then, where no
    /// path was counted.
    pub bias: i64,
    /// Where the runtime keeps the frame by which it calls [`UNTESTED_SYMBOL`], while it does; else 0. The thread alone uses it.
    pub callback: u64,
}

/// Thread-local words, hidden in images that count interprocedural segments, by which a caller gives its callee a context: one for a call,
/// one for a jump, and what the first was before.
pub const CONTEXT_SYMBOL: &str = "__trodden_context";
/// Bytes of these.
pub const CONTEXT_BYTES: usize = 24;
/// Function `() -> *mut u64` of such images: where the calling thread's is.
pub const CONTEXT_PLACE_SYMBOL: &str = "__trodden_context_place";
/// Function `() -> i64` that acquires a region for the calling thread, stores and returns the bias. It returns 0, and stores nothing, only
/// where there is no memory for a region: then code counts in the template itself, which is never read. Preserves every register but `rax`,
/// `r11` and the flags (LLVM's `preserve_allcc`), so that a call on a cold path costs its caller nothing.
pub const ENTER_SYMBOL: &str = "__trodden_enter";

/// Code that is jumped to, with the counter's address in `rdi` and the address where it goes on in `r11`. It adds one
/// to the calling thread's copy of a counter of the template, acquiring a region if there is none; of the residual tier.
/// The first time in a region it notes when that was (see [`FunctionRecord`]). Preserves every register but `r10`,
/// `r11` and the flags.
pub const COUNT_SYMBOL: &str = "__trodden_count";
/// Hidden `i64` in each image that has units whose threads count in one region: that region's bias. 0: none acquired yet.
pub const SHARED_BIAS_SYMBOL: &str = "__trodden_shared_bias";
/// Function `() -> i64` that acquires the region which all threads share, and stores and returns its bias; as [`ENTER_SYMBOL`] otherwise.
pub const ENTER_SHARED_SYMBOL: &str = "__trodden_enter_shared";

/// Section of the [`FunctionRecord`]s of the residual tier. A C identifier, as [`UNITS_SECTION`].
pub const FUNCTIONS_SECTION: &str = "trodden_functions";

/// What an image says of a function of the residual tier. Behind the counters of its unit lie as many words for times:
/// that of a counter holds when it was counted first in its region, in nanoseconds since 1970; 0: not yet, or unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRecord {
    /// Address of the function's first counter minus the address of this record.
    pub counters_delta: i64,
    /// Number of its counters.
    pub counters: u64,
    /// Bytes from a counter to its time.
    pub to_times: u64,
    /// Address of the function's linkage name, which ends in NUL, minus the address of this record.
    pub name_delta: i64,
}

/// Hidden text, NUL at its end, that an image may define: the pattern of raw files where [`OUTPUT_VARIABLE`] is not
/// set. Heeded only while its folder exists.
pub const DEFAULT_OUTPUT_SYMBOL: &str = "__trodden_default_output";
/// Hidden text likewise: what stands for [`ON_UNTESTED_VARIABLE`] where that is not set.
pub const DEFAULT_ON_UNTESTED_SYMBOL: &str = "__trodden_default_on_untested";
/// Hidden text likewise: the expression that all paths match which the image does not know.
pub const WATCHED_SYMBOL: &str = "__trodden_watched";
/// Environment variable: what to do when a path is taken that a residual build does not know, besides counting it.
/// `report`, `abort`, `callback`, or `count` (nothing).
pub const ON_UNTESTED_VARIABLE: &str = "TRODDEN_ON_UNTESTED";
/// Environment variable: file of paths that count as known besides those that were known when the image was built; see [`KnownHeader`].
pub const KNOWN_VARIABLE: &str = "TRODDEN_KNOWN";
/// Weak function `(function: *const c_char, path: u64, count: u64)` of the subject, called for `callback`.
pub const UNTESTED_SYMBOL: &str = "trodden_untested";
/// Version of files of more known paths, of kind [`head::FileKind::MORE_KNOWN`].
pub const KNOWN_VERSION: u32 = 3;

/// Start of a file of more known paths, followed by a bit for each counter of the image's template, lowest first: 1 for known paths.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHeader {
    /// The [`head::FileHead`].
    pub head: [u8; HEAD_BYTES],
    /// Identity of the image.
    pub image: Identity,
    /// Counters of the image's template.
    pub counters: u64,
    /// [`checksum`] of the bits.
    pub checksum: u64,
}

/// A sum that detects every change of a single word, and almost all other damage. Of words of eight bytes, lowest byte first, the last one
/// padded with zeros.
pub fn checksum(bytes: &[u8]) -> u64 {
    Checksum::new().add_bytes(bytes).value()
}

/// A [`checksum`] of several pieces, as of their concatenation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// The checksum of nothing. The start value and the prime are those of FNV-1a, which carries no high bits to the low ones.
    #[allow(clippy::new_without_default, reason = "`new` is const")]
    pub const fn new() -> Checksum {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    /// Appends a piece. The length of all but the last one is a multiple of 8.
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

    /// The checksum.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// The switch of the sample tier: a byte at the beginning of a page, hidden in each image that has units of that tier.
/// While it is not 0, they count. The runtime maps the raw file's page [`RawHeader::switch_offset`] there, so that
/// others can flip it.
pub const SWITCH_SYMBOL: &str = "__trodden_switch";

/// Of units that sum up events for each path: address of the [`EventRecord`] that says which. Each such unit has all
/// symbols whose names begin so, in one section group with the event's name: linkers keep one, and refuse to link units
/// with different events.
pub const EVENT_SYMBOL: &str = "__trodden_event";
/// [`EventRecord::kind`] of the time-stamp counter, which code reads by itself.
pub const EVENT_TSC: u32 = u32::MAX;

/// What an image sums up for each path.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The event's type, as in `perf_event_attr`, or [`EVENT_TSC`].
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The event's number, as in `perf_event_attr`.
    pub config: u64,
}

/// What belongs to a thread, in thread-local memory of the image; the function `__trodden_event_thread` gives its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventThread {
    /// Events that belong to paths which have ended, and those that counting caused itself.
    pub spent: i64,
    /// Where the thread's counter is: 0 nowhere, below 2^32 the number of a descriptor and 1, else the address of its page.
    pub source: u64,
    /// What to add to the counter: what was counted by counters that the thread had before, in the process that it was forked from.
    pub base: i64,
    /// What the counter was when the process forked.
    pub noted: i64,
}

/// What reading causes by itself, in the image's `__trodden_event_cost`: it is taken off.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCost {
    /// From a reading where a function begins to the function's own code.
    pub begin: i64,
    /// From a reading where a path ends to the code behind.
    pub end: i64,
}

/// Environment variable with the pattern of raw files; unset: nothing is written. `%p` process id, `%h` host name, `%m` image
/// identity (32 hexadecimal digits), `%%` a percent sign. Without `%p`, all processes share (and so merge into) one file per image.
pub const OUTPUT_VARIABLE: &str = "TRODDEN_OUTPUT";

/// Environment variable that says whether the switch of the sample tier is on when a raw file is made: [`SWITCH_IS_ON`], or (unset) not.
pub const SWITCH_VARIABLE: &str = "TRODDEN_SWITCH";
/// Value of [`SWITCH_VARIABLE`] that has a program count from its first path on.
pub const SWITCH_IS_ON: &str = "on";

/// Version of raw files, of kind [`head::FileKind::RAW_COUNTS`].
pub const RAW_VERSION: u32 = 4;
/// Length of a file (one zero) whose program had no room for a header, so that none of its counts are there. An empty
/// file is one that was just made.
pub const RAW_GIVEN_UP: u64 = 1;
/// First field of every [`UnitRecord`].
pub const UNIT_MAGIC: u32 = 0x5452_4455;
/// Version of the [`UnitRecord`] layout.
pub const UNIT_VERSION: u32 = 2;

/// 128-bit identity of a unit or of an image, as bytes.
pub type Identity = [u8; 16];

/// What an image says of one of its compilation units.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    /// [`UNIT_MAGIC`].
    pub magic: u32,
    /// [`UNIT_VERSION`].
    pub version: u32,
    /// Identity of the unit: hash of its bitcode and of the way it was instrumented.
    pub unit: Identity,
    /// Address of the unit's first counter minus the address of this record (so it needs no relocation at run time).
    pub counters_delta: i64,
    /// Number of counters (`u64`).
    pub counters: u64,
}

/// Start of a raw file and of a stream file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawHeader {
    /// The [`head::FileHead`]. Its checksum is written last: until then the file is not set up.
    pub head: [u8; HEAD_BYTES],
    /// Identity of the image, [`image_identity`] of its units.
    pub image: Identity,
    /// Counters (`u64`) in each region.
    pub counters: u64,
    /// Number of [`RawUnit`]s.
    pub units: u64,
    /// Byte offset of the [`RawUnit`]s.
    pub units_offset: u64,
    /// Byte offset of the image's path (as the process saw it).
    pub path_offset: u64,
    /// Length of that path in bytes; 0 when unknown.
    pub path_len: u64,
    /// Byte offset of the first region; a multiple of the page size.
    pub regions_offset: u64,
    /// Bytes from one region to the next, [`region_stride`] of `counters`.
    pub region_stride: u64,
    /// Process that made the file.
    pub pid: u64,
    /// When it made it: nanoseconds since 1970 (CLOCK_REALTIME).
    pub created_ns: u64,
    /// Byte offset of the page whose first byte is the image's switch ([`SWITCH_SYMBOL`]); 0 if the image has none.
    pub switch_offset: u64,
    /// [`Checksum`] of the fields between the head and this one, of the [`RawUnit`]s and of the path.
    pub checksum: u64,
    /// What was lost by processes that have no region ([`LostThreads`]). It changes while programs run.
    pub lost: u64,
}

impl RawHeader {
    /// Where the fields lie that [`RawHeader::checksum`] covers.
    pub const CHECKED: core::ops::Range<usize> = HEAD_BYTES..core::mem::offset_of!(RawHeader, checksum);

    /// What [`RawHeader::checksum`] has to be in a file that begins with these bytes; `None` if they do not have all that it covers.
    pub fn checksum_of(bytes: &[u8]) -> Option<u64> {
        let header = <RawHeader as layout::Layout>::read(bytes)?;
        let part = |offset: u64, length: u64| {
            let end = usize::try_from(offset.checked_add(length)?).ok()?;
            bytes.get(usize::try_from(offset).ok()?..end)
        };
        let units = part(header.units_offset, header.units.checked_mul(size_of::<RawUnit>() as u64)?)?;
        let path = part(header.path_offset, header.path_len)?;
        Some(Checksum::new().add_bytes(bytes.get(RawHeader::CHECKED)?).add_bytes(units).add_bytes(path).value())
    }
}

/// A word that says how many threads counted in memory that was thrown away, and why: one in the header, one in each region. They add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostThreads(pub u64);

/// Why counts are lost; several may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The disk was full, or a quota used up.
    NoSpace,
    /// The file would have been larger than the process may make one (RLIMIT_FSIZE).
    SizeLimit,
    /// The file could not be opened, locked, mapped or written; the program's standard error has more.
    Other,
}

impl LostReason {
    /// All of them, in the order of their bits.
    pub const ALL: [LostReason; 3] = [LostReason::NoSpace, LostReason::SizeLimit, LostReason::Other];

    const fn bit(self) -> u64 {
        1 << (32 + self as u64)
    }
}

impl LostThreads {
    const THREADS: u64 = u32::MAX as u64;

    /// One thread more, for that reason.
    #[inline]
    pub const fn and(self, reason: LostReason) -> LostThreads {
        let threads = self.0 & LostThreads::THREADS;
        let threads = if threads == LostThreads::THREADS { threads } else { threads + 1 };
        LostThreads(self.0 & !LostThreads::THREADS | threads | reason.bit())
    }

    /// How many threads.
    pub const fn threads(self) -> u64 {
        self.0 & LostThreads::THREADS
    }

    /// Whether that is among the reasons.
    pub const fn is_for(self, reason: LostReason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// The two together.
    pub const fn plus(self, other: LostThreads) -> LostThreads {
        let threads = self.threads() + other.threads();
        let threads = if threads > LostThreads::THREADS { LostThreads::THREADS } else { threads };
        LostThreads((self.0 | other.0) & !LostThreads::THREADS | threads)
    }
}

/// One unit of the image in a raw file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawUnit {
    /// Identity of the unit, as in [`UnitRecord`].
    pub unit: Identity,
    /// Index of its first counter within a region.
    pub first: u64,
    /// Number of its counters.
    pub counters: u64,
}

layout::layouts! {
    UnitRecord { magic, version, unit, counters_delta, counters }
    RawHeader {
        head, image, counters, units, units_offset, path_offset, path_len, regions_offset, region_stride, pid, created_ns, switch_offset,
        checksum, lost,
    }
    RawUnit { unit, first, counters }
    KnownHeader { head, image, counters, checksum }
}

/// Byte of a raw file whose lock means ownership of region `index`. Far beyond any data.
#[inline]
pub const fn region_lock_byte(index: u64) -> i64 {
    (1 << 62) + index as i64
}

/// Byte of a raw file whose lock serialises the writing of its header and its growth.
pub const HEADER_LOCK_BYTE: i64 = (1 << 62) - 1;

/// Bytes from one region to the next in a file of an image with `counters` counters: whole pages, with room for the two words of its tail.
#[inline]
pub const fn region_stride(counters: u64) -> u64 {
    region_holder_offset(counters).saturating_add(16).next_multiple_of(4096)
}

/// Offset within a region of its holder, a `u64` after the last counter: id of the process that has the region, where
/// the mapping does not keep the lock alive (overlay file systems, locks that belong to a process); else 0. It is no
/// count, and stays where a process ends without its destructors.
#[inline]
pub const fn region_holder_offset(counters: u64) -> u64 {
    counters.saturating_mul(8)
}

/// Offset within a region of its [`LostThreads`], the `u64` behind the holder.
#[inline]
pub const fn region_lost_offset(counters: u64) -> u64 {
    region_holder_offset(counters).saturating_add(8)
}

/// Identity of an image: depends on its units, their sizes and their order.
pub fn image_identity(units: impl Iterator<Item = (Identity, u64)>) -> Identity {
    // Two independent multiply-xor streams over words that are content hashes already.
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
    fn regions_are_whole_pages_with_room_for_their_tail() {
        for (counters, stride) in [(0, 4096), (1, 4096), (510, 4096), (511, 8192), (512, 8192), (513, 8192)] {
            assert_eq!(region_stride(counters), stride);
            assert!(region_lost_offset(counters) + 8 <= stride && region_lost_offset(counters) >= 8 * counters + 8);
        }
    }

    #[test]
    fn sums_detect_every_changed_bit_and_pairs_of_them() {
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
        assert_eq!(size_of::<RawHeader>(), HEAD_BYTES + 16 + 12 * 8);
        assert_eq!(size_of::<RawUnit>(), 32);
        assert_eq!((size_of::<FunctionRecord>(), size_of::<KnownHeader>()), (32, 64));
    }

    #[test]
    fn losses_add_up_and_keep_their_reasons() {
        let one = LostThreads::default().and(LostReason::NoSpace);
        let sum = one.and(LostReason::NoSpace).plus(LostThreads::default().and(LostReason::Other));
        assert_eq!(sum.threads(), 3);
        assert_eq!(LostReason::ALL.map(|reason| sum.is_for(reason)), [true, false, true]);
        let all = LostThreads(u64::from(u32::MAX)).plus(one).and(LostReason::SizeLimit);
        assert_eq!(all.threads(), u64::from(u32::MAX));
        assert_eq!(LostReason::ALL.map(|reason| all.is_for(reason)), [true, true, false]);
    }

    #[test]
    fn image_identity_depends_on_units_sizes_and_order() {
        let (x, y) = (([1; 16], 3), ([2; 16], 3));
        let of = |units: &[(Identity, u64)]| image_identity(units.iter().copied());
        let all = [of(&[]), of(&[x]), of(&[y]), of(&[x, y]), of(&[y, x]), of(&[(x.0, 4)])];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert_ne!(a, b);
            }
        }
    }
}
