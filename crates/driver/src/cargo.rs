//! `cargo trodden build|run|test|bench ...`: runs cargo so that the paths of the crate's own programs are counted.
//!
//! Stable rustc loads no plugins, but it can write bitcode. Cargo builds with link-time optimisation and with this program as
//! [`RUSTC_WRAPPER`](crate::rust), which makes rustc write the whole program as one module of bitcode and call this program as its linker.
//! The linker compiles the module with the plugin, and links the result instead of rustc's object. An explicit `--target` keeps build
//! scripts and procedural macros out, and a target folder of its own preserves plain builds.

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
/// Cargo's subcommands that build programs.
const VERBS: [&str; 7] = ["build", "b", "run", "r", "test", "t", "bench"];

/// Runs cargo with these arguments, of which the first is its subcommand, and the user's settings.
pub fn run(context: &DriverContext, arguments: Vec<OsString>, settings: Settings) -> Result<ExitCode> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default().to_owned();
    let mut command = cargo(context, &verb, &Invocation::read(arguments)?, settings, &recorder(&verb))?;
    run_cargo(&mut command)
}

/// Checks that a subcommand of cargo builds programs.
pub fn check_verb(verb: &str) -> Result<()> {
    if !VERBS.contains(&verb) {
        bail!("`cargo trodden {verb}` is unknown: use build, run, test or bench (see `cargo trodden --help`)");
    }
    Ok(())
}

/// Runs `cargo test` or `cargo nextest run`, and records each test as a run of a suite in the run store of the working folder.
pub fn test_as_suite(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, suite: &str) -> Result<ExitCode> {
    let project = context.directory()?.to_str().context("the path of the current folder is not UTF-8")?;
    let step = ["suite", "step", "--suite", suite, "--project", project];
    run_cargo(&mut cargo(context, "test", &Invocation::read(arguments)?, settings, &step.map(str::to_owned))?)
}

fn run_cargo(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run cargo: install Rust from https://rustup.rs")?;
    Ok(exit_code(status))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    /// Cargo's arguments, without the target and the target folder.
    arguments: Vec<OsString>,
    /// Number of arguments before `--`.
    own: usize,
    target: Option<String>,
    profile: Option<String>,
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

    /// Returns the base profile that cargo compiles with, which depends on the subcommand if none is given.
    fn profile(&self, verb: &str) -> String {
        let default = if verb == "bench" { "release" } else { "dev" };
        match self.profile.as_deref().unwrap_or(default) {
            "test" | "debug" => "dev".into(),
            "bench" => "release".into(),
            other => other.to_owned(),
        }
    }
}

fn cargo(context: &DriverContext, verb: &str, invocation: &Invocation, settings: Settings, recorder: &[String]) -> Result<Command> {
    Tool::Clang.find(context)?;
    assets::PLUGIN.find(context)?;
    let store = context.store()?;
    let target = invocation.target.clone().unwrap_or_else(|| TARGET.into());
    if !target.starts_with("x86_64-") || !target.contains("-linux-") {
        bail!("trodden does not support the target {target}, only x86-64 Linux");
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
    let settings = settings.or(experiment::from_environment(context)?);
    let names_must_match = pgo::names_must_match(context, &settings);
    let request = experiment::write_request(context, &experiment::resolve(context, settings)?)?;
    if !names_must_match {
        // LTO settings change the symbol names that cargo chooses, which a profile must share with the build that uses it.
        let variable = invocation.profile(verb).to_uppercase().replace('-', "_");
        command.env(format!("CARGO_PROFILE_{variable}_LTO"), "fat");
    }
    command.env("CARGO_INCREMENTAL", "0");
    if context.value("RUSTC_WRAPPER").is_some() {
        log::info!("RUSTC_WRAPPER is ignored: trodden needs to be the wrapper itself");
    }
    let configuration = configuration(context, &request)?;
    command.env("RUSTC_WRAPPER", assets::cargo_wrapper(context, &store, configuration)?).env(rust::ROLE_VARIABLE, rust::WRAPPER_ROLE);
    command.env(rust::CONFIGURATION_VARIABLE, configuration.to_string());
    command.env(CACHE_VARIABLE, store.root());
    experiment::pass_request(&mut command, &request);
    let drivers = assets::drivers(context, &store)?;
    let underscored = target.replace('-', "_");
    command.env(format!("CC_{underscored}"), drivers.join("trodden-cc")).env(format!("CXX_{underscored}"), drivers.join("trodden-c++"));
    command.env(CARGO_FOLDER_VARIABLE, folder.join(&target));
    Ok(command)
}

/// Identifies everything that determines how the plugin changes a program: the request, whose file and inputs are named by their content,
/// and the plugin itself.
fn configuration(context: &DriverContext, request: &Path) -> Result<Identity> {
    let plugin = assets::PLUGIN.find(context)?;
    let bytes = fs::read(&plugin).with_context(|| format!("cannot read {}", plugin.display()))?;
    let name = request.file_name().unwrap_or_default().to_string_lossy();
    Ok(Identity::from_content(format!("{name} {}", Identity::from_content(&bytes)).as_bytes()))
}

/// Returns the arguments with which `trodden` records the programs that cargo runs.
fn recorder(verb: &str) -> Vec<String> {
    let suite = match verb {
        "bench" => Some("bench"),
        "test" | "t" => Some("test"),
        _ => None,
    };
    let arguments = ["record"].into_iter().chain(suite.iter().flat_map(|suite| ["--suite", *suite]));
    arguments.map(str::to_owned).collect()
}

/// Returns cargo's setting that makes it run programs through `trodden` with these arguments.
fn runner(context: &DriverContext, target: &str, recorder: &[String]) -> Result<OsString> {
    let trodden = context.own_folder()?.join("trodden");
    let trodden = trodden.to_str().with_context(|| format!("the path {} is not UTF-8", trodden.display()))?;
    let arguments = [trodden].into_iter().chain(recorder.iter().map(String::as_str)).chain(["--"]);
    let list = arguments.map(|w| serde_json::to_string(w).expect("text")).collect::<Vec<_>>().join(",");
    Ok(format!("target.{target}.runner=[{list}]").into())
}

/// Returns the package's own target folder, as cargo reports it.
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
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cannot parse the output of `cargo metadata`")?;
    let folder = metadata["target_directory"].as_str().context("the output of `cargo metadata` has no target_directory")?;
    Ok(Path::new(folder).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Invocation {
        Invocation::read(text.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn target_options_are_extracted_and_other_arguments_kept() {
        let found = read("run --release --target-dir z --bin x -- --release --target y");
        assert_eq!(found.arguments, ["run", "--release", "--bin", "x", "--", "--release", "--target", "y"].map(OsString::from));
        assert_eq!(found.own, 4);
        assert_eq!(found.folder, Some("z".into()));
        assert_eq!(found.profile("run"), "release");
        assert_eq!(found.target, None);
    }

    #[test]
    fn profile_is_the_one_whose_settings_cargo_uses() {
        assert_eq!(read("build").profile("build"), "dev");
        assert_eq!(read("test").profile("test"), "dev");
        assert_eq!(read("bench").profile("bench"), "release");
        assert_eq!(read("build --profile dist-x").profile("build"), "dist-x");
    }
}
