//! Links with clang, adds the runtime object, and stores a link recipe, from which variants of the program can be linked later.
//!
//! The recipe needs the files that the link reads. GNU ld, gold, lld and mold list them (`--dependency-file`). Files that only options
//! name, such as version scripts and lists of symbols, are found in the arguments.

use crate::assets;
use crate::cc::arguments::{CompilerCommandLine, CompilerInputKind};
use crate::compile_step::{SourceLanguage, insert_arguments};
use crate::context::DriverContext;
use crate::events::{self, DriverEvent};
use crate::experiment::read_request;
use crate::frames;
use crate::other_programs::{checked_stdout, option_with_value};
use crate::recipe::{BuildProduct, FileInput, LinkRecipe, RecipeStore, SCHEMA_VERSION, SourceInput};
use crate::toolchain::LlvmToolchain;
use anyhow::{Context, Result, anyhow, bail};
use object::{Object, ObjectSection};
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use trodden_text::words::reasons;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, Keep, PluginRequest};
use trodden_unit::{Identity, InstrumentedImage, UnitCache};

#[derive(Debug)]
pub struct LinkJob<'a> {
    pub context: &'a DriverContext,
    pub clang: &'a Path,
    pub arguments: &'a [OsString],
    pub line: &'a CompilerCommandLine,
    /// Arguments to add if the link command also compiles sources.
    pub added: Vec<OsString>,
    /// Environment variables to set if the link command also compiles sources.
    pub environment: Vec<(OsString, OsString)>,
    /// Folder in which the link runs; `None` for the working folder.
    pub directory: Option<&'a Path>,
}

impl LinkJob<'_> {
    /// Resolves a path from the command line or from the linker's output, which may be relative to the folder of the link.
    fn resolve(&self, file: impl AsRef<Path>) -> PathBuf {
        self.directory.map_or_else(|| file.as_ref().to_owned(), |directory| directory.join(&file))
    }

    /// Creates a command that runs clang in the folder of the link.
    fn clang(&self) -> Command {
        let mut command = Command::new(self.clang);
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        command
    }
}

/// Maximum total size of all counters in bytes, because code addresses them with signed 32-bit offsets.
const MAX_COUNTER_BYTES: u64 = 1 << 31;

const LINK_VARIABLES: &[&str] =
    &["LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH", "GNUTARGET", "LDEMULATION"];

