//! Makes variants of a program, that is, versions with different instrumentation, for `trodden instrument` and other commands. They are
//! made from the program's bitcode and link recipe, without its sources.
//!
//! The link's inputs are laid out below a temporary folder as they were on disk; each object that has bitcode is rebuilt. The link runs in
//! the subfolder that corresponds to its original folder. Relative file names therefore stay valid, and only absolute names are translated.

mod place;

use crate::cc::arguments::CompilerCommandLine;
use crate::compile_step::parse_command_line;
use crate::context::DriverContext;
use crate::experiment;
use crate::frames;
use crate::link;
use crate::rebuild::{BitcodeCompiler, ObjectRebuilder, llvm_for};
use crate::recipe::{BuildProduct, LinkRecipe, RecipeStore};
use crate::toolchain::LlvmToolchain;
use anyhow::{Context, Result, anyhow, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol};
use place::LinkSandbox;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::atomic_file::{self, FilePermissions};
use trodden_text::words::plural;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, PluginRequest};
use trodden_unit::observe::CoverageCounts;
use trodden_unit::{Frame, Identity, InstrumentedImage, Observation, UnitCache, UnitMap};
use trodden_wire::{DEFAULT_ON_UNTESTED_SYMBOL, DEFAULT_OUTPUT_SYMBOL, WATCHED_EXPRESSION_SYMBOL};

const TEMPORARY_PREFIX: &str = ".trodden-";

/// Note for users of programs that write no counts by default.
pub const OUTPUT_HINT: &str =
    "without `trodden record`, counts are written only if TRODDEN_OUTPUT names a file, as in TRODDEN_OUTPUT=/var/tmp/%m.raw";

/// Checks that a program has the LLVM counters that a variant needs. Fails if it was built without these counters or is not instrumented.
/// The counters cannot be added later, because LLVM inserts them before optimisation and the stored bitcode is already optimised.
pub fn check_counters(program: &Path, wanted: Observation) -> Result<()> {
    let option = match wanted {
        Observation::EdgeProfileCounts(_) => "--pgo",
        Observation::CoverageCounts(CoverageCounts { mcdc: false }) => "--coverage",
        Observation::CoverageCounts(CoverageCounts { mcdc: true }) => "--coverage=mcdc",
        _ => return Ok(()),
    };
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
    let mut built = image.frames.iter().filter_map(|frame| Some(frame.map().ok()?.experiment.observation()));
    let has = |built| built == wanted || (built == Observation::CoverageCounts(CoverageCounts { mcdc: true }) && option == "--coverage");
    ensure!(built.any(has), "{} was built without {option}. Build it with `trodden build {option}`", program.display());
    Ok(())
}

/// Makes a variant of a program according to a plugin request. Returns its image; `None` if the variant contains no instrumented code.
/// Fails if the program is not instrumented, if its recipe or bitcode is missing, or if a tool fails.
pub fn create(
    context: &DriverContext,
    program: &Path,
    output: &Path,
    request: &PluginRequest,
    defaults: &VariantDefaults,
) -> Result<Option<InstrumentedImage>> {
    let request = experiment::write_request(context, request)?;
    let inputs = LinkInputs::from_program(context, program)?;
    let sandbox = LinkSandbox::new(context, &inputs.recipe)?;
    log::info!("compiling {} from bitcode", plural(inputs.frames.len() as u128, "unit", "units"));
    let compiler = BitcodeCompiler::with(context, &inputs.llvm, request.clone().into())?;
    let rebuilder = ObjectRebuilder::compile(context, &compiler, &inputs.frames, &sandbox.folder.path().join("units"))?;
    inputs.link(&sandbox, rebuilder, output, &request, defaults, None)
}

/// The link recipe of a program, and the inputs of the link.
#[derive(Debug)]
pub struct LinkInputs {
    recipe: LinkRecipe,
    /// Contents of the files in [`LinkRecipe::files`], in the same order.
    contents: Vec<Vec<u8>>,
    /// Frames of the units in the input files, and of the units that the link command compiled from sources.
    pub frames: Vec<Frame>,
    /// The LLVM that compiles the units and links the variant.
    pub llvm: LlvmToolchain,
    /// The program's folder, to which `$ORIGIN` in run paths refers.
    origin: PathBuf,
}

