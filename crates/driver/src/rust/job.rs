//! A call of rustc that generates code for the target, represented by its parsed arguments, and the commands that are run in its place.

use super::{CRATE_LINKER_ROLE, LINKER_ROLE, MODULE_VARIABLE, ROLE_VARIABLE, configuration_options, must_keep_function_names};
use crate::assets;
use crate::cc::pgo;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use crate::context::DriverContext;
use crate::experiment;
use crate::other_programs::option_with_value;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use trodden_unit::experiment::Observe;
use trodden_unit::{Experiment, Settings};

/// A call of rustc that compiles a crate for the target.
#[derive(Debug, Default)]
pub struct CrateJob {
    /// rustc's arguments, except crate types and other options that this program sets itself.
    arguments: Vec<OsString>,
    /// Options for link-time optimisation. They are passed on only if the crate is instrumented when it is compiled.
    lto_arguments: Vec<OsString>,
    /// The option for incremental compilation. It is not passed on for whole programs, which do not support it.
    incremental: Option<OsString>,
    pub name: String,
    /// Suffix that cargo adds to the names of the crate's output files.
    pub extra: String,
    pub folder: PathBuf,
    pub types: Vec<String>,
    pub test: bool,
    emit: Vec<String>,
    debug: bool,
    lto: Option<String>,
    /// True if objects contain bitcode for link-time optimisation. Cargo requests this if the profile enables LTO.
    embeds_bitcode: bool,
    pub codegen: RustcCodegenOptions,
}

#[derive(Debug, Default)]
pub struct RustcCodegenOptions {
    level: Option<String>,
    /// Number of codegen units; `None` for rustc's default.
    units: Option<String>,
    relocation: Option<String>,
    model: Option<String>,
    cpu: Option<String>,
}

/// rustc's default number of codegen units in optimised builds.
const DEFAULT_CODEGEN_UNITS: &str = "16";

/// Number of codegen units in incremental builds. With rustc's default of 256, most units are so small that LLVM's fixed cost for a unit
/// exceeds the cost of compiling its code.
const INCREMENTAL_CODEGEN_UNITS: &str = "16";

/// Returns true if dividing a crate into codegen units does not change what is observed. Some kinds of observation follow calls only within
/// a unit.
pub fn can_divide_crate(context: &DriverContext) -> Result<bool> {
    let experiment = experiment::read_request(Some(experiment::variable_for_plugin(context)))?.experiment;
    let coverage = Experiment::new(&Settings { observe: Some(Observe::Coverage), ..Settings::default() })?;
    Ok(experiment == Experiment::default() || experiment == coverage)
}

impl RustcCodegenOptions {
    fn is_unoptimised(&self) -> bool {
        self.level.as_deref().unwrap_or("0") == "0"
    }

