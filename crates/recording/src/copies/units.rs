//! Reads the instrumented units of a program.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trodden_unit::UnitCache;
use trodden_unit::{Frame, InstrumentedImage, UnitMap};

/// Reads a program's instrumented units with their maps, in link order. Fails if the program cannot be read or is not instrumented, or a
/// map is missing or corrupt.
pub fn read_units(program: &Path, store: Option<&UnitCache>) -> Result<Vec<(Frame, UnitMap)>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
    let mut units = Vec::new();
    for placed in &image.units {
        let Some(frame) = image.frame(placed.unit, store).with_context(|| program.display().to_string())? else {
            bail!(
                "{}: the map (blocks and paths) of a compilation unit is neither in the file nor in the unit cache. Set TRODDEN_CACHE to \
                 the unit cache of the build, or rebuild the program",
                program.display()
            )
        };
        let map = frame.map().with_context(|| program.display().to_string())?;
        units.push((frame, map));
    }
    Ok(units)
}
