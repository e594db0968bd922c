//! Builds crate by crate: the objects of each crate are replaced by instrumented ones when it is compiled, so that cargo caches
//! instrumented libraries, and the last link is an ordinary one.
//!
//! Compiled bitcode is cached by its content, the request, the compilers and the code-generation options.

use super::CONFIGURATION_VARIABLE;
use super::job::Job;
use crate::assets::{self, TEMPORARY_PREFIX};
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use crate::context::DriverContext;
use crate::experiment;
use crate::other_programs::succeeded;
use crate::rebuild::{DriverCompiler, in_parallel};
use crate::store_size::CRATES;
use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::whole_file;
use trodden_unit::{CodegenOptions, Identity};

/// First bytes of bitcode.
const BITCODE: &[u8] = b"BC\xC0\xDE";
/// Ending of the names of rustc's objects.
const OBJECT: &str = ".rcgu.o";
/// Part of the names of objects with a crate's code, as opposed to the shim of the allocator.
const CODE: &str = "-cgu.";

/// Compiles bitcode of crates to objects in the cache.
struct CrateCompiler {
    compiler: DriverCompiler,
    codegen: CodegenOptions,
    /// The part of the key that all objects share.
    shared: String,
    cache: PathBuf,
}

impl CrateCompiler {
    fn new(context: &DriverContext, codegen: Vec<String>) -> Result<CrateCompiler> {
        let compiler = DriverCompiler::new(context, experiment::variable_for_plugin(context).into())?;
        let way = context.variable(CONFIGURATION_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
        let shared = format!("{way} {} {}", compiler.identity_of_clang()?, codegen.join(CODEGEN_SEPARATOR));
        let cache = context.store()?.root().join(CRATES);
        Ok(CrateCompiler { compiler, codegen: CodegenOptions::from_command_line(codegen), shared, cache })
    }

    /// Returns the object of some bitcode, which is compiled in `folder` unless it is cached.
    fn object(&self, bitcode: &[u8], is_counted: bool, folder: &Path) -> Result<PathBuf> {
        let key = format!("{} {is_counted} {}", Identity::from_content(bitcode), self.shared);
        let key = Identity::from_content(key.as_bytes()).to_string();
        let path = self.cache.join(&key[..2]).join(format!("{key}.o"));
        if path.is_file() {
            return Ok(path);
        }
        let [module, object] = ["bc", "o"].map(|end| folder.join(format!("{key}.{end}")));
        fs::write(&module, bitcode).with_context(|| format!("cannot write {}", module.display()))?;
        let command = match is_counted {
            true => self.compiler.command(&module, &self.codegen, &object),
            false => self.compiler.plain_command(&module, &self.codegen, &object),
        };
        self.compiler.run(command, &module)?;
        let bytes = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
        whole_file::write_again(&path, TEMPORARY_PREFIX, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        fs::remove_file(&module).and_then(|()| fs::remove_file(&object)).context("cannot remove temporary files")?;
        Ok(path)
    }
}

/// An object of rustc's that is to be replaced.
struct RustObject {
    name: String,
    bitcode: Vec<u8>,
    /// False for the shim of the allocator.
    is_counted: bool,
}

impl RustObject {
    /// Returns the object of this name in `folder`, or in an archive there. `None` if it is machine code without bitcode beside it.
    fn new(name: &str, content: Vec<u8>, folder: &Path) -> Result<Option<RustObject>> {
        let is_counted = name.contains(CODE);
        if content.starts_with(BITCODE) {
            return Ok(Some(RustObject { name: name.to_owned(), bitcode: content, is_counted }));
        }
        if !is_counted {
            return Ok(None);
        }
        let Some(module) = bitcode_beside(name, folder) else { return Ok(None) };
        let bitcode = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
        Ok(Some(RustObject { name: name.to_owned(), bitcode, is_counted }))
    }
}

/// Returns the file in which rustc wrote the bitcode of an object, which is named after the crate if it is the only one.
fn bitcode_beside(object: &str, folder: &Path) -> Option<PathBuf> {
    let crate_name = object.split('.').next().unwrap_or_default();
    let names = [format!("{}.bc", object.strip_suffix(".o")?), format!("{crate_name}.bc")];
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Compiles objects in parallel, and returns their files.
fn compile(context: &DriverContext, compiler: &CrateCompiler, objects: &[RustObject]) -> Result<Vec<PathBuf>> {
    let folder = context.folder("trodden-rust-")?;
    in_parallel(objects, |object| compiler.object(&object.bitcode, object.is_counted, folder.path()))
}

/// Replaces the crate's own objects in its archives by instrumented ones.
pub fn instrument_archives(context: &DriverContext, job: &Job) -> Result<()> {
    let archives = job.archives();
    if archives.is_empty() {
        return Ok(());
    }
    let compiler = CrateCompiler::new(context, job.codegen.arguments())?;
    archives.iter().try_for_each(|archive| {
        instrument_archive(context, job, &compiler, archive).with_context(|| format!("cannot instrument {}", archive.display()))
    })
}

fn instrument_archive(context: &DriverContext, job: &Job, compiler: &CrateCompiler, archive: &Path) -> Result<()> {
    let bytes = fs::read(archive)?;
    let own = format!("{}{}.", job.name, job.extra);
    let mut objects = Vec::new();
    for member in ArchiveFile::parse(&*bytes)?.members() {
        let member = member?;
        let name = String::from_utf8_lossy(member.name());
        if name.starts_with(&own) && name.ends_with(OBJECT) {
            objects.extend(RustObject::new(&name, member.data(&*bytes)?.to_vec(), &job.folder)?);
        }
    }
    let folder = context.folder("trodden-archive-")?;
    let mut members = Vec::new();
    for (object, compiled) in objects.iter().zip(compile(context, compiler, &objects)?) {
        let member = folder.path().join(&object.name);
        fs::copy(&compiled, &member).with_context(|| format!("cannot copy {}", compiled.display()))?;
        members.push(member);
    }
    if archive.extension() == Some(OsStr::new("a")) {
        // Programs that are linked by other compilers find the runtime in the archive.
        members.push(assets::runtime_object(&context.store()?)?);
    }
    if members.is_empty() {
        return Ok(());
    }
    // Cargo's processes must never see an incomplete library.
    let new = archive.with_extension("trodden");
    fs::write(&new, &bytes)?;
    let made = Command::new("ar").arg("rD").arg(&new).args(&members).output().context("cannot run ar: run `apt-get install binutils`")?;
    succeeded(made, "ar cannot replace its objects")?;
    Ok(fs::rename(&new, archive)?)
}

/// Removes the bitcode that rustc wrote for this job.
pub fn remove_bitcode(job: &Job) -> Result<()> {
    let (one, several) = (format!("{}{}.bc", job.name, job.extra), format!("{}{}.", job.name, job.extra));
    for entry in fs::read_dir(&job.folder).with_context(|| format!("cannot read {}", job.folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == one || (name.starts_with(&several) && name.ends_with(".rcgu.bc")) {
            fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Replaces rustc's objects among the arguments of a link by instrumented ones.
pub fn replace_objects(context: &DriverContext, arguments: &mut Vec<OsString>) -> Result<()> {
    // These are for objects with bitcode, which no longer exist.
    arguments.retain(|argument| !argument.to_string_lossy().starts_with("-Wl,-plugin-opt="));
    let kept = context.variable(CODEGEN_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
    let compiler = CrateCompiler::new(context, kept.split(CODEGEN_SEPARATOR).map(str::to_owned).collect())?;
    let (mut objects, mut places) = (Vec::new(), Vec::new());
    for (at, argument) in arguments.iter().enumerate() {
        let path = Path::new(argument);
        let Some(name) = path.file_name().and_then(OsStr::to_str).filter(|name| name.ends_with(OBJECT)) else { continue };
        let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(object) = RustObject::new(name, content, path.parent().unwrap_or(Path::new("")))? {
            objects.push(object);
            places.push(at);
        }
    }
    if !objects.iter().any(|object| object.is_counted) {
        bail!("rustc wrote no bitcode for what it links: trodden does not support this version of rustc");
    }
    for (at, compiled) in places.into_iter().zip(compile(context, &compiler, &objects)?) {
        arguments[at] = compiled.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcode_lies_beside_its_object() {
        let folder = tempfile::tempdir().unwrap();
        let find = |object: &str| bitcode_beside(object, folder.path()).map(|path| path.file_name().unwrap().to_owned());
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), None);
        fs::write(folder.path().join("x-ab12.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.bc".into()));
        fs::write(folder.path().join("x-ab12.x.c0de-cgu.0.rcgu.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.x.c0de-cgu.0.rcgu.bc".into()));
    }

    #[test]
    fn shim_of_the_allocator_is_compiled_but_not_counted() {
        let folder = Path::new("/nowhere");
        let of = |name: &str, content: &[u8]| RustObject::new(name, content.to_vec(), folder).unwrap().map(|object| object.is_counted);
        assert_eq!(of("x-ab12.x.c0de-cgu.0.rcgu.o", b"BC\xC0\xDE1"), Some(true));
        assert_eq!(of("x-ab12.7thi4.rcgu.o", b"BC\xC0\xDE1"), Some(false));
        assert_eq!((of("x-ab12.7thi4.rcgu.o", b"\x7fELF"), of("x-ab12.x.c0de-cgu.0.rcgu.o", b"\x7fELF")), (None, None));
    }
}
