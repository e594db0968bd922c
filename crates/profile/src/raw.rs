//! Reads raw files: the counts that the runtime of an instrumented program writes to mapped memory. [`trodden_wire`] defines the layout.
//!
//! A raw file has a region for each thread; the counts are summed over the regions. The programs that write a raw file may be killed at any
//! moment, so every size in it is checked against the file's length before it is used. Missing or corrupt data is a [`RawProblem`] if the
//! rest is still usable, and an error otherwise. Raw files are sparse: holes are skipped, and the memory needed for reading is proportional
//! to the number of nonzero counters.

use crate::error::ProfileError;
use crate::sum::CountSums;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::{FILE_HEADER_BYTES, FileError, FileHeader, FileKind, HeaderError, expect_header};
use trodden_text::words::plural;
use trodden_unit::Identity;
use trodden_wire::layout::Layout;
use trodden_wire::stream::{STREAM_REGION_WORDS, STREAM_VERSION};
use trodden_wire::{Checksum, LostReason, LostThreads, RAW_FILE_LENGTH_IF_NO_SPACE, RAW_VERSION, RawHeader, RawUnit, image_identity};
use trodden_wire::{region_holder_offset, region_lost_offset};

/// Maximum number of units; a file with more is corrupt.
const MAX_UNITS_IN_RAW_FILE: u64 = 1 << 22;
const MAX_PATH_BYTES: u64 = 1 << 16;
/// Size of the read buffer in bytes; a multiple of the word size, 8.
const READ_BUFFER_BYTES: usize = 1 << 17;

/// Counts of an image (an executable or shared library), read from a raw file.
#[derive(Clone, Debug, PartialEq)]
pub struct RawProfile {
    /// The raw file.
    pub file: PathBuf,
    /// Identity of the image.
    pub image: Identity,
    /// Path under which the process loaded the image; empty if unknown.
    pub image_path: PathBuf,
    /// ID of the process that created the file.
    pub pid: u64,
    /// Creation time of the file, in nanoseconds since 1970.
    pub created_ns: u64,
    /// Number of regions, which is the maximum number of threads that counted at the same time, in all processes.
    pub regions: u64,
    /// Number of threads whose counts are lost, because the disk was full or the file could not be opened.
    pub lost: u64,
    /// Its units in link order.
    pub units: Vec<RawUnitCounts>,
    /// Missing or corrupt data.
    pub problems: Vec<RawProblem>,
}

/// Counts of one unit of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawUnitCounts {
    /// Identity of the unit.
    pub unit: Identity,
    /// Number of its counters.
    pub counters: u64,
    /// Nonzero counts by index of the counter, ascending, summed over all regions. Sums that overflow are `u64::MAX`.
    pub counts: Vec<(u64, u64)>,
    /// For each counter whose sum overflowed, the excess over `u64::MAX`.
    pub overflow: Vec<(u64, u128)>,
}

impl RawUnitCounts {
    /// Returns the nonzero counters with their sums, including the excess over `u64::MAX`.
    pub fn sums_with_overflow(&self) -> impl Iterator<Item = (u64, u128)> {
        let overflow = |at: u64| self.overflow.binary_search_by_key(&at, |b| b.0).map_or(0, |index| self.overflow[index].1);
        self.counts.iter().map(move |&(at, count)| (at, u128::from(count) + overflow(at)))
    }
}

/// A problem in a raw file that leaves the rest of its data usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum RawProblem {
    #[error(
        "the counts in region {region} of the file are incomplete: the file ends at byte {end}, but the region should end at byte \
         {expected}. Record again"
    )]
    Truncated { end: u64, region: u64, expected: u64 },
    /// The file has no region, although the runtime creates one when the program starts.
    #[error(
        "the file has no counts: the program ended while it created the file, or the file was truncated after its header. Record again"
    )]
    NoRegion,
    /// Threads whose counts were not in memory mapped from the file, so they were discarded.
    #[error(
        "the counts of {} are lost for this reason: {}",
        plural((*.threads).into(), "thread", "threads"),
        describe_lost_reasons(.reasons)
    )]
    Lost {
        threads: u64,
        /// Reasons for the loss, if the file records them.
        reasons: Vec<LostReason>,
    },
    #[error(
        "the counts are unreliable, because a part of the file was overwritten: it has {} outside the counters, the first at byte {first}. \
         Record again",
        plural((*words).into(), "nonzero word", "nonzero words")
    )]
    Stray { words: u64, first: u64 },
    #[error(
        "the counts are unreliable, because a part of the file was overwritten: it has {} for paths that do not exist. Record again",
        plural((*.0).into(), "hash table cell", "hash table cells")
    )]
    Cells(u64),
}

