//! Reads raw files: the runtime's counts, summed over its regions.
//!
//! Layout: [`trodden_wire`]. A raw file is written by programs that may die at any moment, and may have wrong sizes in it after damage.
//! So everything in it is checked against the file's length before it is used. Missing or damaged data is a [`RawProblem`] if the rest can
//! still be used, and an error otherwise.
//!
//! Invariants of a [`RawProfile`]: the units make up the image's identity; counts are ascending by index, below the unit's number of
//! counters, and not zero. Memory is proportional to the counters that are not zero: files are sparse (a function that never ran
//! takes no space), and holes are skipped.

use crate::error::ProfileError;
use crate::sum::Sums;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::{FileError, FileHead, FileKind, HEAD_BYTES, HeadError, expect_head};
use trodden_unit::Identity;
use trodden_wire::layout::Layout;
use trodden_wire::stream::{REGION_WORDS, STREAM_VERSION};
use trodden_wire::{Checksum, LostReason, LostThreads, RAW_GIVEN_UP, RAW_VERSION, RawHeader, RawUnit, image_identity};
use trodden_wire::{region_holder_offset, region_lost_offset};

/// More units than any image has; a file with more is damaged.
const MOST_UNITS: u64 = 1 << 22;
/// Longer than any path.
const LONGEST_PATH: u64 = 1 << 16;
/// Bytes read at a time; a multiple of 8.
const CHUNK: usize = 1 << 17;

/// The counts of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct RawProfile {
    /// The raw file.
    pub file: PathBuf,
    /// Identity of the image.
    pub image: Identity,
    /// Path of the image as the process saw it; empty if unknown.
    pub image_path: PathBuf,
    /// The process that made the file.
    pub pid: u64,
    /// When it made it, nanoseconds since 1970.
    pub created_ns: u64,
    /// Number of regions: of threads that counted at a time, over all processes.
    pub regions: u64,
    /// Threads whose counts are lost, because there was no space, or the file could not be opened.
    pub lost: u64,
    /// Its units in link order.
    pub units: Vec<RawUnitCounts>,
    /// Missing or damaged data.
    pub problems: Vec<RawProblem>,
}

/// The counts of one unit of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawUnitCounts {
    /// Identity of the unit.
    pub unit: Identity,
    /// Number of its counters.
    pub counters: u64,
    /// Counters that are not zero, by index, ascending; sums over all regions, saturating.
    pub counts: Vec<(u64, u64)>,
    /// For the few saturated sums: the overflow.
    pub overflow: Vec<(u64, u128)>,
}

impl RawUnitCounts {
    /// The counters that are not zero, with their overflow.
    pub fn wide(&self) -> impl Iterator<Item = (u64, u128)> {
        let overflow = |at: u64| self.overflow.binary_search_by_key(&at, |b| b.0).map_or(0, |place| self.overflow[place].1);
        self.counts.iter().map(move |&(at, count)| (at, u128::from(count) + overflow(at)))
    }
}

/// A problem of a raw file whose other data can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawProblem {
    /// The last region is cut off.
    #[error("the file ends at byte {end} within region {region}, which needs {expected}: counts in it are incomplete")]
    CutShort {
        /// Length of the file.
        end: u64,
        /// The region.
        region: u64,
        /// Where it should end.
        expected: u64,
    },
    /// There is no region: a program has one from its beginning on.
    #[error("it has no region: the program ended while it made the file, or the file was cut off after its header")]
    NoRegion,
    /// Threads counted in memory that was discarded.
    #[error("the counts of {threads} {} are lost: {}", if *.threads == 1 { "thread" } else { "threads" }, why_lost(.reasons))]
    Lost {
        /// How many.
        threads: u64,
        /// Why, as far as the file knows.
        reasons: Vec<LostReason>,
    },
    /// Values that are not zero outside of counters.
    #[error(
        "{words} words that belong to no counter are not zero, the first at byte {first}: the file was overwritten, its counts are \
            unreliable"
    )]
    Stray {
        /// How many.
        words: u64,
        /// Where the first one is.
        first: u64,
    },
    /// Damaged cells of tables.
    #[error("{0} cells of tables hold counts of no path: the file was overwritten, its counts are unreliable")]
    Cells(u64),
}

fn why_lost(reasons: &[LostReason]) -> String {
    let words = |reason: &LostReason| match reason {
        LostReason::NoSpace => "the disk was full (free space, or let TRODDEN_OUTPUT name another file system)",
        LostReason::SizeLimit => "the file would have been larger than the process may make one (raise the limit: ulimit -f)",
        LostReason::Other => "they could not be written (the program's standard error, or a line above, says why)",
    };
    reasons.iter().map(words).collect::<Vec<_>>().join("; ")
}