impl LinkInputs {
    /// Reads the link recipe of a program and the recipe's inputs from the unit cache. Fails if the program is not instrumented, or if the
    /// cache lacks the recipe or an input.
    pub fn from_program(context: &DriverContext, program: &Path) -> Result<LinkInputs> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let image = InstrumentedImage::read(&bytes).with_context(|| program.display().to_string())?;
        let store = context.store()?;
        let recipes = RecipeStore::in_cache(&store);
        let recipe = recipes.load_recipe(&image)?;
        let contents = recipe.files.iter().map(|f| recipes.content(&f.content)).collect::<Result<Vec<_>>>()?;
        let mut frames: Vec<Frame> = contents.iter().flat_map(|bytes| frames::frames_in_file(bytes)).collect();
        for source in &recipe.sources {
            if let BuildProduct::Unit(unit) = &source.made {
                frames.push(read_unit(&store, unit)?);
            }
        }
        // Corrupt maps are skipped here and reported later, where they are needed.
        let maps: Vec<UnitMap> = frames.iter().filter_map(|frame| frame.map().ok()).collect();
        let llvm = llvm_for(context, maps.iter().map(|map| (&*map.source, map.llvm)))?;
        let origin = fs::canonicalize(program)?.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(LinkInputs { recipe, contents, frames, llvm, origin })
    }

    /// Links the program again with `objects`, which were compiled from its units according to the plugin request in the file `request`.
    /// The result finds its shared libraries where the original program finds them. `writes` is the name pattern of its output files,
    /// unless the environment gives a different one. Returns the image; `None` if it contains no instrumented code.
    pub fn link_with(
        &self,
        context: &DriverContext,
        objects: HashMap<Identity, PathBuf>,
        output: &Path,
        request: &Path,
        writes: Option<&str>,
    ) -> Result<Option<InstrumentedImage>> {
        let sandbox = LinkSandbox::new(context, &self.recipe)?;
        let rebuilder = ObjectRebuilder::new(objects, sandbox.folder.path());
        let defaults = VariantDefaults { output: writes.map(str::to_owned), ..VariantDefaults::default() };
        self.link(&sandbox, rebuilder, output, request, &defaults, Some(&self.origin))
    }

    fn link(
        &self,
        sandbox: &LinkSandbox,
        rebuilder: ObjectRebuilder,
        output: &Path,
        request: &Path,
        defaults: &VariantDefaults,
        origin: Option<&Path>,
    ) -> Result<Option<InstrumentedImage>> {
        let objects = write_inputs(self, sandbox, rebuilder)?;
        // The link writes to a temporary file, because linkers replace symbolic links and pipes, and remove the old output when they fail.
        let linked = sandbox.folder.path().join("linked");
        trodden_profile::temporary::create_folders(&linked)?;
        let linked = linked.join(output.file_name().unwrap_or(OsStr::new("image")));
        let mut line = sandbox.command_line(&self.recipe, &objects, &linked);
        if let Some(origin) = origin {
            line.iter_mut().for_each(|word| *word = replace_origin(word, origin));
        }
        self.remove_earlier_defaults(sandbox, &mut line);
        if let Some(object) = defaults.assemble(&self.llvm, sandbox.folder.path())? {
            // The linker uses the first of several weak definitions, so the object with the defaults must come first.
            line.splice(0..0, [LINKER_OPTION.into(), object.into()]);
        }
        let image = run_link(&self.llvm, &self.recipe, sandbox, &parse_command_line(&line), request)?;
        let access = FilePermissions::Mode(fs::metadata(&linked)?.permissions().mode() & 0o777);
        let mut from = fs::File::open(&linked)?;
        let written = atomic_file::write_with_access(output, TEMPORARY_PREFIX, access, |out| io::copy(&mut from, out).map(drop));
        written.with_context(|| format!("cannot write {}", output.display()))?;
        Ok(image)
    }

    /// Removes the object with the defaults from the command line, if the program is itself a variant that has one.
    fn remove_earlier_defaults(&self, sandbox: &LinkSandbox, line: &mut Vec<OsString>) {
        let files = self.recipe.files.iter().zip(&self.contents);
        let earlier =
            files.filter(|(file, bytes)| file.path.to_path().ends_with(DEFAULTS_OBJECT) && VariantDefaults::is_defaults_object(bytes));
        for path in earlier.map(|(file, _)| sandbox.path_of_copy(&file.path.to_path())) {
            if let Some(at) = line.windows(2).position(|words| words[0] == LINKER_OPTION && Path::new(&words[1]) == path) {
                line.drain(at..at + 2);
            }
        }
    }
}

