//! `cargo trodden build|run|test|bench ...`: runs cargo so that the paths of the crate's own programs are counted.
//!
//! Stable rustc loads no plugins, but it can write bitcode. This program is the wrapper of rustc ([`rust`]), which makes rustc write
//! bitcode, has clang compile it with the plugin, and replaces rustc's objects by the result. It wraps the compilation of workspace
//! members, unless dependencies are requested, too: cargo distinguishes members by the path of their wrapper, so builds with different
//! requests share the dependencies. An explicit `--target` excludes build scripts and procedural macros, and a separate target folder
//! preserves plain builds.

use crate::assets;
use crate::cc::{CARGO_FOLDER_VARIABLE, CARGO_PACKAGES_VARIABLE, pgo};
use crate::context::DriverContext;
use crate::experiment;
use crate::other_programs::run as output_of;
use crate::rust;
use crate::toolchain::{CLANG_VARIABLE, Llvm};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::exit_code;
use trodden_profile::store;
use trodden_text::words::list_names;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::{Identity, Settings};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Cargo's subcommands that build programs.
const VERBS: [&str; 9] = ["build", "b", "run", "r", "test", "t", "bench", "nextest", "install"];
/// Subcommands that run tests or benchmarks.
const TEST_VERBS: [&str; 4] = ["test", "t", "bench", "nextest"];
/// Subcommands that run no program.
const BUILD_VERBS: [&str; 3] = ["build", "b", "install"];

/// The code that is instrumented in addition to the members of the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstrumentedScope {
    /// Dependencies of the members.
    pub dependencies: bool,
    /// The standard library.
    pub std: bool,
}

impl InstrumentedScope {
    /// Describes what is not counted, and the options that add it. `None` if everything is counted.
    fn left_out(self) -> Option<&'static str> {
        match (self.dependencies, self.std) {
            (false, false) => {
                Some("only workspace members are counted; --dependencies adds their dependencies, and --std the standard library")
            }
            (false, true) => Some("dependencies are not counted; --dependencies adds them"),
            (true, false) => Some("the standard library is not counted; --std adds it"),
            (true, true) => None,
        }
    }
}

/// A command of cargo.
#[derive(Debug)]
pub struct CargoCommand {
    /// The command.
    pub command: Command,
    /// The folder of the workspace.
    pub workspace: PathBuf,
    /// The folder with copies of documentation tests.
    pub images: PathBuf,
}

/// Runs cargo with these arguments, of which the first is its subcommand, and the user's settings.
pub fn run(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, scope: InstrumentedScope) -> Result<ExitCode> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default().to_owned();
    let runner = if BUILD_VERBS.contains(&&*verb) { ProgramRunner::None } else { ProgramRunner::Recorder(recorder(&verb)) };
    let mut cargo = cargo(context, &Invocation::read(arguments)?, settings, scope, runner)?;
    cargo.command.env(rust::STORE_VARIABLE, cargo.workspace.join(store::FOLDER));
    run_cargo(&mut cargo.command)
}

/// Returns cargo's command for tests or benchmarks, whose programs are run by [`rust::run_program`]. `None` for other subcommands.
pub fn tests(
    context: &DriverContext,
    arguments: &[OsString],
    settings: &Settings,
    scope: InstrumentedScope,
) -> Result<Option<CargoCommand>> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default();
    if !TEST_VERBS.contains(&verb) {
        return Ok(None);
    }
    cargo(context, &Invocation::read(arguments.to_vec())?, settings.clone(), scope, ProgramRunner::Shared).map(Some)
}

/// How the programs that cargo builds are run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProgramRunner {
    /// Cargo runs no programs.
    None,
    /// By `trodden` with these arguments, which records each program.
    Recorder(Vec<String>),
    /// By a runner that makes all programs write their counts to the same output pattern.
    Shared,
}

/// Checks that a subcommand of cargo builds programs.
pub fn check_verb(verb: &str) -> Result<()> {
    if !VERBS.contains(&verb) {
        bail!("unknown command `cargo trodden {verb}`. Use build, run, test, bench, nextest or install (see `cargo trodden --help`)");
    }
    Ok(())
}

