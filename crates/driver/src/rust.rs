//! The wrapper of rustc and its linker, for `cargo trodden`.
//!
//! The wrapper makes crates that are linked for the target (programs, tests, `cdylib`s, `dylib`s) also write their bitcode, and use this
//! program as the linker. The linker compiles the bitcode by clang with the plugin, and links the result instead of rustc's object.
//!
//! | crate type | what is instrumented |
//! |---|---|
//! | `bin`, tests, `cdylib` | the whole program as one module, including the standard library (fat LTO) |
//! | `cdylib` together with `rlib` | the same; rustc runs twice, because it does not support LTO for both at once |
//! | `dylib` | the crate itself, but not its dependencies, because rustc does not support LTO for it |
//! | `rlib` | nothing yet: it becomes part of programs |
//! | `staticlib` | nothing, because it is linked elsewhere |

use crate::assets;
use crate::cc::pgo;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE, read};
use crate::context::DriverContext;
use crate::experiment;
use crate::link as linking;
use crate::other_programs::option_with_value;
use crate::rebuild::DriverCompiler;
use crate::toolchain::Tool;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_unit::CodegenOptions;

/// Variable with the role in which cargo or rustc calls this program.
pub const ROLE_VARIABLE: &str = "TRODDEN_CARGO_ROLE";
/// The role of the wrapper of rustc.
pub const WRAPPER_ROLE: &str = "rustc";
/// The role of the linker.
pub const LINKER_ROLE: &str = "linker";
/// Variable that identifies the instrumentation, so that cargo rebuilds what was built with another one.
pub const CONFIGURATION_VARIABLE: &str = "TRODDEN_CARGO_WAY";
/// Variable that passes the path of the bitcode to the linker.
const MODULE_VARIABLE: &str = "TRODDEN_CARGO_MODULE";

/// Runs rustc, whose name is the first of the `arguments`. Additions to rustc's output are written to `out`.
pub fn run_rustc(context: &DriverContext, arguments: Vec<OsString>, out: &mut dyn Write) -> Result<ExitCode> {
    let Some((rustc, rest)) = arguments.split_first() else { bail!("cargo did not pass the name of rustc") };
    let Some(job) = Job::read(rest) else {
        if rest == ["-vV"] {
            return version(context, rustc, out);
        }
        let error = Command::new(rustc).args(rest).exec();
        return Err(error).with_context(|| format!("cannot run {}", rustc.display()));
    };
    let mut last = None;
    for mut command in job.commands(context, rustc)? {
        let status = command.status().with_context(|| format!("cannot run {}", rustc.display()))?;
        if !status.success() {
            return Ok(trodden_launch::process::exit_code(status));
        }
        last = Some(status);
    }
    if names_must_match(context)? {
        job.remove_temporaries()?;
    }
    Ok(last.map_or(ExitCode::SUCCESS, trodden_launch::process::exit_code))
}