impl RawProfile {
    /// Reads a raw file. Works while programs still write it.
    ///
    /// # Errors
    /// It cannot be read, is no raw file, of another version, not set up, or damaged in its head.
    pub fn read(path: &Path) -> Result<RawProfile, ProfileError> {
        let mut file = RawFile::open(path)?;
        let mut sums: Vec<Sums> = file.units.iter().map(|_| Sums::default()).collect();
        file.each_word(&mut |unit, word| sums[unit].add(word.index, word.value))?;
        let counts = |(unit, sums): (&RawUnit, Sums)| {
            let (counts, overflow) = sums.finish();
            RawUnitCounts { unit: Identity(unit.unit), counters: unit.counters, counts, overflow }
        };
        let units = file.units.iter().zip(sums).map(counts).collect();
        let RawFile { file: Raw { path, .. }, image_path, header, regions, lost, problems, .. } = file;
        let (image, pid, created_ns) = (Identity(header.image), header.pid, header.created_ns);
        Ok(RawProfile { file: path, image, image_path, pid, created_ns, regions, lost, units, problems })
    }
}

/// A word of a unit in a region that is not zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawWord {
    /// Its place among the unit's words.
    pub index: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// What it holds.
    pub value: u64,
}

/// A raw file that is open, whose head makes sense.
pub(crate) struct RawFile {
    pub file: Raw,
    /// Path of the image as the process saw it; empty if unknown.
    pub image_path: PathBuf,
    pub header: RawHeader,
    /// Units in link order.
    pub units: Vec<RawUnit>,
    /// Regions, and threads whose counts are in none; known when the words were read.
    pub regions: u64,
    pub lost: u64,
    /// What is missing or damaged, as far as it was read.
    pub problems: Vec<RawProblem>,
}

impl RawFile {
    /// Opens a raw file and reads its head.
    ///
    /// # Errors
    /// As of [`RawProfile::read`].
    pub fn open(path: &Path) -> Result<RawFile, ProfileError> {
        // Opening a pipe would wait for who writes to it.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(ProfileError::io(path, "read")(io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
        let file = Raw::new(path, file)?;
        let RawSetup { header, units, image_path } = file.setup(FileKind::RAW_COUNTS)?;
        Ok(RawFile { file, image_path, header, units, regions: 0, lost: 0, problems: Vec::new() })
    }

    /// Calls `visit` with the place of a unit and its word, for every word of every region that is not zero, region by region, ascending
    /// within each. Afterwards `regions`, `lost` and `problems` are known.
    ///
    /// # Errors
    /// The file cannot be read, or became shorter.
    pub fn each_word(&mut self, visit: &mut dyn FnMut(usize, RawWord)) -> Result<(), ProfileError> {
        let (header, length) = (self.header, self.file.length);
        let bytes = length.saturating_sub(header.regions_offset);
        let (whole, rest) = (bytes / header.region_stride, bytes % header.region_stride);
        // What lies behind the last counter of a region is padding.
        if rest != 0 && rest < header.counters * 8 {
            let expected = header.regions_offset.saturating_add(header.region_stride.saturating_mul(whole + 1));
            self.problems.push(RawProblem::CutShort { end: length, region: whole, expected });
        }
        let owners = Owners::new(&self.units);
        let mut stray: Option<(u64, u64)> = None;
        let mut lost = LostThreads(header.lost);
        let [holder, losses] = [region_holder_offset(header.counters), region_lost_offset(header.counters)].map(|offset| offset / 8);
        self.file.each_word(header.regions_offset, &mut |offset, value| {
            let index = (offset - header.regions_offset) % header.region_stride / 8;
            match owners.of(index).filter(|_| index < header.counters) {
                Some((unit, first)) => visit(unit, RawWord { index: index - first, offset, value }),
                None if index == losses => lost = lost.plus(LostThreads(value)),
                // The holder's number is there until another takes the region.
                None if index == holder => {}
                None => stray.get_or_insert((0, offset)).0 += 1,
            }
        })?;
        self.regions = whole + u64::from(rest != 0);
        self.lost = lost.threads();
        if self.lost > 0 {
            let reasons = LostReason::ALL.into_iter().filter(|reason| lost.is_for(*reason)).collect();
            self.problems.push(RawProblem::Lost { threads: self.lost, reasons });
        } else if bytes == 0 {
            self.problems.push(RawProblem::NoRegion);
        }
        self.problems.extend(stray.map(|(words, first)| RawProblem::Stray { words, first }));
        Ok(())
    }
}

/// Which unit a word of a region belongs to. What no unit has is stray: gaps between units are never counted in.
struct Owners {
    /// First word, end, place of the unit; ascending.
    ranges: Vec<(u64, u64, usize)>,
}

