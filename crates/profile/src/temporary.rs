//! Registry of the temporary files and folders that a program removes when a signal ends it.
//!
//! Invariant: the registry is locked whenever a temporary name is created and registered. A thread that locks it to remove all files
//! therefore misses none, and no names are created while it holds the lock. This crate handles no signals; a program passes the function
//! that installs its signal handlers to [`set_registry_lock_hook`].

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

static REGISTERED_NAMES: Mutex<BTreeMap<PathBuf, TemporaryNameOwner>> = Mutex::new(BTreeMap::new());

static REGISTRY_LOCK_HOOK: OnceLock<fn()> = OnceLock::new();

/// What happens to a registered file or folder when the program ends.
#[derive(Debug)]
enum TemporaryNameOwner {
    Delete,
    /// Rename the file back to its original name, and replace any file that has this name now.
    Rename(PathBuf),
}

/// Maximum number of attempts to remove a folder to which other threads or processes may still be writing.
const MAX_REMOVAL_ATTEMPTS: u32 = 200;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// Sets a function that is called before each locking of the registry. Later calls have no effect.
pub fn set_registry_lock_hook(prepare: fn()) {
    let _ = REGISTRY_LOCK_HOOK.set(prepare);
}

/// The locked registry.
#[derive(Debug)]
pub struct TemporaryNameRegistry(MutexGuard<'static, BTreeMap<PathBuf, TemporaryNameOwner>>);

/// Locks the registry, so that temporary names can be created or removed.
pub fn lock_registry() -> TemporaryNameRegistry {
    if let Some(prepare) = REGISTRY_LOCK_HOOK.get() {
        prepare();
    }
    TemporaryNameRegistry(REGISTERED_NAMES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl TemporaryNameRegistry {
    /// Registers a file or folder to be removed when a signal ends the program.
    pub fn register(&mut self, path: &Path) {
        self.0.insert(path.to_owned(), TemporaryNameOwner::Delete);
    }

    /// Registers a file that was temporarily renamed from `own` to `path`, to be renamed back.
    pub fn register_renamed(&mut self, path: &Path, own: &Path) {
        self.0.insert(path.to_owned(), TemporaryNameOwner::Rename(own.to_owned()));
    }

    /// Removes a file or folder from the registry, but not from the disk.
    pub fn unregister(&mut self, path: &Path) {
        self.0.remove(path);
    }

    /// Removes all registered files and folders from the disk, and renames temporarily renamed files back. Ignores failures.
    pub fn remove_all(&self) {
        for (path, removal) in self.0.iter() {
            if let TemporaryNameOwner::Rename(own) = removal {
                let _ = std::fs::rename(path, own);
                continue;
            }
            for _ in 0..MAX_REMOVAL_ATTEMPTS {
                let removed = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
                if removed.is_ok() || std::fs::symlink_metadata(path).is_err() {
                    break;
                }
                // Threads or child processes of this program may still be writing to the folder, or removing files from it.
                std::thread::sleep(REMOVAL_PAUSE);
            }
        }
    }
}

/// Creates a folder and its missing parents, like [`std::fs::create_dir_all`], while the registry is locked.
///
/// Without the lock, a thread could create a temporary folder again, as a parent, after a signal handler has removed it.
pub fn create_folders(path: &Path) -> io::Result<()> {
    let _names = lock_registry();
    std::fs::create_dir_all(path)
}

/// A temporary folder in the registry, which is removed when the value is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    is_kept: bool,
}

impl TemporaryFolder {
    /// Creates a folder in `base`. It gets exactly the given mode bits, whatever the umask is.
    pub fn create_in(base: &Path, prefix: &str, mode: u32) -> io::Result<TemporaryFolder> {
        let mut names = lock_registry();
        let made = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempdir_in(base)?;
        std::fs::set_permissions(made.path(), Permissions::from_mode(mode))?;
        names.register(made.path());
        Ok(TemporaryFolder { path: made.keep(), is_kept: false })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the folder and makes it permanent.
    pub fn rename_and_keep(mut self, path: &Path) -> io::Result<()> {
        let mut names = lock_registry();
        std::fs::rename(&self.path, path)?;
        names.unregister(&self.path);
        self.is_kept = true;
        Ok(())
    }

    /// Makes the folder permanent, so that it is not removed when the value is dropped.
    pub fn keep(&mut self) {
        self.keep_if_killed_by_signal();
        self.is_kept = true;
    }

    /// Makes the folder survive if a signal ends the program. It is still removed when the value is dropped.
    pub fn keep_if_killed_by_signal(&self) {
        lock_registry().unregister(&self.path);
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            // While the registry is locked, `remove_all` in a different thread cannot remove the folder at the same time.
            let mut names = lock_registry();
            names.unregister(&self.path);
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A temporary file in the registry, which is removed when the value is dropped.
#[derive(Debug)]
pub struct TemporaryFile {
    // The order of the fields matters, since they are dropped in this order: the file is removed before its name leaves the registry.
    file: NamedTempFile,
    _name: RegisteredName,
}

/// A file name in the registry. Dropping the value removes the name, but not the file.
#[derive(Debug)]
struct RegisteredName(PathBuf);

impl Drop for RegisteredName {
    fn drop(&mut self) {
        lock_registry().unregister(&self.0);
    }
}

impl TemporaryFile {
    /// Creates a file in a folder. It gets the given mode bits, restricted by the umask.
    pub fn create_in(folder: &Path, prefix: &str, mode: u32) -> io::Result<TemporaryFile> {
        let mut names = lock_registry();
        let file = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        names.register(file.path());
        let name = RegisteredName(file.path().to_owned());
        Ok(TemporaryFile { file, _name: name })
    }

    /// Returns the open file.
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Renames the file, and replaces any file that has the new name.
    pub fn rename(self, path: &Path) -> io::Result<()> {
        let TemporaryFile { file, _name: name } = self;
        let names = lock_registry();
        let renamed = file.persist(path).map(drop).map_err(|e| e.error);
        drop(names);
        drop(name);
        renamed
    }

    /// Renames the file and returns `None`; if another file already has this name, returns the file unchanged.
    pub fn rename_if_name_is_free(self, path: &Path) -> io::Result<Option<TemporaryFile>> {
        let TemporaryFile { file, _name: name } = self;
        let names = lock_registry();
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

/// Replaces the file at `path` by a file without a name. `link` links the nameless file under a given temporary name, which is then renamed
/// to `path`.
pub fn replace_file(path: &Path, folder: &Path, prefix: &str, link: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let _names = lock_registry();
    let named = tempfile::Builder::new().prefix(prefix).make_in(folder, link)?;
    named.persist(path).map(drop).map_err(|e| e.error)
}