fn describe_lost_reasons(reasons: &[LostReason]) -> String {
    let words = |reason: &LostReason| match reason {
        LostReason::NoSpace => "the disk was full (free space, or set TRODDEN_OUTPUT to a folder on a different file system)",
        LostReason::SizeLimit => "the file would have exceeded the process's limit for file sizes (raise the limit: ulimit -f)",
        LostReason::Other => "they could not be written (the program's standard error or the lines above say why)",
    };
    reasons.iter().map(words).collect::<Vec<_>>().join("; ")
}

impl RawProfile {
    /// Reads a raw file, to which programs may still be writing. Fails if the file cannot be read, is not a raw file, is of a different
    /// version, has no header yet, or has a corrupt header.
    pub fn read(path: &Path) -> Result<RawProfile, ProfileError> {
        let mut file = RawFile::open(path)?;
        let mut sums: Vec<CountSums> = file.units.iter().map(|_| CountSums::default()).collect();
        file.for_each_word(&mut |unit, word| sums[unit].add(word.index, word.value))?;
        let counts = |(unit, sums): (&RawUnit, CountSums)| {
            let (counts, overflow) = sums.into_sparse_sums();
            RawUnitCounts { unit: Identity(unit.unit), counters: unit.counters, counts, overflow }
        };
        let units = file.units.iter().zip(sums).map(counts).collect();
        let RawFile { file: RawRegionFile { path, .. }, image_path, header, regions, lost, problems, .. } = file;
        let (image, pid, created_ns) = (Identity(header.image), header.pid, header.created_ns);
        Ok(RawProfile { file: path, image, image_path, pid, created_ns, regions, lost, units, problems })
    }
}

/// A word of a region that is not zero and belongs to a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFileWord {
    /// Index of the word among the unit's words.
    pub index: u64,
    pub offset: u64,
    pub value: u64,
}

/// An open raw file whose header has been checked.
pub(crate) struct RawFile {
    pub file: RawRegionFile,
    pub image_path: PathBuf,
    pub header: RawHeader,
    pub units: Vec<RawUnit>,
    /// Number of regions, set by `for_each_word`.
    pub regions: u64,
    /// Number of threads whose counts are in no region, set by `for_each_word`.
    pub lost: u64,
    /// Missing or corrupt data that `for_each_word` found.
    pub problems: Vec<RawProblem>,
}

impl RawFile {
    /// Opens a raw file and reads its header. Fails like [`RawProfile::read`].
    pub fn open(path: &Path) -> Result<RawFile, ProfileError> {
        // Opening a named pipe would block until it has a writer.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(ProfileError::io(path, "read")(io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
        let file = RawRegionFile::new(path, file)?;
        let RawFileSetup { header, units, image_path } = file.read_setup(FileKind::RAW_COUNTS)?;
        Ok(RawFile { file, image_path, header, units, regions: 0, lost: 0, problems: Vec::new() })
    }

