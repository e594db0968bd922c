//! Atomic file replacement: a file is written next to its destination, unnamed (`O_TMPFILE`) or under a temporary name, and renamed once it
//! is complete on disk. If writing fails, the old file is unchanged.
//!
//! An existing file that is not regular (a pipe, a terminal, a descriptor in `/proc`) is written to directly. Symbolic links are followed
//! according to the kernel's `protected_symlinks` rule: a link in a sticky, world-writable folder is followed only if it belongs to the
//! current user or to the folder's owner. A file with a temporary name stays locked while its writer lives, so that [`is_orphaned`] can
//! recognise files whose writer was killed.

use crate::temporary::{self, TemporaryFile};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that is being written and does not replace its destination before [`AtomicFile::finish`].
#[derive(Debug)]
pub struct AtomicFile(FileDestination);

/// Permissions of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePermissions {
    /// The replaced file's permissions, or the umask's default for a new file.
    Umask,
    /// These mode bits, regardless of the umask and the replaced file.
    Mode(u32),
}

impl FilePermissions {
    /// Read and write permission for the owner only.
    pub const OWNER_ONLY: FilePermissions = FilePermissions::Mode(0o600);
}

#[derive(Debug)]
enum FileDestination {
    /// An existing file that is not regular, such as a pipe. Writes go directly to it.
    Stream(File),
    /// A regular file, written under a temporary name and renamed at the end.
    Temporary { file: UnfinishedFile, path: PathBuf },
}

impl AtomicFile {
    /// Starts a file with default permissions ([`FilePermissions::Umask`]) and creates missing folders. `temporary_prefix` is the prefix of
    /// the temporary name under which the file is written. Fails if the folder is not writable, or if the path is a symbolic link that must
    /// not be followed.
    pub fn create(path: &Path, temporary_prefix: &str) -> io::Result<AtomicFile> {
        AtomicFile::create_with_access(path, temporary_prefix, FilePermissions::Umask)
    }

    /// Like [`AtomicFile::create`], but sets the permissions to `access`.
    pub fn create_with_access(path: &Path, temporary_prefix: &str, access: FilePermissions) -> io::Result<AtomicFile> {
        if is_pipe_or_device(path) {
            // Several processes may have the pipe or terminal open, each with its own file position. In append mode they do not overwrite
            // each other's output.
            return Ok(AtomicFile(FileDestination::Stream(File::options().append(true).open(path)?)));
        }
        let path = resolve_symbolic_links(path)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let file = create_locked_temporary_file(folder, temporary_prefix, access)?;
        if access == FilePermissions::Umask
            && let Ok(there) = std::fs::metadata(&path)
        {
            file.as_file().set_permissions(there.permissions())?;
        }
        Ok(AtomicFile(FileDestination::Temporary { file, path }))
    }

    /// Returns the open file, for writing the content.
    pub fn file(&self) -> &File {
        match &self.0 {
            FileDestination::Stream(file) => file,
            FileDestination::Temporary { file, .. } => file.as_file(),
        }
    }

    /// Syncs the file to disk and renames it to its destination.
    pub fn finish(self) -> io::Result<()> {
        if let FileDestination::Temporary { file, .. } = &self.0 {
            file.as_file().sync_all()?;
        }
        self.finish_unsynced()
    }

    fn finish_unsynced(self) -> io::Result<()> {
        match self.0 {
            FileDestination::Stream(_) => Ok(()),
            FileDestination::Temporary { file, path } => file.rename(&path),
        }
    }
}

/// Writes a file atomically, with default permissions ([`FilePermissions::Umask`]). `temporary_prefix` is the prefix of its temporary name.
/// Fails like [`AtomicFile::create`], or if `content`, which writes the bytes, fails.
pub fn write(path: &Path, temporary_prefix: &str, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_with_access(path, temporary_prefix, FilePermissions::Umask, content)
}

/// Atomically writes a file that can be regenerated. Does not sync it to disk, so it may be empty after a system crash.
pub fn write_unsynced(path: &Path, temporary_prefix: &str, bytes: &[u8]) -> io::Result<()> {
    let file = AtomicFile::create(path, temporary_prefix)?;
    file.file().write_all(bytes)?;
    file.finish_unsynced()
}

/// Like [`write`], but sets the permissions to `access`.
pub fn write_with_access(
    path: &Path,
    temporary_prefix: &str,
    access: FilePermissions,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let file = AtomicFile::create_with_access(path, temporary_prefix, access)?;
    write_and_sync_content(file.file(), content)?;
    file.finish()
}

