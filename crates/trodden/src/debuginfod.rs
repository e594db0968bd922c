//! Gets debug files from debuginfod servers with `debuginfod-find` of elfutils, which also keeps the files.
//!
//! Servers are asked only if the user has named some in `DEBUGINFOD_URLS`. A server that never answers would delay a command by minutes:
//! `DEBUGINFOD_TIMEOUT` limits only downloads that have begun. Therefore each request gets a total time limit, unless the user has set one.

use crate::notes::note;
use anyhow::{Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const URLS_VARIABLE: &str = "DEBUGINFOD_URLS";
const TIME_LIMIT_VARIABLE: &str = "DEBUGINFOD_MAXTIME";
const TIMEOUT_VARIABLE: &str = "DEBUGINFOD_TIMEOUT";
const DEFAULT_TIME_LIMIT_S: &str = "5";
/// Part of the message of `debuginfod-find` if all servers have answered, but none has the file.
const NOT_FOUND_MESSAGE: &[u8] = b"No such file or directory";

/// Makes debug files come from debuginfod if the user has named servers.
pub fn set_up() {
    let is_set = |variable: &str| env::var_os(variable).is_some_and(|value| !value.as_bytes().trim_ascii().is_empty());
    if is_set(URLS_VARIABLE) {
        let is_limited = is_set(TIME_LIMIT_VARIABLE) || is_set(TIMEOUT_VARIABLE);
        let has_failed = AtomicBool::new(false);
        trodden_binary::set_debug_file_source(move |build_id| {
            if has_failed.load(Ordering::Relaxed) {
                return None;
            }
            find_debug_file(build_id, is_limited).unwrap_or_else(|error| {
                note(error);
                has_failed.store(true, Ordering::Relaxed);
                None
            })
        });
    }
}

/// Returns the path of the debug file with a build ID, or `None` if no server has it. Fails if the servers cannot be asked.
fn find_debug_file(build_id: &str, is_limited: bool) -> Result<Option<PathBuf>> {
    let mut find = Command::new("debuginfod-find");
    find.args(["debuginfo", build_id]).env("LC_ALL", "C").stdin(Stdio::null());
    if !is_limited {
        find.env(TIME_LIMIT_VARIABLE, DEFAULT_TIME_LIMIT_S);
    }
    let output = match find.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "cannot get debug files from the servers in DEBUGINFOD_URLS: debuginfod-find is not installed. Install Debian's package \
             debuginfod (Fedora: elfutils-debuginfod-client), or unset the variable"
        ),
        Err(error) => bail!("cannot run debuginfod-find: {error}. Reinstall it, or unset DEBUGINFOD_URLS"),
    };
    if output.status.success() {
        return Ok(Some(OsString::from_vec(output.stdout.trim_ascii_end().to_owned()).into()));
    }
    let is_absent = output.stderr.windows(NOT_FOUND_MESSAGE.len()).any(|part| part == NOT_FOUND_MESSAGE);
    ensure!(
        is_absent,
        "cannot get debug files from the servers in DEBUGINFOD_URLS: {}. Check the variable, or set DEBUGINFOD_MAXTIME to the number of \
         seconds that a download may take",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(None)
}
