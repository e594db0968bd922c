//! Another variant of a program, made from its bitcode and its link recipe, without its sources: `trodden instrument` and others.
//!
//! The inputs of the link are laid out below a temporary folder as they were on disk then, each object with bitcode
//! replaced by a rebuilt one. The link runs there, in the folder that stands for the one in which it ran: so relative
//! names mean what they meant, and only absolute names are changed.

mod place;

use crate::cc::arguments::CommandLine;
use crate::compile_step::read;
use crate::context::DriverContext;
use crate::experiment;
use crate::frames;
use crate::link;
use crate::rebuild::{DriverCompiler, Rebuilder};
use crate::recipe::{BuildProduct, Recipe, RecipeStore};
use crate::toolchain::Tool;
use anyhow::{Context, Result, anyhow, bail, ensure};
use place::LinkPlace;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::whole_file::{self, Access};
use trodden_text::words::plural;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, PluginRequest};
use trodden_unit::observe::CoverageCounts;
use trodden_unit::{Frame, Identity, Image, Observation, UnitCache};
use trodden_wire::{DEFAULT_ON_UNTESTED_SYMBOL, DEFAULT_OUTPUT_SYMBOL, WATCHED_SYMBOL};

/// How names of files begin that are being written for the user.
const BEGUN: &str = ".trodden-";

/// Said of programs whose counts go nowhere by themselves.
pub const WRITES_NOTHING: &str =
    "outside of `trodden record`, it writes what it counts only where TRODDEN_OUTPUT says, as in TRODDEN_OUTPUT=/var/tmp/%m.raw";

/// Checks that a program has the counters of LLVM's that a variant is to have: they are put into the code before the optimiser, so
/// bitcode that was kept behind it has them, or never will.
///
/// # Errors
/// It was built without, or is not instrumented.
pub fn check_counters(program: &Path, wanted: Observation) -> Result<()> {
    let option = match wanted {
        Observation::EdgeProfileCounts(_) => "--pgo",
        Observation::CoverageCounts(CoverageCounts { mcdc: false }) => "--coverage",
        Observation::CoverageCounts(CoverageCounts { mcdc: true }) => "--coverage=mcdc",
        _ => return Ok(()),
    };
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
    let mut built = image.frames.iter().filter_map(|frame| Some(frame.map().ok()?.experiment.observation()));
    let has = |built| built == wanted || (built == Observation::CoverageCounts(CoverageCounts { mcdc: true }) && option == "--coverage");
    ensure!(built.any(has), "{} was built without {option}: build it with `trodden build {option}`", program.display());
    Ok(())
}

/// Makes a variant as a request says; gives its image, unless nothing in it is instrumented.
///
/// # Errors
/// The program is not instrumented, its recipe or bitcode is missing, or a tool fails.
pub fn make(context: &DriverContext, program: &Path, output: &Path, request: &PluginRequest, defaults: &Defaults) -> Result<Option<Image>> {
    let request = experiment::file(context, request)?;
    let inputs = Inputs::from_program(context, program)?;
    let place = LinkPlace::new(context, &inputs.recipe)?;
    log::info!("compiling {} from bitcode", plural(inputs.frames.len() as u128, "unit", "units"));
    let compiler = DriverCompiler::new(context, request.clone().into())?;
    let rebuilder = Rebuilder::compile(context, &compiler, &inputs.frames, &place.folder.path().join("units"))?;
    inputs.link(&place, rebuilder, output, &request, defaults, None)
}

/// What a program was linked of.
#[derive(Debug)]
pub struct Inputs {
    recipe: Recipe,
    /// Contents of the recipe's files.
    contents: Vec<Vec<u8>>,
    /// The units in them, and those of sources that the link compiled.
    pub frames: Vec<Frame>,
    /// The folder of the program, in which its run paths find it.
    origin: PathBuf,
}