    /// Calls `visit` with each nonzero word of each region and the index of the unit that the word belongs to, in file order. Sets
    /// `regions`, `lost` and `problems`. Fails if the file cannot be read, or has been truncated since it was opened.
    pub fn for_each_word(&mut self, visit: &mut dyn FnMut(usize, RawFileWord)) -> Result<(), ProfileError> {
        let (header, length) = (self.header, self.file.length);
        let bytes = length.saturating_sub(header.regions_offset);
        let (whole, rest) = (bytes / header.region_stride, bytes % header.region_stride);
        // The rest of a region after its counters is padding, which may be missing at the end of the file.
        if rest != 0 && rest < header.counters * 8 {
            let expected = header.regions_offset.saturating_add(header.region_stride.saturating_mul(whole + 1));
            self.problems.push(RawProblem::Truncated { end: length, region: whole, expected });
        }
        let owners = UnitsByWordIndex::new(&self.units);
        let mut stray: Option<(u64, u64)> = None;
        let mut lost = LostThreads(header.lost);
        let [holder, losses] = [region_holder_offset(header.counters), region_lost_offset(header.counters)].map(|offset| offset / 8);
        self.file.for_each_word(header.regions_offset, &mut |offset, value| {
            let index = (offset - header.regions_offset) % header.region_stride / 8;
            match owners.find_owner_of_word(index).filter(|_| index < header.counters) {
                Some((unit, first)) => visit(unit, RawFileWord { index: index - first, offset, value }),
                None if index == losses => lost = lost.merge(LostThreads(value)),
                // This word holds the ID of the process that uses the region, or used it last.
                None if index == holder => {}
                None => stray.get_or_insert((0, offset)).0 += 1,
            }
        })?;
        self.regions = whole + u64::from(rest != 0);
        self.lost = lost.threads();
        if self.lost > 0 {
            let reasons = LostReason::ALL.into_iter().filter(|reason| lost.has_reason(*reason)).collect();
            self.problems.push(RawProblem::Lost { threads: self.lost, reasons });
        } else if bytes == 0 {
            self.problems.push(RawProblem::NoRegion);
        }
        self.problems.extend(stray.map(|(words, first)| RawProblem::Stray { words, first }));
        Ok(())
    }
}

/// A mapping from the words of a region to the units that they belong to. Words between units contain no counters.
struct UnitsByWordIndex {
    /// First word, end (exclusive) and index of each unit, ascending.
    ranges: Vec<(u64, u64, usize)>,
}

impl UnitsByWordIndex {
    fn new(units: &[RawUnit]) -> UnitsByWordIndex {
        let range = |(at, unit): (usize, &RawUnit)| (unit.first, unit.first.saturating_add(unit.counters), at);
        let mut ranges: Vec<_> = units.iter().enumerate().map(range).filter(|r| r.0 < r.1).collect();
        ranges.sort_unstable();
        UnitsByWordIndex { ranges }
    }

    fn find_owner_of_word(&self, index: u64) -> Option<(usize, u64)> {
        let (first, end, unit) = *self.ranges[..self.ranges.partition_point(|r| r.0 <= index)].last()?;
        (index < end).then_some((unit, first))
    }
}

/// A file whose header is that of a raw file: a raw file of counts, or a stream file.
pub(crate) struct RawRegionFile {
    pub path: PathBuf,
    pub file: File,
    length: u64,
}

/// The beginning of a raw file, which a program writes first and does not change afterwards.
pub(crate) struct RawFileSetup {
    pub header: RawHeader,
    pub units: Vec<RawUnit>,
    pub image_path: PathBuf,
}

/// Returns whether the file's first bytes show that it is of this kind. The file may be of any version, and may be corrupt.
pub(crate) fn has_kind(path: &Path, kind: FileKind) -> bool {
    let mut beginning = [0; FILE_HEADER_BYTES];
    File::open(path).and_then(|file| file.read_at(&mut beginning, 0)).is_ok_and(|have| FileKind::detect(&beginning[..have]) == Some(kind))
}

impl RawRegionFile {
    pub(crate) fn new(path: &Path, file: File) -> Result<RawRegionFile, ProfileError> {
        let length = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
        Ok(RawRegionFile { path: path.to_owned(), file, length })
    }

