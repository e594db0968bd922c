//! `cargo trodden build|run|test|bench ...`: cargo, with the paths of the crate's own programs counted.
//!
//! rustc has no plugins on the stable channel, but it gives its bitcode away. Cargo builds with link-time optimisation,
//! and this program stands in for rustc ([`RUSTC_WRAPPER`](crate::rust)): where rustc links a program, it also writes
//! the program's one module as bitcode, and calls us as its linker, which puts the module, compiled through the plugin,
//! in the place of rustc's object.
//!
//! An explicit `--target` keeps build scripts and procedural macros out. A target folder of its own (`target/trodden`)
//! keeps plain builds. C and C++ that build scripts compile for the target go through the drivers.

use crate::assets;
use crate::cc::{CARGO_FOLDER_VARIABLE, pgo};
use crate::context::DriverContext;
use crate::experiment;
use crate::rust;
use crate::toolchain::Tool;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::exit_code;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::{Identity, Settings};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Verbs of cargo that build programs.
const VERBS: [&str; 7] = ["build", "b", "run", "r", "test", "t", "bench"];

/// Runs cargo with its arguments, of which the first is the verb, and the settings that the user gave besides.
///
/// # Errors
/// Cargo, clang or a part of trodden is missing.
pub fn run(context: &DriverContext, arguments: Vec<OsString>, settings: Settings) -> Result<ExitCode> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default().to_owned();
    let mut command = cargo(context, &verb, &Invocation::read(arguments)?, settings, &recorder(&verb))?;
    run_cargo(&mut command)
}

/// Looks at a verb.
///
/// # Errors
/// Nothing can be counted in what it does.
pub fn check_verb(verb: &str) -> Result<()> {
    if !VERBS.contains(&verb) {
        bail!("`cargo trodden {verb}` is unknown: build, run, test and bench are known (see `cargo trodden --help`)");
    }
    Ok(())
}

/// `cargo test` or `cargo nextest run`, each test as a run of a suite in the run store of the working folder.
///
/// # Errors
/// As [`run`].
pub fn test_as_suite(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, suite: &str) -> Result<ExitCode> {
    let project = context.directory()?.to_str().context("the path of the current folder is not UTF-8")?;
    let step = ["suite", "step", "--suite", suite, "--project", project];
    run_cargo(&mut cargo(context, "test", &Invocation::read(arguments)?, settings, &step.map(str::to_owned))?)
}

fn run_cargo(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run cargo: install Rust from https://rustup.rs")?;
    Ok(exit_code(status))
}

/// What is asked of cargo.
#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    /// Cargo's arguments, but for those below.
    arguments: Vec<OsString>,
    /// How many of them come before `--`.
    own: usize,
    /// The target triple, if it is given.
    target: Option<String>,
    /// The profile, if it is given.
    profile: Option<String>,
    /// The target folder, if it is given.
    folder: Option<PathBuf>,
}

impl Invocation {
    fn read(arguments: Vec<OsString>) -> Result<Invocation> {
        let mut out = Invocation::default();
        let mut rest = arguments.into_iter();
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
fn cargo(context: &DriverContext, verb: &str, invocation: &Invocation, settings: Settings, recorder: &[String]) -> Result<Command> {
    Tool::Clang.find(context)?;
    assets::PLUGIN.find(context)?;
    let store = context.store()?;
    let target = invocation.target.clone().unwrap_or_else(|| TARGET.into());
    if !target.starts_with("x86_64-") || !target.contains("-linux-") {
        bail!("{target} is no target that trodden knows: only x86-64 Linux is");
    }
    let folder = match &invocation.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => target_folder(context, &invocation.arguments)?.join("trodden"),
    };
    let mut command = Command::new(context.variable("CARGO").unwrap_or(OsStr::new("cargo")));
    command.args(&invocation.arguments[..invocation.own]);
    command.arg(format!("--target={target}")).arg("--target-dir").arg(&folder);
    if verb != "build" && verb != "b" {
        command.arg("--config").arg(runner(context, &target, recorder)?);
    }
    command.args(&invocation.arguments[invocation.own..]);
    let settings = settings.over(experiment::of_environment(context)?);
    let names_matter = pgo::names_matter(context, &settings);
    let request = experiment::file(context, &experiment::resolve(context, settings)?)?;
    if !names_matter {
        // Where a profile is collected or used, names must be those of the other build, and cargo makes them of the settings, too.
        let variable = invocation.profile(verb).to_uppercase().replace('-', "_");
        command.env(format!("CARGO_PROFILE_{variable}_LTO"), "fat");
    }
    command.env("CARGO_INCREMENTAL", "0");
    if context.value("RUSTC_WRAPPER").is_some() {
        log::info!("RUSTC_WRAPPER is not used: trodden stands there itself");
    }
    let way = way(context, &request)?;
    command.env("RUSTC_WRAPPER", assets::wrapper_for(context, &store, way)?).env(rust::ROLE_VARIABLE, rust::WRAPPER);
    command.env(rust::WAY_VARIABLE, way.to_string());
    command.env(CACHE_VARIABLE, store.root());
    experiment::set(&mut command, &request);
    let drivers = assets::drivers(context, &store)?;
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
fn way(context: &DriverContext, request: &Path) -> Result<Identity> {
    let plugin = assets::PLUGIN.find(context)?;
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
fn runner(context: &DriverContext, target: &str, recorder: &[String]) -> Result<OsString> {
    let trodden = context.own_folder()?.join("trodden");
    let trodden = trodden.to_str().with_context(|| format!("the path {} is not UTF-8", trodden.display()))?;
    let arguments = [trodden].into_iter().chain(recorder.iter().map(String::as_str)).chain(["--"]);
    let list = arguments.map(|w| serde_json::to_string(w).expect("text")).collect::<Vec<_>>().join(",");
    Ok(format!("target.{target}.runner=[{list}]").into())
}

/// The package's own target folder, as cargo has it.
///
/// # Errors
/// There is no cargo, or no package here.
pub fn target_folder(context: &DriverContext, arguments: &[OsString]) -> Result<PathBuf> {
    let mut command = Command::new(context.variable("CARGO").unwrap_or(OsStr::new("cargo")));
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
    fn what_is_decided_here_is_taken_out_and_the_rest_stays() {
        let found = read("run --release --target-dir z --bin x -- --release --target y");
        assert_eq!(found.arguments, ["run", "--release", "--bin", "x", "--", "--release", "--target", "y"].map(OsString::from));
        assert_eq!(found.own, 4);
        assert_eq!(found.folder, Some("z".into()));
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