impl Inputs {
    /// Reads them from the store.
    ///
    /// # Errors
    /// The program is not instrumented, or the store does not have them.
    pub fn from_program(context: &DriverContext, program: &Path) -> Result<Inputs> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
        let store = context.store()?;
        let recipes = RecipeStore::beside(&store);
        let recipe = recipes.get(&image)?;
        let contents = recipe.files.iter().map(|f| recipes.content(&f.content)).collect::<Result<Vec<_>>>()?;
        let mut frames: Vec<Frame> = contents.iter().flat_map(|bytes| frames::of_file(bytes)).collect();
        for source in &recipe.sources {
            if let BuildProduct::Unit(unit) = &source.made {
                frames.push(unit_of_store(&store, unit)?);
            }
        }
        let origin = fs::canonicalize(program)?.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Inputs { recipe, contents, frames, origin })
    }

    /// Links the program again with objects that were made of its units by a request's file; gives its image,
    /// unless nothing in it is instrumented. It finds shared libraries where the program itself does. Where the
    /// environment says nothing, it writes to files of the pattern `writes`, if there is one.
    ///
    /// # Errors
    /// A tool fails.
    pub fn link_with(
        &self,
        context: &DriverContext,
        objects: HashMap<Identity, PathBuf>,
        output: &Path,
        request: &Path,
        writes: Option<&str>,
    ) -> Result<Option<Image>> {
        let place = LinkPlace::new(context, &self.recipe)?;
        let rebuilder = Rebuilder::new(objects, place.folder.path());
        let defaults = Defaults { output: writes.map(str::to_owned), ..Defaults::default() };
        self.link(&place, rebuilder, output, request, &defaults, Some(&self.origin))
    }

    fn link(
        &self,
        place: &LinkPlace,
        rebuilder: Rebuilder,
        output: &Path,
        request: &Path,
        defaults: &Defaults,
        origin: Option<&Path>,
    ) -> Result<Option<Image>> {
        let objects = lay_out(self, place, rebuilder)?;
        // Linkers replace links and pipes, and remove what is there when they fail.
        let linked = place.folder.path().join("linked");
        trodden_profile::temporary::create_folders(&linked)?;
        let linked = linked.join(output.file_name().unwrap_or(OsStr::new("image")));
        let mut line = place.command_line(&self.recipe, &objects, &linked);
        if let Some(origin) = origin {
            line.iter_mut().for_each(|word| *word = with_origin(word, origin));
        }
        if let Some(object) = defaults.object(place.context, place.folder.path())? {
            // In front: of several definitions, which are weak, the first counts.
            line.splice(0..0, ["-Xlinker".into(), object.into()]);
        }
        let image = link_there(&self.recipe, place, &read(&line), request)?;
        let access = Access::Mode(fs::metadata(&linked)?.permissions().mode() & 0o777);
        let mut from = fs::File::open(&linked)?;
        let written = whole_file::write_for(output, BEGUN, access, |out| io::copy(&mut from, out).map(drop));
        written.with_context(|| format!("cannot write {}", output.display()))?;
        Ok(image)
    }
}

/// What a variant that counts unknown paths does where the environment says nothing.
#[derive(Debug, Default)]
pub struct Defaults {
    /// The pattern of its raw files.
    pub output: Option<String>,
    /// What it does at such paths, as a word of `TRODDEN_ON_UNTESTED`.
    pub on_untested: Option<String>,
    /// The expression that they match.
    pub watched: Option<String>,
}

impl Defaults {
    /// An object that says so, made in a folder; none if there is nothing to say.
    fn object(&self, context: &DriverContext, folder: &Path) -> Result<Option<PathBuf>> {
        let texts =
            [(DEFAULT_OUTPUT_SYMBOL, &self.output), (DEFAULT_ON_UNTESTED_SYMBOL, &self.on_untested), (WATCHED_SYMBOL, &self.watched)];
        let mut assembly = String::from(".section .note.GNU-stack,\"\",@progbits\n.section .rodata\n");
        for (symbol, text) in texts.iter().filter_map(|(symbol, text)| Some((symbol, text.as_ref()?))) {
            let bytes: String = text.bytes().map(|b| format!("\\{b:03o}")).collect();
            assembly += &format!(".weak {symbol}\n.hidden {symbol}\n.type {symbol},@object\n{symbol}:\n.asciz \"{bytes}\"\n");
        }
        if texts.iter().all(|(_, text)| text.is_none()) {
            return Ok(None);
        }
        let (source, object) = (folder.join("defaults.s"), folder.join("defaults.o"));
        fs::write(&source, assembly)?;
        let status = Command::new(Tool::Clang.find(context)?).arg("-c").arg(&source).arg("-o").arg(&object).status()?;
        ensure!(status.success(), "the assembler fails on {}", source.display());
        Ok(Some(object))
    }
}