    /// Reads and checks the header, the list of units and the image's path. Fails if the file is of a different kind or version, has no
    /// header yet, or has a corrupt header.
    pub(crate) fn read_setup(&self, kind: FileKind) -> Result<RawFileSetup, ProfileError> {
        let mut bytes = [0; RawHeader::BYTES];
        let have = self.length.min(RawHeader::BYTES as u64) as usize;
        self.read_exact(&mut bytes[..have], 0)?;
        if self.length == RAW_FILE_LENGTH_IF_NO_SPACE && bytes[0] == 0 {
            return Err(ProfileError::GivenUp(self.path.to_owned()));
        }
        if bytes.iter().all(|b| *b == 0) {
            return Err(ProfileError::NotReady(self.path.to_owned()));
        }
        self.check_file_header(&bytes[..have], kind)?;
        let header = RawHeader::read(&bytes[..have]);
        let header = header
            .ok_or_else(|| self.corrupt_file_error(self.length, format!("the file ends within its header of {} bytes", bytes.len())))?;
        let units = self.read_items("units", header.units_offset, header.units, RawUnit::BYTES, MAX_UNITS_IN_RAW_FILE)?;
        let path = self.read_items("bytes of a path", header.path_offset, header.path_len, 1, MAX_PATH_BYTES)?;
        if Checksum::new().add_bytes(&bytes[RawHeader::CHECKSUMMED_BYTE_RANGE]).add_bytes(&units).add_bytes(&path).value()
            != header.checksum
        {
            let what = "the checksum of its header, its units and the path of its image does not match";
            return Err(self.corrupt_file_error(FILE_HEADER_BYTES as u64, what.into()));
        }
        self.check_regions(&header, kind)?;
        let units: Vec<RawUnit> = units.chunks_exact(RawUnit::BYTES).filter_map(RawUnit::read).collect();
        self.check_units(&header, &units)?;
        Ok(RawFileSetup { header, units, image_path: PathBuf::from(OsStr::from_bytes(&path)) })
    }

    fn check_file_header(&self, bytes: &[u8], kind: FileKind) -> Result<(), ProfileError> {
        let (path, is_counts) = (self.path.to_owned(), kind == FileKind::RAW_COUNTS);
        let (version, name) = if is_counts { (RAW_VERSION, "raw file") } else { (STREAM_VERSION, "stream file") };
        if bytes.first_chunk().is_some_and(|header| FileHeader::is_unfinished(header, kind)) {
            return Err(ProfileError::NotReady(path));
        }
        let foreign = |what: String| {
            let expected = if is_counts { "raw file of counts" } else { name };
            ProfileError::Foreign { path: path.clone(), expected, what }
        };
        Err(match expect_header(bytes, kind, version) {
            Ok(_) => return Ok(()),
            Err(FileError::Kind { found: FileKind::STREAM_FILE, .. }) => {
                foreign("it is a stream file of a program built with --stream. Record that program with --whole-program or --last N".into())
            }
            Err(FileError::Kind { found: FileKind::RAW_COUNTS, .. }) => {
                foreign("it is a raw file of counts. Build the program with --stream to record a stream".into())
            }
            Err(FileError::Version { found, known, .. }) => {
                ProfileError::Version { path, kind: name, found: found.into(), known: known.into() }
            }
            Err(FileError::Header(HeaderError::EarlierFormat)) => ProfileError::Earlier { path, kind: name },
            Err(FileError::Header(error @ (HeaderError::Truncated | HeaderError::Checksum))) => {
                self.corrupt_file_error(0, error.to_string())
            }
            Err(other) => foreign(other.to_string()),
        })
    }

