//! Which paths are known, of which those of the field are filtered.
//!
//! What a build knew is named by its units' experiments: the file of that identity lies in the store (`inputs/`), where `--residual` put
//! it.

use crate::untested;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_profile::Profile;
use trodden_stored::Folders;
use trodden_stored::known::known_paths;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputError, InputKind};
use trodden_unit::{Identity, Image, KnownPaths, UnitMap};
use trodden_wire::head::{FileHead, FileKind};
use trodden_wire::layout::Layout;
use trodden_wire::{COUNTERS_SECTION, KNOWN_VERSION, KnownHeader, checksum};

/// The paths that are known: those that people name, and those that builds knew.
#[derive(Default)]
pub struct KnownInput {
    /// All of it.
    pub paths: KnownPaths,
    /// Identities of the sets that builds knew, which were added.
    added: BTreeSet<Identity>,
    /// Those that are nowhere to be found.
    missing: BTreeSet<Identity>,
}

impl KnownInput {
    /// Adds what the user names.
    ///
    /// # Errors
    /// The profile does not exist, or its paths are cut differently.
    pub fn add_named(&mut self, wanted: &str) -> Result<()> {
        let known = known_paths(OsStr::new(wanted)).with_context(|| format!("--known {wanted}"))?;
        Ok(self.paths.unite(known)?)
    }

    /// Adds what the builds of a profile knew.
    ///
    /// # Errors
    /// A set is damaged, or of paths that are cut otherwise.
    pub fn add_of_builds(&mut self, profile: &Profile, folders: &Folders) -> Result<()> {
        let units = profile.images.iter().flat_map(|i| &i.units);
        let named: BTreeSet<Identity> = units.filter_map(|u| u.map.experiment.known_set()).collect();
        let folder = folders.inputs()?;
        for identity in named.difference(&self.added.clone()).copied() {
            match folder.get(InputKind::Known, identity) {
                Ok(bytes) => {
                    let known = KnownPaths::from_bytes(&bytes).with_context(|| folder.path(identity).display().to_string())?;
                    self.paths.unite(known)?;
                }
                Err(InputError::Missing { .. }) => drop(self.missing.insert(identity)),
                Err(error) => return Err(error.into()),
            }
            self.added.insert(identity);
        }
        Ok(())
    }

    /// Warns of what is missing.
    ///
    /// # Errors
    /// Nothing is known at all.
    pub fn check(&self, profile: &Profile, folders: &Folders) -> Result<()> {
        let all_residual = profile.images.iter().flat_map(|i| &i.units).all(|u| u.map.has_times());
        if self.paths.is_empty() && self.missing.is_empty() && !all_residual {
            bail!("nothing says what is known: name the tests by --known, or record a program built with --residual");
        }
        for identity in &self.missing {
            log::warn!(
                "the set of known paths {identity} is not in the unit cache {}: edges that tests take count as untested; name the tests \
                    by --known, or set TRODDEN_CACHE",
                folders.units()?.root().display()
            );
        }
        Ok(())
    }
}

/// Says so where tests are of another program, or of another state of it: what they know is of no use then.
pub fn report_known(known: &KnownPaths, maps: &[&UnitMap], then: &str) {
    let (mut same, mut changed) = (false, BTreeSet::new());
    for map in maps {
        for function in map.functions.iter().filter(|f| known.names(&map.source, &f.name)) {
            match untested::known_of(known, map, function) {
                Some(_) => same = true,
                None => drop(changed.insert((&map.source, function.plain_name()))),
            }
        }
    }
    if !changed.is_empty() {
        let names = changed.iter().take(5).map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let more = if changed.len() > 5 { ", ..." } else { "" };
        let functions = plural(changed.len() as u128, "function is another", "functions are others");
        log::warn!("{functions} than when the tests were recorded, and {then} ({names}{more}): record the tests again");
    } else if !same {
        log::warn!("the tests know no function of this program, and {then}: were they recorded with it?");
    }
}

/// A file for `TRODDEN_KNOWN`: the known paths as counters of a program.
///
/// # Errors
/// The program is not instrumented, its maps are not found, or it was not built with `--residual`.
pub fn known_to(program: &Path, known: &KnownPaths, folders: &Folders) -> Result<Vec<u8>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
    let counters = counters_of(&bytes)?;
    let mut bits = vec![0u8; counters.div_ceil(8) as usize];
    let mut residual = false;
    for placed in &image.units {
        let frame = image.frame(placed.unit, folders.units.as_ref()).with_context(|| program.display().to_string())?;
        let frame = frame.with_context(|| format!("{}: no map of unit {}: set TRODDEN_CACHE", program.display(), placed.unit))?;
        let map = frame.map().with_context(|| program.display().to_string())?;
        residual |= map.has_times();
        for function in map.functions.iter().filter(|_| map.has_times()) {
            for (id, _) in untested::known_of(known, &map, function).map_or(&[][..], |k| &k.known) {
                let at = placed.first + function.first_counter + id;
                if let Some(byte) = bits.get_mut((at / 8) as usize) {
                    *byte |= 1 << (at % 8);
                }
            }
        }
    }
    anyhow::ensure!(residual, "{} was not built with --residual: it counts all paths", program.display());
    let head = FileHead::new(FileKind::MORE_KNOWN, KNOWN_VERSION).to_bytes();
    let mut file = vec![0; KnownHeader::BYTES];
    KnownHeader { head, image: image.identity.0, counters, checksum: checksum(&bits) }.write(&mut file).context("a header has its size")?;
    file.extend(bits);
    Ok(file)
}

/// Counters of a program's template.
fn counters_of(bytes: &[u8]) -> Result<u64> {
    use object::{Object, ObjectSection};
    let section = object::File::parse(bytes)?.section_by_name(COUNTERS_SECTION).map(|s| s.size());
    Ok(section.unwrap_or(0) / 8)
}
