//! The compiler drivers `trodden cc` and `trodden c++`, which run clang so that paths are counted.
//!
//! The user's arguments are passed to clang unchanged. For compiling, the driver adds the plugin, line tables if the user requests no debug
//! information ([`debug_information`]), and `-fno-lto`, because the plugin runs when machine code is generated. For linking, it adds the
//! runtime object, a build ID, and a dependency file for the link recipe (`link.rs`). If nothing is left to do after clang, this process
//! turns into clang with exec, so that signals, exit status and resource usage are clang's own.

pub mod arguments;
pub mod debug_information;
mod options;
pub mod pgo;
mod response_files;

use crate::assets;
use crate::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE, SourceLanguage, insert_arguments, parse_command_line};
use crate::context::DriverContext;
use crate::events::{self, DriverEvent};
use crate::experiment;
use crate::link;
use crate::toolchain::{CLANG_VARIABLE, LlvmToolchain};
use anyhow::{Context, Result, bail, ensure};
use arguments::CompilerCommandLine;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use trodden_unit::Settings;
use trodden_unit::experiment::Observe;

/// Environment variable that makes the drivers do link-time optimisation.
pub const LTO_VARIABLE: &str = "TRODDEN_LTO";
/// Option that changes the settings of a single compiler call. Its value is a comma-separated list of [`SETTING_WORDS`].
const SETTINGS_OPTION: &str = "--trodden=";
const LTO_WORD: &str = "lto";
/// The words of [`SETTINGS_OPTION`] and the settings that they select. The words are named like the options of `trodden build`.
const SETTING_WORDS: [(&str, &str); 7] = [
    ("sample", "when=bursts"),
    ("stream", "observe=stream"),
    ("addresses", "observe=addresses"),
    ("pgo", "observe=edge-profile"),
    ("coverage", "observe=coverage"),
    ("coverage=mcdc", "observe=mcdc"),
    ("events=tsc", "events=tsc"),
];

/// Runs clang with `arguments`. Returns only if the command links, or if clang cannot be run; otherwise, clang replaces this process.
pub fn drive(context: &DriverContext, language: SourceLanguage, arguments: Vec<OsString>) -> Result<ExitCode> {
    drive_clang(context, &LlvmToolchain::find(context)?, language, arguments)
}

/// Runs clang in place of the compiler that the build called as `name`. A name such as `clang-20` selects this version of clang. Otherwise
/// like [`drive`].
pub fn stand_in_for_compiler(context: &DriverContext, name: &str, language: SourceLanguage, arguments: Vec<OsString>) -> Result<ExitCode> {
    drive_clang(context, &LlvmToolchain::for_compiler_name(context, name)?, language, arguments)
}

fn drive_clang(context: &DriverContext, llvm: &LlvmToolchain, language: SourceLanguage, mut arguments: Vec<OsString>) -> Result<ExitCode> {
    let own = remove_trodden_options(&mut arguments)?;
    let lto = own.lto || context.variable(LTO_VARIABLE).is_some_and(|v| v == "1");
    if own.settings != Settings::default() || experiment::settings_variable(context).is_some() {
        return drive_with_resolved_settings(context, llvm, language, &arguments, own.settings, lto);
    }
    let clang = llvm.tool(context, language.tool())?;
    let line = parse_command_line(&arguments);
    if is_outside_cargo_target(context) || (!line.compiles && !line.links) {
        return exec_clang(&clang, &arguments, &[], &[]);
    }
    if let Some(machine) = &line.unsupported_target {
        log::info!("code for {machine} is not instrumented, because trodden supports x86-64 Linux only");
        return exec_clang(&clang, &arguments, &[], &[]);
    }
    ensure!(
        !requests_control_flow_integrity(&line),
        "-fsanitize=cfi needs clang's own -flto, which cannot be combined with counting. Omit -fsanitize=cfi from the instrumented build"
    );
    ensure!(
        !requests_emulated_tls(&line) || experiment::from_environment(context)?.observe == Some(Observe::Addresses),
        "-femulated-tls cannot be combined with counting, which needs ELF thread-local storage. Omit -femulated-tls from the instrumented \
         build"
    );
    // With link-time optimisation, code is instrumented at the link. Assembly output reaches no link as bitcode, so it is instrumented
    // here.
    let emits_assembly = line.arguments.iter().any(|w| w == "-S");
    if lto && !emits_assembly {
        if line.compiles {
            assets::check_plugin(context, llvm)?;
        }
        return crate::lto::drive(context, llvm, &clang, &arguments, &line);
    }
    let added = compile_options(context, llvm, &line, &clang)?;
    let environment = compile_environment(context, &line)?;
    if line.links {
        let environment = if line.compiles { environment } else { Vec::new() };
        return link::drive(&link::LinkJob {
            context,
            clang: &clang,
            arguments: &arguments,
            line: &line,
            added,
            environment,
            directory: None,
        });
    }
    events::append_event(context, &DriverEvent::compiled(&line));
    exec_clang(&clang, &arguments, &added, &environment)
}

