//! Copies of the working folder, one for each run, so that a run that changes files changes nothing for the next one.
//!
//! The folder is copied before the first run, which works in the folder itself. Each other run gets a copy of that copy, under the
//! folder's own path ([`FolderBinding`]).

use crate::folder::FolderBinding;
use crate::launcher::ProgramStart;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_launch::temporary::{TemporaryFolder, folder_in};

/// Folders with more bytes are not copied.
const MOST: u64 = 4 << 30;

/// Name of a copy.
const TREE: &str = "tree";

/// The working folder as it was.
pub struct FreshFolder {
    folder: PathBuf,
    before: TemporaryFolder,
    temporary: PathBuf,
}

impl FreshFolder {
    /// Keeps what is in the working folder. Copies are made in the folder `temporary`.
    ///
    /// # Errors
    /// It is too large, or cannot be copied.
    pub fn keep(folder: PathBuf, temporary: PathBuf) -> Result<Self> {
        let before = folder_in(&temporary, "trodden-folder-")?;
        ensure!(
            !before.path().starts_with(&folder),
            "copies of {} would be made inside of it: set TMPDIR to a folder elsewhere, or work in a smaller folder",
            folder.display()
        );
        let mut size = 0;
        measure(&folder, &mut size)?;
        ensure!(
            size <= MOST,
            "{} has more than {} GiB: work in a smaller folder, or leave --fresh-folder out",
            folder.display(),
            MOST >> 30
        );
        // Below the folder that is the user's alone: what is copied keeps its permissions.
        copy(&folder, &before.path().join(TREE))?;
        Ok(Self { folder, before, temporary })
    }

    /// A copy for a run; the program sees it in the folder's place. It is removed with what is returned.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn lay_under(&self, program: &mut ProgramStart) -> Result<TemporaryFolder> {
        let own = folder_in(&self.temporary, "trodden-folder-")?;
        let tree = own.path().join(TREE);
        copy(&self.before.path().join(TREE), &tree)?;
        program.folder = Some(FolderBinding::new(&tree, &self.folder)?);
        Ok(own)
    }
}

fn measure(folder: &Path, size: &mut u64) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let entry = entry?;
        let about = entry.metadata()?;
        *size += about.len();
        if about.is_dir() && *size <= MOST {
            measure(&entry.path(), size)?;
        }
    }
    Ok(())
}

/// Copies everything, with owners, times and links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    trodden_profile::private::create_folder(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let output = Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from.join(".")).arg(to).output().context("`cp` is missing")?;
    ensure!(output.status.success(), "{} cannot be copied: {}", from.display(), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
