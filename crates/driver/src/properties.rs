//! Computes the properties of the compilation units in a profile, such as the memory accesses of each block. The plugin derives them from a
//! unit's bitcode, which comes from the image or from the unit cache, without generating code.

use crate::context::DriverContext;
use crate::experiment;
use crate::rebuild::{BitcodeCompiler, codegen_options, for_each_in_parallel, llvm_for};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use trodden_unit::experiment::{InputFolder, PluginRequest, UnitAction};
use trodden_unit::properties::{FunctionProperties, UnitProperties};
use trodden_unit::{CodegenOptions, Frame, FunctionMap, Identity, InstrumentedImage, UnitCache, UnitMap};

/// The properties of compilation units, and the reasons why some are missing.
#[derive(Default)]
pub struct KnownProperties {
    units: HashMap<Identity, UnitProperties>,
    /// Maps a unit and the name of a function to the function's index within the unit.
    functions: HashMap<(Identity, String), usize>,
    /// The reason why properties are missing, for each unit that has none.
    missing: BTreeMap<Identity, String>,
}

/// Computes the properties of units, each of which is given with the path of its image. Units have no properties if their bitcode is
/// missing or if their map contains invalid compiler options.
pub fn collect<'a>(context: &DriverContext, units: impl IntoIterator<Item = (&'a str, Identity, &'a UnitMap)>) -> Result<KnownProperties> {
    let mut known = KnownProperties::default();
    let store = context.store()?;
    let mut images: BTreeMap<&str, BTreeMap<Identity, &UnitMap>> = BTreeMap::new();
    for (image, unit, map) in units {
        images.entry(image).or_default().insert(unit, map);
    }
    let mut work = Vec::new();
    for (image, units) in images {
        let frames = frames_in_image(image);
        for (unit, map) in units {
            let codegen = codegen_options(map).map_err(|e| e.to_string());
            match codegen.and_then(|codegen| Ok((codegen, find_bitcode(unit, &frames, &store)?))) {
                Ok((codegen, bitcode)) => work.push(PropertyJob { unit, map, codegen, bitcode }),
                Err(reason) => drop(known.missing.insert(unit, format!("{}: {reason}", map.source))),
            }
        }
    }
    for (unit, properties) in describe_units(context, &work)? {
        known.functions.extend(properties.functions.iter().enumerate().map(|(at, f)| ((unit, f.name.clone()), at)));
        known.units.insert(unit, properties);
    }
    Ok(known)
}

impl KnownProperties {
    /// Returns the properties of a unit and of one of its functions; `None` if they are unknown or do not match the function's map.
    pub fn properties_of_function(&self, unit: Identity, function: &FunctionMap) -> Option<(&UnitProperties, &FunctionProperties)> {
        let properties = self.units.get(&unit)?;
        let found = &properties.functions[*self.functions.get(&(unit, function.name.clone()))?];
        (found.blocks.len() == function.blocks.len()).then_some((properties, found))
    }

    /// Returns the reason for the first unit without properties; `None` if all units have properties.
    pub fn missing_reason(&self) -> Option<&str> {
        self.missing.values().next().map(String::as_str)
    }
}

/// Returns the unit frames in an image file, by unit. The result is empty if the file no longer exists or is stripped.
fn frames_in_image(image: &str) -> HashMap<Identity, Frame> {
    let read = fs::read(image).ok().and_then(|bytes| InstrumentedImage::read(&bytes).ok());
    read.into_iter().flat_map(|image| image.frames).map(|f| (f.unit, f)).collect()
}

fn find_bitcode(unit: Identity, frames: &HashMap<Identity, Frame>, store: &UnitCache) -> Result<Vec<u8>, String> {
    if let Some(bitcode) = frames.get(&unit).and_then(|f| f.bitcode().ok()) {
        return Ok(bitcode);
    }
    match store.get(unit) {
        Ok(Some(frame)) => frame.bitcode().map_err(|e| e.to_string()),
        Ok(None) => Err(format!("its bitcode is neither in the program nor in the unit cache {}", store.root().display())),
        Err(e) => Err(e.to_string()),
    }
}

struct PropertyJob<'a> {
    unit: Identity,
    map: &'a UnitMap,
    codegen: CodegenOptions,
    bitcode: Vec<u8>,
}

fn describe_units(context: &DriverContext, work: &[PropertyJob]) -> Result<Vec<(Identity, UnitProperties)>> {
    if work.is_empty() {
        return Ok(Vec::new());
    }
    let compiler =
        BitcodeCompiler::with(context, &llvm_for(context, work.iter().map(|job| (&*job.map.source, job.map.llvm)))?, OsString::new())?;
    let folder = context.folder("trodden-properties-")?;
    let done = Mutex::new(Vec::new());
    for_each_in_parallel(context, work, "units", |job| {
        let properties =
            describe_unit(&compiler, folder.path(), job).with_context(|| format!("cannot compile the code of {}", job.map.source))?;
        done.lock().unwrap_or_else(|e| e.into_inner()).push((job.unit, properties));
        Ok(())
    })?;
    Ok(done.into_inner().unwrap_or_else(|e| e.into_inner()))
}

fn describe_unit(
    compiler: &BitcodeCompiler,
    folder: &Path,
    PropertyJob { unit, map, codegen, bitcode }: &PropertyJob,
) -> Result<UnitProperties> {
    let [input, output, result] = ["bc", "o", "properties"].map(|end| format!("{unit}.{end}"));
    fs::write(folder.join(&input), bitcode)?;
    let mut command = compiler.command(Path::new(&input), codegen, Path::new(&output));
    let request = PluginRequest { action: UnitAction::Describe { output: folder.join(&result).into() }, ..PluginRequest::default() };
    command.current_dir(folder);
    experiment::pass_request_to_command(&mut command, &request.write(&InputFolder::new(folder))?);
    compiler.run(command, Path::new(&input))?;
    let mut properties = UnitProperties::from_bytes(&fs::read(folder.join(&result)).context(
        "trodden's compiler plugin wrote no properties of basic blocks, so it may belong to a different version of trodden. Install the \
         plugin and trodden in the same version",
    )?)?;
    if properties.files != map.files || properties.scopes != map.scopes {
        properties.clear_positions();
    }
    Ok(properties)
}
