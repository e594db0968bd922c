//! Registry of the temporary files and folders that have names, for programs that remove them when a signal ends them.
//!
//! Invariant: the registry is locked while a name is made and entered. So a thread that locks it for the removal of all misses none, and
//! none appears after that until the program has ended. This crate handles no signals: a program says by [`before_names`] what is to be
//! done before the first name is made.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

static NAMES: Mutex<BTreeMap<PathBuf, Removal>> = Mutex::new(BTreeMap::new());

static PREPARATION: OnceLock<fn()> = OnceLock::new();

/// What becomes of a name.
#[derive(Debug)]
enum Removal {
    /// The file or folder is deleted.
    Delete,
    /// The file gets its own name back, in the place of what has it meanwhile.
    Rename(PathBuf),
}

/// How often to try to remove a folder that others may still write to, and how long to wait in between.
const MAX_REMOVALS: u32 = 200;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// Sets what is called each time before a name is made. Only the first call has an effect.
pub fn before_names(prepare: fn()) {
    let _ = PREPARATION.set(prepare);
}

/// The locked registry.
#[derive(Debug)]
pub struct Names(MutexGuard<'static, BTreeMap<PathBuf, Removal>>);

/// Locks the registry, in order to make or to remove names.
pub fn names() -> Names {
    if let Some(prepare) = PREPARATION.get() {
        prepare();
    }
    Names(NAMES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Names {
    /// Enters a file or folder.
    pub fn enter(&mut self, path: &Path) {
        self.0.insert(path.to_owned(), Removal::Delete);
    }

    /// Enters a file that has another name for a time, and gets its `own` one back.
    pub fn enter_renamed(&mut self, path: &Path, own: &Path) {
        self.0.insert(path.to_owned(), Removal::Rename(own.to_owned()));
    }

    /// Leaves a file or folder where it is.
    pub fn forget(&mut self, path: &Path) {
        self.0.remove(path);
    }

    /// Removes all files and folders.
    pub fn remove_all(&self) {
        for (path, removal) in self.0.iter() {
            if let Removal::Rename(own) = removal {
                let _ = std::fs::rename(path, own);
                continue;
            }
            for _ in 0..MAX_REMOVALS {
                let removed = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
                if removed.is_ok() || std::fs::symlink_metadata(path).is_err() {
                    break;
                }
                // A thread or a child of this program is still writing to it, or removing its own files.
                std::thread::sleep(REMOVAL_PAUSE);
            }
        }
    }
}

/// Creates a folder and all that it lies in, as [`std::fs::create_dir_all`] does, for folders that may lie in a temporary one.
///
/// Without the lock, a thread that is about to create such a folder would create the temporary one again after a signal has removed it.
pub fn create_folders(path: &Path) -> io::Result<()> {
    let _names = names();
    std::fs::create_dir_all(path)
}

/// A folder in the registry, removed when it is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    stays: bool,
}

impl TemporaryFolder {
    /// Makes one in `base` with these permissions, whatever the umask.
    pub fn create_in(base: &Path, prefix: &str, mode: u32) -> io::Result<TemporaryFolder> {
        let mut names = names();
        let made = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempdir_in(base)?;
        std::fs::set_permissions(made.path(), Permissions::from_mode(mode))?;
        names.enter(made.path());
        Ok(TemporaryFolder { path: made.keep(), stays: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it: it stays.
    pub fn keep_as(mut self, path: &Path) -> io::Result<()> {
        let mut names = names();
        std::fs::rename(&self.path, path)?;
        names.forget(&self.path);
        self.stays = true;
        Ok(())
    }

    /// Leaves it where it is.
    pub fn leave(&mut self) {
        self.leave_on_signals();
        self.stays = true;
    }

    /// Leaves it where it is if a signal ends the program.
    pub fn leave_on_signals(&self) {
        names().forget(&self.path);
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.stays {
            // What a thread removes that removes all is removed once.
            let mut names = names();
            names.forget(&self.path);
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A file that is being written, removed when it is dropped.
#[derive(Debug)]
pub struct TemporaryFile {
    // In this order: it is removed before it is forgotten.
    file: NamedTempFile,
    _name: EnteredName,
}

/// The name of a file that is removed by other means.
#[derive(Debug)]
struct EnteredName(PathBuf);

impl Drop for EnteredName {
    fn drop(&mut self) {
        names().forget(&self.0);
    }
}

impl TemporaryFile {
    /// Makes one in a folder. The umask takes away from its permissions.
    pub fn create_in(folder: &Path, prefix: &str, mode: u32) -> io::Result<TemporaryFile> {
        let mut names = names();
        let file = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        names.enter(file.path());
        let name = EnteredName(file.path().to_owned());
        Ok(TemporaryFile { file, _name: name })
    }

    /// The open file.
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives it another name, which another file may have.
    pub fn rename(self, path: &Path) -> io::Result<()> {
        let TemporaryFile { file, _name: name } = self;
        let names = names();
        let renamed = file.persist(path).map(drop).map_err(|e| e.error);
        drop(names);
        drop(name);
        renamed
    }

    /// Gives it a name that no file has; the file, if one has it.
    ///
    /// # Errors
    /// It cannot be renamed for another reason.
    pub fn name(self, path: &Path) -> io::Result<Option<TemporaryFile>> {
        let TemporaryFile { file, _name: name } = self;
        let names = names();
        let renamed = file.persist_noclobber(path);
        drop(names);
        match renamed {
            Ok(_) => Ok(None),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Some(TemporaryFile { file: failed.file, _name: name }))
            }
            Err(failed) => Err(failed.error),
        }
    }
}

/// Puts a file without a name in the place of another one; `link` gives it the name that it has for a moment.
///
/// # Errors
/// It can be given no name, or not be renamed.
pub fn replace(path: &Path, folder: &Path, prefix: &str, link: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let _names = names();
    let named = tempfile::Builder::new().prefix(prefix).make_in(folder, link)?;
    named.persist(path).map(drop).map_err(|e| e.error)
}