fn compile_options(context: &DriverContext, llvm: &LlvmToolchain, line: &CompilerCommandLine, clang: &Path) -> Result<Vec<OsString>> {
    let mut added = Vec::new();
    if line.compiles {
        added.push(assets::plugin_option(context, llvm)?);
        added.extend(debug_information::debug_options_to_add(line, clang, llvm.major));
        let counters = pgo::compile_options(context, line)?;
        // Coverage builds need no graphs of source lines, because their line counts come from the coverage mapping.
        if counters.is_empty() && is_optimised(line) && !emits_llvm_ir(line) {
            // The plugin builds graphs of source lines from the embedded unoptimised bitcode, and removes the bitcode again.
            added.extend(["-Xclang", "-fembed-bitcode=bitcode"].map(OsString::from));
        }
        added.extend(counters);
        added.extend(pgo::profile_use_options(context, line));
    }
    if line.compiles && embeds_bitcode(line) {
        log::info!("-fembed-bitcode is ignored, because clang must compile to machine code in one step to count paths");
        added.push("-fembed-bitcode=off".into());
    }
    if line.lto {
        log::info!(
            "-flto is ignored, because trodden instruments each source file when it is compiled. To optimise the whole program, use \
             `trodden build --lto`"
        );
        added.push("-fno-lto".into());
        if line.whole_program_vtables {
            added.push("-fno-whole-program-vtables".into());
        }
    }
    Ok(added)
}

/// Returns true if the last `-O` option requests optimisation.
fn is_optimised(line: &CompilerCommandLine) -> bool {
    let level = line.arguments.iter().filter_map(|argument| argument.to_str()?.strip_prefix("-O")).next_back();
    level.is_some_and(|level| level != "0")
}

/// Returns true if the command requests control-flow integrity checks. Clang can compile them only with link-time optimisation.
fn requests_control_flow_integrity(line: &CompilerCommandLine) -> bool {
    let sanitizers = line.arguments.iter().filter_map(|argument| argument.to_str()?.strip_prefix("-fsanitize="));
    sanitizers.flat_map(|list| list.split(',')).any(|sanitizer| sanitizer.starts_with("cfi"))
}

fn requests_emulated_tls(line: &CompilerCommandLine) -> bool {
    let mut options = line.arguments.iter().rev();
    line.compiles && options.find(|a| *a == "-femulated-tls" || *a == "-fno-emulated-tls").is_some_and(|a| a == "-femulated-tls")
}

/// Returns true if the output is LLVM IR. The plugin then does not run.
fn emits_llvm_ir(line: &CompilerCommandLine) -> bool {
    line.arguments.iter().any(|argument| argument == "-emit-llvm")
}

/// Returns true if the user requests embedded bitcode. Clang then generates machine code from the bitcode in a second step, without the
/// plugin.
fn embeds_bitcode(line: &CompilerCommandLine) -> bool {
    let asks = |argument: &OsString| argument.to_str().is_some_and(|a| a.starts_with("-fembed-bitcode") && !a.ends_with("=off"));
    line.arguments.iter().any(asks)
}

fn compile_environment(context: &DriverContext, line: &CompilerCommandLine) -> Result<Vec<(OsString, OsString)>> {
    let store = context.store()?;
    let codegen = line.codegen.join(CODEGEN_SEPARATOR);
    Ok(vec![(trodden_unit::cache::CACHE_VARIABLE.into(), store.root().into()), (CODEGEN_VARIABLE.into(), codegen.into())])
}

fn exec_clang(clang: &Path, arguments: &[OsString], added: &[OsString], environment: &[(OsString, OsString)]) -> Result<ExitCode> {
    let arguments = insert_arguments(arguments, added);
    let error = Command::new(clang).args(arguments).envs(environment.iter().map(|(k, v)| (k, v))).exec();
    Err(error).with_context(|| format!("cannot run {}", clang.display()))
}

