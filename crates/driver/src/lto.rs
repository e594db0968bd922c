//! `--lto`: optimises each program as a whole before it is instrumented.
//!
//! lld cannot load the plugin during its link-time code generation, so it is only used to merge and optimise. Compile steps write bitcode
//! to the object files. At the link, lld writes the merged module (`--lto-emit-llvm`), clang compiles this module with the plugin, and the
//! link is repeated with the resulting object in place of all bitcode. Objects and archives of machine code are linked unchanged.

use crate::cc::arguments::{CompilerCommandLine, CompilerInputKind};
use crate::cc::debug_information;
use crate::cc::pgo::{self, LlvmCounters};
use crate::compile_step::{insert_arguments, parse_command_line};
use crate::context::DriverContext;
use crate::events::{self, DriverEvent};
use crate::experiment;
use crate::frames::{self, ArchiveMember};
use crate::link;
use crate::other_programs::option_with_value;
use crate::rebuild::BitcodeCompiler;
use crate::toolchain::{LlvmTool, LlvmToolchain};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::exit_code;
use trodden_unit::CodegenOptions;
use trodden_unit::bitcode::is_bitcode;

pub fn drive(
    context: &DriverContext,
    llvm: &LlvmToolchain,
    clang: &Path,
    arguments: &[OsString],
    line: &CompilerCommandLine,
) -> Result<ExitCode> {
    let mut added: Vec<OsString> = vec!["-flto=full".into()];
    if line.compiles {
        added.extend(debug_information::debug_options_to_add(line, clang, llvm.major));
    }
    added.extend(pgo::compile_options(context, line)?);
    if line.links {
        return link_whole_program(context, llvm, clang, arguments, line, added);
    }
    events::append_event(context, &DriverEvent::compiled(line));
    let error = Command::new(clang).args(insert_arguments(arguments, &added)).exec();
    Err(error).with_context(|| format!("cannot run {}", clang.display()))
}

fn link_whole_program(
    context: &DriverContext,
    llvm: &LlvmToolchain,
    clang: &Path,
    arguments: &[OsString],
    line: &CompilerCommandLine,
    mut added: Vec<OsString>,
) -> Result<ExitCode> {
    llvm.tool(context, LlvmTool::Lld)?;
    check_bitcode_versions(context, llvm, line)?;
    let place = context.folder("trodden-lto-")?;
    let module = place.path().join("whole.bc");
    // Like GNU ld, lld must accept version scripts that name undefined symbols. Otherwise, zlib's configure script would not build the
    // shared library.
    for option in ["-fuse-ld=lld", "-Wl,--lto-emit-llvm", "-Wl,-z,nostart-stop-gc", "-Wl,--undefined-version", "-o"] {
        added.push(option.into());
    }
    added.push((&module).into());
    if pgo::requested_counters(context)? == Some(LlvmCounters::Edges) {
        // Keeps the symbol that identifies the kind of LLVM counters, although nothing in the module refers to it.
        added.push("-Wl,--undefined=__llvm_profile_raw_version".into());
    }
    let merging = Command::new(clang)
        .args(insert_arguments(arguments, &added))
        .status()
        .with_context(|| format!("cannot run {}", clang.display()))?;
    if !merging.success() {
        return Ok(exit_code(merging));
    }
    let arguments = if is_bitcode(&fs::read(&module)?) {
        let object = place.path().join("whole.o");
        BitcodeCompiler::with(context, llvm, experiment::variable_for_plugin(context).into())?.compile_object(
            &module,
            &collect_codegen_options(line),
            &object,
        )?;
        replace_bitcode_arguments(context, line, &object, place.path())?
    } else {
        arguments.to_vec()
    };
    let line = parse_command_line(&arguments);
    let added = vec!["-fno-lto".into()];
    link::drive(&link::LinkJob { context, clang, arguments: &arguments, line: &line, added, environment: Vec::new(), directory: None })
}

/// Checks that LLVM can read all bitcode that is linked, because lld does not always reject bitcode from a newer version.
fn check_bitcode_versions(context: &DriverContext, llvm: &LlvmToolchain, line: &CompilerCommandLine) -> Result<()> {
    for input in line.inputs_of(CompilerInputKind::Linkable) {
        if let Ok(bytes) = fs::read(Path::new(input)) {
            llvm.check_bitcode(&bytes, input)?;
        }
    }
    for path in find_possible_archives(line) {
        let Ok(bytes) = fs::read(&path) else { continue };
        let bytes = frames::expand_thin_archive(context, &path, bytes)?;
        if frames::is_archive(&bytes) {
            let members = frames::archive_members(&bytes).with_context(|| format!("the archive {} is corrupt", path.display()))?;
            members.iter().try_for_each(|m| llvm.check_bitcode(&m.bytes, format!("{}({})", path.display(), m.name).as_ref()))?;
        }
    }
    Ok(())
}

/// Returns the code generation options for the whole program. They are taken from the link's arguments, where builds usually repeat their
/// compiler options.
fn collect_codegen_options(line: &CompilerCommandLine) -> CodegenOptions {
    let mut arguments = vec!["-ffunction-sections".to_owned(), "-fdata-sections".to_owned()];
    arguments.extend(line.codegen.iter().filter(|w| *w != "-static-pie").cloned());
    if !arguments.iter().any(|w| w.starts_with("-O")) {
        arguments.push("-O2".into());
    }
    if line.shared {
        arguments.push("-fPIC".into());
    }
    CodegenOptions::from_command_line(arguments)
}

