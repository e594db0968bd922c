//! Collects the known paths, which are removed from the profiles of deployed programs.
//!
//! The experiments of a build's units contain the identity of the set of paths that were known at build time. The set itself is in the unit
//! cache (`inputs/`), where `--residual` stored it.

use crate::untested;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_profile::Profile;
use trodden_stored::Folders;
use trodden_stored::known::load_known_paths;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputError, InputPurpose};
use trodden_unit::{Identity, InstrumentedImage, KnownPaths, UnitMap};
use trodden_wire::file_header::{FileHeader, FileKind};
use trodden_wire::layout::Layout;
use trodden_wire::{COUNTERS_SECTION, KNOWN_VERSION, KnownHeader, checksum};

/// Known paths from the runs and files that the user named, and from the sets that were known at build time.
#[derive(Default)]
pub struct KnownPathInput {
    /// All known paths.
    pub paths: KnownPaths,
    /// Identities of the sets of known paths that builds refer to and that were looked up.
    added: BTreeSet<Identity>,
    /// The sets in `added` that are not in the cache.
    missing: BTreeSet<Identity>,
}

impl KnownPathInput {
    /// Adds the paths of a run, suite or file that the user named.
    pub fn add_named(&mut self, wanted: &str) -> Result<()> {
        let known = load_known_paths(OsStr::new(wanted))
            .with_context(|| format!("cannot load the paths that the tests took from {wanted} (--known)"))?;
        Ok(self.paths.merge(known)?)
    }

    /// Adds the sets of paths that were known when a profile's programs were built.
    pub fn add_from_builds(&mut self, profile: &Profile, folders: &Folders) -> Result<()> {
        let units = profile.images.iter().flat_map(|i| &i.units);
        let named: BTreeSet<Identity> = units.filter_map(|u| u.map.experiment.tested_paths()).collect();
        let folder = folders.inputs()?;
        for identity in named.difference(&self.added.clone()).copied() {
            match folder.get(InputPurpose::Known, identity) {
                Ok(bytes) => {
                    let known = KnownPaths::from_bytes(&bytes).with_context(|| folder.path(identity).display().to_string())?;
                    self.paths.merge(known)?;
                }
                Err(InputError::Missing { .. }) => drop(self.missing.insert(identity)),
                Err(error) => return Err(error.into()),
            }
            self.added.insert(identity);
        }
        Ok(())
    }

    /// Warns about sets that are missing from the unit cache. Fails if no known paths were given.
    pub fn check_known_paths_apply(&self, profile: &Profile, folders: &Folders) -> Result<()> {
        let all_residual = profile.images.iter().flat_map(|i| &i.units).all(|u| u.map.has_times());
        if self.paths.is_empty() && self.missing.is_empty() && !all_residual {
            bail!(
                "cannot tell which paths are untested, because no tests are named. Name the tests with --known, or record a program built \
                 with --residual"
            );
        }
        for identity in &self.missing {
            log::warn!(
                "cannot find the list of tested paths ({identity}) in the unit cache (folder {}), so tested edges may be shown as \
                 untested. Name the tests with --known, or set TRODDEN_CACHE to the unit cache of the build",
                folders.units()?.root().display()
            );
        }
        Ok(())
    }
}

/// Warns if the tests ran a different program or a different version of the program. `consequence` says what this means for the result.
pub fn warn_if_tests_differ(known: &KnownPaths, maps: &[&UnitMap], consequence: &str) {
    let (mut same, mut changed) = (false, BTreeSet::new());
    for map in maps {
        for function in map.functions.iter().filter(|f| known.has_function(&map.source, &f.name)) {
            match untested::known_paths_of(known, map, function) {
                Some(_) => same = true,
                None => drop(changed.insert((&map.source, function.plain_name()))),
            }
        }
    }
    if !changed.is_empty() {
        let names = changed.iter().take(5).map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let more = if changed.len() > 5 { ", ..." } else { "" };
        let functions = plural(changed.len() as u128, "function has", "functions have");
        log::warn!("{functions} changed since the tests were recorded ({names}{more}), so {consequence}. Record the tests again");
    } else if !same {
        log::warn!("the tests executed no function of this program, so {consequence}. Record the tests with this program");
    }
}

/// Builds a file for `TRODDEN_KNOWN`: the known paths as a bit set over the program's counters. Fails if the program is not instrumented, a
/// map is missing, or the program was not built with `--residual`.
pub fn build_known_file(program: &Path, known: &KnownPaths, folders: &Folders) -> Result<Vec<u8>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
    let counters = count_counters(&bytes)?;
    let mut bits = vec![0u8; counters.div_ceil(8) as usize];
    let mut residual = false;
    for placed in &image.units {
        let frame = image.frame(placed.unit, folders.units.as_ref()).with_context(|| program.display().to_string())?;
        let frame = frame.with_context(|| {
            format!(
                "{}: cannot find the map (blocks and paths) of compilation unit {} in the program or in the unit cache. Set TRODDEN_CACHE \
                 to the unit cache of the build",
                program.display(),
                placed.unit
            )
        })?;
        let map = frame.map().with_context(|| program.display().to_string())?;
        residual |= map.has_times();
        for function in map.functions.iter().filter(|_| map.has_times()) {
            for (id, _) in untested::known_paths_of(known, &map, function).map_or(&[][..], |k| &k.known) {
                let at = placed.first + function.first_counter + id;
                if let Some(byte) = bits.get_mut((at / 8) as usize) {
                    *byte |= 1 << (at % 8);
                }
            }
        }
    }
    anyhow::ensure!(
        residual,
        "{} was not built with --residual, so it counts all paths, tested or not. Pass a program built with --residual",
        program.display()
    );
    let file_header = FileHeader::new(FileKind::FURTHER_KNOWN_PATHS, KNOWN_VERSION).to_bytes();
    let mut file = vec![0; KnownHeader::BYTES];
    KnownHeader { file_header, image: image.identity.0, counters, checksum: checksum(&bits) }
        .write(&mut file)
        .context("cannot write the header of the file of known paths (for TRODDEN_KNOWN)")?;
    file.extend(bits);
    Ok(file)
}

fn count_counters(bytes: &[u8]) -> Result<u64> {
    use object::{Object, ObjectSection};
    let section = object::File::parse(bytes)?.section_by_name(COUNTERS_SECTION).map(|s| s.size());
    Ok(section.unwrap_or(0) / 8)
}
