//! Acts as rustc's wrapper and linker, for `cargo trodden`.
//!
//! If the cargo profile does not enable link-time optimisation, each crate is instrumented when it is compiled ([`crates`]). Otherwise, the
//! wrapper makes rustc write the bitcode of the whole program; this program, which is rustc's linker in both cases, compiles that bitcode
//! with clang and the plugin, and links the result in place of rustc's object. The table shows what is instrumented.
//!
//! | crate type | crate by crate | whole program |
//! |---|---|---|
//! | `bin`, tests, `cdylib` | the crate itself | everything, including the standard library |
//! | `cdylib` together with `rlib` | each of them | the same; rustc runs twice, because it does not support LTO for both at once |
//! | `dylib` | the crate itself | the crate itself, because rustc does not support LTO for it |
//! | `rlib` | the crate itself | it becomes part of programs |
//! | `staticlib` | its workspace members; it contains the runtime | nothing, because it is linked elsewhere |

mod compiler;
mod crates;
mod job;
mod objects;
mod units;

use crate::assets::{self, TEMPORARY_PREFIX};
use crate::cc::{CARGO_FOLDER_VARIABLE, CARGO_PACKAGES_VARIABLE, pgo};
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE, parse_command_line};
use crate::context::DriverContext;
use crate::experiment;
use crate::link as linking;
use crate::other_programs::option_with_value;
use crate::rebuild::BitcodeCompiler;
use crate::toolchain::{LlvmTool, find_compiler_on_path};
use anyhow::{Context, Result, bail};
use job::CrateJob;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_profile::atomic_file;
use trodden_unit::experiment::EXPERIMENT_VARIABLE;
use trodden_unit::{CodegenOptions, InstrumentedImage};

/// Environment variable that selects the role in which cargo or rustc calls this program.
pub const ROLE_VARIABLE: &str = "TRODDEN_CARGO_ROLE";
/// Role: wrapper of rustc.
pub const WRAPPER_ROLE: &str = "rustc";
/// Role in which this program links a program that is instrumented as a whole.
pub const LINKER_ROLE: &str = "linker";
/// Role in which this program links crates that were instrumented when they were compiled.
pub const CRATE_LINKER_ROLE: &str = "crate-linker";
/// Role in which this program links documentation tests, whose own code is not instrumented.
pub const TEST_LINKER_ROLE: &str = "test-linker";
/// Environment variable with the path of the real rustdoc.
pub const RUSTDOC_VARIABLE: &str = "TRODDEN_CARGO_RUSTDOC";
/// Environment variable with the `--cfg` options that the wrappers add, separated by blanks.
pub const CFG_VARIABLE: &str = "TRODDEN_CARGO_CFG";
/// Environment variable with the pattern for the names of the files to which programs run by cargo write their counts.
pub const OUTPUT_VARIABLE: &str = "TRODDEN_CARGO_OUTPUT";
/// Environment variable with the path of the workspace's run store, for the `trodden` processes in which cargo runs programs.
pub const STORE_VARIABLE: &str = "TRODDEN_CARGO_STORE";
/// Environment variable that is set if programs are to be linked with an instrumented standard library.
pub const STD_VARIABLE: &str = "TRODDEN_CARGO_STD";
/// Environment variable that is set if the wrapper is called for all crates, not only for workspace members.
pub const ALL_CRATES_VARIABLE: &str = "TRODDEN_CARGO_ALL";
/// Environment variable with an identity of the plugin and its settings. Cargo rebuilds everything when it changes.
pub const CONFIGURATION_VARIABLE: &str = "TRODDEN_CARGO_WAY";
/// Environment variable that tells the linker the path of the program's bitcode.
const MODULE_VARIABLE: &str = "TRODDEN_CARGO_MODULE";

/// Acts as the wrapper of rustc. The first of the `arguments` is the path of rustc. Additions to rustc's own output are written to `out`.
pub fn run_rustc(context: &DriverContext, arguments: Vec<OsString>, out: &mut dyn Write) -> Result<ExitCode> {
    let Some((rustc, rest)) = arguments.split_first() else { bail!("expected the path of rustc: cargo passed none") };
    let Some(job) = CrateJob::read(rest) else {
        if rest == ["-vV"] {
            return print_version(context, rustc, out);
        }
        let mut command = Command::new(rustc);
        command.args(rest);
        if rest.iter().any(|argument| argument == "--target") {
            command.args(configuration_options(context));
        }
        return Err(command.exec()).with_context(|| format!("cannot run {}", rustc.display()));
    };
    if !job.is_whole_program(context)? {
        return compile_crate_by_wrapper(context, rustc, &job);
    }
    let mut last = None;
    for mut command in job.whole_program_commands(context, rustc)? {
        let status = command.status().with_context(|| format!("cannot run {}", rustc.display()))?;
        if !status.success() {
            return Ok(trodden_launch::process::exit_code(status));
        }
        last = Some(status);
    }
    if must_keep_function_names(context)? {
        job.remove_temporary_files()?;
    }
    Ok(last.map_or(ExitCode::SUCCESS, trodden_launch::process::exit_code))
}

