//! Objects rebuilt from the bitcode of their units, with other parameters.
//!
//! One way into LLVM for all: clang compiles the bitcode with optimisation left out (it was done) and the plugin
//! loaded. An object whose symbols would not all come back (it was edited after the compiler, or merged it with
//! assembly) is kept as it is, and the caller learns of it.

use crate::assets;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use crate::context::DriverContext;
use crate::frames::{self, ArchiveMember};
use crate::other_programs::{joined, succeeded};
use crate::toolchain::Tool;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::EXPERIMENT_VARIABLE;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::{CodegenOptions, Frame, Identity, UnitMap};

/// Compiles bitcode through the plugin.
#[derive(Debug)]
pub struct DriverCompiler {
    clang: PathBuf,
    plugin: PathBuf,
    store: PathBuf,
    request: OsString,
}

impl DriverCompiler {
    /// A compiler with the file of a request to the plugin; empty: by default.
    ///
    /// # Errors
    /// Clang, the plugin or the store is missing.
    pub fn new(context: &DriverContext, request: OsString) -> Result<DriverCompiler> {
        let plugin = assets::PLUGIN.find(context)?;
        Ok(DriverCompiler { clang: Tool::Clang.find(context)?, plugin, store: context.store()?.root().to_owned(), request })
    }

    /// Makes an object.
    ///
    /// # Errors
    /// Clang fails; the message is clang's.
    pub fn object(&self, bitcode: &Path, codegen: &CodegenOptions, output: &Path) -> Result<()> {
        self.run(self.command(bitcode, codegen, output), bitcode)
    }

    /// What distinguishes compilers that would make other objects: clang's file as file systems see it (it is large), and
    /// the plugin's content.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn identity(&self) -> Result<Identity> {
        let clang = fs::canonicalize(&self.clang).with_context(|| format!("cannot find {}", self.clang.display()))?;
        let file = fs::metadata(&clang).with_context(|| format!("cannot read {}", clang.display()))?;
        let content = fs::read(&self.plugin).with_context(|| format!("cannot read {}", self.plugin.display()))?;
        let all = format!("{} {} {:?} {}", clang.display(), file.len(), file.modified()?, Identity::from_content(&content));
        Ok(Identity::from_content(all.as_bytes()))
    }

    /// The command that makes an object.
    pub fn command(&self, bitcode: &Path, codegen: &CodegenOptions, output: &Path) -> Command {
        let mut command = Command::new(&self.clang);
        command
            .args(codegen.arguments())
            .args(["-Qunused-arguments", "-Wno-override-module", "-Xclang", "-disable-llvm-passes"])
            .arg(joined("-fpass-plugin=", &self.plugin));
        command.args(["-x", "ir", "-c"]).arg(bitcode).arg("-o").arg(output);
        command.env(CACHE_VARIABLE, &self.store).env(EXPERIMENT_VARIABLE, &self.request).env_remove(SETTINGS_VARIABLE);
        command.env(CODEGEN_VARIABLE, codegen.arguments().join(CODEGEN_SEPARATOR));
        command
    }

    /// Runs it.
    ///
    /// # Errors
    /// Clang fails; the message is clang's.
    pub fn run(&self, mut command: Command, bitcode: &Path) -> Result<()> {
        let made = command.output().with_context(|| format!("cannot run {}", self.clang.display()))?;
        succeeded(made, format_args!("{} cannot be compiled", bitcode.display())).map(drop)
    }
}

/// Objects rebuilt, each unit once.
#[derive(Debug)]
pub struct Rebuilder {
    folder: PathBuf,
    made: HashMap<Identity, PathBuf>,
    scratch: usize,
    /// What was kept as it is, with the reason.
    pub kept: Vec<String>,
}

impl Rebuilder {
    /// Compiles every unit of `frames` again, on all processors.
    ///
    /// # Errors
    /// A unit's bitcode was not kept, or does not compile.
    pub fn compile(context: &DriverContext, compiler: &DriverCompiler, frames: &[Frame], folder: &Path) -> Result<Rebuilder> {
        let mut distinct: Vec<&Frame> = frames.iter().collect();
        distinct.sort_by_key(|f| f.unit);
        distinct.dedup_by_key(|f| f.unit);
        trodden_profile::temporary::create_folders(folder)?;
        on_all_processors(context, &distinct, "units", |frame| compile_unit(compiler, frame, folder))?;
        Ok(Rebuilder::new(distinct.iter().map(|f| (f.unit, object_path(folder, f.unit))).collect(), folder))
    }

