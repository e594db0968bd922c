//! Instruments Rust programs crate by crate: after rustc has compiled a crate, the crate's objects are replaced by instrumented ones. Cargo
//! therefore caches instrumented libraries, and the final link is an ordinary link.
//!
//! The cache key of compiled bitcode consists of the bitcode's content, the request, the compilers and the code generation options.

use super::compiler::CrateCompiler;
use super::job::{CrateJob, can_divide_crate};
use super::objects::{BITCODE_MAGIC, OBJECT_SUFFIX, RustObject};
use super::{STD_VARIABLE, units};
use crate::assets::{self, TEMPORARY_PREFIX};
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use crate::context::DriverContext;
use crate::other_programs::checked_stdout;
use crate::rebuild::map_in_parallel;
use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::atomic_file;
use trodden_unit::Identity;

fn compile(context: &DriverContext, compiler: &CrateCompiler, objects: &[RustObject]) -> Result<Vec<PathBuf>> {
    let folder = context.folder("trodden-rust-")?;
    if compiler.is_unoptimised() && can_divide_crate(context)? {
        return units::compile(compiler, objects, folder.path());
    }
    map_in_parallel(objects, |object| compiler.compile_object(&object.bitcode, object.is_counted, folder.path()))
}

pub fn instrument_archives(context: &DriverContext, job: &CrateJob) -> Result<()> {
    let archives = job.archives();
    if archives.is_empty() {
        return Ok(());
    }
    let compiler = CrateCompiler::new(context, job.codegen.arguments())?;
    archives.iter().try_for_each(|archive| {
        instrument_archive(context, job, &compiler, archive)
            .with_context(|| format!("cannot instrument the Rust library {}", archive.display()))
    })
}

fn instrument_archive(context: &DriverContext, job: &CrateJob, compiler: &CrateCompiler, archive: &Path) -> Result<()> {
    let bytes = fs::read(archive)?;
    let own = format!("{}{}.", job.name, job.extra);
    let mut objects = Vec::new();
    for member in ArchiveFile::parse(&*bytes)?.members() {
        let member = member?;
        let name = String::from_utf8_lossy(member.name());
        if name.starts_with(&own) && name.ends_with(OBJECT_SUFFIX) {
            objects.extend(RustObject::new(&name, member.data(&*bytes)?.to_vec(), &job.folder)?);
        }
    }
    let mut extra_members = Vec::new();
    if archive.extension() == Some(OsStr::new("a")) {
        // A different compiler may link the program, so the archive itself must contain the runtime.
        extra_members.push(assets::runtime_object(&context.store()?)?);
    }
    if objects.is_empty() && extra_members.is_empty() {
        return Ok(());
    }
    // The library is replaced atomically, because other cargo processes may read it at any time.
    let instrumented = replace_archive_members(context, compiler, &bytes, &objects, extra_members)?;
    Ok(atomic_file::write_unsynced(archive, TEMPORARY_PREFIX, &instrumented)?)
}

/// Compiles `objects` and replaces the archive members with the same names by the results. Also appends the files `extra_members`. Returns
/// the new archive.
fn replace_archive_members(
    context: &DriverContext,
    compiler: &CrateCompiler,
    archive: &[u8],
    objects: &[RustObject],
    extra_members: Vec<PathBuf>,
) -> Result<Vec<u8>> {
    let folder = context.folder("trodden-archive-")?;
    let new = folder.path().join("archive");
    fs::write(&new, archive).with_context(|| format!("cannot write {}", new.display()))?;
    let mut members = Vec::new();
    for (object, compiled) in objects.iter().zip(compile(context, compiler, objects)?) {
        let member = folder.path().join(&object.name);
        fs::copy(&compiled, &member).with_context(|| format!("cannot copy {}", compiled.display()))?;
        members.push(member);
    }
    members.extend(extra_members);
    let made = Command::new("ar").arg("rD").arg(&new).args(&members).output();
    checked_stdout(made.context("cannot run ar. Install it with `apt-get install binutils`")?, "ar cannot replace its objects")?;
    fs::read(&new).with_context(|| format!("cannot read {}", new.display()))
}

