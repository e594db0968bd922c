//! Rebuilds objects from the bitcode of their units, with different instrumentation.
//!
//! Clang compiles the bitcode with the plugin and without optimisation, because the bitcode is already optimised. An object may define
//! symbols that its bitcode does not define, because it was edited after compilation or merged with assembly. Such an object is left
//! unchanged and reported to the caller.

use crate::assets;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use crate::context::DriverContext;
use crate::frames::{self, ArchiveMember};
use crate::other_programs::{checked_stdout, option_with_value};
use crate::toolchain::LlvmToolchain;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::EXPERIMENT_VARIABLE;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::tasks::{self, TASKS_VARIABLE, UnitTasks};
use trodden_unit::{CodegenOptions, Frame, Identity, UnitMap};

/// Compiles bitcode with clang and the plugin.
#[derive(Debug)]
pub struct BitcodeCompiler {
    llvm: LlvmToolchain,
    plugin: PathBuf,
    store: PathBuf,
    request: OsString,
}

impl BitcodeCompiler {
    /// Creates a compiler that uses the default LLVM. `request` names the file with the plugin request; an empty name stands for the
    /// default request.
    pub fn new(context: &DriverContext, request: OsString) -> Result<BitcodeCompiler> {
        BitcodeCompiler::with(context, &LlvmToolchain::find(context)?, request)
    }

    /// Creates a compiler that uses this LLVM.
    pub fn with(context: &DriverContext, llvm: &LlvmToolchain, request: OsString) -> Result<BitcodeCompiler> {
        let plugin = assets::check_plugin(context, llvm)?;
        Ok(BitcodeCompiler { llvm: llvm.clone(), plugin, store: context.store()?.root().to_owned(), request })
    }

    /// Compiles bitcode to an object, with the plugin.
    pub fn compile_object(&self, bitcode: &Path, codegen: &CodegenOptions, output: &Path) -> Result<()> {
        self.run(self.command(bitcode, codegen, output), bitcode)
    }

    /// Returns an identity of the compiler. Compilers that generate different objects have different identities, because the identity
    /// depends on the plugin's content and on clang's path, size and modification time. Clang itself is too large to hash.
    pub fn identity(&self) -> Result<Identity> {
        let content = fs::read(&self.plugin).with_context(|| format!("cannot read {}", self.plugin.display()))?;
        let all = format!("{} {}", self.identity_of_clang()?, Identity::from_content(&content));
        Ok(Identity::from_content(all.as_bytes()))
    }

    /// Returns an identity of clang alone, without the plugin (see [`assets::file_identity`]).
    pub fn identity_of_clang(&self) -> Result<Identity> {
        Ok(Identity::from_content(assets::file_identity(self.llvm.clang())?.as_bytes()))
    }

    /// Returns the command that compiles bitcode to an object with the plugin.
    pub fn command(&self, bitcode: &Path, codegen: &CodegenOptions, output: &Path) -> Command {
        let mut command = self.plain_command(bitcode, codegen, output);
        command.arg(option_with_value("-fpass-plugin=", &self.plugin));
        command.env(CACHE_VARIABLE, &self.store).env(EXPERIMENT_VARIABLE, &self.request).env_remove(SETTINGS_VARIABLE);
        command.env(CODEGEN_VARIABLE, codegen.arguments().join(CODEGEN_SEPARATOR));
        command
    }

    /// Checks that no newer LLVM wrote the bitcode, because clang would not always notice that. `name` names the bitcode in the error
    /// message.
    pub fn check_bitcode(&self, bitcode: &[u8], name: &str) -> Result<()> {
        self.llvm.check_bitcode(&bitcode[..bitcode.len().min(BITCODE_BYTES_WITH_VERSION)], OsStr::new(name))
    }