    /// Translates rustc's code generation options to clang's.
    pub fn arguments(&self) -> Vec<String> {
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

impl CrateJob {
    /// Parses rustc's arguments. Returns `None` if rustc generates no code for the target.
    pub fn read(arguments: &[OsString]) -> Option<CrateJob> {
        let mut job = CrateJob { embeds_bitcode: true, ..CrateJob::default() };
        let mut target = false;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_string_lossy().into_owned();
            let (option, value) = split_option(&text, &mut rest);
            target |= option == "--target";
            if option == "--print" {
                return None;
            }
            let is_decided = job.parse_option(&option, value.as_deref());
            let argument = join_option(argument, &option, value.as_deref());
            if !is_decided {
                job.arguments.push(argument);
            } else if value.is_some_and(|value| value.starts_with("incremental=")) {
                job.incremental = Some(argument);
            } else if option == "-C" {
                job.lto_arguments.push(argument);
            }
        }
        (target && job.emit.iter().any(|e| e == "link")).then_some(job)
    }

    /// Parses an option. Returns true if the option must not be passed on to rustc, because the wrapper sets it itself.
    fn parse_option(&mut self, option: &str, value: Option<&str>) -> bool {
        let owned = || value.unwrap_or_default().to_owned();
        match option {
            "--crate-type" => self.types.extend(owned().split(',').map(str::to_owned)),
            "--emit" => self.emit = owned().split(',').map(str::to_owned).collect(),
            "--crate-name" => self.name = owned(),
            "--out-dir" => self.folder = owned().into(),
            "--test" => self.test = true,
            "-g" => self.debug = true,
            "-C" => return self.parse_codegen_option(value.unwrap_or_default()),
            _ => {}
        }
        matches!(option, "--crate-type" | "--emit")
    }

    fn parse_codegen_option(&mut self, text: &str) -> bool {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let value = || Some(value.to_owned());
        match key {
            "extra-filename" => self.extra = value().unwrap_or_default(),
            "debuginfo" => self.debug = true,
            "opt-level" => self.codegen.level = value(),
            "relocation-model" => self.codegen.relocation = value(),
            "code-model" => self.codegen.model = value(),
            "target-cpu" => self.codegen.cpu = value(),
            "codegen-units" => self.codegen.units = value(),
            "embed-bitcode" => self.embeds_bitcode = !["no", "n", "off", "false"].contains(&value().as_deref().unwrap_or_default()),
            "lto" => self.lto = value(),
            _ => {}
        }
        // Libraries must contain bitcode even if cargo does not request LTO, so the wrapper sets `embed-bitcode` itself.
        matches!(key, "lto" | "incremental" | "embed-bitcode")
    }

    /// Returns true if the crate is instrumented when the program is linked, and not when the crate is compiled. This is the case if the
    /// cargo profile enables link-time optimisation, or if function names must match those in an edge profile.
    pub fn is_whole_program(&self, context: &DriverContext) -> Result<bool> {
        Ok(self.embeds_bitcode || must_keep_function_names(context)?)
    }

    /// Returns the command that compiles the crate to objects that can be replaced by instrumented ones.
    ///
    /// Unoptimised code is written as bitcode instead of machine code. The option for this, `-Clinker-plugin-lto`, also changes the
    /// optimisation pipeline, so optimised code is instead written twice: as machine code, and as bitcode after all optimisations.
    /// Optimised code is not compiled incrementally, because rustc would write no bitcode for unchanged units.
    pub fn crate_command(&self, context: &DriverContext, rustc: &OsStr) -> Result<Command> {
        let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
        let mut command = self.base_command(context, rustc, &types)?;
        command.args(&self.lto_arguments).arg("-Csplit-debuginfo=off");
        if self.codegen.is_unoptimised() {
            let units = if self.incremental.is_some() && can_divide_crate(context)? { INCREMENTAL_CODEGEN_UNITS } else { "1" };
            command.arg(format!("--emit={}", self.emit.join(","))).arg("-Clinker-plugin-lto").arg(format!("-Ccodegen-units={units}"));
            command.args(&self.incremental);
        } else {
            // Without an explicit number of units, rustc uses a single unit when it writes bitcode.
            let units = self.codegen.units.as_deref().unwrap_or(DEFAULT_CODEGEN_UNITS);
            command.arg(format!("--emit={},llvm-bc", self.emit.join(","))).arg(format!("-Ccodegen-units={units}"));
        }
        command.arg(option_with_value("-Clinker=", assets::create_cargo_driver(context, &context.store()?)?));
        command.env(ROLE_VARIABLE, CRATE_LINKER_ROLE).env(CODEGEN_VARIABLE, self.codegen.arguments().join(CODEGEN_SEPARATOR));
        Ok(command)
    }

    /// Returns the paths of the crate's output files that are archives.
    pub fn archives(&self) -> Vec<PathBuf> {
        let of_type = |end: &str| self.folder.join(format!("lib{}{}.{end}", self.name, self.extra));
        let all = self.types.iter().filter_map(|kind| match kind.as_str() {
            "lib" | "rlib" => Some(of_type("rlib")),
            "staticlib" => Some(of_type("a")),
            _ => None,
        });
        if self.test { Vec::new() } else { all.collect() }
    }

    /// Returns the rustc commands that produce everything that cargo requests. There is one command, or two if the crate types need
    /// different options.
    pub fn whole_program_commands(&self, context: &DriverContext, rustc: &OsStr) -> Result<Vec<Command>> {
        let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
        let (wholes, others): (Vec<&str>, Vec<&str>) = types.iter().partition(|t| ["bin", "cdylib"].contains(t));
        if self.test || others.is_empty() {
            return Ok(vec![self.program_command(context, rustc, &types, &self.emit)?]);
        }
        if others.contains(&"staticlib") {
            log::info!("the static library of crate {} is not instrumented", self.name);
        }
        let mut commands = vec![self.library_command(context, rustc, &others)?];
        if !wholes.is_empty() {
            let emit: Vec<String> = self.emit.iter().filter(|e| *e == "link").cloned().collect();
            let mut second = self.program_command(context, rustc, &wholes, &emit)?;
            // The first run has already printed all warnings.
            second.args(["--cap-lints", "allow"]);
            commands.push(second);
        }
        Ok(commands)
    }

    fn program_command(&self, context: &DriverContext, rustc: &OsStr, types: &[&str], emit: &[String]) -> Result<Command> {
        let mut command = self.base_command(context, rustc, types)?;
        if must_keep_function_names(context)? {
            // If `--emit` requested bitcode, rustc would use a single codegen unit, and function names would not match those in the
            // profile.
            command.arg(format!("--emit={}", emit.join(","))).args(["-Clto=fat", "-Csave-temps"]);
        } else {
            command.arg(format!("--emit={},llvm-bc", emit.join(","))).arg("-Clto=fat");
        }
        self.set_linker(context, &mut command)?;
        Ok(command)
    }

    /// Removes rustc's temporary files, which were kept because one of them is the program's bitcode.
    pub fn remove_temporary_files(&self) -> Result<()> {
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

    /// Returns the rustc command for those output libraries that other Rust crates use.
    fn library_command(&self, context: &DriverContext, rustc: &OsStr, types: &[&str]) -> Result<Command> {
        let mut command = self.base_command(context, rustc, types)?;
        if !types.contains(&"dylib") {
            command.arg(format!("--emit={}", self.emit.join(",")));
            command.args(self.lto.iter().map(|l| format!("-Clto={l}")));
            return Ok(command);
        }
        command.arg(format!("--emit={},llvm-bc", self.emit.join(","))).arg("-Ccodegen-units=1");
        self.set_linker(context, &mut command)?;
        Ok(command)
    }

    fn base_command(&self, context: &DriverContext, rustc: &OsStr, types: &[&str]) -> Result<Command> {
        let mut command = Command::new(rustc);
        command.args(&self.arguments).args(types.iter().map(|t| format!("--crate-type={t}")));
        if !self.debug {
            command.arg("-Cdebuginfo=line-tables-only");
        }
        command.args(pgo::rustc_options(context)?).args(configuration_options(context));
        Ok(command)
    }

    fn set_linker(&self, context: &DriverContext, command: &mut Command) -> Result<()> {
        let linker = option_with_value("-Clinker=", assets::create_cargo_driver(context, &context.store()?)?);
        command.arg(linker).arg("-Clinker-features=-lld");
        command.env(ROLE_VARIABLE, LINKER_ROLE).env(CODEGEN_VARIABLE, self.codegen.arguments().join(CODEGEN_SEPARATOR));
        command.env(MODULE_VARIABLE, self.folder.join(format!("{}{}.bc", self.name, self.extra)));
        Ok(())
    }
}

/// Splits an argument into option and value. Accepts all spellings that rustc accepts (`-C x`, `-Cx`, `--emit x`, `--emit=x`).
fn split_option<'a>(text: &str, rest: &mut impl Iterator<Item = &'a OsString>) -> (String, Option<String>) {
    const OPTIONS_WITH_VALUE: &[&str] = &["-C", "--codegen", "--emit", "--crate-type", "--crate-name", "--out-dir", "--target", "--print"];
    let mut next = || rest.next().map(|v| v.to_string_lossy().into_owned());
    let named = |option: &str| if option == "--codegen" { "-C".to_owned() } else { option.to_owned() };
    if OPTIONS_WITH_VALUE.contains(&text) {
        return (named(text), next());
    }
    if let Some(value) = text.strip_prefix("-C") {
        return ("-C".into(), Some(value.to_owned()));
    }
    match text.split_once('=') {
        Some((option, value)) if OPTIONS_WITH_VALUE.contains(&option) => (named(option), Some(value.to_owned())),
        _ => (text.to_owned(), None),
    }
}

/// Returns a single argument that passes on an option and its value. An option without a value is passed on as it was, even if it is not
/// UTF-8.
fn join_option(argument: &OsStr, option: &str, value: Option<&str>) -> OsString {
    match value {
        None => argument.to_owned(),
        Some(value) if option == "-C" => format!("-C{value}").into(),
        Some(value) => format!("{option}={value}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<CrateJob> {
        CrateJob::read(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|a| a.to_string_lossy().into_owned()).collect()
    }

    const BASE_ARGUMENTS: &str =
        "--crate-name x --edition=2024 src/main.rs --emit=dep-info,link -C opt-level=3 -C extra-filename=-ab12 --out-dir /o --target t";

    #[test]
    fn programs_write_bitcode_and_use_this_linker() {
        let job = read(&format!("{BASE_ARGUMENTS} --crate-type bin -C incremental=/i")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[]);
        let commands = job.whole_program_commands(&context, OsStr::new("rustc")).unwrap();
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
    fn library_that_is_both_rlib_and_cdylib_is_compiled_twice() {
        let job = read(&format!("{BASE_ARGUMENTS} --crate-type rlib --crate-type cdylib")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[]);
        let commands = job.whole_program_commands(&context, OsStr::new("rustc")).unwrap();
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

    #[test]
    fn crates_are_compiled_one_by_one_unless_the_profile_has_lto() {
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[]);
        let whole = |text: &str| read(&format!("{BASE_ARGUMENTS} --crate-type lib {text}")).unwrap().is_whole_program(&context).unwrap();
        assert!(!whole("-C embed-bitcode=no") && !whole("-C lto=off -Cembed-bitcode=no"));
        assert!(whole("") && whole("-C linker-plugin-lto"));
        let job = read(&format!("{BASE_ARGUMENTS} --crate-type lib --crate-type staticlib -C embed-bitcode=no -C incremental=/i")).unwrap();
        let found = arguments(&job.crate_command(&context, OsStr::new("rustc")).unwrap());
        for expected in ["--emit=dep-info,link,llvm-bc", "-Ccodegen-units=16", "-Cembed-bitcode=no"] {
            assert!(found.iter().any(|w| w == expected), "{expected} in {found:?}");
        }
        assert!(!found.iter().any(|w| w.contains("incremental") || w.contains("plugin-lto")));
        assert_eq!(job.archives(), ["/o/libx-ab12.rlib", "/o/libx-ab12.a"].map(PathBuf::from));
        let job = read(&BASE_ARGUMENTS.replace("opt-level=3", "opt-level=0")).unwrap();
        let found = arguments(&job.crate_command(&context, OsStr::new("rustc")).unwrap());
        assert!(found.contains(&"-Clinker-plugin-lto".to_owned()) && found.contains(&"-Ccodegen-units=1".to_owned()), "{found:?}");
        let job = read(&format!("{} -C incremental=/i", BASE_ARGUMENTS.replace("opt-level=3", "opt-level=0"))).unwrap();
        let found = arguments(&job.crate_command(&context, OsStr::new("rustc")).unwrap());
        assert!(found.contains(&"-Cincremental=/i".to_owned()) && found.contains(&"-Ccodegen-units=16".to_owned()), "{found:?}");
    }
}
