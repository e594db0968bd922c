//! Reports from many users: what each machine sends, and how reports are aggregated.
//!
//! A report has identities of builds and paths, execution counts, and the hash of the sender's name (anyone who guesses the name can
//! confirm it). A report does not contain names, command lines or times. A file is a concatenation of reports, so reports are collected by
//! appending.
//!
//! ```text
//! report  magic "TRODFLD\x01" 8 | length of the body u32 | checksum u32 (low half of XXH3, 64 bits, of the body) | body
//! body    user 16 | number of units | for each: image 16, unit 16, number of paths, for each: counter (difference), executions
//! ```
//! Numbers in bodies are LEB128; all other numbers are little-endian.

pub mod aggregate;
pub mod distributed;
pub mod estimate;
mod external;
pub mod maps;
pub mod reporting;

use crate::error::FieldError;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::path::Path;
use trodden_profile::model::Profile;
use trodden_profile::paths::FunctionPaths;
use trodden_unit::{Identity, MapError, parts};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"TRODFLD\x01";
/// Maximum length of a report's body; a larger length in the header means that the report is corrupt.
const MAX_BODY_BYTES: u32 = 1 << 30;

/// Hash of the sender's name, or zero if unknown.
pub type FieldUserHash = [u8; 16];

/// A report: the path counts that one machine sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldReport {
    /// Hash of the sender's name.
    pub user: FieldUserHash,
    /// Path counts by unit.
    pub units: Vec<UnitReport>,
}

/// Path counts of one unit of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitReport {
    /// Identity of the executable or library, which differs from build to build.
    pub image: Identity,
    /// Identity of the unit.
    pub unit: Identity,
    /// Pairs of counter and number of executions, sorted by counter. Empty if the unit ran but counted nothing.
    pub counts: Vec<(u64, u64)>,
}

/// Hashes a user's name.
pub fn hash_user(name: &str) -> FieldUserHash {
    if name.is_empty() { [0; 16] } else { Identity::from_content(name.as_bytes()).0 }
}

impl FieldReport {
    /// Creates a report of the complete and unfinished paths in a profile from which known paths were removed ([`crate::untested`]). A copy
    /// that counts only some of the paths ([`trodden_profile::copies`]) cannot compute its unfinished paths, so all of its counters are
    /// reported.
    pub fn new(filtered: &Profile, user: FieldUserHash) -> Result<FieldReport, MapError> {
        let mut units = Vec::new();
        for (image, unit) in filtered.images.iter().flat_map(|i| i.units.iter().map(move |u| (i, u))) {
            let mut counts = Vec::new();
            let is_copy = parts::origin(&unit.map).is_some();
            for function in &unit.map.functions {
                if is_copy {
                    counts.extend(unit.counts_of(function).map(|(id, count)| (function.first_counter + id, count)));
                    continue;
                }
                let untested: Vec<(u64, u64)> = unit.counts_of(function).collect();
                let paths = FunctionPaths::decode(function, untested.iter().copied())?;
                // Executions of unfinished paths are computed by subtracting counts. This fails for known paths, which are not counted, so
                // only untested ones are reported.
                let counted = |id: u64| untested.binary_search_by_key(&id, |c| c.0).is_ok();
                let unfinished = paths.unfinished.iter().filter(|u| u.count > 0 && counted(u.id)).map(|u| (u.id, u.count.unsigned_abs()));
                let all = paths.complete.iter().map(|p| (p.id, p.count)).chain(unfinished);
                counts.extend(all.map(|(id, count)| (function.first_counter + id, count)));
            }
            counts.sort_unstable();
            if !counts.is_empty() {
                units.push(UnitReport { image: image.identity, unit: unit.unit, counts });
            }
        }
        Ok(FieldReport { user, units })
    }

    /// Records that an image ran, even if it counted nothing, unless the report already has a unit of the image.
    pub fn add_empty_unit(&mut self, image: Identity, unit: Identity) {
        if self.units.iter().all(|u| u.image != image) {
            self.units.push(UnitReport { image, unit, counts: Vec::new() });
        }
    }