pub fn remove_bitcode_from_archives(job: &CrateJob) -> Result<()> {
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

pub fn replace_object_arguments(context: &DriverContext, arguments: &mut Vec<OsString>) -> Result<()> {
    // Options for the linker plugin apply only to objects with bitcode, all of which are replaced.
    arguments.retain(|argument| !argument.to_string_lossy().starts_with("-Wl,-plugin-opt="));
    let kept = context.variable(CODEGEN_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
    let compiler = CrateCompiler::new(context, kept.split(CODEGEN_SEPARATOR).map(str::to_owned).collect())?;
    let (mut objects, mut places) = (Vec::new(), Vec::new());
    for (at, argument) in arguments.iter().enumerate() {
        let path = Path::new(argument);
        let Some(name) = path.file_name().and_then(OsStr::to_str).filter(|name| name.ends_with(OBJECT_SUFFIX)) else { continue };
        let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(object) = RustObject::new(name, content, path.parent().unwrap_or(Path::new("")))? {
            objects.push(object);
            places.push(at);
        }
    }
    if !objects.iter().any(|object| object.is_counted) {
        bail!("rustc wrote no LLVM bitcode for the objects that it links: trodden does not support this version of rustc");
    }
    for (at, compiled) in places.into_iter().zip(compile(context, &compiler, &objects)?) {
        arguments[at] = compiled.into();
    }
    if context.variable(STD_VARIABLE).is_some() {
        let compiler = CrateCompiler::new(context, STD_CODEGEN.map(str::to_owned).to_vec())?;
        for argument in arguments.iter_mut().filter(|argument| is_std_library(Path::new(argument))) {
            *argument = instrument_std_library(context, &compiler, Path::new(argument))?.into();
        }
    }
    Ok(())
}

/// Code generation options for the standard library, which is distributed as optimised code.
const STD_CODEGEN: [&str; 4] = ["-O3", "-fPIC", "-ffunction-sections", "-fdata-sections"];

/// Crates of the standard library that are never instrumented, because compilers call their code implicitly, even from the runtime, or
/// because the code unwinds the stack.
const UNCOUNTED_STD_CRATES: [&str; 5] =
    ["libcompiler_builtins-", "libprofiler_builtins-", "libpanic_abort-", "libpanic_unwind-", "libunwind-"];

/// Returns true if a linker argument is a library of the Rust toolchain that can be instrumented.
fn is_std_library(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_library = name.ends_with(".rlib") && !UNCOUNTED_STD_CRATES.iter().any(|begin| name.starts_with(begin));
    is_library && file.components().any(|part| part.as_os_str() == "rustlib")
}

/// Returns an instrumented copy of a library of the Rust toolchain. The copy is compiled from the bitcode in the library's objects, once
/// for each compiler and plugin request.
fn instrument_std_library(context: &DriverContext, compiler: &CrateCompiler, library: &Path) -> Result<PathBuf> {
    let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let key = Identity::from_content(format!("{} {}", Identity::from_content(&bytes), compiler.shared).as_bytes()).to_string();
    let name = library.file_name().unwrap_or_default();
    let copy = compiler.cache.join("std").join(key).join(name);
    let folder = copy.parent().context("the path of the unit cache has no parent folder")?;
    trodden_profile::temporary::create_folders(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // Several programs may be linked at the same time, and each may need the copy.
    let lock = fs::File::create(folder.join(".lock")).with_context(|| format!("cannot write to {}", folder.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    if copy.is_file() {
        return Ok(copy);
    }
    log::info!("instrumenting {}, which is done once for all programs", name.display());
    let mut objects = Vec::new();
    for member in ArchiveFile::parse(&*bytes)?.members() {
        let member = member?;
        let name = String::from_utf8_lossy(member.name());
        if name.ends_with(OBJECT_SUFFIX) {
            let bitcode = find_embedded_bitcode(member.data(&*bytes)?);
            objects.extend(bitcode.map(|bitcode| RustObject { name: name.into_owned(), bitcode, is_counted: true }));
        }
    }
    if objects.is_empty() {
        bail!("{} contains no LLVM bitcode, so it cannot be instrumented. Omit --std", library.display());
    }
    let instrumented = replace_archive_members(context, compiler, &bytes, &objects, Vec::new())?;
    atomic_file::write_unsynced(&copy, TEMPORARY_PREFIX, &instrumented).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// Returns the bitcode that rustc embedded in an object for link-time optimisation, if any.
fn find_embedded_bitcode(object: &[u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(object).ok()?;
    Some(file.section_by_name(".llvmbc")?.uncompressed_data().ok()?.into_owned()).filter(|bitcode| bitcode.starts_with(BITCODE_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchain_libraries_are_recognised_by_their_path() {
        let is = |file: &str| is_std_library(Path::new(file));
        assert!(is("/home/me/.rustup/toolchains/stable/lib/rustlib/x86_64-unknown-linux-gnu/lib/libcore-12ab.rlib"));
        assert!(is("/usr/lib/rustlib/x86_64-unknown-linux-gnu/lib/libhashbrown-12ab.rlib"));
        assert!(!is("/home/me/project/target/debug/deps/libcore-12ab.rlib"));
        assert!(!is("/usr/lib/rustlib/x86_64-unknown-linux-gnu/lib/libcompiler_builtins-12ab.rlib"));
    }
}