/// The clang option that passes the next argument to the linker.
const LINKER_OPTION: &str = "-Xlinker";

const DEFAULTS_OBJECT: &str = "defaults.o";

/// Defaults that are built into a variant that counts unknown paths. Environment variables override them.
#[derive(Debug, Default)]
pub struct VariantDefaults {
    /// Name pattern for the variant's raw files.
    pub output: Option<String>,
    /// What the program does when an unknown path is executed, as a value of `TRODDEN_ON_UNTESTED`.
    pub on_untested: Option<String>,
    /// Expression that selects the watched paths.
    pub watched: Option<String>,
}

impl VariantDefaults {
    /// Reads the defaults of a variant from the symbols that define them. All are `None` if the program has no such symbols. Fails if
    /// `bytes` is not an ELF file.
    pub fn from_program(bytes: &[u8]) -> Result<VariantDefaults, object::Error> {
        let file = object::File::parse(bytes)?;
        let text = |name: &str| {
            let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name))?;
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let rest = section.data().ok()?.get(symbol.address().checked_sub(section.address())? as usize..)?;
            let text = rest.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let (output, on_untested) = (text(DEFAULT_OUTPUT_SYMBOL), text(DEFAULT_ON_UNTESTED_SYMBOL));
        Ok(VariantDefaults { output, on_untested, watched: text(WATCHED_EXPRESSION_SYMBOL) })
    }

    fn is_defaults_object(object: &[u8]) -> bool {
        VariantDefaults::from_program(object)
            .is_ok_and(|found| found.output.is_some() || found.on_untested.is_some() || found.watched.is_some())
    }

    /// Assembles an object that defines these defaults, in `folder`. Returns `None` if all defaults are `None`.
    fn assemble(&self, llvm: &LlvmToolchain, folder: &Path) -> Result<Option<PathBuf>> {
        let texts = [
            (DEFAULT_OUTPUT_SYMBOL, &self.output),
            (DEFAULT_ON_UNTESTED_SYMBOL, &self.on_untested),
            (WATCHED_EXPRESSION_SYMBOL, &self.watched),
        ];
        let mut assembly = String::from(".section .note.GNU-stack,\"\",@progbits\n.section .rodata\n");
        for (symbol, text) in texts.iter().filter_map(|(symbol, text)| Some((symbol, text.as_ref()?))) {
            let bytes: String = text.bytes().map(|b| format!("\\{b:03o}")).collect();
            assembly += &format!(".weak {symbol}\n.hidden {symbol}\n.type {symbol},@object\n{symbol}:\n.asciz \"{bytes}\"\n");
        }
        if texts.iter().all(|(_, text)| text.is_none()) {
            return Ok(None);
        }
        let (source, object) = (folder.join("defaults.s"), folder.join(DEFAULTS_OBJECT));
        fs::write(&source, assembly)?;
        let status = Command::new(llvm.clang()).arg("-c").arg(&source).arg("-o").arg(&object).status()?;
        ensure!(status.success(), "clang cannot assemble {}", source.display());
        Ok(Some(object))
    }
}

