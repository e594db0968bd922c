//! Tasks as shell scripts, which every engine can run anywhere.
//!
//! A script runs its command in its folder, has it write the result under a name of its own, and links that to the
//! result's name. Linking fails where a result is there already: then both must be equal. So results appear whole,
//! once, and do not change.

use crate::{Error, LaunchJob, LaunchTask, MEMORY_VARIABLE, RESULT_VARIABLE};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Variables by which launchers give a process its number: Open MPI, MPICH and others, Slurm, Kubernetes.
const NUMBERS: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"];

impl LaunchJob {
    /// Writes the scripts.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        fs::create_dir_all(&self.folder).map_err(|source| Error::File { path: self.folder.clone(), source })?;
        for (at, task) in self.tasks.iter().enumerate() {
            write(&self.script(at), &text(task))?;
        }
        write(&self.each(), &self.text_of_each())
    }

    /// The script of a task.
    pub fn script(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.sh"))
    }

    /// What a task prints.
    pub fn log(&self, task: usize) -> PathBuf {
        self.folder.join(format!("task-{task}.log"))
    }

    /// The script that runs the task whose number a launcher gives it.
    pub fn each(&self) -> PathBuf {
        self.folder.join("each.sh")
    }

    fn text_of_each(&self) -> Vec<u8> {
        let number = NUMBERS.iter().rev().fold(String::new(), |inner, name| format!("${{{name}:-{inner}}}"));
        let mut text = b"#!/bin/sh\nexec sh ".to_vec();
        text.extend(quoted(self.folder.as_os_str()));
        text.extend(format!("/task-\"{number}\".sh\n").bytes());
        text
    }
}

/// The name of a second result that is not equal to the first.
pub fn second(result: &Path) -> PathBuf {
    let mut name = result.as_os_str().to_owned();
    name.push(".second");
    name.into()
}

fn write(path: &Path, text: &[u8]) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn text(task: &LaunchTask) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n".to_vec();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|p| text.extend(*p));
        text.push(b'\n');
    };
    let (directory, result) = (quoted(task.directory.as_os_str()), quoted(task.result.as_os_str()));
    line(&[b"cd ", &directory, b" || exit 125"]);
    for (name, value) in &task.environment {
        line(&[b"export ", name.as_bytes(), b"=", &quoted(value)]);
    }
    line(&[b"test -z \"$", MEMORY_VARIABLE.as_bytes(), b"\" || ulimit -v \"$", MEMORY_VARIABLE.as_bytes(), b"\" || exit 125"]);
    line(&[b"result=", &result]);
    line(&[b"new=\"$result.new.$(uname -n).$$\""]);
    line(&[b"export ", RESULT_VARIABLE.as_bytes(), b"=\"$new\""]);
    let words: Vec<Vec<u8>> = task.command.iter().map(|w| quoted(w)).collect();
    let input = task.input.as_ref().map_or(b"/dev/null".to_vec(), |i| quoted(i.as_os_str()));
    line(&[&words.join(&b" "[..]), b" < ", &input]);
    line(&[b"status=$?"]);
    line(&[b"if [ $status -ne 0 ]; then rm -f \"$new\"; exit $status; fi"]);
    line(&[b"test -e \"$new\" || { echo 'the command made no result' >&2; exit 126; }"]);
    // The first result stays. An equal one changes nothing.
    line(&[b"if ! ln \"$new\" \"$result\" 2>/dev/null; then"]);
    line(&[b"  test -e \"$result\" || { echo \"$result cannot be written\" >&2; exit 126; }"]);
    line(&[b"  cmp -s \"$new\" \"$result\" || mv \"$new\" \"$result.second\""]);
    line(&[b"fi"]);
    line(&[b"rm -f \"$new\""]);
    text
}

/// A word for the shell.
pub(crate) fn quoted(word: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
    out
}

/// The same as a word that may be put into a command line.
pub(crate) fn quoted_word(word: &OsStr) -> OsString {
    OsString::from_vec(quoted(word))
}