    /// Writes the encoded report.
    pub fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut body = self.user.to_vec();
        put_leb128(&mut body, self.units.len() as u64);
        for unit in &self.units {
            body.extend(unit.image.0);
            body.extend(unit.unit.0);
            put_leb128(&mut body, unit.counts.len() as u64);
            let mut last = 0;
            for (counter, count) in &unit.counts {
                put_leb128(&mut body, counter - std::mem::replace(&mut last, *counter));
                put_leb128(&mut body, *count);
            }
        }
        let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
        out.write_all(&MAGIC)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&(xxh3_64(&body) as u32).to_le_bytes())?;
        out.write_all(&body)
    }
}

fn put_leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reader of consecutive reports. It reuses one buffer.
pub struct FieldReportReader<'a, R> {
    path: &'a Path,
    input: R,
    at: u64,
    body: Vec<u8>,
}

impl<'a, R: BufRead> FieldReportReader<'a, R> {
    /// Creates a reader. `path` is used only in error messages.
    pub fn new(path: &'a Path, input: R) -> FieldReportReader<'a, R> {
        FieldReportReader { path, input, at: 0, body: Vec::new() }
    }

    /// Reads the next report. Calls `visit` for each unit, first with `None`, then with the counter and executions of each path. Returns
    /// false at the end of the file.
    pub fn next(&mut self, mut visit: impl FnMut(&FieldUserHash, Identity, Identity, Option<(u64, u64)>)) -> Result<bool, FieldError> {
        let failed = FieldError::io(self.path, "read");
        if self.input.fill_buf().map_err(failed)?.is_empty() {
            return Ok(false);
        }
        let path = self.path;
        let corrupt = |offset: u64, what: &'static str| FieldError::Corrupt { path: path.to_owned(), offset, what };
        let short = |offset: u64, what: &'static str| {
            move |error: std::io::Error| match error.kind() {
                ErrorKind::UnexpectedEof => FieldError::Corrupt { path: path.to_owned(), offset, what },
                _ => FieldError::io(path, "read")(error),
            }
        };
        let mut header = [0; 16];
        self.input.read_exact(&mut header).map_err(short(self.at, "the file ends within the header of a report of untested paths"))?;
        let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if header[..8] != MAGIC || half(8) > MAX_BODY_BYTES {
            return Err(corrupt(self.at, "not a report of untested paths. `trodden fleet pack` writes such files"));
        }
        // Memory use grows with the bytes that the file contains, not with the length that the header claims.
        self.body.clear();
        self.input.by_ref().take(half(8).into()).read_to_end(&mut self.body).map_err(FieldError::io(path, "read"))?;
        if self.body.len() as u64 != u64::from(half(8)) {
            return Err(corrupt(self.at, "the file ends within a report of untested paths"));
        }
        if xxh3_64(&self.body) as u32 != half(12) {
            return Err(corrupt(self.at, "wrong checksum of a report of untested paths"));
        }
        decode_body(&self.body, &mut visit).ok_or_else(|| corrupt(self.at, "malformed body of a report of untested paths"))?;
        self.at += 16 + self.body.len() as u64;
        Ok(true)
    }
}

fn decode_body(body: &[u8], visit: &mut impl FnMut(&FieldUserHash, Identity, Identity, Option<(u64, u64)>)) -> Option<()> {
    let (user, mut rest) = body.split_first_chunk::<16>()?;
    let units = take_leb128(&mut rest)?;
    for _ in 0..units {
        let (image, tail) = rest.split_first_chunk::<16>()?;
        let (unit, tail) = tail.split_first_chunk::<16>()?;
        rest = tail;
        let (image, unit) = (Identity(*image), Identity(*unit));
        visit(user, image, unit, None);
        let mut counter = 0u64;
        for _ in 0..take_leb128(&mut rest)? {
            counter = counter.checked_add(take_leb128(&mut rest)?)?;
            visit(user, image, unit, Some((counter, take_leb128(&mut rest)?)));
        }
    }
    rest.is_empty().then_some(())
}

fn take_leb128(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claimed_length_does_not_allocate_memory() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(MAX_BODY_BYTES.to_le_bytes());
        bytes.extend([0; 12]);
        assert_eq!(bytes.len(), 24);
        let mut reports = FieldReportReader::new(Path::new("claim"), &bytes[..]);
        let error = reports.next(|_, _, _, _| {}).unwrap_err().to_string();
        assert!(error.contains("the file ends within a report"), "{error}");
        assert!(reports.body.capacity() < 1 << 20, "{} bytes", reports.body.capacity());
    }
}