/// Writes every input to its path in the sandbox. Objects with bitcode are rebuilt first. Returns the objects that take the place of source
/// files, each with the index of the source among the link's arguments.
fn write_inputs(inputs: &LinkInputs, sandbox: &LinkSandbox, mut rebuilder: ObjectRebuilder) -> Result<Vec<(usize, PathBuf)>> {
    let LinkInputs { recipe, contents, .. } = inputs;
    sandbox.create_parents(&sandbox.directory.join("x"))?;
    for (file, bytes) in recipe.files.iter().zip(contents) {
        let path = file.path.to_path();
        sandbox.create_parents(&path)?;
        let bytes = rebuilder.replace_file(&path.display().to_string(), bytes.clone())?;
        fs::write(sandbox.path_of_copy(&path), bytes)?;
    }
    rebuilder.unchanged.iter().for_each(|kept| log::warn!("{kept}"));
    let mut objects = Vec::new();
    for source in &recipe.sources {
        let object = match &source.made {
            BuildProduct::Unit(unit) => {
                let made = Identity::parse(unit).and_then(|u| rebuilder.object_of_unit(u).map(Path::to_owned));
                made.ok_or_else(|| anyhow!("compilation unit {unit} was not compiled"))?
            }
            BuildProduct::Object(content) => {
                let path = sandbox.folder.path().join(format!("source-{}.o", source.at));
                fs::write(&path, RecipeStore::in_cache(&sandbox.context.store()?).content(content)?)?;
                path
            }
        };
        objects.push((source.at, object));
    }
    Ok(objects)
}

fn read_unit(store: &UnitCache, unit: &str) -> Result<Frame> {
    let identity = Identity::parse(unit).ok_or_else(|| {
        anyhow!(
            "the link recipe (the stored link command) is corrupt: `{unit}` is not the name of a compilation unit. Link the program again"
        )
    })?;
    match store.get(identity)? {
        Some(frame) => Ok(frame),
        None => {
            bail!("compilation unit {unit} is missing from the unit cache (folder {}). Build the program again", store.root().display())
        }
    }
}

fn run_link(
    llvm: &LlvmToolchain,
    recipe: &LinkRecipe,
    sandbox: &LinkSandbox,
    line: &CompilerCommandLine,
    request: &Path,
) -> Result<Option<InstrumentedImage>> {
    let clang = llvm.tool(sandbox.context, recipe.driver.tool())?;
    let mut environment: Vec<(OsString, OsString)> = recipe.environment.iter().map(|(k, v)| (k.into(), v.to_os())).collect();
    environment.push((EXPERIMENT_VARIABLE.into(), request.into()));
    let directory = sandbox.path_of_copy(&sandbox.directory);
    let (status, image) = link::run(&link::LinkJob {
        context: sandbox.context,
        clang: &clang,
        arguments: &line.arguments,
        line,
        added: Vec::new(),
        environment,
        directory: Some(&directory),
    })?;
    if !status.success() {
        bail!("the link failed ({status})");
    }
    Ok(image)
}

/// Replaces `$ORIGIN`, which stands for the program's folder in run paths (ld.so(8)), by `origin`.
fn replace_origin(word: &OsStr, origin: &Path) -> OsString {
    const ORIGIN_VARIABLES: [&[u8]; 2] = [b"${ORIGIN}", b"$ORIGIN"];
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(first) = rest.first() {
        match ORIGIN_VARIABLES.iter().find_map(|name| rest.strip_prefix(*name)) {
            Some(after) => {
                bytes.extend(origin.as_os_str().as_bytes());
                rest = after;
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
    fn origin_in_run_paths_is_replaced_once() {
        let word = |text: &str, origin: &str| replace_origin(OsStr::new(text), Path::new(origin)).into_string().unwrap();
        assert_eq!(word("-rpath=${ORIGIN}/a:$ORIGIN", "/p"), "-rpath=/p/a:/p");
        assert_eq!((word("$ORIGIN", "/$ORIGIN/x"), word("-O2", "/p")), ("/$ORIGIN/x".into(), "-O2".into()));
    }
}