fn compile_crate_by_wrapper(context: &DriverContext, rustc: &OsStr, job: &CrateJob) -> Result<ExitCode> {
    let status = job.crate_command(context, rustc)?.status().with_context(|| format!("cannot run {}", rustc.display()))?;
    if status.success() {
        crates::instrument_archives(context, job)?;
        crates::remove_bitcode_from_archives(job)?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

fn configuration_options(context: &DriverContext) -> Vec<String> {
    let words = context.variable(CFG_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
    words.split_whitespace().map(|word| format!("--cfg={word}")).collect()
}

/// Runs rustdoc, so that documentation tests of libraries for the target are linked with the runtime.
pub fn run_rustdoc(context: &DriverContext, arguments: &[OsString]) -> Result<ExitCode> {
    let rustdoc = context.value(RUSTDOC_VARIABLE).unwrap_or(OsStr::new("rustdoc"));
    let mut command = Command::new(rustdoc);
    command.args(arguments);
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    if has("--target") {
        command.args(configuration_options(context));
        if has("--test") {
            command
                .arg(option_with_value("-Clinker=", assets::create_cargo_driver(context, &context.store()?)?))
                .env(ROLE_VARIABLE, TEST_LINKER_ROLE);
        }
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", rustdoc.display()))
}

/// Environment variables that `cargo trodden` sets for compilers and recorders. They are removed before a program runs, because programs
/// may run cargo or compilers themselves.
pub const COMPILER_VARIABLES: [&str; 15] = [
    ROLE_VARIABLE,
    STORE_VARIABLE,
    CONFIGURATION_VARIABLE,
    RUSTDOC_VARIABLE,
    CFG_VARIABLE,
    ALL_CRATES_VARIABLE,
    STD_VARIABLE,
    OUTPUT_VARIABLE,
    CODEGEN_VARIABLE,
    CARGO_FOLDER_VARIABLE,
    CARGO_PACKAGES_VARIABLE,
    EXPERIMENT_VARIABLE,
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
];

/// Runs a program for cargo, and makes it write its counts to the output pattern in [`OUTPUT_VARIABLE`].
pub fn run_program(context: &DriverContext, arguments: &[OsString]) -> Result<ExitCode> {
    let Some((program, rest)) = arguments.split_first() else { bail!("expected a program to run: cargo passed none") };
    let mut command = Command::new(program);
    command.args(rest);
    COMPILER_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    if let Some(rustdoc) = context.variable(RUSTDOC_VARIABLE) {
        command.env("RUSTDOC", rustdoc);
    }
    if let Some(pattern) = context.variable(OUTPUT_VARIABLE) {
        command.env(trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE, pattern);
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

/// Prints rustc's version. If all crates are wrapped, adds the identity of the instrumentation, so that cargo takes rustc for a different
/// compiler and rebuilds. If only workspace members are wrapped, the path of the wrapper has this effect. Nothing is added if function
/// names must match those of a plain build, because cargo also derives symbol names from the version.
fn print_version(context: &DriverContext, rustc: &OsStr, out: &mut dyn Write) -> Result<ExitCode> {
    let status = Command::new(rustc).arg("-vV").status().with_context(|| format!("cannot run {}", rustc.display()))?;
    if context.variable(ALL_CRATES_VARIABLE).is_some() && !must_keep_function_names(context)? {
        writeln!(out, "trodden: {}", context.variable(CONFIGURATION_VARIABLE).and_then(OsStr::to_str).unwrap_or_default())?;
        out.flush()?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

/// Returns true if an edge profile is collected or used, because such a profile refers to functions by name.
fn must_keep_function_names(context: &DriverContext) -> Result<bool> {
    Ok(pgo::must_keep_function_names(context, &experiment::from_environment(context)?))
}

/// Links for rustc or rustdoc, with instrumented objects in place of rustc's. `role` is one of the linker roles.
pub fn run_linker(context: &DriverContext, role: &str, arguments: Vec<OsString>) -> Result<ExitCode> {
    // rustc itself calls `cc` by default, and `cc` starts faster than clang.
    let cc = find_compiler_on_path(context, OsStr::new("cc")).filter(|_| role != LINKER_ROLE);
    let linker = cc.map_or_else(|| LlvmTool::Clang.find(context), Ok)?;
    let mut arguments = parse_command_line(&arguments).arguments;
    let has_mapping = pgo::requested_counters(context)?.is_some();
    if has_mapping {
        pgo::remove_profile_runtime(&mut arguments);
    }
    match role {
        CRATE_LINKER_ROLE => crates::replace_object_arguments(context, &mut arguments)?,
        LINKER_ROLE => replace_saved_module(context, &mut arguments)?,
        _ => {}
    }
    let line = parse_command_line(&arguments);
    let job = linking::LinkJob {
        context,
        clang: &linker,
        arguments: &arguments,
        line: &line,
        added: Vec::new(),
        environment: Vec::new(),
        directory: None,
    };
    if role == LINKER_ROLE {
        return linking::drive(&job);
    }
    let (status, image) = linking::run(&job)?;
    if let Some((folder, image)) = images_folder(context).zip(image).filter(|_| role == TEST_LINKER_ROLE && has_mapping) {
        copy_image(Path::new(line.image()), &folder, &image)?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

/// Returns the folder for copies of documentation tests; `None` if this program was not called by `cargo trodden`. The copies are needed
/// because rustdoc deletes the tests.
fn images_folder(context: &DriverContext) -> Option<PathBuf> {
    Some(doctest_images_folder(Path::new(context.variable(CARGO_FOLDER_VARIABLE)?)))
}

/// Returns the folder for copies of documentation tests. `folder` is the folder of all output for the target.
pub fn doctest_images_folder(folder: &Path) -> PathBuf {
    folder.join("doctests")
}

/// Copies an image that has a coverage mapping to `folder`. Images with the same instrumented units share one copy.
fn copy_image(file: &Path, folder: &Path, image: &InstrumentedImage) -> Result<()> {
    let copy = folder.join(image.identity.to_string());
    if copy.is_file() {
        return Ok(());
    }
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    atomic_file::write_unsynced(&copy, TEMPORARY_PREFIX, &bytes).with_context(|| format!("cannot write {}", copy.display()))
}

/// Compiles the bitcode of a whole program, and puts the result in place of rustc's object.
fn replace_saved_module(context: &DriverContext, arguments: &mut [OsString]) -> Result<()> {
    let written = context.variable(MODULE_VARIABLE).map(PathBuf::from).filter(|m| m.is_file());
    match written.or_else(|| find_saved_module(arguments)) {
        Some(module) => replace_object(context, arguments, &module)?,
        None => log::warn!("rustc called the linker, but wrote no bitcode, so the result is not instrumented"),
    }
    Ok(())
}

/// Returns the bitcode file that rustc left beside the object it links.
fn find_saved_module(arguments: &[OsString]) -> Option<PathBuf> {
    let objects = arguments.iter().filter(|w| w.to_string_lossy().ends_with(".rcgu.o"));
    objects.map(|o| Path::new(o).with_extension("bc")).find(|m| m.is_file())
}

fn replace_object(context: &DriverContext, arguments: &mut [OsString], module: &Path) -> Result<()> {
    let is_object = |w: &OsString| w.to_string_lossy().ends_with(".rcgu.o");
    let objects: Vec<usize> = (0..arguments.len()).filter(|at| is_object(&arguments[*at])).collect();
    let of_code = objects.iter().copied().find(|at| arguments[*at].to_string_lossy().contains("-cgu."));
    let at = match (objects.as_slice(), of_code) {
        ([one], _) => *one,
        (_, Some(at)) => at,
        _ => bail!(
            "cannot tell which of the {} objects that rustc links was compiled from {}: trodden does not support this version of rustc",
            objects.len(),
            module.display()
        ),
    };
    let kept = context.variable(CODEGEN_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
    let codegen = CodegenOptions::from_command_line(kept.split(CODEGEN_SEPARATOR).map(str::to_owned).collect());
    let object = module.with_extension("trodden.o");
    let compiler = BitcodeCompiler::new(context, experiment::variable_for_plugin(context).into())?;
    compiler.compile_object(module, &codegen, &object)?;
    arguments[at] = object.into();
    Ok(())
}