/// Resolves the settings to a request, puts the request in the environment for all parts of the driver, and runs the driver again.
fn drive_with_resolved_settings(
    context: &DriverContext,
    llvm: &LlvmToolchain,
    language: SourceLanguage,
    arguments: &[OsString],
    own: Settings,
    lto: bool,
) -> Result<ExitCode> {
    let request = experiment::resolve(context, own.or(experiment::from_environment(context)?))?;
    let trodden = context.executable_folder()?.join("trodden");
    let mut command = Command::new(&trodden);
    command.arg(if language == SourceLanguage::C { "cc" } else { "c++" }).args(arguments);
    experiment::pass_request_to_command(&mut command, &experiment::write_request(context, &request)?);
    command.env(CLANG_VARIABLE, std::path::absolute(llvm.clang())?);
    if lto {
        command.env(LTO_VARIABLE, "1");
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", trodden.display()))
}

/// Settings from the `--trodden=...` options of a compiler call.
#[derive(Debug, Default, PartialEq, Eq)]
struct TroddenOptions {
    settings: Settings,
    lto: bool,
}

fn remove_trodden_options(arguments: &mut Vec<OsString>) -> Result<TroddenOptions> {
    let mut own = TroddenOptions::default();
    let words = |argument: &OsString| argument.to_str()?.strip_prefix(SETTINGS_OPTION).map(str::to_owned);
    let lists: Vec<String> = arguments.iter().filter_map(words).collect();
    arguments.retain(|argument| words(argument).is_none());
    for word in lists.iter().flat_map(|list| list.split(',')) {
        match (SETTING_WORDS.iter().find(|(name, _)| *name == word), word.split_once('=')) {
            _ if word == LTO_WORD => own.lto = true,
            (Some((_, setting)), _) => {
                let setting: Settings = setting.parse()?;
                let conflicts = setting.observe.is_some() && own.settings.observe.is_some() && setting.observe != own.settings.observe;
                ensure!(
                    !conflicts,
                    "{SETTINGS_OPTION}: `{word}` cannot be combined with the other given word, because each of them selects what is \
                     counted. Make two builds"
                );
                own.settings = setting.or(own.settings);
            }
            (None, Some(("events", event))) => {
                own.settings.set("events", event.as_ref()).with_context(|| format!("{SETTINGS_OPTION}{word}"))?
            }
            _ => bail!(
                "{SETTINGS_OPTION}: unknown value `{word}`. Use {LTO_WORD}, {} (or another event)",
                SETTING_WORDS.map(|(name, _)| name).join(", ")
            ),
        }
    }
    Ok(own)
}

/// Environment variable in which `cargo trodden` passes the folder of all output for the target. Build scripts also compile code for the
/// host, in a different folder; such code is not part of the program under test.
pub const CARGO_FOLDER_VARIABLE: &str = "TRODDEN_CARGO_FOLDER";
/// Environment variable with the folders of the packages that `cargo trodden` instruments. It is unset if all packages are instrumented.
pub const CARGO_PACKAGES_VARIABLE: &str = "TRODDEN_CARGO_PACKAGES";

/// Returns true if this driver was called by a build script to compile code that `cargo trodden` does not instrument.
fn is_outside_cargo_target(context: &DriverContext) -> bool {
    let (Some(folder), Some(out)) = (context.variable(CARGO_FOLDER_VARIABLE), context.variable("OUT_DIR")) else { return false };
    let is_left_out = || {
        let (Some(packages), Some(own)) = (context.variable(CARGO_PACKAGES_VARIABLE), context.variable("CARGO_MANIFEST_DIR")) else {
            return false;
        };
        !std::env::split_paths(packages).any(|package| package == Path::new(own))
    };
    !Path::new(out).starts_with(folder) || is_left_out()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Separates the `--trodden=` options in a command line from all other arguments.
    fn split_trodden_options(text: &str) -> (Result<TroddenOptions>, String) {
        let mut arguments = text.split(' ').map(OsString::from).collect();
        let own = remove_trodden_options(&mut arguments);
        (own, arguments.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn own_options_are_removed_and_clang_options_remain() {
        let (own, rest) = split_trodden_options("-O2 --trodden=lto,events=page-faults -c a.c --trodden=sample");
        assert_eq!(rest, "-O2 -c a.c");
        let own = own.unwrap();
        assert!(own.lto && own.settings.to_string() == "when=bursts events=page-faults", "{own:?}");
        let (own, rest) = split_trodden_options("-O2 --trodden -c a.c");
        assert_eq!((own.unwrap(), &*rest), (TroddenOptions::default(), "-O2 --trodden -c a.c"));
        for wrong in ["--trodden=", "--trodden=tables", "--trodden=coverage=lines", "--trodden=events=sneezes", "--trodden=pgo,coverage"] {
            assert!(split_trodden_options(wrong).0.is_err(), "{wrong}");
        }
    }
}
