//! Diffs from git or from a file.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A unified diff.
pub struct UnifiedDiff {
    /// The text of the diff.
    pub text: String,
    /// The folder to which the diff's file names are relative, if known.
    pub root: Option<String>,
}

/// Reads a diff from a file.
pub fn read_diff(file: &Path) -> Result<UnifiedDiff> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(UnifiedDiff { text: String::from_utf8_lossy(&bytes).into_owned(), root: None })
}

/// Runs `git diff` in the current folder, and returns the difference from a revision to the working tree. Fails if git is not installed,
/// the current folder is not in a repository, or the revision does not exist.
pub fn diff_against_revision(revision: &str) -> Result<UnifiedDiff> {
    let options = [
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
    // Without --end-of-options, a revision that looks like an option could write files (`--output=`).
    let words = options.into_iter().chain(["--end-of-options", revision, "--"]);
    let output = Command::new("git").args(words).env("LC_ALL", "C").output().context("cannot run git")?;
    if output.status.success() {
        return Ok(UnifiedDiff { text: String::from_utf8_lossy(&output.stdout).into_owned(), root: repository_root()? });
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.to_lowercase().contains("not a git repository") {
        bail!(
            "cannot run `git diff {revision}`: the current folder is not in a git repository. Change to the source folder, or pass a \
             diff as a file"
        );
    }
    // git may print usage after the first line.
    bail!("`git diff {revision}` failed: {}", stderr.lines().next().unwrap_or("git failed without a message"))
}

/// Returns the top folder of the repository, or `None` if git does not report it.
fn repository_root() -> Result<Option<String>> {
    let output = Command::new("git").args(["rev-parse", "--show-toplevel"]).output().context("cannot run git")?;
    let root = String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned();
    Ok((output.status.success() && !root.is_empty()).then_some(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_that_looks_like_an_option_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("written");
        assert!(diff_against_revision(&format!("--output={}", file.display())).is_err());
        assert!(!file.exists());
    }
}