    /// Runs plugin tasks in one clang process, with the working folder `folder`. `name` is a number that makes the names of the process's
    /// temporary files unique.
    pub fn execute(&self, tasks: &UnitTasks, codegen: &CodegenOptions, folder: &Path, name: usize) -> Result<()> {
        let [module, file, object] = [format!("tasks-{name}.ll"), format!("tasks-{name}"), format!("tasks-{name}.o")];
        for (name, content) in [(&module, &b"target triple = \"x86_64-unknown-linux-gnu\"\n"[..]), (&file, &tasks::to_bytes(tasks)[..])] {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut command = self.command(Path::new(&module), codegen, Path::new(&object));
        command.current_dir(folder).env(TASKS_VARIABLE, &file);
        let made = command.output().with_context(|| format!("cannot run {}", self.llvm.clang().display()))?;
        checked_stdout(made, "the units of a Rust crate cannot be compiled").map(drop)
    }

    /// Returns the command that compiles bitcode to an object without the plugin.
    pub fn plain_command(&self, bitcode: &Path, codegen: &CodegenOptions, output: &Path) -> Command {
        let mut command = Command::new(self.llvm.clang());
        command.args(codegen.arguments());
        command.args(["-Qunused-arguments", "-Wno-override-module", "-Xclang", "-disable-llvm-passes"]);
        command.args(["-x", "ir", "-c"]).arg(bitcode).arg("-o").arg(output);
        command
    }

    /// Runs a command that was created by [`BitcodeCompiler::command`] or [`BitcodeCompiler::plain_command`]. Fails if clang fails, or if a
    /// newer LLVM wrote the bitcode, which clang would not always notice.
    pub fn run(&self, mut command: Command, bitcode: &Path) -> Result<()> {
        let path = command.get_current_dir().map_or_else(|| bitcode.to_owned(), |folder| folder.join(bitcode));
        let bytes = read_beginning(&path).with_context(|| format!("cannot read {}", path.display()))?;
        self.llvm.check_bitcode(&bytes, bitcode.as_os_str())?;
        let made = command.output().with_context(|| format!("cannot run {}", self.llvm.clang().display()))?;
        checked_stdout(made, format_args!("{} cannot be compiled", bitcode.display())).map(drop)
    }
}

/// Number of leading bytes of bitcode that suffice to determine its version.
const BITCODE_BYTES_WITH_VERSION: usize = 1024;

fn read_beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BITCODE_BYTES_WITH_VERSION as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the LLVM that can compile all given units: the version that compiled the newest unit, or a newer version. Each unit is given by
/// its source and LLVM version. Fails if no such LLVM is installed; the message names the newest unit.
pub fn llvm_for<'a>(context: &DriverContext, units: impl IntoIterator<Item = (&'a str, u32)>) -> Result<LlvmToolchain> {
    match units.into_iter().max_by_key(|(_, major)| *major) {
        Some((source, major)) => LlvmToolchain::for_bitcode(context, major, &format!("{source} was compiled by")),
        None => LlvmToolchain::find(context),
    }
}

/// Replaces the objects of a link by objects that were compiled from the bitcode of their units.
#[derive(Debug)]
pub struct ObjectRebuilder {
    folder: PathBuf,
    objects: HashMap<Identity, PathBuf>,
    scratch: usize,
    /// Messages about objects that could not be replaced.
    pub unchanged: Vec<String>,
}

impl ObjectRebuilder {
    /// Compiles the unit of each frame, in parallel. Units that occur several times are compiled once. Fails if a unit has no bitcode, or
    /// if its bitcode does not compile.
    pub fn compile(context: &DriverContext, compiler: &BitcodeCompiler, frames: &[Frame], folder: &Path) -> Result<ObjectRebuilder> {
        let mut distinct: Vec<&Frame> = frames.iter().collect();
        distinct.sort_by_key(|f| f.unit);
        distinct.dedup_by_key(|f| f.unit);
        trodden_profile::temporary::create_folders(folder)?;
        for_each_in_parallel(context, &distinct, "units", |frame| compile_unit(compiler, frame, folder))?;
        Ok(ObjectRebuilder::new(distinct.iter().map(|f| (f.unit, object_path(folder, f.unit))).collect(), folder))
    }

    /// Creates a rebuilder for units that are already compiled to `objects`. Temporary files are created in `folder`.
    pub fn new(objects: HashMap<Identity, PathBuf>, folder: &Path) -> ObjectRebuilder {
        ObjectRebuilder { folder: folder.to_owned(), objects, scratch: 0, unchanged: Vec::new() }
    }

