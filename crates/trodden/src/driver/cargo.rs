//! `cargo trodden build|run|test|bench ...`: cargo, with the paths of the crate's own programs counted.
//!
//! rustc has no plugins on the stable channel, but it gives its bitcode away. Cargo builds with link-time optimisation,
//! and this program stands in for rustc ([`RUSTC_WRAPPER`](crate::rust)): where rustc links a program, it also writes
//! the program's one module as bitcode, and calls us as its linker, which puts the module, compiled through the plugin,
//! in the place of rustc's object.
//!
//! An explicit `--target` keeps build scripts and procedural macros out. A target folder of its own (`target/trodden`)
//! keeps plain builds. C and C++ that build scripts compile for the target go through the drivers.

use crate::cli::Parameters;
use crate::driver::assets;
use crate::driver::cc::{CARGO_FOLDER_VARIABLE, pgo};
use crate::driver::experiment;
use crate::driver::rust;
use crate::driver::toolchain::Tool;
use crate::notes::note;
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::exit_code;
use trodden_unit::Identity;
use trodden_unit::store::STORE_VARIABLE;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const HELP: &str = "\
Builds, runs, tests or benches a Rust package with its paths counted.

Usage: cargo trodden <build|run|test|bench> [OPTIONS] [cargo's options] [-- arguments]

Options, as of `trodden build`: --scheme S, --max-paths N, --table-slots N, --array-paths N, --threads own|atomic,
--chords on|off, --reach may-not-return|calls|all, --keep bitcode|map, --weights FILE, --sample, --addresses, --tail-merging on|off, --pgo,
--coverage[=mcdc], --events EVENT, --residual PROFILE, --stream, --flight-recorder PATTERN, --witnesses.
Everything else goes to cargo. Programs are in target/trodden/x86_64-unknown-linux-gnu/PROFILE. `run`, `test` and `bench` record
what they run; `trodden report` shows it. With --pgo, `trodden export profdata` makes a profile for -Cprofile-use of it.

Examples:
  cargo trodden build --release && trodden record -- target/trodden/x86_64-unknown-linux-gnu/release/prog
  cargo trodden run --release -- args
  cargo trodden test
";

/// The command, or rustc's wrapper, or rustc's linker: cargo and rustc call the same program.
///
/// # Errors
/// Cargo, clang or a part of trodden is missing.
pub fn run(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    match env::var_os(rust::ROLE_VARIABLE).as_deref().and_then(OsStr::to_str) {
        Some(rust::WRAPPER) => return rust::wrap(arguments),
        Some(rust::LINKER) => return rust::link(arguments),
        _ => {}
    }
    if arguments.first().is_some_and(|a| a == "trodden") {
        arguments.remove(0);
    }
    let Some(verb) = arguments.first().and_then(|a| a.to_str()).filter(|a| !["-h", "--help", "help"].contains(a)).map(str::to_owned) else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    if !["build", "b", "run", "r", "test", "t", "bench"].contains(&verb.as_str()) {
        bail!("`cargo trodden {verb}` is unknown: build, run, test and bench are known (see `cargo trodden --help`)");
    }
    let invocation = Invocation::read(arguments)?;
    let mut command = cargo(&verb, &invocation, &recorder(&verb))?;
    run_cargo(&mut command)
}

/// `cargo test` or `cargo nextest run`, each test as a run of a suite in the run store of the current folder.
///
/// # Errors
/// As [`run`].
pub fn test_as_suite(arguments: Vec<OsString>, suite: &str) -> Result<ExitCode> {
    let project = env::current_dir()?;
    let project = project.to_str().context("the path of the current folder is not UTF-8")?;
    let step = ["suite", "step", "--suite", suite, "--project", project];
    run_cargo(&mut cargo("test", &Invocation::read(arguments)?, &step.map(str::to_owned))?)
}

fn run_cargo(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run cargo: install Rust from https://rustup.rs")?;
    Ok(exit_code(status))
}

/// What is asked of cargo.
#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    /// Cargo's arguments, trodden's taken out.
    arguments: Vec<OsString>,
    /// How many of them come before `--`.
    own: usize,
    /// How paths are counted.
    parameters: Parameters,
    /// The target triple, if it is given.
    target: Option<String>,
    /// The profile, if it is given.
    profile: Option<String>,
    /// The target folder, if it is given.
    folder: Option<PathBuf>,
}

impl Invocation {
    fn read(arguments: Vec<OsString>) -> Result<Invocation> {
        let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
        let mut own = arguments[..end].to_vec();
        let parameters = Parameters::taken_from(&mut own)?;
        let mut out = Invocation { parameters, ..Invocation::default() };
        let mut rest = own.into_iter().chain(arguments[end..].iter().cloned());
        while let Some(argument) = rest.next() {
            let text = argument.to_string_lossy().into_owned();
            if text == "--" {
                out.own = out.arguments.len();
                out.arguments.push(argument);
                out.arguments.extend(rest);
                return Ok(out);
            }
            let (option, joined) = match text.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (text.clone(), None),
            };
            if !["--target", "--profile", "--target-dir"].contains(&option.as_str()) {
                if text == "--release" || text == "-r" {
                    out.profile = Some("release".into());
                }
                out.arguments.push(argument);
                continue;
            }
            let value = joined.or_else(|| rest.next().map(|v| v.to_string_lossy().into_owned()));
            let value = value.with_context(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--target" => out.target = Some(value),
                "--target-dir" => out.folder = Some(value.into()),
                "--profile" => {
                    out.arguments.push(format!("--profile={value}").into());
                    out.profile = Some(value);
                }
                _ => {}
            }
        }
        out.own = out.arguments.len();
        Ok(out)
    }

    /// The profile in which cargo compiles: its own default where none is given.
    fn profile(&self, verb: &str) -> String {
        let default = if verb == "bench" { "release" } else { "dev" };
        match self.profile.as_deref().unwrap_or(default) {
            "test" | "debug" => "dev".into(),
            "bench" => "release".into(),
            other => other.to_owned(),
        }
    }
}