/// Runs `cargo test` or `cargo nextest run`, and records each test as a run of a suite in the run store of the working folder.
pub fn test_as_suite(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, suite: &str) -> Result<ExitCode> {
    let project = context.directory()?.to_str().context("the path of the current folder is not UTF-8")?;
    let step = ["suite", "step", "--suite", suite, "--project", project];
    let runner = ProgramRunner::Recorder(step.map(str::to_owned).to_vec());
    run_cargo(&mut cargo(context, &Invocation::read(arguments)?, settings, InstrumentedScope::default(), runner)?.command)
}

fn run_cargo(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run cargo. Install Rust from https://rustup.rs")?;
    Ok(exit_code(status))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    /// Cargo's arguments, without the target and the target folder.
    arguments: Vec<OsString>,
    /// Number of arguments before `--`.
    own: usize,
    target: Option<String>,
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
            if !["--target", "--target-dir"].contains(&option.as_str()) {
                out.arguments.push(argument);
                continue;
            }
            let value = joined.or_else(|| rest.next().map(|v| v.to_string_lossy().into_owned()));
            let value = value.with_context(|| format!("{option} needs a value"))?;
            if option == "--target" { out.target = Some(value) } else { out.folder = Some(value.into()) }
        }
        out.own = out.arguments.len();
        Ok(out)
    }

    /// Returns the given target, or x86-64 Linux by default.
    ///
    /// # Errors
    /// trodden does not support the target.
    fn supported_target(&self) -> Result<String> {
        let target = self.target.clone().unwrap_or_else(|| TARGET.into());
        if !target.starts_with("x86_64-") || !target.contains("-linux-") {
            bail!("trodden does not support the target {target}, only x86-64 Linux");
        }
        Ok(target)
    }
}

fn cargo(
    context: &DriverContext,
    invocation: &Invocation,
    settings: Settings,
    scope: InstrumentedScope,
    runner: ProgramRunner,
) -> Result<CargoCommand> {
    let rustc = RustcVersion::read(context).context("cannot run rustc. Install Rust from https://rustup.rs")?;
    let llvm = rustc.compiler(context)?;
    assets::check_plugin(context, &llvm)?;
    let store = context.store()?;
    let target = invocation.supported_target()?;
    let workspace = Workspace::read(context, &invocation.arguments)?;
    let folder = match &invocation.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => workspace.target_folder.join("trodden"),
    };
    let settings = settings.or(experiment::from_environment(context)?);
    let names_must_match = pgo::names_must_match(context, &settings);
    let counters = pgo::LlvmCounters::from_settings(&settings);
    let request = experiment::write_request(context, &experiment::resolve(context, settings)?)?;
    let configuration = configuration(context, &llvm, &request, scope)?;
    let wrappers = assets::cargo_wrappers(context, &store, configuration)?;
    let mut command = Command::new(cargo_program(context));
    command.args(&invocation.arguments[..invocation.own]);
    command.arg(format!("--target={target}")).arg("--target-dir").arg(&folder);
    if let Some(runner) = runner.words(context, &wrappers)? {
        command.arg("--config").arg(runner_setting(&target, &runner)?);
    }
    command.args(&invocation.arguments[invocation.own..]);
    // An edge profile needs all crates as bitcode.
    set_wrappers(context, &mut command, &wrappers, (!scope.dependencies && !names_must_match).then_some(&workspace))?;
    if !names_must_match {
        scope.left_out().into_iter().for_each(|what| log::info!("{what}"));
    }
    if scope.std {
        command.env(rust::STD_VARIABLE, "1");
    }
    if counters == Some(pgo::LlvmCounters::Coverage) {
        set_coverage(&mut command, &workspace, &rustc);
    }
    command.env(CLANG_VARIABLE, std::path::absolute(llvm.clang())?);
    command.env(rust::CONFIGURATION_VARIABLE, configuration.to_string()).env(CACHE_VARIABLE, store.root());
    experiment::pass_request(&mut command, &request);
    let drivers = assets::drivers(context, &store)?;
    let underscored = target.replace('-', "_");
    command.env(format!("CC_{underscored}"), drivers.join("trodden-cc")).env(format!("CXX_{underscored}"), drivers.join("trodden-c++"));
    let built = folder.join(&target);
    command.env(CARGO_FOLDER_VARIABLE, &built);
    Ok(CargoCommand { command, workspace: workspace.root, images: rust::images_in(&built) })
}