/// A file that is complete on disk but has no name yet, or only a temporary name.
#[derive(Debug)]
pub struct UnnamedFile(UnfinishedFile);

impl UnnamedFile {
    /// Writes a file in `folder`. The file has a temporary name, starting with `temporary_prefix`, only if the file system does not support
    /// unnamed files.
    pub fn write(
        folder: &Path,
        temporary_prefix: &str,
        access: FilePermissions,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Self> {
        let file = create_locked_temporary_file(folder, temporary_prefix, access)?;
        write_and_sync_content(file.as_file(), content)?;
        file.as_file().sync_all()?;
        Ok(UnnamedFile(file))
    }

    /// Gives the file the name `path` and returns `None`; if another file already has this name, returns the file, still unnamed.
    pub fn rename_if_name_is_free(self, path: &Path) -> io::Result<Option<UnnamedFile>> {
        Ok(self.0.rename_if_name_is_free(path)?.map(UnnamedFile))
    }
}

/// A file that is being written, in its destination's folder.
#[derive(Debug)]
enum UnfinishedFile {
    Named(TemporaryFile),
    Unnamed {
        file: File,
        folder: PathBuf,
        /// Prefix of the temporary name that the file needs if it is to replace an existing file.
        temporary_prefix: String,
    },
}

impl UnfinishedFile {
    fn create(folder: &Path, temporary_prefix: &str, mode: u32) -> io::Result<UnfinishedFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).map(File::from)
            && std::fs::symlink_metadata(path_of_descriptor(&file)).is_ok()
        {
            return Ok(UnfinishedFile::Unnamed { file, folder: folder.to_owned(), temporary_prefix: temporary_prefix.to_owned() });
        }
        // The file system does not support unnamed files, or `/proc`, which is needed to name them, is not mounted.
        Ok(UnfinishedFile::Named(TemporaryFile::create_in(folder, temporary_prefix, mode)?))
    }

    fn as_file(&self) -> &File {
        match self {
            UnfinishedFile::Named(file) => file.as_file(),
            UnfinishedFile::Unnamed { file, .. } => file,
        }
    }

    fn rename(self, path: &Path) -> io::Result<()> {
        match self {
            UnfinishedFile::Named(file) => file.rename(path),
            UnfinishedFile::Unnamed { file, folder, temporary_prefix } => match link_unnamed_file(&file, path) {
                // `linkat` cannot replace an existing file, so the new file is linked under a temporary name, which is then renamed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    temporary::replace_file(path, &folder, &temporary_prefix, |name| link_unnamed_file(&file, name))
                }
                linked => linked,
            },
        }
    }

    fn rename_if_name_is_free(self, path: &Path) -> io::Result<Option<UnfinishedFile>> {
        match self {
            UnfinishedFile::Named(file) => Ok(file.rename_if_name_is_free(path)?.map(UnfinishedFile::Named)),
            UnfinishedFile::Unnamed { ref file, .. } => match link_unnamed_file(file, path) {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(self)),
                Err(error) => Err(error),
            },
        }
    }
}

