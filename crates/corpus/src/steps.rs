//! Runs commands and locates the repository. [`run`] and the functions that build programs log each command before running it.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Returns the root of the checkout that contains the package of which cargo runs a program. If cargo runs none, the checkout that contains
/// the current directory is meant. If there is no such checkout, the folder from which the search started is returned; [`require_checkout`]
/// detects this.
pub fn checkout_root() -> PathBuf {
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    start.ancestors().find(|folder| is_checkout(folder)).map_or_else(|| start.clone(), Path::to_path_buf)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("xtask/Cargo.toml").is_file() && folder.join("corpus").is_dir()
}

/// Fails if [`checkout_root`] found no checkout of the sources.
pub fn require_checkout() -> Result<()> {
    anyhow::ensure!(
        is_checkout(&checkout_root()),
        "experiments can run only in a checkout of trodden's sources. Change to a checkout, and run this command there"
    );
    Ok(())
}

/// Removes the path of this checkout wherever it occurs in a text that will be published.
pub fn strip_root(text: &str) -> String {
    text.replace(&format!("{}/", checkout_root().display()), "")
}

/// Returns cargo's target folder.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout_root().join("target"), |folder| checkout_root().join(folder))
}

/// Returns a path in cargo's target folder for a file of this process. The file name contains the process ID, so that other processes use
/// different files.
pub fn path_for_process(name: &str, extension: &str) -> PathBuf {
    target_folder().join(format!("{name}-{}.{extension}", std::process::id()))
}

/// Returns the command `cargo`, which will run in the root of the checkout.
pub fn cargo_command() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(checkout_root());
    command
}

/// Logs a headline, with the time since the first headline.
pub fn log_headline(text: &str) {
    static START_TIME: OnceLock<Instant> = OnceLock::new();
    match START_TIME.get_or_init(Instant::now).elapsed().as_secs() {
        0 => log::info!("\n== {text}"),
        seconds => log::info!("\n== {text} (after {seconds} s)"),
    }
}

/// Logs a command and runs it with empty standard input. Fails if the command's exit status is not 0.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    log::info!("+ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command without logging it. Returns its standard output. Fails if the command cannot be started or fails; the error contains the
/// last line that it wrote to standard error.
pub fn output(command: &mut Command) -> Result<String> {
    Ok(run_captured(command)?.0)
}

/// Runs a command without logging it. Returns its standard error. Fails if the command cannot be started or fails; the error contains the
/// last line that it wrote to standard error.
pub fn error_output(command: &mut Command) -> Result<String> {
    Ok(run_captured(command)?.1)
}

fn run_captured(command: &mut Command) -> Result<(String, String)> {
    let line = command_line(command);
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!("`{line}` failed ({}): {}", out.status, errors.trim().lines().next_back().unwrap_or("it printed nothing"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&out.stdout), text(&out.stderr)))
}

/// Returns the value of `PATH` with these folders added at its beginning.
pub fn search_path_with(folders: &[PathBuf]) -> Result<std::ffi::OsString> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&old));
    std::env::join_paths(all).context("cannot add a folder to PATH, because the folder's path contains a colon. Rename the folder")
}

/// Returns true if a folder in `PATH` contains a file with this name.
pub fn is_on_search_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns a command line as a user would type it, including the environment variables that are set for the command.
fn command_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        // `PATH` is left out because it is long and not informative.
        if let Some(value) = value.filter(|_| name != "PATH") {
            let _ = write!(line, "{}={} ", name.display(), quote_for_shell(value));
        }
    }
    line.push_str(&quote_for_shell(command.get_program()));
    for argument in command.get_args() {
        let _ = write!(line, " {}", quote_for_shell(argument));
    }
    line
}

fn quote_for_shell(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}

/// Environment variable with experimental options for `trodden`, in the syntax that `trodden-lab with` accepts.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// A profile of cargo, with which trodden is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildProfile {
    /// Optimised.
    Release,
    /// As the tests use it: compiles faster, runs slower, and checks assertions.
    Dev,
    /// Compiles fastest, and runs slowest.
    Demo,
}

impl BuildProfile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "dev",
            Self::Demo => "demo",
        }
    }

    /// Returns the name of the folder to which cargo writes programs.
    fn folder_name(self) -> &'static str {
        if self == Self::Dev { "debug" } else { self.name() }
    }
}

static USED_PROFILE: Mutex<BuildProfile> = Mutex::new(BuildProfile::Release);

/// Makes all functions of this module use builds with this profile instead of release builds.
pub fn use_build_profile(profile: BuildProfile) {
    *USED_PROFILE.lock().unwrap_or_else(PoisonError::into_inner) = profile;
}

fn used_build_profile() -> BuildProfile {
    *USED_PROFILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the folder with trodden's own programs.
pub fn programs_folder() -> PathBuf {
    target_folder().join(used_build_profile().folder_name())
}

/// Builds the program `trodden` and the clang plugin, and creates the links by which `trodden` is called as a compiler. Returns the folder
/// of all these files.
pub fn build_trodden() -> Result<PathBuf> {
    let profile = used_build_profile();
    let mut build = cargo_command();
    build.args(["build", "--profile", profile.name(), "--package", "trodden", "--package", "trodden-instrument"]);
    if profile == BuildProfile::Dev {
        // The dependencies of `xtask` have the features that the tests need. With these, the tests do not compile dependencies again.
        build.args(["--package", "xtask"]);
    }
    run(&mut build)?;
    let programs = programs_folder();
    run(Command::new(programs.join("trodden")).arg("drivers"))?;
    Ok(programs)
}

/// Builds `trodden-lab` in addition to what [`build_trodden`] builds. Returns the path of `trodden-lab`.
pub fn build_laboratory() -> Result<PathBuf> {
    let programs = build_trodden()?;
    run(cargo_command().args(["build", "--release", "--package", "trodden-lab"]))?;
    Ok(programs.join("trodden-lab"))
}

/// Returns the name of the current commit, as printed by `git describe --always --dirty`. It is empty if git fails.
pub fn describe_commit() -> String {
    let said = output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(checkout_root()));
    said.unwrap_or_default().trim().to_owned()
}

/// Returns the number of jobs to run in parallel, such as compilations.
pub fn job_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
