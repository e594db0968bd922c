//! Tasks as shell scripts, which every engine runs.
//!
//! A script runs the task's command in its working folder, with a temporary file for the result, and then links this file to the result's
//! path. If the result already exists, linking fails, and the two results are compared. Results thus appear atomically, once, and never
//! change.

use crate::{LaunchError, LaunchJob, LaunchTask, MEMORY_VARIABLE, RESULT_VARIABLE};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Environment variables with which launchers number processes: Open MPI, MPICH and others, Slurm, Kubernetes.
const RANK_VARIABLES: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"];

impl LaunchJob {
    /// Writes the scripts of all tasks.
    pub fn write(&self) -> Result<(), LaunchError> {
        fs::create_dir_all(&self.folder).map_err(|source| LaunchError::File { path: self.folder.clone(), source })?;
        for (at, task) in self.tasks.iter().enumerate() {
            write(&self.script(at), &script_text(task))?;
        }
        write(&self.rank_script(), &self.rank_script_text())
    }

    /// The path of a task's script.
    pub fn script(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.sh"))
    }

    /// The path of a task's output.
    pub fn log(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.log"))
    }

    /// The path of the script that runs the task with the number that a launcher assigns.
    pub fn rank_script(&self) -> PathBuf {
        self.folder.join("each.sh")
    }

    fn rank_script_text(&self) -> Vec<u8> {
        let number = RANK_VARIABLES.iter().rev().fold(String::new(), |inner, name| format!("${{{name}:-{inner}}}"));
        let mut text = b"#!/bin/sh\nexec sh ".to_vec();
        text.extend(shell_quoted(self.folder.as_os_str()));
        text.extend(format!("/task-\"{number}\".sh\n").bytes());
        text
    }
}

/// The path for a second result that differs from the first.
pub fn second_result(result: &Path) -> PathBuf {
    let mut name = result.as_os_str().to_owned();
    name.push(".second");
    name.into()
}

fn write(path: &Path, text: &[u8]) -> Result<(), LaunchError> {
    fs::write(path, text).map_err(|source| LaunchError::File { path: path.to_owned(), source })
}

fn script_text(task: &LaunchTask) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n".to_vec();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|p| text.extend(*p));
        text.push(b'\n');
    };
    let (directory, result) = (shell_quoted(task.directory.as_os_str()), shell_quoted(task.result.as_os_str()));
    line(&[b"cd ", &directory, b" || exit 125"]);
    for (name, value) in &task.environment {
        line(&[b"export ", name.as_bytes(), b"=", &shell_quoted(value)]);
    }
    line(&[b"test -z \"$", MEMORY_VARIABLE.as_bytes(), b"\" || ulimit -v \"$", MEMORY_VARIABLE.as_bytes(), b"\" || exit 125"]);
    line(&[b"result=", &result]);
    line(&[b"new=\"$result.new.$(uname -n).$$\""]);
    line(&[b"export ", RESULT_VARIABLE.as_bytes(), b"=\"$new\""]);
    let words: Vec<Vec<u8>> = task.command.iter().map(|w| shell_quoted(w)).collect();
    let input = task.input.as_ref().map_or(b"/dev/null".to_vec(), |i| shell_quoted(i.as_os_str()));
    line(&[&words.join(&b" "[..]), b" < ", &input]);
    line(&[b"status=$?"]);
    line(&[b"if [ $status -ne 0 ]; then rm -f \"$new\"; exit $status; fi"]);
    line(&[b"test -e \"$new\" || { echo 'the command wrote no result' >&2; exit 126; }"]);
    // The first result stays; an equal second result is removed.
    line(&[b"if ! ln \"$new\" \"$result\" 2>/dev/null; then"]);
    line(&[b"  test -e \"$result\" || { echo \"cannot write $result\" >&2; exit 126; }"]);
    line(&[b"  cmp -s \"$new\" \"$result\" || mv \"$new\" \"$result.second\""]);
    line(&[b"fi"]);
    line(&[b"rm -f \"$new\""]);
    text
}

/// Quotes a word for the shell.
pub(crate) fn shell_quoted(word: &OsStr) -> Vec<u8> {
    // The operating system ends words of commands and variables at a zero byte.
    shlex::bytes::try_quote(word.as_bytes()).expect("no zero byte").into_owned()
}

/// Like [`shell_quoted`], for words of type `OsString`.
pub(crate) fn quote_for_shell(word: &OsStr) -> OsString {
    OsString::from_vec(shell_quoted(word))
}
