//! `cargo trodden build|run|test|bench ...`: runs cargo so that the paths in the workspace's own code are counted.
//!
//! Stable rustc cannot load plugins, but it can write bitcode. This program acts as the wrapper of rustc ([`rust`]): it makes rustc write
//! bitcode, lets clang compile the bitcode with the plugin, and puts the results in place of rustc's objects. By default, it wraps only the
//! compilation of workspace members. cargo rebuilds members when the path of their wrapper changes, so builds with different settings share
//! the compiled dependencies. An explicit `--target` keeps build scripts and procedural macros from being instrumented, and a separate
//! target folder leaves plain builds intact.

use crate::assets;
use crate::cc::{CARGO_FOLDER_VARIABLE, CARGO_PACKAGES_VARIABLE, pgo};
use crate::context::DriverContext;
use crate::experiment;
use crate::other_programs::run as output_of;
use crate::rust;
use crate::toolchain::{CLANG_VARIABLE, LlvmToolchain};
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

const DEFAULT_TARGET: &str = "x86_64-unknown-linux-gnu";
const BUILDING_VERBS: [&str; 9] = ["build", "b", "run", "r", "test", "t", "bench", "nextest", "install"];
const TEST_VERBS: [&str; 4] = ["test", "t", "bench", "nextest"];
const BUILD_ONLY_VERBS: [&str; 3] = ["build", "b", "install"];

/// Which code is instrumented in addition to that of the workspace members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstrumentedScope {
    /// True to instrument the dependencies of workspace members.
    pub dependencies: bool,
    /// True to instrument the standard library.
    pub std: bool,
}

impl InstrumentedScope {
    /// Describes which code is not counted and which options would include it. Returns `None` if all code is counted.
    fn describe_uncounted_code(self) -> Option<&'static str> {
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

/// A cargo command that is ready to run.
#[derive(Debug)]
pub struct CargoCommand {
    /// The command with its arguments and environment.
    pub command: Command,
    /// Root folder of the workspace.
    pub workspace: PathBuf,
    /// Folder in which copies of the executables of documentation tests are kept.
    pub images: PathBuf,
}

/// Runs cargo. The first of the `arguments` is cargo's subcommand; `settings` are those that the user gives for this command.
pub fn run(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, scope: InstrumentedScope) -> Result<ExitCode> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default().to_owned();
    let runner = if BUILD_ONLY_VERBS.contains(&&*verb) { ProgramRunner::None } else { ProgramRunner::Recorder(recorder_arguments(&verb)) };
    let mut cargo = prepare_cargo(context, &CargoArguments::read(arguments)?, settings, scope, runner)?;
    cargo.command.env(rust::STORE_VARIABLE, cargo.workspace.join(store::FOLDER));
    run_cargo(&mut cargo.command)
}