    /// Takes objects that were made of units before; `folder` is for what else it has to write.
    pub fn new(made: HashMap<Identity, PathBuf>, folder: &Path) -> Rebuilder {
        Rebuilder { folder: folder.to_owned(), made, scratch: 0, kept: Vec::new() }
    }

    /// The object made of a unit.
    pub fn unit(&self, unit: Identity) -> Option<&Path> {
        self.made.get(&unit).map(PathBuf::as_path)
    }

    /// What takes the place of a file that a link reads.
    ///
    /// # Errors
    /// An archive is damaged, or a tool fails.
    pub fn file(&mut self, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if !frames::is_archive(&bytes) {
            return self.object(name, bytes);
        }
        if frames::of_file(&bytes).is_empty() {
            return Ok(bytes);
        }
        let mut members = Vec::new();
        for member in frames::members(&bytes).with_context(|| format!("the archive {name} is damaged"))? {
            let bytes = self.object(&format!("{name}({})", member.name), member.bytes)?;
            members.push(ArchiveMember { name: member.name, bytes });
        }
        let scratch = self.scratch_folder()?;
        let path = scratch.join("archive.a");
        frames::write_archive(&path, &members, &scratch)?;
        Ok(fs::read(path)?)
    }

    /// What takes the place of an object.
    fn object(&mut self, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let frames = frames::of_object(&bytes);
        let objects: Vec<PathBuf> = frames.iter().filter_map(|f| self.made.get(&f.unit).cloned()).collect();
        let new = match objects.as_slice() {
            [] => return Ok(bytes),
            [one] => fs::read(one)?,
            several => self.merged(several)?,
        };
        let missing: Vec<_> = frames::defined(&bytes)?.difference(&frames::defined(&new)?).cloned().collect();
        if let Some(symbol) = missing.first() {
            let symbol = String::from_utf8_lossy(symbol);
            self.kept.push(format!("{name} stays as it is: it defines `{symbol}`, which its bitcode does not"));
            return Ok(bytes);
        }
        Ok(new)
    }

    /// One object of several, as `ld -r` had made the one that they replace.
    fn merged(&mut self, objects: &[PathBuf]) -> Result<Vec<u8>> {
        let path = self.scratch_folder()?.join("merged.o");
        let made = Command::new("ld").arg("-r").arg("-o").arg(&path).args(objects).output();
        succeeded(made.context("cannot run ld: run `apt-get install binutils`")?, "ld -r fails")?;
        Ok(fs::read(path)?)
    }

    fn scratch_folder(&mut self) -> Result<PathBuf> {
        self.scratch += 1;
        let folder = self.folder.join(format!("scratch-{}", self.scratch));
        trodden_profile::temporary::create_folders(&folder)?;
        Ok(folder)
    }
}

/// Does the same with each item (`what`: their name in the plural), on all processors.
///
/// # Errors
/// It fails for one.
pub fn on_all_processors<T: Sync>(
    context: &DriverContext,
    items: &[T],
    what: &'static str,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let step = (context.progress)(items.len(), what);
    let each = || -> Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item)?;
            step();
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        running.into_iter().try_for_each(|r| r.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn compile_unit(compiler: &DriverCompiler, frame: &Frame, folder: &Path) -> Result<()> {
    let map = frame.map()?;
    let bitcode = folder.join(format!("{}.bc", frame.unit));
    fs::write(&bitcode, frame.bitcode().with_context(|| format!("no other variant of {}", map.source))?)?;
    let made = codegen_of(&map).and_then(|codegen| compiler.object(&bitcode, &codegen, &object_path(folder, frame.unit)));
    made.with_context(|| format!("unit of {}", map.source))?;
    fs::remove_file(&bitcode)?;
    Ok(())
}

/// By which options code is made of a unit again.
///
/// # Errors
/// Its map asks for something else than code generation: it may come from anywhere.
pub fn codegen_of(map: &UnitMap) -> Result<CodegenOptions> {
    Ok(CodegenOptions::from_map(&map.codegen)?)
}

fn object_path(folder: &Path, unit: Identity) -> PathBuf {
    folder.join(format!("{unit}.o"))
}
