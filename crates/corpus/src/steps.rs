//! Running commands and locating the repository. Commands are logged before they run, unless a function says otherwise.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The root of the checkout that contains the package run by cargo, or else the working folder. Outside of a checkout, that folder itself;
/// see [`require_checkout`].
pub fn root() -> PathBuf {
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    start.ancestors().find(|folder| is_checkout(folder)).map_or_else(|| start.clone(), Path::to_path_buf)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("xtask/Cargo.toml").is_file() && folder.join("corpus").is_dir()
}

/// Fails unless [`root`] is a checkout of the sources.
pub fn require_checkout() -> Result<()> {
    anyhow::ensure!(
        is_checkout(&root()),
        "experiments can run only in a checkout of trodden's sources. Change to a checkout, and run this command there"
    );
    Ok(())
}

/// Removes the path of this checkout from a text that is published.
pub fn strip_root(text: &str) -> String {
    text.replace(&format!("{}/", root().display()), "")
}

/// The folder of cargo's output.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// A file in cargo's target folder, with the process ID in its name so that no other process uses it.
pub fn process_file(name: &str, extension: &str) -> PathBuf {
    target().join(format!("{name}-{}.{extension}", std::process::id()))
}

/// A cargo command that runs at the root of the checkout.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root());
    command
}

/// Logs a headline.
pub fn headline(text: &str) {
    log::info!("\n== {text}");
}

/// Logs a command and runs it with empty standard input.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    log::info!("+ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command without logging it and returns its standard output.
///
/// # Errors
/// The command cannot be started or fails; the message contains the last line of its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    Ok(run_captured(command)?.0)
}

/// Like [`output`], but returns the standard error output.
///
/// # Errors
/// The command cannot be started or fails; the message contains the last line of its standard error.
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

/// The search path with these folders prepended.
pub fn path_with(folders: &[PathBuf]) -> Result<std::ffi::OsString> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&old));
    std::env::join_paths(all).context("cannot add a folder to PATH, because its name contains a colon. Rename the folder")
}

/// Returns true if a folder in the search path contains a file with this name.
pub fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The command line as a user would type it, with the environment variables set for it.
fn command_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        // The search path is long and not informative.
        if let Some(value) = value.filter(|_| name != "PATH") {
            let _ = write!(line, "{}={} ", name.display(), shell_quoted(value));
        }
    }
    line.push_str(&shell_quoted(command.get_program()));
    for argument in command.get_args() {
        let _ = write!(line, " {}", shell_quoted(argument));
    }
    line
}

fn shell_quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}

/// Environment variable with laboratory options for `trodden`, in the syntax of `trodden-lab with`.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// Whether trodden's debug builds are used.
static USES_DEBUG: AtomicBool = AtomicBool::new(false);

/// From now on, uses trodden's debug builds, which compile faster, run slower, and check assertions.
pub fn use_debug_builds() {
    USES_DEBUG.store(true, Relaxed);
}

/// The folder with trodden's own programs.
pub fn programs() -> PathBuf {
    target().join(if USES_DEBUG.load(Relaxed) { "debug" } else { "release" })
}

/// Builds the command and the plugin, creates links for the command's other names, and returns their folder.
pub fn build_trodden() -> Result<PathBuf> {
    match USES_DEBUG.load(Relaxed) {
        // Build all targets, because other targets have different features and would compile the dependencies again.
        true => run(cargo().args(["build", "--workspace", "--all-targets"]))?,
        false => run(cargo().args(["build", "--release", "--package", "trodden", "--package", "trodden-instrument"]))?,
    }
    let programs = programs();
    run(Command::new(programs.join("trodden")).arg("drivers"))?;
    Ok(programs)
}

/// Like [`build_trodden`], and builds the laboratory too; returns its executable.
pub fn build_laboratory() -> Result<PathBuf> {
    let programs = build_trodden()?;
    run(cargo().args(["build", "--release", "--package", "trodden-lab"]))?;
    Ok(programs.join("trodden-lab"))
}

/// The checked-out commit (`git describe --always --dirty`); empty if git fails.
pub fn commit() -> String {
    let said = output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()));
    said.unwrap_or_default().trim().to_owned()
}

/// The number of compilations to run in parallel.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
