//! Unit frames in files that a link reads: objects and archives of them.

use crate::context::DriverContext;
use crate::other_programs::succeeded;
use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use trodden_unit::Frame;
use trodden_wire::{COUNTERS_SECTION, FRAMES_SECTION};

const ARCHIVE: &[u8] = b"!<arch>\n";
const THIN_ARCHIVE: &[u8] = b"!<thin>\n";
/// How names begin that the plugin defines.
const OWN_SYMBOLS: &[u8] = b"__trodden_";

/// A member of an archive.
#[derive(Clone, Debug)]
pub struct ArchiveMember {
    /// Its name; several members may have the same.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Whether a file is an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE)
}

/// The frames of a relocatable object or of an archive; none in anything else.
pub fn of_file(bytes: &[u8]) -> Vec<Frame> {
    if is_archive(bytes) {
        return members(bytes).unwrap_or_default().iter().flat_map(|m| of_object(&m.bytes)).collect();
    }
    of_object(bytes)
}

/// The frames of a relocatable object.
pub fn of_object(bytes: &[u8]) -> Vec<Frame> {
    let Some(file) = object::File::parse(bytes).ok().filter(|f| f.kind() == ObjectKind::Relocatable) else { return Vec::new() };
    let sections = file.sections().filter(|s| s.name() == Ok(FRAMES_SECTION));
    sections.filter_map(|s| s.uncompressed_data().ok()).flat_map(|data| Frame::read_all(&data).0).collect()
}

/// Bytes of the counters that a relocatable object or an archive brings along.
pub fn counter_bytes(bytes: &[u8]) -> u64 {
    if is_archive(bytes) {
        return members(bytes).unwrap_or_default().iter().map(|m| counter_bytes(&m.bytes)).sum();
    }
    let Some(file) = object::File::parse(bytes).ok().filter(|f| f.kind() == ObjectKind::Relocatable) else { return 0 };
    file.sections().filter(|s| s.name() == Ok(COUNTERS_SECTION)).map(|s| s.size()).sum()
}

/// The members of an archive, in order.
///
/// # Errors
/// The archive is damaged.
pub fn members(bytes: &[u8]) -> Result<Vec<ArchiveMember>> {
    let archive = ArchiveFile::parse(bytes)?;
    let mut out = Vec::new();
    for member in archive.members() {
        let member = member?;
        out.push(ArchiveMember { name: String::from_utf8_lossy(member.name()).into_owned(), bytes: member.data(bytes)?.to_vec() });
    }
    Ok(out)
}

/// The names that an object defines for others, without those that the plugin brings along: another variant brings others.
///
/// # Errors
/// It is no object.
pub fn defined(bytes: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
    let file = object::File::parse(bytes)?;
    let global = file.symbols().filter(|s| s.is_definition() && s.is_global());
    let names = global.filter_map(|s| s.name_bytes().ok()).filter(|n| !n.starts_with(OWN_SYMBOLS));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// A thin archive only names its members; this makes a whole one of it. Other files stay as they are.
///
/// # Errors
/// A member is missing, or no archive can be made.
pub fn self_contained(context: &DriverContext, path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(THIN_ARCHIVE) {
        return Ok(bytes);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let archive = ArchiveFile::parse(&*bytes).with_context(|| format!("{} is damaged", path.display()))?;
    let mut found = Vec::new();
    for member in archive.members() {
        let name = String::from_utf8_lossy(member?.name()).into_owned();
        let file = folder.join(&name);
        let content = fs::read(&file).with_context(|| format!("cannot read {}, a member of {}", file.display(), path.display()))?;
        let name = Path::new(&name).file_name().map_or(name.clone(), |n| n.to_string_lossy().into_owned());
        found.push(ArchiveMember { name, bytes: content });
    }
    let place = context.folder("trodden-frames-")?;
    let whole = place.path().join("whole.a");
    write_archive(&whole, &found, place.path())?;
    Ok(fs::read(whole)?)
}

/// Writes an archive with an index, by `ar`. Members of one name come from different folders, which `ar` does not mind.
///
/// # Errors
/// `ar` is missing or fails.
pub fn write_archive(path: &Path, members: &[ArchiveMember], scratch: &Path) -> Result<()> {
    let mut files = Vec::new();
    for (i, member) in members.iter().enumerate() {
        let folder = scratch.join(i.to_string());
        trodden_profile::temporary::create_folders(&folder)?;
        let file = folder.join(&member.name);
        fs::write(&file, &member.bytes).with_context(|| format!("cannot write {}", file.display()))?;
        files.push(file);
    }
    // One call: `ar` makes the index once, and never sees two files of one path.
    let _ = fs::remove_file(path);
    let made = Command::new("ar").arg("qcs").arg(path).args(&files).output().context("cannot run ar: run `apt-get install binutils`")?;
    succeeded(made, format_args!("ar cannot write {}", path.display())).map(drop)
}