/// Runs the link, stores the recipe, and returns clang's exit status.
pub fn drive(job: &LinkJob) -> Result<ExitCode> {
    let (status, image) = run(job)?;
    if let Some(image) = image {
        warn_about_other_options(job, &image)?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

/// Warns if units of an image were compiled with counting options that differ from those given explicitly for the link. Such units come
/// from compiler caches, which ignore trodden's options, or from build folders that were used before.
fn warn_about_other_options(job: &LinkJob, image: &InstrumentedImage) -> Result<()> {
    if request_file(job).is_none_or(|file| file.is_empty()) {
        return Ok(());
    }
    let own = request_of_sources(job)?.experiment;
    let maps: Vec<_> = image.frames.iter().filter_map(|frame| frame.map().ok()).collect();
    let mut others = maps.iter().filter(|map| map.experiment != own);
    let Some(first) = others.next() else { return Ok(()) };
    let (own, other) = (own.to_string(), first.experiment.to_string());
    let only_in = |one: &str, two: &str| {
        let words: Vec<&str> = one.split(' ').filter(|word| !two.split(' ').any(|other| other == *word)).collect();
        if words.is_empty() { "no further options".to_owned() } else { words.join(" ") }
    };
    let more = match others.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    log::warn!(
        "{}{more}, in {}, was compiled with different counting options ({}) than this link step uses ({}). Compile it again, and keep a \
         separate build folder (for ccache: a separate CCACHE_NAMESPACE) for each set of options",
        first.source,
        Path::new(job.line.image()).display(),
        only_in(&other, &own),
        only_in(&own, &other)
    );
    Ok(())
}

/// Links and stores the recipe. Returns clang's exit status, and the image if the link succeeded and the image contains instrumented code.
pub fn run(job: &LinkJob) -> Result<(ExitStatus, Option<InstrumentedImage>)> {
    let (store, request) = (job.context.store()?, request_of_sources(job)?);
    let folder = job.context.folder("trodden-link-")?;
    let dependencies = folder.path().join("dependencies.d");
    fs::write(&dependencies, "").with_context(|| format!("cannot write {}", dependencies.display()))?;
    let listed = dependency_file(job.line, &dependencies);
    let mut added = job.added.clone();
    let dependencies = listed.as_deref().filter(|_| job.line.dependency_file.is_none());
    added.extend(link_options(job.line, &store, dependencies, request.has_no_counters())?);
    let path = job.resolve(job.line.image());
    let status = match must_define_start_symbol(job.line) && !request.has_no_counters() {
        true => link_with_entry(job, &added, &assets::start_object(&store)?)?,
        false => linker_command(job, &added).status().with_context(|| cannot_run_message(job))?,
    };
    if !status.success() {
        explain_link_failure(job);
        return Ok((status, None));
    }
    let image = read_image(&path);
    if let Some(image) = &image
        // Variants are made from bitcode, so without bitcode no recipe is needed.
        && request.keep == Keep::Bitcode
        && let Err(error) = store_recipe(job, &store, image, listed.as_deref())
    {
        log::warn!(
            "cannot store how {} was linked, so `trodden instrument` cannot make variants of it: {}",
            Path::new(job.line.image()).display(),
            reasons(error.chain().map(ToString::to_string))
        );
    }
    events::append_event(job.context, &DriverEvent::linked(&std::path::absolute(path)?, image.as_ref()));
    Ok((status, image))
}

/// Explains a failed link if the reason is that the counters are too large to address, which linkers report as thousands of relocation
/// errors.
fn explain_link_failure(job: &LinkJob) {
    let files = job.line.inputs_of(CompilerInputKind::Linkable).filter_map(|file| fs::read(job.resolve(file)).ok());
    let bytes: u64 = files.map(|bytes| frames::total_counter_bytes(&bytes)).sum();
    if bytes >= MAX_COUNTER_BYTES {
        log::error!(
            "the counters of {} need {:.1} GiB, but its code can address less than 2 GiB. Build with a smaller table-slots=N in \
             TRODDEN_INSTRUMENT, or omit table-slots",
            Path::new(job.line.image()).display(),
            bytes as f64 / f64::from(1 << 30)
        );
    }
}

fn linker_command(job: &LinkJob, added: &[OsString]) -> Command {
    let mut command = job.clang();
    command.args(insert_arguments(job.arguments, added)).envs(job.environment.iter().map(|(k, v)| (k, v)));
    command
}

fn cannot_run_message(job: &LinkJob) -> String {
    format!("cannot run {}", job.clang.display())
}

/// Links an executable that has its own `_start`, so that trodden's entry point sets up thread-local storage before `_start` runs. The
/// entry object refers to `_start` weakly, so `-u` is needed to make the linker search archives for it. If nothing defines `_start`, the
/// program is linked again without the entry object, and the linker warns and chooses an entry point itself.
fn link_with_entry(job: &LinkJob, added: &[OsString], object: &Path) -> Result<ExitStatus> {
    let image = &job.resolve(job.line.image());
    let entry: [OsString; 3] = ["-Xlinker".into(), object.into(), format!("-Wl,-e,{}", assets::START_SYMBOL).into()];
    let entered = [added, &entry].concat();
    let status = linker_command(job, &entered).status().with_context(|| cannot_run_message(job))?;
    if !status.success() || has_start_symbol(image) {
        return Ok(status);
    }
    let pulled =
        linker_command(job, &[&entered[..], &["-Wl,-u,_start".into()]].concat()).output().with_context(|| cannot_run_message(job))?;
    if pulled.status.success() && has_start_symbol(image) {
        return Ok(pulled.status);
    }
    linker_command(job, added).status().with_context(|| cannot_run_message(job))
}

fn link_options(
    line: &CompilerCommandLine,
    store: &UnitCache,
    dependencies: Option<&Path>,
    without_runtime: bool,
) -> Result<Vec<OsString>> {
    let mut added: Vec<OsString> = Vec::new();
    if !without_runtime {
        // `-Xlinker` keeps a preceding `-x LANGUAGE` from turning the runtime into a source file.
        added.extend(["-Xlinker".into(), assets::runtime_object(store)?.into()]);
    }
    if !line.build_id {
        added.push("-Wl,--build-id".into());
    }
    if is_lld(line) {
        // During garbage collection, lld removes sections to which only `__start_...` symbols refer, unless this option is given. Other
        // linkers keep such sections.
        added.push("-Wl,-z,nostart-stop-gc".into());
    }
    if let Some(file) = dependencies {
        added.extend(["-Xlinker".into(), option_with_value("--dependency-file=", file)]);
    }
    Ok(added)
}

/// Returns true if the command links an executable without libc's start files. Such an executable must define `_start` itself.
fn must_define_start_symbol(line: &CompilerCommandLine) -> bool {
    line.without_start_files && !line.shared && !line.entry
}

/// Returns true if `_start` is defined in an image that was linked with the entry object.
fn has_start_symbol(image: &Path) -> bool {
    let Ok(bytes) = fs::read(image) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    let section = file.section_by_name(assets::START_SECTION);
    section.and_then(|s| s.data().ok()).is_some_and(|data| data.iter().any(|byte| *byte != 0))
}

fn linker_name(line: &CompilerCommandLine) -> &OsStr {
    line.linker.as_deref().map_or(OsStr::new("bfd"), |l| Path::new(l).file_name().unwrap_or(l))
}

fn is_lld(line: &CompilerCommandLine) -> bool {
    linker_name(line).to_string_lossy().contains("lld")
}

/// Returns the file in which the linker lists its inputs: the user's, if any, or else `own`. Returns `None` if the linker is not known to
/// support such lists.
fn dependency_file(line: &CompilerCommandLine, own: &Path) -> Option<PathBuf> {
    if let Some(file) = &line.dependency_file {
        return Some(file.into());
    }
    let name = linker_name(line).to_string_lossy();
    let name = name.strip_prefix("ld.").unwrap_or(&name);
    let known = ["bfd", "ld", "gold", "mold"].contains(&name) || name.contains("lld");
    known.then(|| own.to_owned())
}

/// Reads an image. Returns `None` if the file is not an image or contains no instrumented code.
fn read_image(path: &Path) -> Option<InstrumentedImage> {
    if !path.is_file() {
        return None;
    }
    InstrumentedImage::read(&fs::read(path).ok()?).ok()
}

fn request_of_sources(job: &LinkJob) -> Result<PluginRequest> {
    read_request(request_file(job).as_deref())
}

/// Returns the name of the file with the plugin request for this link. `None` or an empty name stands for the default request.
fn request_file(job: &LinkJob) -> Option<OsString> {
    let own = job.environment.iter().rfind(|(name, _)| name == EXPERIMENT_VARIABLE).map(|(_, file)| file.clone());
    own.or_else(|| job.context.variable(EXPERIMENT_VARIABLE).map(OsStr::to_owned))
}

fn store_recipe(job: &LinkJob, store: &UnitCache, image: &InstrumentedImage, listed: Option<&Path>) -> Result<()> {
    let listed = listed.ok_or_else(|| {
        anyhow!("the inputs of the link are unknown, because linker `{}` does not list them", linker_name(job.line).display())
    })?;
    let directory = job.directory.map_or_else(|| job.context.directory(), Ok)?;
    let recipes = RecipeStore::in_cache(store);
    let paths = find_user_files(job, &fs::read(job.resolve(listed))?, directory);
    let mut files = Vec::new();
    let mut known = HashSet::new();
    for path in &paths {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let bytes = frames::expand_thin_archive(job.context, path, bytes)?;
        known.extend(frames::frames_in_file(&bytes).iter().map(|f| f.unit));
        // rustc and cargo replace their libraries but never modify them in place, so a hard link is as good as a copy.
        let is_of_rust = path.extension().is_some_and(|ending| ending == "rlib");
        let content = if is_of_rust { recipes.put_file(path, &bytes)? } else { recipes.store_content(&bytes)? };
        files.push(FileInput { path: path.as_os_str().into(), content });
    }
    let recipe = LinkRecipe {
        schema_version: SCHEMA_VERSION,
        driver: if job.clang.to_string_lossy().contains("++") { SourceLanguage::Cxx } else { SourceLanguage::C },
        arguments: job.line.arguments.iter().map(|w| w.as_os_str().into()).collect(),
        directory: directory.as_os_str().into(),
        environment: LINK_VARIABLES.iter().filter_map(|n| job.context.variable(n).map(|v| ((*n).to_owned(), v.into()))).collect(),
        sources: if job.line.compiles { compiled_sources(job, store, &recipes, image, &known)? } else { assembly_sources(job, &recipes)? },
        files,
    };
    recipes.put(image, &recipe)
}

/// Returns the files that the link read, except system files.
fn find_user_files(job: &LinkJob, listed: &[u8], directory: &Path) -> BTreeSet<PathBuf> {
    let line = job.line;
    let named = line.arguments.iter().flat_map(|argument| possible_file_names(argument));
    let sources: HashSet<usize> = line.inputs.iter().filter(|i| i.kind != CompilerInputKind::Linkable).map(|i| i.index).collect();
    let not_inputs: HashSet<&OsStr> =
        sources.iter().map(|at| line.arguments[*at].as_os_str()).chain([line.image()]).chain(line.dependency_file.as_deref()).collect();
    let named = named.filter(|n| !not_inputs.contains(n));
    let all = parse_dependencies(listed, directory).into_iter().chain(named.map(PathBuf::from));
    all.map(|path| directory.join(path)).filter(|path| path.is_file() && !is_system_file(job.context, path)).collect()
}

/// Returns all parts of an argument that may be file names: the argument itself, its parts between commas, and the text after a `=` or
/// `-T`.
pub fn possible_file_names(argument: &OsStr) -> Vec<&OsStr> {
    let parts = argument.as_bytes().split(|b| *b == b',');
    let values = parts.clone().filter_map(|p| p.iter().position(|b| *b == b'=').map(|at| &p[at + 1..]));
    let joined = argument.as_bytes().strip_prefix(b"-T");
    std::iter::once(argument.as_bytes()).chain(parts.clone().skip(1)).chain(values).chain(joined).map(OsStr::from_bytes).collect()
}

/// Parses a dependency file, in which each line after the first names one file. lld escapes some characters, such as blanks; GNU ld does
/// not.
fn parse_dependencies(listed: &[u8], directory: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for line in listed.split(|b| *b == b'\n').skip(1).take_while(|l| l.starts_with(b" ")) {
        let name = line.strip_suffix(b" \\").unwrap_or(line).trim_ascii_start();
        let plain = PathBuf::from(OsStr::from_bytes(name));
        out.push(if directory.join(&plain).exists() { plain } else { unescape(name) });
    }
    out
}

fn unescape(name: &[u8]) -> PathBuf {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < name.len() {
        let escaped = matches!(&name[at..], [b'\\', b' ' | b'#' | b'\\', ..] | [b'$', b'$', ..]);
        at += usize::from(escaped);
        out.push(name[at]);
        at += 1;
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

/// Returns true if a file belongs to the system, LLVM, the Rust toolchain or trodden's runtime. Such files are not stored; when a variant
/// is linked, they are read from their original location.
pub fn is_system_file(context: &DriverContext, path: &Path) -> bool {
    const SYSTEM_FOLDERS: &[&str] =
        &["/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/lib", "/lib32", "/lib64", "/libx32", "/usr/share", "/dev", "/proc"];
    let llvm = || LlvmToolchain::find(context).ok().and_then(|llvm| llvm.root());
    let ours = context.store().is_ok_and(|s| path.starts_with(s.root().join("runtime")));
    ours || SYSTEM_FOLDERS.iter().any(|s| path.starts_with(s))
        || path.to_string_lossy().contains("/lib/rustlib/")
        || llvm().is_some_and(|root| path.starts_with(root))
}

/// Returns the results of compiling the sources on the command line of a link. Normally, these are the units of the image that no input
/// file contains. A source without such a unit is compiled a second time, to an object.
fn compiled_sources(
    job: &LinkJob,
    store: &UnitCache,
    recipes: &RecipeStore,
    image: &InstrumentedImage,
    known: &HashSet<Identity>,
) -> Result<Vec<SourceInput>> {
    let own = |unit: &Identity| !known.contains(unit);
    let mut units = Vec::new();
    for unit in image.units.iter().map(|p| p.unit).filter(own) {
        if let Some(frame) = image.frame(unit, Some(store))? {
            units.push((frame.map()?.source, frame));
        }
    }
    let mut out = Vec::new();
    for input in job.line.inputs.iter().filter(|i| i.kind != CompilerInputKind::Linkable) {
        let name = job.line.arguments[input.index].to_string_lossy();
        let made = match units.iter().find(|(source, _)| *source == name).filter(|_| input.kind == CompilerInputKind::Source) {
            Some((_, frame)) => {
                store.put(frame)?;
                BuildProduct::Unit(frame.unit.to_string())
            }
            None => BuildProduct::Object(compile_object(job, recipes, input.index)?),
        };
        out.push(SourceInput { at: input.index, made });
    }
    Ok(out)
}

/// Assembles the assembly sources of a link command that compiles no other sources.
fn assembly_sources(job: &LinkJob, recipes: &RecipeStore) -> Result<Vec<SourceInput>> {
    let assembly = job.line.inputs.iter().filter(|i| i.kind == CompilerInputKind::Assembly);
    assembly.map(|i| Ok(SourceInput { at: i.index, made: BuildProduct::Object(compile_object(job, recipes, i.index)?) })).collect()
}

/// Compiles the source at index `at` of the link's arguments and stores the object. Returns the name under which the object is stored.
fn compile_object(job: &LinkJob, recipes: &RecipeStore, at: usize) -> Result<String> {
    let source = &job.line.arguments[at];
    if source == "-" {
        bail!("source code that clang read from standard input was compiled without instrumentation. Compile it from a file");
    }
    let folder = job.context.folder("trodden-object-")?;
    let object = folder.path().join("object.o");
    let others: HashSet<usize> = job.line.inputs.iter().map(|i| i.index).filter(|other| *other != at).collect();
    let arguments = arguments_for_compilation(&job.line.arguments, &others);
    let mut command = job.clang();
    command.args(arguments).args(&job.added).args(["-c", "-Qunused-arguments", "-o"]).arg(&object).stdin(Stdio::null());
    let output = command.envs(job.environment.iter().map(|(k, v)| (k, v))).output()?;
    checked_stdout(output, format_args!("{} cannot be compiled a second time", source.display()))?;
    recipes.store_content(&fs::read(object)?)
}

/// Returns the arguments for compiling without linking: `-o`, linker options, and the inputs at the indices `left_out` are omitted.
fn arguments_for_compilation(arguments: &[OsString], left_out: &HashSet<usize>) -> Vec<OsString> {
    let mut out = Vec::new();
    let mut skip_value = false;
    for (at, argument) in arguments.iter().enumerate() {
        if std::mem::take(&mut skip_value) || left_out.contains(&at) || argument.as_bytes().starts_with(b"-Wl,") {
            continue;
        }
        match argument.as_bytes() {
            b"-o" => skip_value = true,
            other if other.starts_with(b"-o") => {}
            b"--" => {}
            _ => out.push(argument.clone()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_files_of_gnu_ld_and_lld_are_parsed() {
        let gnu = b"prog: \\\n  /lib/crt1.o \\\n  a b.o \\\n  c.o\n\n/lib/crt1.o:\n";
        assert_eq!(parse_dependencies(gnu, Path::new("")), ["/lib/crt1.o", "a b.o", "c.o"].map(PathBuf::from));
        let lld = b"prog: \\\n /lib/crt1.o \\\n a\\ b.o \\\n c$$.o\n\n/lib/crt1.o:\n";
        assert_eq!(parse_dependencies(lld, Path::new("")), ["/lib/crt1.o", "a b.o", "c$.o"].map(PathBuf::from));
    }

    #[test]
    fn file_names_are_found_inside_arguments() {
        let names = |w: &'static str| possible_file_names(OsStr::new(w)).into_iter().map(|n| n.to_str().unwrap()).collect::<Vec<_>>();
        assert!(names("-Wl,--version-script=lib.map").contains(&"lib.map"));
        assert!(names("-Wl,--version-script,lib.map").contains(&"lib.map"));
        assert!(names("-Tlayout.ld").contains(&"layout.ld"));
        assert!(names("a.o").contains(&"a.o"));
    }
}