/// Prints rustc's version, followed by the identity of the instrumentation, so that cargo regards it as another compiler. Cargo also
/// derives symbol names from the version, so it is unchanged if names must match those of a plain build.
fn version(context: &DriverContext, rustc: &OsStr, out: &mut dyn Write) -> Result<ExitCode> {
    let status = Command::new(rustc).arg("-vV").status().with_context(|| format!("cannot run {}", rustc.display()))?;
    if !names_must_match(context)? {
        writeln!(out, "trodden: {}", context.variable(CONFIGURATION_VARIABLE).and_then(OsStr::to_str).unwrap_or_default())?;
        out.flush()?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

/// Whether an edge profile is collected or used, which refers to functions by name.
fn names_must_match(context: &DriverContext) -> Result<bool> {
    Ok(pgo::names_must_match(context, &experiment::from_environment(context)?))
}

/// A crate that rustc compiles for the target.
#[derive(Debug, Default)]
struct Job {
    /// rustc's arguments, without crate types and other options that are decided here.
    arguments: Vec<OsString>,
    name: String,
    extra: String,
    folder: PathBuf,
    types: Vec<String>,
    test: bool,
    emit: Vec<String>,
    debug: bool,
    lto: Option<String>,
    codegen: Codegen,
}

#[derive(Debug, Default)]
struct Codegen {
    level: Option<String>,
    relocation: Option<String>,
    model: Option<String>,
    cpu: Option<String>,
}

impl Codegen {
    fn arguments(&self) -> Vec<String> {
        let level = self.level.as_deref().unwrap_or("0");
        let pic = match self.relocation.as_deref() {
            Some("static") => "-fno-pic",
            Some("pie") => "-fPIE",
            _ => "-fPIC",
        };
        let mut arguments = vec![format!("-O{level}"), pic.to_owned(), "-ffunction-sections".into(), "-fdata-sections".into()];
        arguments.extend(self.model.iter().map(|m| format!("-mcmodel={m}")));
        arguments.extend(self.cpu.iter().map(|c| format!("-march={c}")));
        arguments
    }
}

impl Job {
    /// Parses rustc's arguments. `None` if no code is generated for the target.
    fn read(arguments: &[OsString]) -> Option<Job> {
        let mut job = Job::default();
        let mut target = false;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_string_lossy().into_owned();
            let (option, value) = split_option(&text, &mut rest);
            target |= option == "--target";
            if option == "--print" {
                return None;
            }
            if !job.option(&option, value.as_deref()) {
                job.arguments.push(option_argument(argument, &option, value.as_deref()));
            }
        }
        (target && job.emit.iter().any(|e| e == "link")).then_some(job)
    }

    /// Interprets an option. Returns true if it is decided here, and therefore not passed on.
    fn option(&mut self, option: &str, value: Option<&str>) -> bool {
        let owned = || value.unwrap_or_default().to_owned();
        match option {
            "--crate-type" => self.types.extend(owned().split(',').map(str::to_owned)),
            "--emit" => self.emit = owned().split(',').map(str::to_owned).collect(),
            "--crate-name" => self.name = owned(),
            "--out-dir" => self.folder = owned().into(),
            "--test" => self.test = true,
            "-g" => self.debug = true,
            "-C" => return self.codegen_option(value.unwrap_or_default()),
            _ => {}
        }
        matches!(option, "--crate-type" | "--emit")
    }

    fn codegen_option(&mut self, text: &str) -> bool {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let value = || Some(value.to_owned());
        match key {
            "extra-filename" => self.extra = value().unwrap_or_default(),
            "debuginfo" => self.debug = true,
            "opt-level" => self.codegen.level = value(),
            "relocation-model" => self.codegen.relocation = value(),
            "code-model" => self.codegen.model = value(),
            "target-cpu" => self.codegen.cpu = value(),
            "lto" => self.lto = value(),
            _ => {}
        }
        // Libraries must contain bitcode, even if cargo does not request LTO.
        matches!(key, "lto" | "incremental" | "embed-bitcode")
    }

    /// Returns the commands that make everything cargo requests: rustc once, or twice for crate types that need different options.
    fn commands(&self, context: &DriverContext, rustc: &OsStr) -> Result<Vec<Command>> {
        let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
        let (wholes, others): (Vec<&str>, Vec<&str>) = types.iter().partition(|t| ["bin", "cdylib"].contains(t));
        if self.test || others.is_empty() {
            return Ok(vec![self.program(context, rustc, &types, &self.emit)?]);
        }
        if others.contains(&"staticlib") {
            log::info!("static library of crate {}: not instrumented", self.name);
        }
        let mut commands = vec![self.library(context, rustc, &others)?];
        if !wholes.is_empty() {
            let emit: Vec<String> = self.emit.iter().filter(|e| *e == "link").cloned().collect();
            let mut second = self.program(context, rustc, &wholes, &emit)?;
            // The first run has printed all warnings.
            second.args(["--cap-lints", "allow"]);
            commands.push(second);
        }
        Ok(commands)
    }

    /// Returns the command that compiles the whole program as one module.
    fn program(&self, context: &DriverContext, rustc: &OsStr, types: &[&str], emit: &[String]) -> Result<Command> {
        let mut command = self.base(context, rustc, types)?;
        if names_must_match(context)? {
            // If `--emit` requests bitcode, rustc uses a single codegen unit, and the names of functions would not match the profile.
            command.arg(format!("--emit={}", emit.join(","))).args(["-Clto=fat", "-Csave-temps"]);
        } else {
            command.arg(format!("--emit={},llvm-bc", emit.join(","))).arg("-Clto=fat");
        }
        self.with_linker(context, &mut command)?;
        Ok(command)
    }

    /// Removes rustc's temporary files, which were kept because the program's bitcode is one of them.
    fn remove_temporaries(&self) -> Result<()> {
        let begin = format!("{}{}.", self.name, self.extra);
        for entry in fs::read_dir(&self.folder).with_context(|| format!("cannot read {}", self.folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&begin) && name.contains(".rcgu.") {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    /// Returns the command that compiles libraries for use by other Rust crates.
    fn library(&self, context: &DriverContext, rustc: &OsStr, types: &[&str]) -> Result<Command> {
        let mut command = self.base(context, rustc, types)?;
        if !types.contains(&"dylib") {
            command.arg(format!("--emit={}", self.emit.join(",")));
            command.args(self.lto.iter().map(|l| format!("-Clto={l}")));
            return Ok(command);
        }
        command.arg(format!("--emit={},llvm-bc", self.emit.join(","))).arg("-Ccodegen-units=1");
        self.with_linker(context, &mut command)?;
        Ok(command)
    }

    fn base(&self, context: &DriverContext, rustc: &OsStr, types: &[&str]) -> Result<Command> {
        let mut command = Command::new(rustc);
        command.args(&self.arguments).args(types.iter().map(|t| format!("--crate-type={t}")));
        if !self.debug {
            command.arg("-Cdebuginfo=line-tables-only");
        }
        command.args(pgo::rustc_options(context)?);
        Ok(command)
    }

    fn with_linker(&self, context: &DriverContext, command: &mut Command) -> Result<()> {
        let linker = option_with_value("-Clinker=", assets::cargo_driver(context, &context.store()?)?);
        command.arg(linker).arg("-Clinker-features=-lld");
        command.env(ROLE_VARIABLE, LINKER_ROLE).env(CODEGEN_VARIABLE, self.codegen.arguments().join(CODEGEN_SEPARATOR));
        command.env(MODULE_VARIABLE, self.folder.join(format!("{}{}.bc", self.name, self.extra)));
        Ok(())
    }
}

/// Splits an argument of rustc into option and value, in any spelling (`-C x`, `-Cx`, `--emit x`, `--emit=x`).
fn split_option<'a>(text: &str, rest: &mut impl Iterator<Item = &'a OsString>) -> (String, Option<String>) {
    const WITH_VALUE: &[&str] = &["-C", "--codegen", "--emit", "--crate-type", "--crate-name", "--out-dir", "--target", "--print"];
    let mut next = || rest.next().map(|v| v.to_string_lossy().into_owned());
    let named = |option: &str| if option == "--codegen" { "-C".to_owned() } else { option.to_owned() };
    if WITH_VALUE.contains(&text) {
        return (named(text), next());
    }
    if let Some(value) = text.strip_prefix("-C") {
        return ("-C".into(), Some(value.to_owned()));
    }
    match text.split_once('=') {
        Some((option, value)) if WITH_VALUE.contains(&option) => (named(option), Some(value.to_owned())),
        _ => (text.to_owned(), None),
    }
}

/// Returns the argument that passes an option on. Arguments without value are passed on unchanged, even if they are not UTF-8.
fn option_argument(argument: &OsStr, option: &str, value: Option<&str>) -> OsString {
    match value {
        None => argument.to_owned(),
        Some(value) if option == "-C" => format!("-C{value}").into(),
        Some(value) => format!("{option}={value}").into(),
    }
}

/// Compiles the module with the plugin, and links the result instead of rustc's object.
pub fn run_linker(context: &DriverContext, arguments: Vec<OsString>) -> Result<ExitCode> {
    let clang = Tool::Clang.find(context)?;
    let mut arguments = read(&arguments).arguments;
    if pgo::requested(context)?.is_some() {
        pgo::remove_runtime(&mut arguments);
    }
    let written = context.variable(MODULE_VARIABLE).map(PathBuf::from).filter(|m| m.is_file());
    match written.or_else(|| saved_module(&arguments)) {
        Some(module) => replace_object(context, &mut arguments, &module)?,
        None => log::warn!("rustc called the linker without writing bitcode: the result is not instrumented"),
    }
    let line = read(&arguments);
    linking::drive(&linking::LinkJob {
        context,
        clang: &clang,
        arguments: &arguments,
        line: &line,
        added: Vec::new(),
        environment: Vec::new(),
        directory: None,
    })
}

/// Returns the bitcode that rustc saved beside the object that it links.
fn saved_module(arguments: &[OsString]) -> Option<PathBuf> {
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
            "rustc links {} objects, and none is known to be that of {}: trodden does not support this version of rustc",
            objects.len(),
            module.display()
        ),
    };
    let kept = context.variable(CODEGEN_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
    let codegen = CodegenOptions::from_command_line(kept.split(CODEGEN_SEPARATOR).map(str::to_owned).collect());
    let object = module.with_extension("trodden.o");
    let compiler = DriverCompiler::new(context, experiment::variable_for_plugin(context).into())?;
    compiler.object(module, &codegen, &object)?;
    arguments[at] = object.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Job> {
        Job::read(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|a| a.to_string_lossy().into_owned()).collect()
    }

    const BASE: &str =
        "--crate-name x --edition=2024 src/main.rs --emit=dep-info,link -C opt-level=3 -C extra-filename=-ab12 --out-dir /o --target t";

    #[test]
    fn programs_write_bitcode_and_use_this_linker() {
        let job = read(&format!("{BASE} --crate-type bin -C incremental=/i")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[]);
        let commands = job.commands(&context, OsStr::new("rustc")).unwrap();
        assert_eq!(commands.len(), 1);
        let found = arguments(&commands[0]);
        for expected in ["--emit=dep-info,link,llvm-bc", "-Clto=fat", "--crate-type=bin", "-Cdebuginfo=line-tables-only", "-Copt-level=3"] {
            assert!(found.iter().any(|w| w == expected), "{expected} in {found:?}");
        }
        assert!(!found.iter().any(|w| w.contains("incremental")));
        let module = commands[0].get_envs().find(|(k, _)| *k == MODULE_VARIABLE).unwrap().1.unwrap();
        assert_eq!(module, "/o/x-ab12.bc");
    }

    #[test]
    fn host_code_and_queries_are_passed_on() {
        assert!(read("--crate-name build_script_build build.rs --crate-type bin --emit=dep-info,link").is_none());
        assert!(read("- --crate-name ___ --print=file-names --crate-type bin --target t").is_none());
        assert!(read("--crate-name x lib.rs --crate-type lib --emit=dep-info,metadata --target t").is_none());
    }

    #[test]
    fn libraries_of_two_kinds_are_compiled_twice() {
        let job = read(&format!("{BASE} --crate-type rlib --crate-type cdylib")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[]);
        let commands = job.commands(&context, OsStr::new("rustc")).unwrap();
        assert_eq!(commands.len(), 2);
        assert!(arguments(&commands[0]).contains(&"--crate-type=rlib".to_owned()));
        assert!(!arguments(&commands[0]).iter().any(|w| w.contains("llvm-bc")));
        assert!(arguments(&commands[1]).contains(&"--crate-type=cdylib".to_owned()));
        assert!(arguments(&commands[1]).contains(&"--emit=link,llvm-bc".to_owned()));
    }

    #[test]
    fn codegen_options_are_translated_for_clang() {
        let job = read("-Copt-level=s -C relocation-model=static -Ccode-model=large --emit link --target=t").unwrap();
        assert_eq!(job.codegen.arguments(), ["-Os", "-fno-pic", "-ffunction-sections", "-fdata-sections", "-mcmodel=large"]);
    }
}