/// Puts every input in its place, rebuilt where it has bitcode; gives the objects that stand for sources.
fn lay_out(inputs: &Inputs, place: &LinkPlace, mut rebuilder: Rebuilder) -> Result<Vec<(usize, PathBuf)>> {
    let Inputs { recipe, contents, .. } = inputs;
    place.make_way(&place.directory.join("x"))?;
    for (file, bytes) in recipe.files.iter().zip(contents) {
        let path = file.path.to_path();
        place.make_way(&path)?;
        let bytes = rebuilder.file(&path.display().to_string(), bytes.clone())?;
        fs::write(place.of(&path), bytes)?;
    }
    rebuilder.kept.iter().for_each(|kept| log::warn!("{kept}"));
    let mut objects = Vec::new();
    for source in &recipe.sources {
        let object = match &source.made {
            BuildProduct::Unit(unit) => {
                let made = Identity::parse(unit).and_then(|u| rebuilder.unit(u).map(Path::to_owned));
                made.ok_or_else(|| anyhow!("unit {unit} was not compiled"))?
            }
            BuildProduct::Object(content) => {
                let path = place.folder.path().join(format!("source-{}.o", source.at));
                fs::write(&path, RecipeStore::beside(&place.context.store()?).content(content)?)?;
                path
            }
        };
        objects.push((source.at, object));
    }
    Ok(objects)
}

fn unit_of_store(store: &UnitCache, unit: &str) -> Result<Frame> {
    let identity = Identity::parse(unit).ok_or_else(|| anyhow!("`{unit}` is no unit: the link recipe is damaged"))?;
    match store.get(identity)? {
        Some(frame) => Ok(frame),
        None => bail!("unit {unit} is missing in the store {}: build the program again", store.root().display()),
    }
}

/// Runs the link in its place.
fn link_there(recipe: &Recipe, place: &LinkPlace, line: &CommandLine, request: &Path) -> Result<Option<Image>> {
    let clang = recipe.driver.tool().find(place.context)?;
    let mut environment: Vec<(OsString, OsString)> = recipe.environment.iter().map(|(k, v)| (k.into(), v.to_os())).collect();
    environment.push((EXPERIMENT_VARIABLE.into(), request.into()));
    let directory = place.of(&place.directory);
    let (status, image) = link::run(&link::LinkJob {
        context: place.context,
        clang: &clang,
        arguments: &line.arguments,
        line,
        added: Vec::new(),
        environment,
        directory: Some(&directory),
    })?;
    if !status.success() {
        bail!("the link fails ({status})");
    }
    Ok(image)
}

/// A word with a folder in the place of `$ORIGIN`, which stands in run paths for the folder of the program (ld.so(8)).
fn with_origin(word: &OsStr, origin: &Path) -> OsString {
    const NAMES: [&[u8]; 2] = [b"${ORIGIN}", b"$ORIGIN"];
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(first) = rest.first() {
        match NAMES.iter().find_map(|name| rest.strip_prefix(*name)) {
            Some(behind) => {
                bytes.extend(origin.as_os_str().as_bytes());
                rest = behind;
            }
            None => {
                bytes.push(*first);
                rest = &rest[1..];
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_paths_name_the_folder_of_the_program() {
        let word = |text: &str, origin: &str| with_origin(OsStr::new(text), Path::new(origin)).into_string().unwrap();
        assert_eq!(word("-rpath=${ORIGIN}/a:$ORIGIN", "/p"), "-rpath=/p/a:/p");
        assert_eq!((word("$ORIGIN", "/$ORIGIN/x"), word("-O2", "/p")), ("/$ORIGIN/x".into(), "-O2".into()));
    }
}