/// The cargo command.
fn cargo(verb: &str, invocation: &Invocation, recorder: &[String]) -> Result<Command> {
    Tool::Clang.find()?;
    assets::plugin()?;
    let store = assets::store()?;
    let target = invocation.target.clone().unwrap_or_else(|| TARGET.into());
    if !target.starts_with("x86_64-") || !target.contains("-linux-") {
        bail!("{target} is no target that trodden knows: only x86-64 Linux is");
    }
    let folder = match &invocation.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => target_folder(&invocation.arguments)?.join("trodden"),
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(&invocation.arguments[..invocation.own]);
    command.arg(format!("--target={target}")).arg("--target-dir").arg(&folder);
    if verb != "build" && verb != "b" {
        command.arg("--config").arg(runner(&target, recorder)?);
    }
    command.args(&invocation.arguments[invocation.own..]);
    let settings = invocation.parameters.settings().over(experiment::of_environment()?);
    let names_matter = pgo::names_matter(&settings);
    let request = experiment::file(&experiment::resolve(settings)?)?;
    if !names_matter {
        // Where a profile is collected or used, names must be those of the other build, and cargo makes them of the settings, too.
        let variable = invocation.profile(verb).to_uppercase().replace('-', "_");
        command.env(format!("CARGO_PROFILE_{variable}_LTO"), "fat");
    }
    command.env("CARGO_INCREMENTAL", "0");
    if env::var_os("RUSTC_WRAPPER").is_some_and(|w| !w.is_empty()) {
        note("RUSTC_WRAPPER is not used: trodden stands there itself");
    }
    let way = way(&request)?;
    command.env("RUSTC_WRAPPER", assets::wrapper_for(&store, way)?).env(rust::ROLE_VARIABLE, rust::WRAPPER);
    command.env(rust::WAY_VARIABLE, way.to_string());
    command.env(STORE_VARIABLE, store.root());
    experiment::set(&mut command, &request);
    let drivers = assets::drivers(&store)?;
    let underscored = target.replace('-', "_");
    command.env(format!("CC_{underscored}"), drivers.join("trodden-cc")).env(format!("CXX_{underscored}"), drivers.join("trodden-c++"));
    command.env(CARGO_FOLDER_VARIABLE, folder.join(&target));
    Ok(command)
}

/// What decides how the plugin changes a program: the request, whose file is named by its content and names others so, and
/// the plugin itself.
///
/// # Errors
/// The plugin cannot be read.
fn way(request: &Path) -> Result<Identity> {
    let plugin = assets::plugin()?;
    let bytes = fs::read(&plugin).with_context(|| format!("cannot read {}", plugin.display()))?;
    let name = request.file_name().unwrap_or_default().to_string_lossy();
    Ok(Identity::from_content(format!("{name} {}", Identity::from_content(&bytes)).as_bytes()))
}

/// The arguments by which `trodden` records what cargo runs.
fn recorder(verb: &str) -> Vec<String> {
    let suite = match verb {
        "bench" => Some("bench"),
        "test" | "t" => Some("test"),
        _ => None,
    };
    let arguments = ["record"].into_iter().chain(suite.iter().flat_map(|suite| ["--suite", *suite]));
    arguments.map(str::to_owned).collect()
}

/// Cargo's setting that has `trodden` run what cargo runs, with these arguments.
fn runner(target: &str, recorder: &[String]) -> Result<OsString> {
    let trodden = assets::own_folder()?.join("trodden");
    let trodden = trodden.to_str().with_context(|| format!("the path {} is not UTF-8", trodden.display()))?;
    let arguments = [trodden].into_iter().chain(recorder.iter().map(String::as_str)).chain(["--"]);
    let list = arguments.map(|w| serde_json::to_string(w).expect("text")).collect::<Vec<_>>().join(",");
    Ok(format!("target.{target}.runner=[{list}]").into())
}

/// The package's own target folder, as cargo has it.
///
/// # Errors
/// There is no cargo, or no package here.
pub fn target_folder(arguments: &[OsString]) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--manifest-path" {
            command.arg(argument).args(arguments.next());
        } else if text.starts_with("--manifest-path=") || text == "--offline" || text == "--frozen" || text == "--locked" {
            command.arg(argument);
        }
    }
    let output = command.output().context("cannot run cargo: install Rust from https://rustup.rs")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(Path::new(folder).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Invocation {
        Invocation::read(text.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn own_options_are_taken_out_and_cargos_stay() {
        let found = read("run --release --pgo --max-paths 9 --bin x --scheme=ball-larus --reach all --sample -- --release --target y");
        assert_eq!(found.arguments, ["run", "--release", "--bin", "x", "--", "--release", "--target", "y"].map(OsString::from));
        assert_eq!(found.own, 4);
        let settings = found.parameters.settings().to_string();
        assert_eq!(settings, "scheme=ball-larus max-paths=9 reach=all when=bursts observe=edge-profile");
        assert_eq!(found.profile("run"), "release");
        assert_eq!(found.target, None);
    }

    #[test]
    fn profiles_are_those_whose_settings_cargo_takes() {
        assert_eq!(read("build").profile("build"), "dev");
        assert_eq!(read("test").profile("test"), "dev");
        assert_eq!(read("bench").profile("bench"), "release");
        assert_eq!(read("build --profile dist-x").profile("build"), "dist-x");
    }
}