/// Returns the cargo command for a subcommand that runs tests or benchmarks, or `None` for other subcommands. Cargo runs the programs that
/// it builds through [`rust::run_program`].
pub fn command_for_tests(
    context: &DriverContext,
    arguments: &[OsString],
    settings: &Settings,
    scope: InstrumentedScope,
) -> Result<Option<CargoCommand>> {
    let verb = arguments.first().and_then(|verb| verb.to_str()).unwrap_or_default();
    if !TEST_VERBS.contains(&verb) {
        return Ok(None);
    }
    prepare_cargo(context, &CargoArguments::read(arguments.to_vec())?, settings.clone(), scope, ProgramRunner::Shared).map(Some)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProgramRunner {
    None,
    /// Cargo runs each program through `trodden` with these arguments, which records the run.
    Recorder(Vec<String>),
    /// Cargo runs each program through [`CARGO_RUNNER`](assets::CARGO_RUNNER). All programs write their counts to the same output pattern.
    Shared,
}

/// Fails unless `verb` is a cargo subcommand that builds programs.
pub fn check_cargo_verb(verb: &str) -> Result<()> {
    if !BUILDING_VERBS.contains(&verb) {
        bail!("unknown command `cargo trodden {verb}`. Use build, run, test, bench, nextest or install (see `cargo trodden --help`)");
    }
    Ok(())
}

/// Runs `cargo test` or `cargo nextest run`, and records each test as one run of the suite `suite`, in the run store of the working folder.
pub fn run_tests_as_suite(context: &DriverContext, arguments: Vec<OsString>, settings: Settings, suite: &str) -> Result<ExitCode> {
    let project = context.directory()?.to_str().context("the path of the current folder is not UTF-8")?;
    let step = ["suite", "step", "--suite", suite, "--project", project];
    let runner = ProgramRunner::Recorder(step.map(str::to_owned).to_vec());
    run_cargo(&mut prepare_cargo(context, &CargoArguments::read(arguments)?, settings, InstrumentedScope::default(), runner)?.command)
}

fn run_cargo(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run cargo. Install Rust from https://rustup.rs")?;
    Ok(exit_code(status))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct CargoArguments {
    /// Cargo's arguments except `--target` and `--target-dir`.
    arguments: Vec<OsString>,
    /// Number of `arguments` before `--`.
    before_dashes: usize,
    target: Option<String>,
    folder: Option<PathBuf>,
}

impl CargoArguments {
    fn read(arguments: Vec<OsString>) -> Result<CargoArguments> {
        let mut out = CargoArguments::default();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_string_lossy().into_owned();
            if text == "--" {
                out.before_dashes = out.arguments.len();
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
        out.before_dashes = out.arguments.len();
        Ok(out)
    }

    /// Returns the target that the user selected (default: x86-64 Linux). Fails if trodden does not support the target.
    fn supported_target(&self) -> Result<String> {
        let target = self.target.clone().unwrap_or_else(|| DEFAULT_TARGET.into());
        if !target.starts_with("x86_64-") || !target.contains("-linux-") {
            bail!("trodden does not support the target {target}, only x86-64 Linux");
        }
        Ok(target)
    }
}

fn prepare_cargo(
    context: &DriverContext,
    invocation: &CargoArguments,
    settings: Settings,
    scope: InstrumentedScope,
    runner: ProgramRunner,
) -> Result<CargoCommand> {
    let rustc = RustcVersion::read(context).context("cannot run rustc. Install Rust from https://rustup.rs")?;
    let llvm = rustc.compiler(context)?;
    assets::check_plugin(context, &llvm)?;
    let store = context.store()?;
    let target = invocation.supported_target()?;
    let workspace = CargoWorkspace::read(context, &invocation.arguments)?;
    let folder = match &invocation.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => workspace.target_folder.join("trodden"),
    };
    let settings = settings.or(experiment::from_environment(context)?);
    let must_keep_function_names = pgo::must_keep_function_names(context, &settings);
    let counters = pgo::LlvmCounters::from_settings(&settings);
    let request = experiment::write_request(context, &experiment::resolve(context, settings)?)?;
    let configuration = compute_configuration_identity(context, &llvm, &request, scope)?;
    let wrappers = assets::create_cargo_wrappers(context, &store, configuration)?;
    let mut command = Command::new(cargo_program(context));
    command.args(&invocation.arguments[..invocation.before_dashes]);
    command.arg(format!("--target={target}")).arg("--target-dir").arg(&folder);
    if let Some(runner) = runner.build_runner_command(context, &wrappers)? {
        command.arg("--config").arg(format_runner_setting(&target, &runner)?);
    }
    command.args(&invocation.arguments[invocation.before_dashes..]);
    // With an edge profile, all crates must be compiled from bitcode, so that function names match.
    set_compiler_wrappers(context, &mut command, &wrappers, (!scope.dependencies && !must_keep_function_names).then_some(&workspace))?;
    if !must_keep_function_names {
        scope.describe_uncounted_code().into_iter().for_each(|what| log::info!("{what}"));
    }
    if scope.std {
        command.env(rust::STD_VARIABLE, "1");
    }
    if counters == Some(pgo::LlvmCounters::Coverage) {
        enable_coverage(&mut command, &workspace, &rustc);
    }
    command.env(CLANG_VARIABLE, std::path::absolute(llvm.clang())?);
    command.env(rust::CONFIGURATION_VARIABLE, configuration.to_string()).env(CACHE_VARIABLE, store.root());
    experiment::pass_request_to_command(&mut command, &request);
    let drivers = assets::create_driver_links(context, &store)?;
    let underscored = target.replace('-', "_");
    command.env(format!("CC_{underscored}"), drivers.join("trodden-cc")).env(format!("CXX_{underscored}"), drivers.join("trodden-c++"));
    let built = folder.join(&target);
    command.env(CARGO_FOLDER_VARIABLE, &built);
    Ok(CargoCommand { command, workspace: workspace.root, images: rust::doctest_images_folder(&built) })
}

/// Makes this program the wrapper of rustdoc and rustc. rustc is wrapped only for the members of the workspace `members_of`, or for all
/// crates if it is `None`.
fn set_compiler_wrappers(
    context: &DriverContext,
    command: &mut Command,
    wrappers: &Path,
    members_of: Option<&CargoWorkspace>,
) -> Result<()> {
    if context.value("RUSTC_WRAPPER").is_some() || context.value("RUSTC_WORKSPACE_WRAPPER").is_some() {
        log::info!("RUSTC_WRAPPER and RUSTC_WORKSPACE_WRAPPER are ignored, because trodden itself must be rustc's wrapper");
    }
    ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"].iter().for_each(|name| _ = command.env_remove(name));
    let wrapper = wrappers.join("cargo-trodden");
    match members_of {
        None => command.env("RUSTC_WRAPPER", wrapper).env(rust::ALL_CRATES_VARIABLE, "1"),
        Some(workspace) => {
            let packages = std::env::join_paths(&workspace.packages)
                .context("the path of a workspace member contains a colon. Rename the folder with the colon")?;
            command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(CARGO_PACKAGES_VARIABLE, packages)
        }
    };
    if let Some(rustdoc) = context.value("RUSTDOC") {
        command.env(rust::RUSTDOC_VARIABLE, rustdoc);
    }
    command.env("RUSTDOC", wrappers.join(assets::RUSTDOC_DRIVER)).env(rust::ROLE_VARIABLE, rust::WRAPPER_ROLE);
    Ok(())
}

fn enable_coverage(command: &mut Command, workspace: &CargoWorkspace, rustc: &RustcVersion) {
    if !workspace.host_code.is_empty() {
        log::info!("coverage leaves out code that runs during the build: {}", list_names(&workspace.host_code, 3));
    }
    command.env(rust::CFG_VARIABLE, if rustc.is_nightly() { "coverage coverage_nightly" } else { "coverage" });
}

fn cargo_program(context: &DriverContext) -> &OsStr {
    context.variable("CARGO").unwrap_or(OsStr::new("cargo"))
}

/// The version of rustc.
#[derive(Debug)]
pub struct RustcVersion {
    /// Version of rustc itself.
    pub release: String,
    /// Version of the LLVM that rustc was built with.
    pub llvm: String,
}

impl RustcVersion {
    /// Queries rustc.
    pub fn read(context: &DriverContext) -> Result<RustcVersion> {
        let output = output_of(Command::new(context.value("RUSTC").unwrap_or(OsStr::new("rustc"))).arg("-vV"))?;
        let text = String::from_utf8_lossy(&output);
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        Ok(RustcVersion { release: value("release:"), llvm: value("LLVM version:") })
    }

    /// Returns true if this rustc accepts unstable features.
    fn is_nightly(&self) -> bool {
        self.release.contains("-nightly") || self.release.contains("-dev")
    }

    /// Finds an installed LLVM that can compile the bitcode that this rustc writes. Fails if rustc is not based on LLVM, or if its LLVM is
    /// newer than all installed ones.
    pub fn compiler(&self, context: &DriverContext) -> Result<LlvmToolchain> {
        let major = self.llvm.split('.').next().and_then(|major| major.parse().ok());
        let major = major.with_context(|| format!("rustc {} is not based on LLVM", self.release))?;
        LlvmToolchain::for_bitcode(context, major, &format!("rustc {} is based on", self.release))
    }
}

/// Computes an identity from everything that determines how the plugin changes a program: the plugin's settings (`request`, a file named by
/// the hash of its content), the plugin's own content, and the version of LLVM.
fn compute_configuration_identity(
    context: &DriverContext,
    llvm: &LlvmToolchain,
    request: &Path,
    scope: InstrumentedScope,
) -> Result<Identity> {
    let plugin = assets::COMPILER_PLUGIN_LIBRARY.find(context)?;
    let bytes = fs::read(&plugin).with_context(|| format!("cannot read {}", plugin.display()))?;
    let name = request.file_name().unwrap_or_default().to_string_lossy();
    Ok(Identity::from_content(format!("{name} {} {scope:?} {}", Identity::from_content(&bytes), llvm.major).as_bytes()))
}

fn recorder_arguments(verb: &str) -> Vec<String> {
    let suite = match verb {
        "bench" => Some("bench"),
        "test" | "t" => Some("test"),
        _ => None,
    };
    let arguments = ["record"].into_iter().chain(suite.iter().flat_map(|suite| ["--suite", *suite]));
    arguments.map(str::to_owned).collect()
}

/// Returns a value for cargo's option `--config` that makes cargo run programs through the command `runner`.
fn format_runner_setting(target: &str, runner: &[OsString]) -> Result<OsString> {
    let words = runner.iter().map(|word| {
        let word = word.to_str().with_context(|| format!("the path {} is not UTF-8", word.display()))?;
        Ok(serde_json::to_string(word).expect("text"))
    });
    Ok(format!("target.{target}.runner=[{}]", words.collect::<Result<Vec<_>>>()?.join(",")).into())
}

impl ProgramRunner {
    /// Returns the command that cargo should put before each program; `None` if cargo runs no programs.
    fn build_runner_command(&self, context: &DriverContext, wrappers: &Path) -> Result<Option<Vec<OsString>>> {
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

/// A cargo workspace, as described by `cargo metadata`.
#[derive(Debug)]
pub struct CargoWorkspace {
    /// Root folder of the workspace.
    pub root: PathBuf,
    /// Cargo's target folder for the workspace.
    pub target_folder: PathBuf,
    /// Folders of the workspace's packages.
    packages: Vec<PathBuf>,
    /// Descriptions of the workspace's procedural macros and build scripts, which run during the build.
    host_code: Vec<String>,
}

impl CargoWorkspace {
    /// Queries cargo for the workspace to which a command with these arguments applies. Fails if cargo cannot be run or finds no package.
    pub fn read(context: &DriverContext, arguments: &[OsString]) -> Result<CargoWorkspace> {
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
            let folder = metadata[name].as_str().with_context(|| format!("the output of `cargo metadata` lacks the field `{name}`"))?;
            anyhow::Ok(PathBuf::from(folder))
        };
        let all = || metadata["packages"].as_array().into_iter().flatten();
        let packages = all().filter_map(|package| Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_owned())).collect();
        let host_code = all().flat_map(describe_host_code).collect();
        Ok(CargoWorkspace { root: folder("workspace_root")?, target_folder: folder("target_directory")?, packages, host_code })
    }
}

/// Describes a package's procedural macro and build script. `package` comes from `cargo metadata`.
fn describe_host_code(package: &serde_json::Value) -> Vec<String> {
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

    fn read(text: &str) -> CargoArguments {
        CargoArguments::read(text.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn target_options_are_extracted_and_other_arguments_remain() {
        let found = read("run --release --target-dir z --bin x -- --release --target y");
        assert_eq!(found.arguments, ["run", "--release", "--bin", "x", "--", "--release", "--target", "y"].map(OsString::from));
        assert_eq!(found.before_dashes, 4);
        assert_eq!(found.folder, Some("z".into()));
        assert_eq!(found.target, None);
    }
}
