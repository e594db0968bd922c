//! What git says of changes.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// The difference from a revision to the files as they are, in the repository of the current folder.
///
/// # Errors
/// There is no git, no repository, or no such revision.
pub fn diff(revision: &str) -> Result<Vec<u8>> {
    let form = ["diff", "--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/"];
    // What looks like an option is a revision all the same: there are options that write files.
    let words = form.into_iter().chain(["--end-of-options", revision, "--"]);
    let output = Command::new("git").args(words).env("LC_ALL", "C").output().context("cannot run git")?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.to_lowercase().contains("not a git repository") {
        bail!(
            "git diff {revision}: the current folder is in no git repository: change to that of the sources, or name a file with the difference"
        );
    }
    // Help on options may follow.
    bail!("git diff {revision}: {}", said.lines().next().unwrap_or("it fails and does not say why"))
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