impl Owners {
    fn new(units: &[RawUnit]) -> Owners {
        let range = |(place, unit): (usize, &RawUnit)| (unit.first, unit.first.saturating_add(unit.counters), place);
        let mut ranges: Vec<_> = units.iter().enumerate().map(range).filter(|r| r.0 < r.1).collect();
        ranges.sort_unstable();
        Owners { ranges }
    }

    /// The unit's place, and its first word.
    fn of(&self, index: u64) -> Option<(usize, u64)> {
        let (first, end, place) = *self.ranges[..self.ranges.partition_point(|r| r.0 <= index)].last()?;
        (index < end).then_some((place, first))
    }
}

/// A raw file, or a stream file, which begins as a raw file does.
pub(crate) struct Raw {
    pub path: PathBuf,
    pub file: File,
    length: u64,
}

/// What a program writes to such a file before anything else, and never changes.
pub(crate) struct RawSetup {
    pub header: RawHeader,
    /// Units in link order.
    pub units: Vec<RawUnit>,
    /// Path of the image as the process saw it; empty if unknown.
    pub image_path: PathBuf,
}

/// Whether a file begins as one of that kind does, of whatever version, damaged or not.
pub(crate) fn begins_as(path: &Path, kind: FileKind) -> bool {
    let mut beginning = [0; HEAD_BYTES];
    File::open(path).and_then(|file| file.read_at(&mut beginning, 0)).is_ok_and(|have| FileKind::of(&beginning[..have]) == Some(kind))
}

impl Raw {
    pub(crate) fn new(path: &Path, file: File) -> Result<Raw, ProfileError> {
        let length = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
        Ok(Raw { path: path.to_owned(), file, length })
    }

    /// Reads and checks the header, the units and the path.
    ///
    /// # Errors
    /// The file is of another kind or version, not set up, or damaged.
    pub(crate) fn setup(&self, kind: FileKind) -> Result<RawSetup, ProfileError> {
        let mut bytes = [0; RawHeader::BYTES];
        let have = self.length.min(RawHeader::BYTES as u64) as usize;
        self.exact(&mut bytes[..have], 0)?;
        if self.length == RAW_GIVEN_UP && bytes[0] == 0 {
            return Err(ProfileError::GivenUp(self.path.to_owned()));
        }
        if bytes.iter().all(|b| *b == 0) {
            return Err(ProfileError::NotReady(self.path.to_owned()));
        }
        self.check_head(&bytes[..have], kind)?;
        let header = RawHeader::read(&bytes[..have]);
        let header =
            header.ok_or_else(|| self.damaged(self.length, format!("the file ends within its header of {} bytes", bytes.len())))?;
        let units = self.part("units", header.units_offset, header.units, RawUnit::BYTES, MOST_UNITS)?;
        let path = self.part("bytes of a path", header.path_offset, header.path_len, 1, LONGEST_PATH)?;
        if Checksum::new().add_bytes(&bytes[RawHeader::CHECKED]).add_bytes(&units).add_bytes(&path).value() != header.checksum {
            let what = "the checksum of its header, its units and the path of its image does not match";
            return Err(self.damaged(HEAD_BYTES as u64, what.into()));
        }
        self.check_regions(&header, kind)?;
        let units: Vec<RawUnit> = units.chunks_exact(RawUnit::BYTES).filter_map(RawUnit::read).collect();
        self.check_units(&header, &units)?;
        Ok(RawSetup { header, units, image_path: PathBuf::from(OsStr::from_bytes(&path)) })
    }

    fn check_head(&self, bytes: &[u8], kind: FileKind) -> Result<(), ProfileError> {
        let (path, is_counts) = (self.path.to_owned(), kind == FileKind::RAW_COUNTS);
        let (version, name) = if is_counts { (RAW_VERSION, "raw file") } else { (STREAM_VERSION, "stream file") };
        if bytes.first_chunk().is_some_and(|head| FileHead::is_unfinished(head, kind)) {
            return Err(ProfileError::NotReady(path));
        }
        let foreign = |what: String| {
            let expected = if is_counts { "raw file of counts" } else { name };
            ProfileError::Foreign { path: path.clone(), expected, what }
        };
        Err(match expect_head(bytes, kind, version) {
            Ok(_) => return Ok(()),
            Err(FileError::Kind { found: FileKind::STREAM_FILE, .. }) => {
                foreign("it is a stream of paths, of a program built with --stream: record that with --whole-program or --last N".into())
            }
            Err(FileError::Kind { found: FileKind::RAW_COUNTS, .. }) => {
                foreign("it is a raw file of counts: was the program built with --stream?".into())
            }
            Err(FileError::Version { found, known, .. }) => {
                ProfileError::Version { path, kind: name, found: found.into(), known: known.into() }
            }
            Err(FileError::Head(HeadError::Earlier)) => ProfileError::Earlier { path, kind: name },
            Err(FileError::Head(error @ (HeadError::Short | HeadError::Checksum))) => self.damaged(0, error.to_string()),
            Err(other) => foreign(other.to_string()),
        })
    }

