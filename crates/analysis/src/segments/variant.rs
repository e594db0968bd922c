//! Whether a variant counts the segments that it was asked to count.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trodden_text::names::Name;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputFolder, InputKind};
use trodden_unit::{Identity, Image, SegmentFunction, SegmentSet, UnitMap};

/// Functions that are named.
const NAMED: usize = 5;

/// Warns of functions of a set that a variant of `program` does not have.
///
/// # Errors
/// It has none of them: it counts nothing, and is removed.
pub fn check_variant(made: &Image, set: Identity, program: &Path, output: &Path, folder: &InputFolder) -> Result<()> {
    let bytes = folder.get(InputKind::Segments, set)?;
    let set = SegmentSet::from_bytes(&bytes).with_context(|| folder.path(set).display().to_string())?;
    let maps: Vec<UnitMap> = made.frames.iter().map(|f| f.map()).collect::<Result<_, _>>()?;
    let is_counted = |f: &&SegmentFunction| {
        let units = maps.iter().filter(|map| map.source == f.unit);
        units.flat_map(|map| &map.functions).any(|function| function.name == f.name && function.segment_words().is_some())
    };
    let missing: Vec<&SegmentFunction> = set.functions().iter().filter(|f| !is_counted(f)).collect();
    if missing.len() == set.functions().len() {
        fs::remove_file(output).with_context(|| format!("cannot remove {}", output.display()))?;
        bail!(
            "{program} has none of the functions that the segments run through: they are of another program, or of another build, whose \
                units have other names. Make the build that is recorded of the same program, and record again: \
                `trodden instrument {program} --stream -o {program}.stream`",
            program = program.display()
        );
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().take(NAMED).map(|f| Name::from_linkage(&f.name).short).collect();
        let more = if missing.len() > NAMED { ", ..." } else { "" };
        let functions = plural(missing.len() as u128, "function", "functions");
        log::warn!(
            "{functions} of these segments {program} does not have, or in another state: they are not counted ({}{more}): record again",
            names.join(", "),
            program = program.display()
        );
    }
    Ok(())
}
