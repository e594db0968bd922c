//! Extracts unit frames from the inputs of links, that is, from objects and archives. The plugin stores a frame in each object; it contains
//! the unit's map and bitcode.

use crate::context::DriverContext;
use crate::other_programs::checked_stdout;
use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use trodden_unit::Frame;
use trodden_wire::{COUNTERS_SECTION, FRAMES_SECTION};

const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const THIN_ARCHIVE_MAGIC: &[u8] = b"!<thin>\n";
/// Prefix of the symbols that the plugin adds to objects.
const TRODDEN_SYMBOL_PREFIX: &[u8] = b"__trodden_";

#[derive(Clone, Debug)]
pub struct ArchiveMember {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Returns true if a file is an archive that contains its members. A thin archive only names them.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE_MAGIC)
}

/// Returns the unit frames in a relocatable object or in the members of an archive. Other files have none.
pub fn frames_in_file(bytes: &[u8]) -> Vec<Frame> {
    if is_archive(bytes) {
        return archive_members(bytes).unwrap_or_default().iter().flat_map(|m| frames_in_object(&m.bytes)).collect();
    }
    frames_in_object(bytes)
}

pub fn frames_in_object(bytes: &[u8]) -> Vec<Frame> {
    let Some(file) = object::File::parse(bytes).ok().filter(|f| f.kind() == ObjectKind::Relocatable) else { return Vec::new() };
    let sections = file.sections().filter(|s| s.name() == Ok(FRAMES_SECTION));
    sections.filter_map(|s| s.uncompressed_data().ok()).flat_map(|data| Frame::read_all(&data).0).collect()
}

/// Returns the total size of the counters in a relocatable object or an archive, in bytes.
pub fn total_counter_bytes(bytes: &[u8]) -> u64 {
    if is_archive(bytes) {
        return archive_members(bytes).unwrap_or_default().iter().map(|m| total_counter_bytes(&m.bytes)).sum();
    }
    let Some(file) = object::File::parse(bytes).ok().filter(|f| f.kind() == ObjectKind::Relocatable) else { return 0 };
    file.sections().filter(|s| s.name() == Ok(COUNTERS_SECTION)).map(|s| s.size()).sum()
}

pub fn archive_members(bytes: &[u8]) -> Result<Vec<ArchiveMember>> {
    let archive = ArchiveFile::parse(bytes)?;
    let mut out = Vec::new();
    for member in archive.members() {
        let member = member?;
        out.push(ArchiveMember { name: String::from_utf8_lossy(member.name()).into_owned(), bytes: member.data(bytes)?.to_vec() });
    }
    Ok(out)
}

/// Returns the global symbols that an object defines, except those that the plugin added, which depend on the kind of instrumentation.
pub fn defined_symbols(bytes: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
    let file = object::File::parse(bytes)?;
    let global = file.symbols().filter(|s| s.is_definition() && s.is_global());
    let names = global.filter_map(|s| s.name_bytes().ok()).filter(|n| !n.starts_with(TRODDEN_SYMBOL_PREFIX));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Converts a thin archive, which only names its members, to an ordinary one. Returns any other file unchanged.
pub fn expand_thin_archive(context: &DriverContext, path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(THIN_ARCHIVE_MAGIC) {
        return Ok(bytes);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let archive = ArchiveFile::parse(&*bytes).with_context(|| format!("the thin archive {} is corrupt", path.display()))?;
    let mut found = Vec::new();
    for member in archive.members() {
        let name = String::from_utf8_lossy(member?.name()).into_owned();
        let file = folder.join(&name);
        let content =
            fs::read(&file).with_context(|| format!("cannot read {}, a member of the archive {}", file.display(), path.display()))?;
        let name = Path::new(&name).file_name().map_or(name.clone(), |n| n.to_string_lossy().into_owned());
        found.push(ArchiveMember { name, bytes: content });
    }
    let place = context.folder("trodden-frames-")?;
    let whole = place.path().join("whole.a");
    write_archive(&whole, &found, place.path())?;
    Ok(fs::read(whole)?)
}

/// Writes an archive and its symbol index with `ar`. Members may have the same name, so each is written to a folder of its own below
/// `scratch`.
pub fn write_archive(path: &Path, members: &[ArchiveMember], scratch: &Path) -> Result<()> {
    let mut files = Vec::new();
    for (i, member) in members.iter().enumerate() {
        let folder = scratch.join(i.to_string());
        trodden_profile::temporary::create_folders(&folder)?;
        let file = folder.join(&member.name);
        fs::write(&file, &member.bytes).with_context(|| format!("cannot write {}", file.display()))?;
        files.push(file);
    }
    // `ar` builds the index once per call, so it is called once for all members.
    let _ = fs::remove_file(path);
    let made = Command::new("ar")
        .arg("qcs")
        .arg(path)
        .args(&files)
        .output()
        .context("cannot run ar. Install it with `apt-get install binutils`")?;
    checked_stdout(made, format_args!("ar cannot write {}", path.display())).map(drop)
}
