//! Copies of the working directory, one for each run, so that the changes of one run do not affect the next.
//!
//! The folder is copied before the first run, which works in the folder itself. Each later run sees a copy of that copy under the
//! folder's own path ([`FolderBinding`]).

use crate::folder::FolderBinding;
use crate::launcher::ProgramStart;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};

/// Maximum size in bytes of a folder to be copied.
const MAX_COPIED_FOLDER_BYTES: u64 = 4 << 30;

const COPIED_TREE_NAME: &str = "tree";

/// The working directory as it was before the first run.
pub struct FreshFolder {
    folder: PathBuf,
    before: TemporaryFolder,
    temporary: PathBuf,
}

impl FreshFolder {
    /// Saves the contents of the working directory. Copies are created below the folder `temporary`.
    ///
    /// # Errors
    /// The folder is too large, or cannot be copied.
    pub fn save(folder: PathBuf, temporary: PathBuf) -> Result<Self> {
        let before = create_folder_in(&temporary, "trodden-folder-")?;
        ensure!(
            !before.path().starts_with(&folder),
            "cannot copy folder {}, because the temporary folder is inside it. Set TMPDIR to a folder outside, or run in a different \
             folder",
            folder.display()
        );
        let mut size = 0;
        add_folder_size(&folder, &mut size)?;
        ensure!(
            size <= MAX_COPIED_FOLDER_BYTES,
            "folder {} is larger than {} GiB, which is too large to copy for each run. Run in a smaller folder, or omit --fresh-folder",
            folder.display(),
            MAX_COPIED_FOLDER_BYTES >> 30
        );
        // The copy keeps the original's permissions, so it is created in a folder that only the user can access.
        copy_folder(&folder, &before.path().join(COPIED_TREE_NAME))?;
        Ok(Self { folder, before, temporary })
    }

    /// Creates a copy for a run of a program, which sees it as its working directory. Dropping the returned value removes the copy.
    pub fn provide_folder_copy(&self, program: &mut ProgramStart) -> Result<TemporaryFolder> {
        let own = create_folder_in(&self.temporary, "trodden-folder-")?;
        let tree = own.path().join(COPIED_TREE_NAME);
        copy_folder(&self.before.path().join(COPIED_TREE_NAME), &tree)?;
        program.folder = Some(FolderBinding::new(&tree, &self.folder)?);
        Ok(own)
    }
}

fn add_folder_size(folder: &Path, size: &mut u64) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let about = entry.metadata()?;
        *size += about.len();
        if about.is_dir() && *size <= MAX_COPIED_FOLDER_BYTES {
            add_folder_size(&entry.path(), size)?;
        }
    }
    Ok(())
}

/// Copies a folder with everything in it, including owners, times and links.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    trodden_profile::private::create_folder(to).with_context(|| format!("cannot create {}", to.display()))?;
    let output = Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from.join(".")).arg(to).output().context("cannot run `cp`")?;
    ensure!(output.status.success(), "cannot copy {}: {}", from.display(), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
