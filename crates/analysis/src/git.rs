//! What git says of changes.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A unified diff.
pub struct GitDifference {
    /// Its text.
    pub text: String,
    /// The folder that its files' names begin in, where it is known.
    pub root: Option<String>,
}

/// The difference in a file.
///
/// # Errors
/// It cannot be read.
pub fn diff_in(file: &Path) -> Result<GitDifference> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(GitDifference { text: String::from_utf8_lossy(&bytes).into_owned(), root: None })
}

/// The difference from a revision to the files as they are, in the repository of the current folder.
///
/// # Errors
/// There is no git, no repository, or no such revision.
pub fn diff(revision: &str) -> Result<GitDifference> {
    let form = [
        "-c",
        "core.quotepath=off",
        "diff",
        "--no-relative",
        "--unified=0",
        "--no-color",
        "--no-ext-diff",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    ];
    // What looks like an option is a revision all the same: there are options that write files.
    let words = form.into_iter().chain(["--end-of-options", revision, "--"]);
    let output = Command::new("git").args(words).env("LC_ALL", "C").output().context("cannot run git")?;
    if output.status.success() {
        return Ok(GitDifference { text: String::from_utf8_lossy(&output.stdout).into_owned(), root: root()? });
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.to_lowercase().contains("not a git repository") {
        bail!(
            "git diff {revision}: the current folder is in no git repository: change to that of the sources, or name a file with the \
                difference"
        );
    }
    // Help on options may follow.
    bail!("git diff {revision}: {}", said.lines().next().unwrap_or("it fails and does not say why"))
}

/// The top folder of the repository.
fn root() -> Result<Option<String>> {
    let output = Command::new("git").args(["rev-parse", "--show-toplevel"]).output().context("cannot run git")?;
    let root = String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned();
    Ok((output.status.success() && !root.is_empty()).then_some(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_no_revisions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("written");
        assert!(diff(&format!("--output={}", file.display())).is_err());
        assert!(!file.exists());
    }
}
