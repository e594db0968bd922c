//! Checks that an instrumented build counts the segments that it was built for.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trodden_text::names::DemangledName;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputFolder, InputPurpose};
use trodden_unit::{Identity, InstrumentedImage, SegmentFunction, SegmentSet, UnitMap};

const MAX_NAMED_FUNCTIONS: usize = 5;

/// Warns about functions in a set that a variant of `program` does not contain. If the variant contains none of the functions and would
/// count nothing, the variant is removed and the check fails.
pub fn check_variant(made: &InstrumentedImage, set: Identity, program: &Path, output: &Path, folder: &InputFolder) -> Result<()> {
    let bytes = folder.get(InputPurpose::Segments, set)?;
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
            "{program} has none of the functions in these segments (paths across calls), so the segments come from a different program or \
             build. Create a variant with `trodden instrument {program} --stream -o {program}.stream`, and record that variant",
            program = program.display()
        );
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().take(MAX_NAMED_FUNCTIONS).map(|f| DemangledName::from_linkage(&f.name).short).collect();
        let more = if missing.len() > MAX_NAMED_FUNCTIONS { ", ..." } else { "" };
        let functions = plural(missing.len() as u128, "function", "functions");
        log::warn!(
            "{program} does not contain {functions} of these segments, or contains a different version, so the segments are skipped \
             ({}{more}). Record again with this build",
            names.join(", "),
            program = program.display()
        );
    }
    Ok(())
}
