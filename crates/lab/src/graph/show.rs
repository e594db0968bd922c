//! `trodden-lab graph show`: prints the control-flow graph of a function in the form in which its paths were numbered.

use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use trodden_command::laboratory::driver_context;
use trodden_report::{DemangledName, dot};
use trodden_unit::{FunctionMap, InstrumentedImage, UnitMap};

/// Fails if the program cannot be read, or if it does not contain exactly one function with this name.
pub fn show(program: &Path, wanted: &str, json: bool) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
    let store = driver_context().store().ok();
    let mut maps: Vec<UnitMap> = Vec::new();
    for placed in &image.units {
        // Units whose map is lost are skipped. `trodden info` lists them.
        if let Some(frame) = image.frame(placed.unit, store.as_ref()).with_context(|| program.display().to_string())? {
            maps.push(frame.map().with_context(|| program.display().to_string())?);
        }
    }
    let functions = || maps.iter().flat_map(|unit| unit.functions.iter().map(move |f| (unit, f)));
    let mut found: Vec<(&UnitMap, &FunctionMap)> =
        functions().filter(|(_, f)| DemangledName::from_linkage(&f.name).matches(wanted)).collect();
    // A function that was compiled identically in several units is shown once.
    let mut seen = HashSet::new();
    found.retain(|(_, function)| seen.insert((&function.name, function.shape)));
    let (unit, function) = match found.as_slice() {
        [one] => *one,
        [] => bail!("{} has no instrumented function `{wanted}`{}", program.display(), suggest_names(functions(), wanted)),
        several => {
            let list: Vec<String> = several.iter().map(|(u, f)| format!("{} ({})", f.name, u.source)).collect();
            bail!("{} functions are called `{wanted}`: {}. Pass the mangled name", several.len(), list.join(", "))
        }
    };
    let text = match json {
        true => serde_json::to_string_pretty(&dot::graph_json(unit, function, None))? + "\n",
        false => dot::write_dot(unit, function, None),
    };
    trodden_console::output::text_or_json_writer(json).write_all(text.as_bytes())?;
    Ok(())
}

/// Returns the end of the error message: names that contain `wanted`, or a hint on how to list the functions.
fn suggest_names<'a>(functions: impl Iterator<Item = (&'a UnitMap, &'a FunctionMap)>, wanted: &str) -> String {
    let near: Vec<String> =
        functions.map(|(_, f)| DemangledName::from_linkage(&f.name).short).filter(|n| n.contains(wanted)).take(5).collect();
    match near.is_empty() {
        true => "; `trodden-lab graph extract` lists the functions that remain after inlining".into(),
        false => format!("; similar: {}", near.join(", ")),
    }
}
