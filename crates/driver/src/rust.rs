//! Standing in for rustc and for its linker, on behalf of `cargo trodden`.
//!
//! As rustc: crates that are linked for the target (programs, tests, `cdylib`s, `dylib`s) also write their bitcode, and
//! get us as the linker. As the linker: the bitcode goes through clang with the plugin, and the object made of it takes
//! the place of rustc's.
//!
//! | crate type | what is instrumented |
//! |---|---|
//! | `bin`, tests, `cdylib` | one module of everything, the standard library included (fat LTO) |
//! | `cdylib` together with `rlib` | the same; rustc runs twice, because it does no LTO for both at once |
//! | `dylib` | the crate itself; rustc does no LTO for it, so its dependencies stay as they are |
//! | `rlib` | nothing yet: it becomes part of programs |
//! | `staticlib` | nothing: it is linked elsewhere |

use crate::assets;
use crate::cc::pgo;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE, read};
use crate::context::DriverContext;
use crate::experiment;
use crate::link as linking;
use crate::other_programs::joined;
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

/// Variable that says in which role cargo or rustc calls this program.
pub const ROLE_VARIABLE: &str = "TRODDEN_CARGO_ROLE";
/// The role of rustc.
pub const WRAPPER: &str = "rustc";
/// The role of the linker.
pub const LINKER: &str = "linker";
/// Variable that identifies the way of counting, for cargo: what was built in another way is rebuilt.
pub const WAY_VARIABLE: &str = "TRODDEN_CARGO_WAY";
/// Variable that names the bitcode for the linker.
const MODULE_VARIABLE: &str = "TRODDEN_CARGO_MODULE";

/// Runs rustc: `arguments` begin with its name. `out` takes what is added to what rustc prints.
///
/// # Errors
/// rustc cannot be run.
pub fn wrap(context: &DriverContext, arguments: Vec<OsString>, out: &mut dyn Write) -> Result<ExitCode> {
    let Some((rustc, rest)) = arguments.split_first() else { bail!("cargo names no rustc") };
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
    if names_matter(context)? {
        job.remove_temporaries()?;
    }
    Ok(last.map_or(ExitCode::SUCCESS, trodden_launch::process::exit_code))
}

/// rustc's version with the way of counting, which makes it another compiler for cargo. Cargo makes names of it, too:
/// where those have to be the plain build's, it is left as it is, and only builds with such a profile are distinguished from
/// those without.
fn version(context: &DriverContext, rustc: &OsStr, out: &mut dyn Write) -> Result<ExitCode> {
    let status = Command::new(rustc).arg("-vV").status().with_context(|| format!("cannot run {}", rustc.display()))?;
    if !names_matter(context)? {
        writeln!(out, "trodden: {}", context.variable(WAY_VARIABLE).and_then(OsStr::to_str).unwrap_or_default())?;
        out.flush()?;
    }
    Ok(trodden_launch::process::exit_code(status))
}

/// Whether a profile is collected or used, which goes by names.
fn names_matter(context: &DriverContext) -> Result<bool> {
    Ok(pgo::names_matter(context, &experiment::of_environment(context)?))
}

/// A crate that rustc compiles for the target.
#[derive(Debug, Default)]
struct Job {
    /// rustc's arguments, crate types and those that are decided here taken out.
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

/// Options of rustc that decide how machine code is made.
#[derive(Debug, Default)]
struct Codegen {
    level: Option<String>,
    relocation: Option<String>,
    model: Option<String>,
    cpu: Option<String>,
}

impl Codegen {
    /// The same for clang.
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
    /// Reads rustc's arguments; `None` if nothing is compiled to code for the target.
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

    /// Takes in an option; says whether it is decided here and not passed on as it is.
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
        // Libraries must have bitcode, whatever cargo thinks of the program's link.
        matches!(key, "lto" | "incremental" | "embed-bitcode")
    }

