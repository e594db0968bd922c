//! Running commands so that one sees what is done: each is reported through `log` before it runs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository: that of the package that cargo runs, or else the one above the working folder. Outside of every checkout
/// it is the working folder; see [`in_checkout`].
pub fn root() -> PathBuf {
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    start.ancestors().find(|folder| is_checkout(folder)).map_or_else(|| start.clone(), Path::to_path_buf)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("xtask/Cargo.toml").is_file() && folder.join("corpus").is_dir()
}

/// Makes sure that there is a checkout of the sources.
///
/// # Errors
/// There is none.
pub fn in_checkout() -> Result<()> {
    anyhow::ensure!(is_checkout(&root()), "experiments need a checkout of trodden's sources: change to its folder");
    Ok(())
}

/// A text without the place of this repository, for files that others read.
pub fn without_root(text: &str) -> String {
    text.replace(&format!("{}/", root().display()), "")
}

/// The folder of cargo's output.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// A file in cargo's target folder that no other process writes.
pub fn own_file(name: &str, extension: &str) -> PathBuf {
    target().join(format!("{name}-{}.{extension}", std::process::id()))
}

/// Cargo, at the root of the repository.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root());
    command
}

/// Says what is being done, as a headline.
pub fn headline(text: &str) {
    log::info!("\n== {text}");
}

/// Reports a command and runs it, without standard input.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = spelled(command);
    log::info!("+ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command in silence and gives what it printed.
///
/// # Errors
/// It cannot be started, or fails; its last line is in the message.
pub fn output(command: &mut Command) -> Result<String> {
    Ok(silently(command)?.0)
}

/// The same, giving what it printed to standard error.
///
/// # Errors
/// It cannot be started, or fails; its last line is in the message.
pub fn errors(command: &mut Command) -> Result<String> {
    Ok(silently(command)?.1)
}

fn silently(command: &mut Command) -> Result<(String, String)> {
    let line = spelled(command);
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!("`{line}` failed ({}): {}", out.status, errors.trim().lines().next_back().unwrap_or("it printed nothing"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&out.stdout), text(&out.stderr)))
}

/// The search path with folders before it.
///
/// # Errors
/// A folder's name has a colon.
pub fn path_with(folders: &[PathBuf]) -> Result<std::ffi::OsString> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&old));
    std::env::join_paths(all).context("a folder of the search path has a colon in its name")
}

/// Is a program of that name on the search path?
pub fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The command as one would type it, with the variables that are set for it.
fn spelled(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        // The search path is long and says little.
        if let Some(value) = value.filter(|_| name != "PATH") {
            let _ = write!(line, "{}={} ", name.display(), quoted(value));
        }
    }
    line.push_str(&quoted(command.get_program()));
    for argument in command.get_args() {
        let _ = write!(line, " {}", quoted(argument));
    }
    line
}

fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./=:,+%@".contains(c));
    if is_plain { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Variable in which `trodden` takes the choices of its laboratory, in the syntax of `trodden-lab with`.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// Builds the command and the plugin as users have them, with links under the command's other names; gives their folder.
///
/// # Errors
/// Cargo failed, or the folder cannot be written.
pub fn build_trodden() -> Result<PathBuf> {
    run(cargo().args(["build", "--release", "--package", "trodden", "--package", "trodden-instrument"]))?;
    let programs = target().join("release");
    run(Command::new(programs.join("trodden")).arg("drivers"))?;
    Ok(programs)
}

/// Builds the laboratory as well; gives its file.
///
/// # Errors
/// As above.
pub fn build_laboratory() -> Result<PathBuf> {
    let programs = build_trodden()?;
    run(cargo().args(["build", "--release", "--package", "trodden-lab"]))?;
    Ok(programs.join("trodden-lab"))
}

/// The project's commit.
pub fn commit() -> String {
    let said = output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()));
    said.unwrap_or_default().trim().to_owned()
}

/// Compilations at a time.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
