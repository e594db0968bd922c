//! Tasks as shell scripts, which all engines run.
//!
//! A script runs the task's command in its working directory. The command writes its result to a temporary file, to which the script then
//! creates a hard link at the result's path. If a result already exists, linking fails, and the script compares the two results. Thus a
//! result appears atomically and never changes.

use crate::{LaunchError, LaunchJob, LaunchTask, MEMORY_VARIABLE, RESULT_VARIABLE};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Environment variables in which Open MPI, PMIx, MPICH, Slurm and Kubernetes pass each process its number (rank).
const RANK_VARIABLES: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"];

impl LaunchJob {
    /// Writes a script for each task, and the script at [`LaunchJob::rank_script`]. Creates the job's folder if necessary.
    pub fn write_scripts(&self) -> Result<(), LaunchError> {
        fs::create_dir_all(&self.folder).map_err(|source| LaunchError::File { path: self.folder.clone(), source })?;
        for (at, task) in self.tasks.iter().enumerate() {
            write_file(&self.script(at), &render_task_script(task))?;
        }
        write_file(&self.rank_script(), &self.render_rank_script())
    }

    /// Returns the path of a task's script.
    pub fn script(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.sh"))
    }

    /// Returns the path of the file with a task's output.
    pub fn log(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.log"))
    }

    /// Returns the path of a script that runs the task whose index is in an environment variable set by the launcher, such as an MPI rank.
    pub fn rank_script(&self) -> PathBuf {
        self.folder.join("each.sh")
    }

    fn render_rank_script(&self) -> Vec<u8> {
        let number = RANK_VARIABLES.iter().rev().fold(String::new(), |inner, name| format!("${{{name}:-{inner}}}"));
        let mut text = b"#!/bin/sh\nexec sh ".to_vec();
        text.extend(shell_quoted(self.folder.as_os_str()));
        text.extend(format!("/task-\"{number}\".sh\n").bytes());
        text
    }
}

/// Returns the path at which a second result is stored if it differs from the first.
pub fn second_result_path(result: &Path) -> PathBuf {
    let mut name = result.as_os_str().to_owned();
    name.push(".second");
    name.into()
}

fn write_file(path: &Path, text: &[u8]) -> Result<(), LaunchError> {
    fs::write(path, text).map_err(|source| LaunchError::File { path: path.to_owned(), source })
}

fn render_task_script(task: &LaunchTask) -> Vec<u8> {
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
    // The first result stays. A second result is deleted if it is equal, and kept under another name otherwise.
    line(&[b"if ! ln \"$new\" \"$result\" 2>/dev/null; then"]);
    line(&[b"  test -e \"$result\" || { echo \"cannot write $result\" >&2; exit 126; }"]);
    line(&[b"  cmp -s \"$new\" \"$result\" || mv \"$new\" \"$result.second\""]);
    line(&[b"fi"]);
    line(&[b"rm -f \"$new\""]);
    text
}

pub(crate) fn shell_quoted(word: &OsStr) -> Vec<u8> {
    // Words from command lines and environments contain no zero bytes.
    shlex::bytes::try_quote(word.as_bytes()).expect("no zero byte").into_owned()
}

pub(crate) fn quote_for_shell(word: &OsStr) -> OsString {
    OsString::from_vec(shell_quoted(word))
}