    /// The commands that make everything that cargo wants: rustc once, or once for each way.
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
            // The first run has given its warnings.
            second.args(["--cap-lints", "allow"]);
            commands.push(second);
        }
        Ok(commands)
    }

    /// One module of everything.
    fn program(&self, context: &DriverContext, rustc: &OsStr, types: &[&str], emit: &[String]) -> Result<Command> {
        let mut command = self.base(context, rustc, types)?;
        if names_matter(context)? {
            // Asked for bitcode, rustc makes one part of a crate rather than as many as otherwise, and a profile would
            // not fit the names in them.
            command.arg(format!("--emit={}", emit.join(","))).args(["-Clto=fat", "-Csave-temps"]);
        } else {
            command.arg(format!("--emit={},llvm-bc", emit.join(","))).arg("-Clto=fat");
        }
        self.with_linker(context, &mut command)?;
        Ok(command)
    }

    /// Removes what rustc leaves behind where the program's bitcode is one of its temporary files.
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

    /// Libraries of Rust's own kinds.
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
        let linker = joined("-Clinker=", assets::for_cargo(context, &context.store()?)?);
        command.arg(linker).arg("-Clinker-features=-lld");
        command.env(ROLE_VARIABLE, LINKER).env(CODEGEN_VARIABLE, self.codegen.arguments().join(CODEGEN_SEPARATOR));
        command.env(MODULE_VARIABLE, self.folder.join(format!("{}{}.bc", self.name, self.extra)));
        Ok(())
    }
}

/// An option of rustc and its value, in either spelling (`-C x`, `-Cx`, `--emit x`, `--emit=x`).
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

/// The argument that passes an option on. Arguments that are not read here go on byte by byte.
fn option_argument(argument: &OsStr, option: &str, value: Option<&str>) -> OsString {
    match value {
        None => argument.to_owned(),
        Some(value) if option == "-C" => format!("-C{value}").into(),
        Some(value) => format!("{option}={value}").into(),
    }
}

/// Runs the linker with the module's new object in the place of rustc's.
///
/// # Errors
/// Clang or a part of trodden is missing, or the module cannot be compiled.
pub fn link(context: &DriverContext, arguments: Vec<OsString>) -> Result<ExitCode> {
    let clang = Tool::Clang.find(context)?;
    let mut arguments = read(&arguments).arguments;
    if pgo::wanted(context)?.is_some() {
        pgo::without_runtime(&mut arguments);
    }
    let written = context.variable(MODULE_VARIABLE).map(PathBuf::from).filter(|m| m.is_file());
    match written.or_else(|| saved_module(&arguments)) {
        Some(module) => swap(context, &mut arguments, &module)?,
        None => log::warn!("rustc calls the linker without having written bitcode: the result is not instrumented"),
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

/// The bitcode beside the object of it that rustc links.
fn saved_module(arguments: &[OsString]) -> Option<PathBuf> {
    let objects = arguments.iter().filter(|w| w.to_string_lossy().ends_with(".rcgu.o"));
    objects.map(|o| Path::new(o).with_extension("bc")).find(|m| m.is_file())
}

fn swap(context: &DriverContext, arguments: &mut [OsString], module: &Path) -> Result<()> {
    let is_object = |w: &OsString| w.to_string_lossy().ends_with(".rcgu.o");
    let objects: Vec<usize> = (0..arguments.len()).filter(|at| is_object(&arguments[*at])).collect();
    let of_code = objects.iter().copied().find(|at| arguments[*at].to_string_lossy().contains("-cgu."));
    let at = match (objects.as_slice(), of_code) {
        ([one], _) => *one,
        (_, Some(at)) => at,
        _ => bail!(
            "rustc links {} objects of its own, not the one of {}: this version of rustc is not known to trodden",
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
    fn programs_write_bitcode_and_call_us() {
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
    fn host_code_and_questions_are_left_alone() {
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
    fn machine_code_is_asked_of_clang_as_of_rustc() {
        let job = read("-Copt-level=s -C relocation-model=static -Ccode-model=large --emit link --target=t").unwrap();
        assert_eq!(job.codegen.arguments(), ["-Os", "-fno-pic", "-ffunction-sections", "-fdata-sections", "-mcmodel=large"]);
    }
}