    /// The bytes of `count` items of some size from an offset on.
    fn part(&self, what: &str, offset: u64, count: u64, size: usize, most: u64) -> Result<Vec<u8>, ProfileError> {
        let length = count.checked_mul(size as u64).filter(|_| count <= most);
        let Some(length) = length.filter(|length| offset.checked_add(*length).is_some_and(|end| end <= self.length)) else {
            let what = format!("{count} {what} from byte {offset} on do not fit a file of {} bytes", self.length);
            return Err(self.damaged(HEAD_BYTES as u64, what));
        };
        let mut bytes = vec![0; length as usize];
        self.exact(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn check_regions(&self, header: &RawHeader, kind: FileKind) -> Result<(), ProfileError> {
        let words = if kind == FileKind::STREAM_FILE { REGION_WORDS } else { header.counters };
        let fits = header.counters < 1 << 60 && region_lost_offset(words) + 8 <= header.region_stride;
        if fits && header.region_stride.is_multiple_of(8) && header.regions_offset.is_multiple_of(8) {
            return Ok(());
        }
        let what = format!("{} counters in regions of {} bytes from byte {}", header.counters, header.region_stride, header.regions_offset);
        Err(self.damaged(offset_of!(RawHeader, counters) as u64, what))
    }

    fn check_units(&self, header: &RawHeader, units: &[RawUnit]) -> Result<(), ProfileError> {
        if image_identity(units.iter().map(|u| (u.unit, u.counters))) != header.image {
            return Err(self.damaged(header.units_offset, "the units do not make up the image that the head names".into()));
        }
        let overflow = |u: &&RawUnit| u.first.checked_add(u.counters).is_none_or(|end| end > header.counters);
        units
            .iter()
            .find(overflow)
            .map_or(Ok(()), |unit| Err(self.damaged(header.units_offset, format!("unit {} lies beyond the counters", Identity(unit.unit)))))
    }

    /// Calls `visit` with the offset and value of every whole word from `start` on that is not zero.
    fn each_word(&self, start: u64, visit: &mut dyn FnMut(u64, u64)) -> Result<(), ProfileError> {
        let mut buffer = vec![0; CHUNK];
        let mut at = start;
        while let Some((from, to)) = self.next_data(at)? {
            // Data ranges begin and end anywhere; words are numbered from the start of the regions.
            let mut here = start + (from.max(start) - start) / 8 * 8;
            while here < to && self.length - here >= 8 {
                let size = (self.length - here).min((to - here).next_multiple_of(8)).min(CHUNK as u64) as usize / 8 * 8;
                self.exact(&mut buffer[..size], here)?;
                for (i, word) in buffer[..size].chunks_exact(8).enumerate() {
                    match u64::from_le_bytes(word.try_into().expect("eight bytes")) {
                        0 => {}
                        word => visit(here + 8 * i as u64, word),
                    }
                }
                here += size as u64;
            }
            at = to.max(here);
        }
        Ok(())
    }

    /// The next range of the file at or after `at` that is no hole.
    fn next_data(&self, at: u64) -> Result<Option<(u64, u64)>, ProfileError> {
        use rustix::fs::{SeekFrom, seek};
        use rustix::io::Errno;
        if at >= self.length {
            return Ok(None);
        }
        let from = match seek(&self.file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => return Ok(None),
            // A file system without holes: everything is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, self.length))),
            Err(e) => return Err(ProfileError::io(&self.path, "read")(e.into())),
        };
        let to = seek(&self.file, SeekFrom::Hole(from)).map_err(|e| ProfileError::io(&self.path, "read")(e.into()))?;
        Ok((from < self.length).then(|| (from, to.clamp(from + 1, self.length))))
    }

    fn exact(&self, bytes: &mut [u8], at: u64) -> Result<(), ProfileError> {
        self.file.read_exact_at(bytes, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(at, "the file became shorter while it was read".into()),
            _ => ProfileError::io(&self.path, "read")(e),
        })
    }

    fn damaged(&self, offset: u64, what: String) -> ProfileError {
        ProfileError::RawDamaged { path: self.path.to_owned(), offset, what }
    }
}

/// Where the switch of the image is in its raw file (0 if it has none), and the process that made the file.
pub(crate) fn switch_and_process(path: &Path, file: &File) -> Result<(u64, u64), ProfileError> {
    let raw = Raw::new(path, file.try_clone().map_err(ProfileError::io(path, "read"))?)?;
    let header = raw.setup(FileKind::RAW_COUNTS)?.header;
    match header.switch_offset < header.regions_offset.min(raw.length) {
        true => Ok((header.switch_offset, header.pid)),
        false => Err(raw.damaged(offset_of!(RawHeader, switch_offset) as u64, "its switch is outside its head".into())),
    }
}
