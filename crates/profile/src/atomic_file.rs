//! Atomic writing: a file is written next to its destination, unnamed (`O_TMPFILE`) or under a temporary name, and renamed once it is
//! complete on disk. A full disk, a limit or a signal leaves the old file, and no other one.
//!
//! An existing file that is not regular (a pipe, a terminal, an open file under its name in `/proc`) is written to directly. Links are
//! followed as with `protected_symlinks`: not those of another user in a sticky folder that is writable by all. Invariant: a file under a
//! temporary name is locked while its writer lives ([`is_orphaned`]).

use crate::temporary::{self, TemporaryFile};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that is being written.
#[derive(Debug)]
pub struct AtomicFile(Destination);

/// Permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As the umask allows, or those of the file that is replaced.
    Umask,
    /// Exactly these, regardless of the umask and the replaced file.
    Mode(u32),
}

impl Access {
    /// For the owner only.
    pub const PRIVATE: Access = Access::Mode(0o600);
}

#[derive(Debug)]
enum Destination {
    /// An existing file that cannot be replaced.
    Stream(File),
    /// A temporary file that will be renamed.
    Temporary { file: UnfinishedFile, path: PathBuf },
}

impl AtomicFile {
    /// Starts a file with the permissions that the umask allows. `begun` is the prefix of its temporary name. Missing folders are created.
    ///
    /// # Errors
    /// The folder cannot be written, or the path is a link of another user.
    pub fn create(path: &Path, begun: &str) -> io::Result<AtomicFile> {
        AtomicFile::create_with_access(path, begun, Access::Umask)
    }

    /// Like [`AtomicFile::create`], with the permissions that `access` says.
    pub fn create_with_access(path: &Path, begun: &str, access: Access) -> io::Result<AtomicFile> {
        if is_stream(path) {
            // Opened for appending, so that output of other processes is not overwritten: each open file has its own position.
            return Ok(AtomicFile(Destination::Stream(File::options().append(true).open(path)?)));
        }
        let path = target(path)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let file = create_locked(folder, begun, access)?;
        if access == Access::Umask
            && let Ok(there) = std::fs::metadata(&path)
        {
            file.as_file().set_permissions(there.permissions())?;
        }
        Ok(AtomicFile(Destination::Temporary { file, path }))
    }

    /// The open file to write to.
    pub fn file(&self) -> &File {
        match &self.0 {
            Destination::Stream(file) => file,
            Destination::Temporary { file, .. } => file.as_file(),
        }
    }

    /// Gives the complete file its name.
    pub fn finish(self) -> io::Result<()> {
        if let Destination::Temporary { file, .. } = &self.0 {
            file.as_file().sync_all()?;
        }
        self.finish_unsynced()
    }

    fn finish_unsynced(self) -> io::Result<()> {
        match self.0 {
            Destination::Stream(_) => Ok(()),
            Destination::Temporary { file, path } => file.rename(&path),
        }
    }
}

/// Writes a file with the permissions that the umask allows. `begun` is the prefix of its temporary name. Fails like
/// [`AtomicFile::create`] does, or if `content` fails.
pub fn write(path: &Path, begun: &str, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_with_access(path, begun, Access::Umask, content)
}

/// Writes a file that can be regenerated, without waiting for the disk: it may be empty after a system crash.
pub fn write_unsynced(path: &Path, begun: &str, bytes: &[u8]) -> io::Result<()> {
    let whole = AtomicFile::create(path, begun)?;
    whole.file().write_all(bytes)?;
    whole.finish_unsynced()
}

/// Like [`write`], with the permissions that `access` says.
pub fn write_with_access(
    path: &Path,
    begun: &str,
    access: Access,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let whole = AtomicFile::create_with_access(path, begun, access)?;
    fill(whole.file(), content)?;
    whole.finish()
}

/// A file that is complete on disk but has no name yet, or only a temporary one.
#[derive(Debug)]
pub struct UnnamedFile(UnfinishedFile);

impl UnnamedFile {
    /// Writes a file in `folder`. `begun` is the prefix of its temporary name, if it needs one.
    pub fn write(folder: &Path, begun: &str, access: Access, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let file = create_locked(folder, begun, access)?;
        fill(file.as_file(), content)?;
        file.as_file().sync_all()?;
        Ok(UnnamedFile(file))
    }

    /// Gives the file a name if no file has it; otherwise returns it.
    pub fn name(self, path: &Path) -> io::Result<Option<UnnamedFile>> {
        Ok(self.0.name(path)?.map(UnnamedFile))
    }
}

/// A file next to its destination.
#[derive(Debug)]
enum UnfinishedFile {
    Named(TemporaryFile),
    Unnamed {
        file: File,
        folder: PathBuf,
        /// Prefix of the temporary name that it may need for renaming.
        begun: String,
    },
}

impl UnfinishedFile {
    fn create(folder: &Path, begun: &str, mode: u32) -> io::Result<UnfinishedFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).map(File::from)
            && std::fs::symlink_metadata(descriptor_path(&file)).is_ok()
        {
            return Ok(UnfinishedFile::Unnamed { file, folder: folder.to_owned(), begun: begun.to_owned() });
        }
        // The file system does not support unnamed files, or `/proc`, which is needed to name them, is not mounted.
        Ok(UnfinishedFile::Named(TemporaryFile::create_in(folder, begun, mode)?))
    }

    fn as_file(&self) -> &File {
        match self {
            UnfinishedFile::Named(file) => file.as_file(),
            UnfinishedFile::Unnamed { file, .. } => file,
        }
    }

    /// Names the file, replacing any file of that name.
    fn rename(self, path: &Path) -> io::Result<()> {
        match self {
            UnfinishedFile::Named(file) => file.rename(path),
            UnfinishedFile::Unnamed { file, folder, begun } => match link(&file, path) {
                // A link cannot replace a file, so it first gets a temporary name, which is then renamed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    temporary::replace_file(path, &folder, &begun, |name| link(&file, name))
                }
                linked => linked,
            },
        }
    }

    /// Names the file if no file has that name; otherwise returns it.
    fn name(self, path: &Path) -> io::Result<Option<UnfinishedFile>> {
        match self {
            UnfinishedFile::Named(file) => Ok(file.name(path)?.map(UnfinishedFile::Named)),
            UnfinishedFile::Unnamed { ref file, .. } => match link(file, path) {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(self)),
                Err(error) => Err(error),
            },
        }
    }
}