    /// Reads `count` items of `size` bytes each at an offset. Fails if there are more than `max` items; the error message calls them
    /// `what`.
    fn read_items(&self, what: &str, offset: u64, count: u64, size: usize, max: u64) -> Result<Vec<u8>, ProfileError> {
        let length = count.checked_mul(size as u64).filter(|_| count <= max);
        let Some(length) = length.filter(|length| offset.checked_add(*length).is_some_and(|end| end <= self.length)) else {
            let what = format!("{count} {what} from byte {offset} do not fit into a file of {} bytes", self.length);
            return Err(self.corrupt_file_error(FILE_HEADER_BYTES as u64, what));
        };
        let mut bytes = vec![0; length as usize];
        self.read_exact(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn check_regions(&self, header: &RawHeader, kind: FileKind) -> Result<(), ProfileError> {
        let words = if kind == FileKind::STREAM_FILE { STREAM_REGION_WORDS } else { header.counters };
        let fits = header.counters < 1 << 60 && region_lost_offset(words) + 8 <= header.region_stride;
        if fits && header.region_stride.is_multiple_of(8) && header.regions_offset.is_multiple_of(8) {
            return Ok(());
        }
        let what = format!(
            "invalid layout of {} counters in regions of {} bytes from byte {}",
            header.counters, header.region_stride, header.regions_offset
        );
        Err(self.corrupt_file_error(offset_of!(RawHeader, counters) as u64, what))
    }

    fn check_units(&self, header: &RawHeader, units: &[RawUnit]) -> Result<(), ProfileError> {
        if image_identity(units.iter().map(|u| (u.unit, u.counters))) != header.image {
            return Err(self.corrupt_file_error(header.units_offset, "the units do not match the image identity in the header".into()));
        }
        let overflow = |u: &&RawUnit| u.first.checked_add(u.counters).is_none_or(|end| end > header.counters);
        units.iter().find(overflow).map_or(Ok(()), |unit| {
            Err(self.corrupt_file_error(header.units_offset, format!("unit {} extends beyond the image's counters", Identity(unit.unit))))
        })
    }

    /// Calls `visit` with the offset and value of each nonzero word between `start` and the end of the file. An incomplete word at the end
    /// is ignored.
    fn for_each_word(&self, start: u64, visit: &mut dyn FnMut(u64, u64)) -> Result<(), ProfileError> {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut at = start;
        while let Some((from, to)) = self.next_data_range(at)? {
            // A data range of a sparse file may begin and end at any byte, but words are aligned to `start`.
            let mut offset = start + (from.max(start) - start) / 8 * 8;
            while offset < to && self.length - offset >= 8 {
                let size = (self.length - offset).min((to - offset).next_multiple_of(8)).min(READ_BUFFER_BYTES as u64) as usize / 8 * 8;
                self.read_exact(&mut buffer[..size], offset)?;
                for (i, word) in buffer[..size].chunks_exact(8).enumerate() {
                    match u64::from_le_bytes(word.try_into().expect("eight bytes")) {
                        0 => {}
                        word => visit(offset + 8 * i as u64, word),
                    }
                }
                offset += size as u64;
            }
            at = to.max(offset);
        }
        Ok(())
    }

    /// Returns the first range of data, which is not a hole, at or after offset `at`.
    fn next_data_range(&self, at: u64) -> Result<Option<(u64, u64)>, ProfileError> {
        use rustix::fs::{SeekFrom, seek};
        use rustix::io::Errno;
        if at >= self.length {
            return Ok(None);
        }
        let from = match seek(&self.file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => return Ok(None),
            // The file system does not report holes. The rest of the file is treated as data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, self.length))),
            Err(e) => return Err(ProfileError::io(&self.path, "read")(e.into())),
        };
        let to = seek(&self.file, SeekFrom::Hole(from)).map_err(|e| ProfileError::io(&self.path, "read")(e.into()))?;
        Ok((from < self.length).then(|| (from, to.clamp(from + 1, self.length))))
    }

    fn read_exact(&self, bytes: &mut [u8], at: u64) -> Result<(), ProfileError> {
        self.file.read_exact_at(bytes, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt_file_error(at, "the file was truncated while it was being read".into()),
            _ => ProfileError::io(&self.path, "read")(e),
        })
    }

    fn corrupt_file_error(&self, offset: u64, what: String) -> ProfileError {
        ProfileError::RawCorrupt { path: self.path.to_owned(), offset, what }
    }
}

/// Returns the offset of the image's sampling switch in the raw file (0 if the image has none), and the ID of the process that created the
/// file.
pub(crate) fn read_switch_and_process(path: &Path, file: &File) -> Result<(u64, u64), ProfileError> {
    let raw = RawRegionFile::new(path, file.try_clone().map_err(ProfileError::io(path, "read"))?)?;
    let header = raw.read_setup(FileKind::RAW_COUNTS)?.header;
    match header.switch_offset < header.regions_offset.min(raw.length) {
        true => Ok((header.switch_offset, header.pid)),
        false => Err(raw.corrupt_file_error(
            offset_of!(RawHeader, switch_offset) as u64,
            "the offset of the sampling switch is outside the header".into(),
        )),
    }
}
