//! Runs commands and locates the repository. Each function that runs a command logs the command first, unless its comment says otherwise.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// The root of the checkout that contains the package that cargo runs (or, outside of cargo, the current directory). If no checkout
/// contains it, the start folder itself; [`require_checkout`] detects this case.
pub fn checkout_root() -> PathBuf {
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    start.ancestors().find(|folder| is_checkout(folder)).map_or_else(|| start.clone(), Path::to_path_buf)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("xtask/Cargo.toml").is_file() && folder.join("corpus").is_dir()
}

/// Fails if [`checkout_root`] is not a checkout of the sources.
pub fn require_checkout() -> Result<()> {
    anyhow::ensure!(
        is_checkout(&checkout_root()),
        "experiments can run only in a checkout of trodden's sources. Change to a checkout, and run this command there"
    );
    Ok(())
}

/// Removes the path of this checkout from a text that will be published.
pub fn strip_root(text: &str) -> String {
    text.replace(&format!("{}/", checkout_root().display()), "")
}

/// The folder for cargo's output.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout_root().join("target"), |folder| checkout_root().join(folder))
}

/// The path of a file in cargo's target folder. The file name contains the process ID, so that no other process uses the same file.
pub fn process_file(name: &str, extension: &str) -> PathBuf {
    target_folder().join(format!("{name}-{}.{extension}", std::process::id()))
}

/// Creates a cargo command that runs at the root of the checkout.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(checkout_root());
    command
}

/// Logs a headline, with the time since the first one.
pub fn log_headline(text: &str) {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    match STARTED.get_or_init(Instant::now).elapsed().as_secs() {
        0 => log::info!("\n== {text}"),
        seconds => log::info!("\n== {text} (after {seconds} s)"),
    }
}

/// Logs a command and runs it with empty standard input. Fails if its exit status is not 0.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    log::info!("+ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command without logging it and returns its standard output. Fails if the command cannot be started or fails. The message contains
/// the last line of its standard error output.
pub fn output(command: &mut Command) -> Result<String> {
    Ok(run_captured(command)?.0)
}

/// Runs a command without logging it and returns its standard error output. Fails if the command cannot be started or fails. The message
/// contains the last line of its standard error output.
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

/// Returns the search path (`PATH`) with these folders prepended.
pub fn search_path_with(folders: &[PathBuf]) -> Result<std::ffi::OsString> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&old));
    std::env::join_paths(all).context("cannot add a folder to PATH, because its name contains a colon. Rename the folder")
}

/// Returns true if the search path (`PATH`) leads to a file with this name.
pub fn is_on_search_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Renders a command as a user would type it, including the environment variables that are set for it.
fn command_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        // `PATH` is long and not informative.
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

/// Environment variable with laboratory options for `trodden`, in the syntax of `trodden-lab with`.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

static USES_DEBUG: AtomicBool = AtomicBool::new(false);

/// From now on, uses trodden's debug builds. They compile faster, run slower, and check assertions.
pub fn use_debug_builds() {
    USES_DEBUG.store(true, Relaxed);
}

/// The folder with trodden's own programs.
pub fn programs_folder() -> PathBuf {
    target_folder().join(if USES_DEBUG.load(Relaxed) { "debug" } else { "release" })
}

/// Builds the command `trodden` and the clang plugin, and links the command's other names to it. Returns the folder with all of them.
pub fn build_trodden() -> Result<PathBuf> {
    match USES_DEBUG.load(Relaxed) {
        // Building only some targets would select different features, and thus compile the dependencies again.
        true => run(cargo().args(["build", "--workspace", "--all-targets"]))?,
        false => run(cargo().args(["build", "--release", "--package", "trodden", "--package", "trodden-instrument"]))?,
    }
    let programs = programs_folder();
    run(Command::new(programs.join("trodden")).arg("drivers"))?;
    Ok(programs)
}

/// Like [`build_trodden`], but builds the laboratory too. Returns the laboratory's executable.
pub fn build_laboratory() -> Result<PathBuf> {
    let programs = build_trodden()?;
    run(cargo().args(["build", "--release", "--package", "trodden-lab"]))?;
    Ok(programs.join("trodden-lab"))
}

/// The checked-out commit as `git describe --always --dirty` prints it; empty if git fails.
pub fn describe_commit() -> String {
    let said = output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(checkout_root()));
    said.unwrap_or_default().trim().to_owned()
}

/// The number of compilations to run at the same time.
pub fn job_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