/// Makes this program the wrapper of rustdoc and of rustc: for the members of the workspace `members_of`, or for all crates if `None`.
fn set_wrappers(context: &DriverContext, command: &mut Command, wrappers: &Path, members_of: Option<&Workspace>) -> Result<()> {
    if context.value("RUSTC_WRAPPER").is_some() || context.value("RUSTC_WORKSPACE_WRAPPER").is_some() {
        log::info!("RUSTC_WRAPPER and RUSTC_WORKSPACE_WRAPPER are ignored, because trodden itself must be rustc's wrapper");
    }
    ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"].iter().for_each(|name| _ = command.env_remove(name));
    let wrapper = wrappers.join("cargo-trodden");
    match members_of {
        None => command.env("RUSTC_WRAPPER", wrapper).env(rust::ALL_CRATES_VARIABLE, "1"),
        Some(workspace) => {
            let packages =
                std::env::join_paths(&workspace.packages).context("the path of a package contains a colon. Rename the package's folder")?;
            command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(CARGO_PACKAGES_VARIABLE, packages)
        }
    };
    if let Some(rustdoc) = context.value("RUSTDOC") {
        command.env(rust::RUSTDOC_VARIABLE, rustdoc);
    }
    command.env("RUSTDOC", wrappers.join(assets::RUSTDOC_DRIVER)).env(rust::ROLE_VARIABLE, rust::WRAPPER_ROLE);
    Ok(())
}

/// Sets the configuration options of a build for coverage, and lists what cannot be covered.
fn set_coverage(command: &mut Command, workspace: &Workspace, rustc: &RustcVersion) {
    if !workspace.host_code.is_empty() {
        log::info!("no coverage for code that runs during the build: {}", list_names(&workspace.host_code, 3));
    }
    command.env(rust::CFG_VARIABLE, if rustc.is_nightly() { "coverage coverage_nightly" } else { "coverage" });
}

/// Returns the cargo to run: `$CARGO` if set, else `cargo`.
fn cargo_program(context: &DriverContext) -> &OsStr {
    context.variable("CARGO").unwrap_or(OsStr::new("cargo"))
}

/// The version of rustc.
#[derive(Debug)]
pub struct RustcVersion {
    /// Its own version.
    pub release: String,
    /// The version of its LLVM.
    pub llvm: String,
}

impl RustcVersion {
    /// Asks rustc for its version.
    ///
    /// # Errors
    /// Fails if rustc cannot be run.
    pub fn read(context: &DriverContext) -> Result<RustcVersion> {
        let output = output_of(Command::new(context.value("RUSTC").unwrap_or(OsStr::new("rustc"))).arg("-vV"))?;
        let text = String::from_utf8_lossy(&output);
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        Ok(RustcVersion { release: value("release:"), llvm: value("LLVM version:") })
    }

    /// Whether rustc is a nightly one, whose crates may use unstable features.
    fn is_nightly(&self) -> bool {
        self.release.contains("-nightly") || self.release.contains("-dev")
    }

    /// Finds an LLVM that can compile rustc's bitcode.
    ///
    /// # Errors
    /// Fails if rustc is not based on LLVM, or if its LLVM is newer than every installed one.
    pub fn compiler(&self, context: &DriverContext) -> Result<Llvm> {
        let major = self.llvm.split('.').next().and_then(|major| major.parse().ok());
        let major = major.with_context(|| format!("rustc {} is not based on LLVM", self.release))?;
        Llvm::for_bitcode(context, major, &format!("rustc {} is based on", self.release))
    }
}