    /// Returns the path of the object that was compiled from a unit.
    pub fn object_of_unit(&self, unit: Identity) -> Option<&Path> {
        self.objects.get(&unit).map(PathBuf::as_path)
    }

    /// Returns the rebuilt version of an object or archive. A file without instrumented units is returned unchanged.
    pub fn replace_file(&mut self, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if !frames::is_archive(&bytes) {
            return self.replace_object(name, bytes);
        }
        if frames::frames_in_file(&bytes).is_empty() {
            return Ok(bytes);
        }
        let mut members = Vec::new();
        for member in frames::archive_members(&bytes).with_context(|| format!("the archive {name} is corrupt"))? {
            let bytes = self.replace_object(&format!("{name}({})", member.name), member.bytes)?;
            members.push(ArchiveMember { name: member.name, bytes });
        }
        let scratch = self.scratch_folder()?;
        let path = scratch.join("archive.a");
        frames::write_archive(&path, &members, &scratch)?;
        Ok(fs::read(path)?)
    }

    fn replace_object(&mut self, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let frames = frames::frames_in_object(&bytes);
        let objects: Vec<PathBuf> = frames.iter().filter_map(|f| self.objects.get(&f.unit).cloned()).collect();
        let new = match objects.as_slice() {
            [] => return Ok(bytes),
            [one] => fs::read(one)?,
            several => self.merge_objects(several)?,
        };
        let missing: Vec<_> = frames::defined_symbols(&bytes)?.difference(&frames::defined_symbols(&new)?).cloned().collect();
        if let Some(symbol) = missing.first() {
            let symbol = String::from_utf8_lossy(symbol);
            self.unchanged.push(format!("{name} remains unchanged: it defines `{symbol}`, but its bitcode does not"));
            return Ok(bytes);
        }
        Ok(new)
    }

    /// Merges the objects of several units with `ld -r`, in the same way as the original object was merged.
    fn merge_objects(&mut self, objects: &[PathBuf]) -> Result<Vec<u8>> {
        let path = self.scratch_folder()?.join("merged.o");
        let made = Command::new("ld").arg("-r").arg("-o").arg(&path).args(objects).output();
        checked_stdout(made.context("cannot run ld. Install it with `apt-get install binutils`")?, "ld -r failed")?;
        Ok(fs::read(path)?)
    }

    fn scratch_folder(&mut self) -> Result<PathBuf> {
        self.scratch += 1;
        let folder = self.folder.join(format!("scratch-{}", self.scratch));
        trodden_profile::temporary::create_folders(&folder)?;
        Ok(folder)
    }
}

/// Calls `work` for each item, in parallel, and displays progress. `what` names the items, in the plural.
pub fn for_each_in_parallel<T: Sync>(
    context: &DriverContext,
    items: &[T],
    what: &'static str,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let step = (context.progress)(items.len(), what);
    map_in_parallel(items, |item| work(item).map(|()| step())).map(drop)
}

/// Calls `work` for each item, in parallel, and returns the results in the order of the items.
pub fn map_in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let each = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(done) };
            done.push((at, work(item)?));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut done = Vec::with_capacity(items.len());
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        running.into_iter().try_for_each(|r| {
            done.extend(r.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            anyhow::Ok(())
        })
    })?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn compile_unit(compiler: &BitcodeCompiler, frame: &Frame, folder: &Path) -> Result<()> {
    let map = frame.map()?;
    let bitcode = folder.join(format!("{}.bc", frame.unit));
    fs::write(&bitcode, frame.bitcode().with_context(|| format!("cannot rebuild the object file of {}", map.source))?)?;
    let made = codegen_options(&map).and_then(|codegen| compiler.compile_object(&bitcode, &codegen, &object_path(folder, frame.unit)));
    made.with_context(|| format!("cannot compile the code of {}", map.source))?;
    fs::remove_file(&bitcode)?;
    Ok(())
}

/// Returns a unit's code generation options. Fails if the map contains an option that is not on the list of permitted options, because maps
/// may come from untrusted programs.
pub fn codegen_options(map: &UnitMap) -> Result<CodegenOptions> {
    Ok(CodegenOptions::from_map(&map.codegen)?)
}

fn object_path(folder: &Path, unit: Identity) -> PathBuf {
    folder.join(format!("{unit}.o"))
}