/// Returns the link's arguments with the object of the whole program first, and without the bitcode that was merged into it.
fn replace_bitcode_arguments(context: &DriverContext, line: &CompilerCommandLine, object: &Path, scratch: &Path) -> Result<Vec<OsString>> {
    let archives = rebuild_without_bitcode(context, &find_possible_archives(line), scratch)?;
    let inputs: HashMap<usize, CompilerInputKind> = line.inputs.iter().map(|i| (i.index, i.kind)).collect();
    let mut out: Vec<OsString> = vec!["-Qunused-arguments".into(), "-Xlinker".into(), object.into()];
    let mut skip = false;
    for (at, argument) in line.arguments.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        match inputs.get(&at) {
            Some(CompilerInputKind::Source | CompilerInputKind::Header) => continue,
            Some(CompilerInputKind::Linkable) if fs::read(Path::new(argument)).is_ok_and(|b| is_bitcode(&b)) => continue,
            _ => {}
        }
        if argument == "-x" {
            skip = true;
            continue;
        }
        if argument.as_bytes().starts_with(b"-x") || argument.as_bytes().starts_with(b"-flto") {
            continue;
        }
        let (argument, next) = join_library_option(argument, line.arguments.get(at + 1));
        skip = next;
        let parts: Vec<&[u8]> = match argument.as_bytes().starts_with(b"-Wl,") {
            true => argument.as_bytes().split(|b| *b == b',').collect(),
            false => vec![argument.as_bytes()],
        };
        let parts =
            parts.into_iter().map(OsStr::from_bytes).map(|part| find_rebuilt_archive(part, &archives).map_or(part, |a| a.as_os_str()));
        out.push(parts.collect::<Vec<_>>().join(OsStr::new(",")));
    }
    Ok(out)
}

/// Joins `-l foo` to `-lfoo`. Returns the argument, and whether `next` was consumed. Other arguments are returned unchanged.
fn join_library_option(argument: &OsStr, next: Option<&OsString>) -> (OsString, bool) {
    match next {
        Some(next) if argument == "-l" => (option_with_value("-l", next), true),
        _ => (argument.to_owned(), false),
    }
}

fn find_rebuilt_archive<'a>(argument: &OsStr, archives: &'a HashMap<PathBuf, PathBuf>) -> Option<&'a PathBuf> {
    if let Some(name) = argument.as_bytes().strip_prefix(b"-l") {
        let file = library_file_name(name);
        return archives.iter().find(|(path, _)| path.file_name().is_some_and(|n| n.as_bytes() == file)).map(|(_, new)| new);
    }
    archives.get(Path::new(argument))
}

/// Returns files that may be archives: those that arguments name, and those that `-l` finds in the folders given by `-L`. lld could list
/// its inputs itself, but does so only for complete links.
fn find_possible_archives(line: &CompilerCommandLine) -> Vec<PathBuf> {
    let arguments = &line.arguments;
    let after = |at: usize, option: &[u8]| match arguments[at].as_bytes().strip_prefix(option)? {
        b"" => arguments.get(at + 1).cloned(),
        joined => Some(OsStr::from_bytes(joined).to_owned()),
    };
    let folders: Vec<PathBuf> = (0..arguments.len()).filter_map(|at| after(at, b"-L")).map(PathBuf::from).collect();
    let mut out: Vec<PathBuf> =
        arguments.iter().flat_map(|w| link::possible_file_names(w)).map(PathBuf::from).filter(|p| p.is_file()).collect();
    for library in (0..arguments.len()).filter_map(|at| after(at, b"-l")) {
        let file = library_file_name(library.as_bytes());
        out.extend(folders.iter().map(|folder| folder.join(OsStr::from_bytes(&file))).find(|p| p.is_file()));
    }
    out
}

fn library_file_name(name: &[u8]) -> Vec<u8> {
    match name.strip_prefix(b":") {
        Some(file) => file.to_vec(),
        None => [b"lib", name, b".a"].concat(),
    }
}

/// Rebuilds those archives that contain bitcode, without it. Returns a map from the paths of these archives to the paths of the new ones.
fn rebuild_without_bitcode(context: &DriverContext, paths: &[PathBuf], scratch: &Path) -> Result<HashMap<PathBuf, PathBuf>> {
    let mut out = HashMap::new();
    for (i, path) in paths.iter().enumerate() {
        let Ok(bytes) = fs::read(path) else { continue };
        let bytes = frames::expand_thin_archive(context, path, bytes)?;
        if !frames::is_archive(&bytes) {
            continue;
        }
        let all = frames::archive_members(&bytes).with_context(|| format!("the archive {} is corrupt", path.display()))?;
        let rest: Vec<ArchiveMember> = all.iter().filter(|m| !is_bitcode(&m.bytes)).cloned().collect();
        if rest.len() < all.len() {
            let folder = scratch.join(format!("archive-{i}"));
            let new = folder.join("rest.a");
            trodden_profile::temporary::create_folders(&folder)?;
            frames::write_archive(&new, &rest, &folder)?;
            out.insert(path.clone(), new);
        }
    }
    Ok(out)
}