/// Identifies everything that determines how the plugin changes a program: the request, whose file and inputs are named by their content,
/// the plugin itself, and the version of LLVM.
fn configuration(context: &DriverContext, llvm: &Llvm, request: &Path, scope: InstrumentedScope) -> Result<Identity> {
    let plugin = assets::PLUGIN.find(context)?;
    let bytes = fs::read(&plugin).with_context(|| format!("cannot read {}", plugin.display()))?;
    let name = request.file_name().unwrap_or_default().to_string_lossy();
    Ok(Identity::from_content(format!("{name} {} {scope:?} {}", Identity::from_content(&bytes), llvm.major).as_bytes()))
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

/// Returns cargo's setting that makes it run programs through a command.
fn runner_setting(target: &str, runner: &[OsString]) -> Result<OsString> {
    let words = runner.iter().map(|word| {
        let word = word.to_str().with_context(|| format!("the path {} is not UTF-8", word.display()))?;
        Ok(serde_json::to_string(word).expect("text"))
    });
    Ok(format!("target.{target}.runner=[{}]", words.collect::<Result<Vec<_>>>()?.join(",")).into())
}

impl ProgramRunner {
    /// Returns the command that runs programs.
    fn words(&self, context: &DriverContext, wrappers: &Path) -> Result<Option<Vec<OsString>>> {
        Ok(match self {
            ProgramRunner::None => None,
            ProgramRunner::Recorder(arguments) => {
                let program = [context.executable_folder()?.join("trodden").into_os_string()];
                Some(program.into_iter().chain(arguments.iter().map(OsString::from)).chain(["--".into()]).collect())
            }
            ProgramRunner::Shared => Some(vec![wrappers.join(assets::CARGO_RUNNER).into_os_string()]),
        })
    }
}

/// A workspace, as `cargo metadata` reports it.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the workspace.
    pub root: PathBuf,
    /// The target folder.
    pub target_folder: PathBuf,
    /// The folders of its packages.
    packages: Vec<PathBuf>,
    /// Its procedural macros and build scripts, which run while it is built.
    host_code: Vec<String>,
}

impl Workspace {
    /// Asks cargo for the workspace of a command with these arguments.
    ///
    /// # Errors
    /// Fails if cargo cannot be run, or finds no package.
    pub fn read(context: &DriverContext, arguments: &[OsString]) -> Result<Workspace> {
        let mut command = Command::new(cargo_program(context));
        command.args(["metadata", "--no-deps", "--format-version=1"]);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            if text == "--" {
                break;
            }
            if text == "--manifest-path" {
                command.arg(argument).args(arguments.next());
            } else if text.starts_with("--manifest-path=") || text == "--offline" || text == "--frozen" || text == "--locked" {
                command.arg(argument);
            }
        }
        let output = command.output().context("cannot run cargo. Install Rust from https://rustup.rs")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cannot parse the output of `cargo metadata`")?;
        let folder = |name: &str| {
            let folder = metadata[name].as_str().with_context(|| format!("the output of `cargo metadata` has no {name}"))?;
            anyhow::Ok(PathBuf::from(folder))
        };
        let all = || metadata["packages"].as_array().into_iter().flatten();
        let packages = all().filter_map(|package| Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_owned())).collect();
        let host_code = all().flat_map(host_code).collect();
        Ok(Workspace { root: folder("workspace_root")?, target_folder: folder("target_directory")?, packages, host_code })
    }
}

/// Describes the procedural macro and the build script of a package in cargo's metadata.
fn host_code(package: &serde_json::Value) -> Vec<String> {
    let targets = package["targets"].as_array().into_iter().flatten();
    let describe = |target: &serde_json::Value| {
        let is_of = |kind: &str| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind));
        match () {
            () if is_of("proc-macro") => Some(format!("procedural macro {}", target["name"].as_str()?)),
            () if is_of("custom-build") => Some(format!("build script of {}", package["name"].as_str()?)),
            () => None,
        }
    };
    targets.filter_map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Invocation {
        Invocation::read(text.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn target_options_are_extracted_and_other_arguments_remain() {
        let found = read("run --release --target-dir z --bin x -- --release --target y");
        assert_eq!(found.arguments, ["run", "--release", "--bin", "x", "--", "--release", "--target", "y"].map(OsString::from));
        assert_eq!(found.own, 4);
        assert_eq!(found.folder, Some("z".into()));
        assert_eq!(found.target, None);
    }
}