/// Gives an unnamed file a name that is not taken.
fn link(file: &File, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, descriptor_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Creates a file and locks it.
fn create_locked(folder: &Path, begun: &str, access: Access) -> io::Result<UnfinishedFile> {
    let mode = match access {
        Access::Umask => 0o666,
        Access::Mode(mode) => mode,
    };
    let file = UnfinishedFile::create(folder, begun, mode)?;
    if access != Access::Umask {
        file.as_file().set_permissions(PermissionsExt::from_mode(mode))?;
    }
    // If the file system has no locks, a file that is being written may be taken for an orphan.
    let _ = file.as_file().try_lock();
    Ok(file)
}

fn fill(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out).and_then(|()| out.flush())
}

/// Returns whether the process that locked a file or folder has ended.
pub fn is_orphaned(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Returns whether an existing file must be written to directly: it is not regular, or an open file under its name in `/proc`.
fn is_stream(path: &Path) -> bool {
    let is_open = ["/proc", "/dev/fd", "/dev/stdout", "/dev/stderr"].iter().any(|name| path.starts_with(name));
    std::fs::metadata(path).is_ok_and(|there| is_open || !there.is_file())
}

/// Resolves links to their target, which may not exist.
fn target(path: &Path) -> io::Result<PathBuf> {
    /// Maximum number of links that the system follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if !path.is_symlink() {
            break;
        }
        if !is_followed(&path)? {
            let why = format!("the link {} is another user's, in a folder that is writable by all. Choose another file", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let to = std::fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    Ok(path)
}

/// Returns whether a link may be followed by the rule of `protected_symlinks`, even if the system has it disabled.
fn is_followed(link: &Path) -> io::Result<bool> {
    const STICKY_AND_WORLD_WRITABLE: u32 = 0o1002;
    let folder = std::fs::metadata(link.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let owner = std::fs::symlink_metadata(link)?.uid();
    let is_shared = folder.mode() & STICKY_AND_WORLD_WRITABLE == STICKY_AND_WORLD_WRITABLE;
    if is_shared && owner != rustix::process::geteuid().as_raw() && owner != folder.uid() {
        return Ok(false);
    }
    match rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        // NOENT: all links may be followed, but the target does not exist.
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

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn links_are_followed_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/file", at("near")).unwrap();
        symlink("near", at("nearer")).unwrap();
        for content in ["first", "second"] {
            write(&at("nearer"), ".begun-", |out| out.write_all(content.as_bytes())).unwrap();
            assert_eq!(text(&at("far/file")), content);
        }
        assert!(at("near").is_symlink() && at("nearer").is_symlink() && !at("far/file").is_symlink());
        symlink("round", at("round")).unwrap();
        assert!(write(&at("round"), ".begun-", |_| Ok(())).is_err());
    }

    #[test]
    fn links_of_other_users_in_shared_folders_are_refused() {
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
            // The second path leads there by a link of our own.
            let _ = symlink("link", at("shared/far"));
            let error = write(&at(path), ".begun-", |out| out.write_all(b"theirs")).unwrap_err();
            assert!(error.to_string().contains("is another user's"), "{error}");
        }
        assert_eq!(text(&at("precious")), "mine");
    }

    #[test]
    fn failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let failing = |out: &mut dyn Write| out.write_all(b"half").and_then(|()| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(write(&path, ".begun-", failing).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((text(&path), fs::read_dir(folder.path()).unwrap().count()), ("old".into(), 1));
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
        write_with_access(&path, ".begun-", Access::PRIVATE, |_| Ok(())).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn naming_an_unnamed_file_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("taken"), "old").unwrap();
        let file = UnnamedFile::write(folder.path(), ".begun-", Access::PRIVATE, |out| out.write_all(b"new")).unwrap();
        let file = file.name(&at("taken")).unwrap().expect("the name is taken");
        assert!(file.name(&at("free")).unwrap().is_none());
        assert_eq!((text(&at("taken")), text(&at("free"))), ("old".into(), "new".into()));
    }

    #[test]
    fn files_being_written_are_unnamed_or_locked() {
        let folder = tempfile::tempdir().unwrap();
        let begun = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).next();
        write(&folder.path().join("file"), ".begun-", |_| {
            assert!(begun().is_none_or(|begun| !is_orphaned(&begun)));
            Ok(())
        })
        .unwrap();
        let named = TemporaryFile::create_in(folder.path(), ".begun-", 0o600).unwrap();
        named.as_file().try_lock().unwrap();
        assert!(!is_orphaned(named.path()));
        let named = UnfinishedFile::Named(named);
        assert!(named.rename(&folder.path().join("file")).is_ok() && begun().unwrap().ends_with("file"));
        fs::write(folder.path().join("left"), "").unwrap();
        assert!(is_orphaned(&folder.path().join("left")));
    }
}