/// Gives an unnamed file a name. Fails with `AlreadyExists` if a file has this name.
fn link_unnamed_file(file: &File, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, path_of_descriptor(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn path_of_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn create_locked_temporary_file(folder: &Path, temporary_prefix: &str, access: FilePermissions) -> io::Result<UnfinishedFile> {
    let mode = match access {
        FilePermissions::Umask => 0o666,
        FilePermissions::Mode(mode) => mode,
    };
    let file = UnfinishedFile::create(folder, temporary_prefix, mode)?;
    if access != FilePermissions::Umask {
        file.as_file().set_permissions(PermissionsExt::from_mode(mode))?;
    }
    // Locking fails on file systems without locks. There, `is_orphaned` may mistake an unfinished file for an orphan.
    let _ = file.as_file().try_lock();
    Ok(file)
}

fn write_and_sync_content(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out).and_then(|()| out.flush())
}

/// Returns true if a file or folder is not locked. A writer holds the lock as long as it lives, so the writer has ended.
pub fn is_orphaned(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Returns whether an existing file must be written to directly: it is not a regular file, or the path names an open file descriptor.
fn is_pipe_or_device(path: &Path) -> bool {
    let is_open = ["/proc", "/dev/fd", "/dev/stdout", "/dev/stderr"].iter().any(|name| path.starts_with(name));
    std::fs::metadata(path).is_ok_and(|there| is_open || !there.is_file())
}

/// Resolves the symbolic links of a path whose last component is a link. No file needs to exist at the result.
fn resolve_symbolic_links(path: &Path) -> io::Result<PathBuf> {
    /// The kernel's limit.
    const MAX_FOLLOWED_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_FOLLOWED_LINKS {
        if !path.is_symlink() {
            break;
        }
        if !may_follow_link(&path)? {
            let why = format!(
                "the symbolic link {} in a world-writable folder belongs to a different user and is not followed. Choose a different file",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let to = std::fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    Ok(path)
}

/// Returns whether the `protected_symlinks` rule allows following a link. Applies the rule even if the kernel has it disabled.
fn may_follow_link(link: &Path) -> io::Result<bool> {
    const STICKY_AND_WORLD_WRITABLE: u32 = 0o1002;
    let folder = std::fs::metadata(link.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let owner = std::fs::symlink_metadata(link)?.uid();
    let is_shared = folder.mode() & STICKY_AND_WORLD_WRITABLE == STICKY_AND_WORLD_WRITABLE;
    if is_shared && owner != rustix::process::geteuid().as_raw() && owner != folder.uid() {
        return Ok(false);
    }
    match rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        // ENOENT: the link may be followed, but its target does not exist.
        Ok(_) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read_text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn symbolic_links_are_followed_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/file", at("near")).unwrap();
        symlink("near", at("nearer")).unwrap();
        for content in ["first", "second"] {
            write(&at("nearer"), ".begun-", |out| out.write_all(content.as_bytes())).unwrap();
            assert_eq!(read_text(&at("far/file")), content);
        }
        assert!(at("near").is_symlink() && at("nearer").is_symlink() && !at("far/file").is_symlink());
        symlink("round", at("round")).unwrap();
        assert!(write(&at("round"), ".begun-", |_| Ok(())).is_err());
    }

    #[test]
    fn links_of_other_users_in_shared_folders_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped, needs root: another user's link");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("shared")).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(at("precious"), "old").unwrap();
        symlink("../precious", at("shared/link")).unwrap();
        write(&at("shared/link"), ".begun-", |out| out.write_all(b"mine")).unwrap();
        std::os::unix::fs::lchown(at("shared/link"), Some(65_534), None).unwrap();
        for path in ["shared/link", "shared/far"] {
            // `shared/far` is a link of our own to the other user's link.
            let _ = symlink("link", at("shared/far"));
            let error = write(&at(path), ".begun-", |out| out.write_all(b"theirs")).unwrap_err();
            assert!(error.to_string().contains("belongs to a different user"), "{error}");
        }
        assert_eq!(read_text(&at("precious")), "mine");
    }

    #[test]
    fn failed_write_leaves_the_old_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let failing = |out: &mut dyn Write| out.write_all(b"half").and_then(|()| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(write(&path, ".begun-", failing).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((read_text(&path), fs::read_dir(folder.path()).unwrap().count()), ("old".into(), 1));
    }

    #[test]
    fn private_access_overrides_the_replaced_files_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, ".begun-", |_| Ok(())).unwrap();
        assert_eq!(mode(), 0o644);
        write_with_access(&path, ".begun-", FilePermissions::OWNER_ONLY, |_| Ok(())).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn naming_an_unnamed_file_does_not_replace_an_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("taken"), "old").unwrap();
        let file = UnnamedFile::write(folder.path(), ".begun-", FilePermissions::OWNER_ONLY, |out| out.write_all(b"new")).unwrap();
        let file = file.rename_if_name_is_free(&at("taken")).unwrap().expect("the name is taken");
        assert!(file.rename_if_name_is_free(&at("free")).unwrap().is_none());
        assert_eq!((read_text(&at("taken")), read_text(&at("free"))), ("old".into(), "new".into()));
    }

    #[test]
    fn files_being_written_are_unnamed_or_locked() {
        let folder = tempfile::tempdir().unwrap();
        let first_entry = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).next();
        write(&folder.path().join("file"), ".begun-", |_| {
            assert!(first_entry().is_none_or(|unfinished| !is_orphaned(&unfinished)));
            Ok(())
        })
        .unwrap();
        let named = TemporaryFile::create_in(folder.path(), ".begun-", 0o600).unwrap();
        named.as_file().try_lock().unwrap();
        assert!(!is_orphaned(named.path()));
        let named = UnfinishedFile::Named(named);
        assert!(named.rename(&folder.path().join("file")).is_ok() && first_entry().unwrap().ends_with("file"));
        fs::write(folder.path().join("left"), "").unwrap();
        assert!(is_orphaned(&folder.path().join("left")));
    }
}
