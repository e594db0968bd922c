//! Atomic writing of files: a file is written beside its place, without a name where the file system can (`O_TMPFILE`), else under a
//! temporary one, and renamed when it is complete on disk. A full disk, a limit or a signal leaves the old file, and no other one.
//! An existing file that is not regular (a pipe, a terminal, an open file under its name in `/proc`) is written into.
//!
//! Links are followed if the system follows them: in a sticky folder that all may write to, not another user's (`protected_symlinks`).
//!
//! Invariant: a file under a temporary name is locked as long as its writer lives ([`is_orphaned`]).

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
pub struct WholeFile(Begun);

/// Who may use a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The umask says so; a file that replaces another one takes over its permissions.
    Umask,
    /// These permissions, whatever the umask and the replaced file had.
    Mode(u32),
}

impl Access {
    /// The owner alone.
    pub const PRIVATE: Access = Access::Mode(0o600);
}

#[derive(Debug)]
enum Begun {
    /// An existing file that cannot be replaced.
    Stream(File),
    /// A temporary file that will be renamed.
    Temporary { file: BegunFile, path: PathBuf },
}

impl WholeFile {
    /// Creates a file with the permissions that the umask leaves; `begun` is the prefix of its temporary name. Missing folders are made.
    ///
    /// # Errors
    /// The folder cannot be written, or a link is another user's.
    pub fn create(path: &Path, begun: &str) -> io::Result<WholeFile> {
        WholeFile::create_for(path, begun, Access::Umask)
    }

    /// The same with the permissions that `access` says.
    ///
    /// # Errors
    /// As [`WholeFile::create`].
    pub fn create_for(path: &Path, begun: &str, access: Access) -> io::Result<WholeFile> {
        if is_stream(path) {
            // Appends to what other processes have written: an open file has a position for each of them.
            return Ok(WholeFile(Begun::Stream(File::options().append(true).open(path)?)));
        }
        let path = target(path)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let file = temporary(folder, begun, access)?;
        if access == Access::Umask
            && let Ok(there) = std::fs::metadata(&path)
        {
            file.as_file().set_permissions(there.permissions())?;
        }
        Ok(WholeFile(Begun::Temporary { file, path }))
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        match &self.0 {
            Begun::Stream(file) => file,
            Begun::Temporary { file, .. } => file.as_file(),
        }
    }

    /// Renames the complete file.
    pub fn finish(self) -> io::Result<()> {
        if let Begun::Temporary { file, .. } = &self.0 {
            file.as_file().sync_all()?;
        }
        self.finish_unsynced()
    }

    fn finish_unsynced(self) -> io::Result<()> {
        match self.0 {
            Begun::Stream(_) => Ok(()),
            Begun::Temporary { file, path } => file.rename(&path),
        }
    }
}

/// Writes a file with the permissions that the umask leaves; its temporary name begins as given.
///
/// # Errors
/// The folder or the file cannot be written, a link is another user's, or `content` fails.
pub fn write(path: &Path, begun: &str, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_for(path, begun, Access::Umask, content)
}

/// Writes a file that can be made again, as a cache has it: after a crash of the system it may be empty.
pub fn write_again(path: &Path, begun: &str, bytes: &[u8]) -> io::Result<()> {
    let whole = WholeFile::create(path, begun)?;
    whole.file().write_all(bytes)?;
    whole.finish_unsynced()
}

/// The same as [`write`] with the permissions that `access` says.
pub fn write_for(path: &Path, begun: &str, access: Access, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let whole = WholeFile::create_for(path, begun, access)?;
    fill(whole.file(), content)?;
    whole.finish()
}

/// A file that is complete on disk and has no name yet, or a temporary one.
#[derive(Debug)]
pub struct UnnamedFile(BegunFile);

impl UnnamedFile {
    /// Writes it in `folder`; its temporary name begins as given.
    ///
    /// # Errors
    /// The file cannot be written, or `content` fails.
    pub fn write(folder: &Path, begun: &str, access: Access, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let file = temporary(folder, begun, access)?;
        fill(file.as_file(), content)?;
        file.as_file().sync_all()?;
        Ok(UnnamedFile(file))
    }

    /// Gives it a name that no file has. If one has it, the file is given back.
    ///
    /// # Errors
    /// It cannot be renamed for another reason.
    pub fn name(self, path: &Path) -> io::Result<Option<UnnamedFile>> {
        Ok(self.0.name(path)?.map(UnnamedFile))
    }
}

/// A file beside the place that it is to have.
#[derive(Debug)]
enum BegunFile {
    Named(TemporaryFile),
    Unnamed {
        file: File,
        folder: PathBuf,
        /// What a name begins with that it has until it is renamed.
        begun: String,
    },
}

impl BegunFile {
    fn create(folder: &Path, begun: &str, mode: u32) -> io::Result<BegunFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).map(File::from)
            && std::fs::symlink_metadata(by_descriptor(&file)).is_ok()
        {
            return Ok(BegunFile::Unnamed { file, folder: folder.to_owned(), begun: begun.to_owned() });
        }
        // The file system has no such files, or `/proc`, by which they get names, is not there.
        Ok(BegunFile::Named(TemporaryFile::create_in(folder, begun, mode)?))
    }

    fn as_file(&self) -> &File {
        match self {
            BegunFile::Named(file) => file.as_file(),
            BegunFile::Unnamed { file, .. } => file,
        }
    }

    /// Gives it a name, which another file may have.
    fn rename(self, path: &Path) -> io::Result<()> {
        match self {
            BegunFile::Named(file) => file.rename(path),
            BegunFile::Unnamed { file, folder, begun } => match link(&file, path) {
                // A name is not given to it in the place of another file's, so it has one for a moment that no file has.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    temporary::replace(path, &folder, &begun, |name| link(&file, name))
                }
                linked => linked,
            },
        }
    }

    /// Gives it a name that no file has; the file, if one has it.
    fn name(self, path: &Path) -> io::Result<Option<BegunFile>> {
        match self {
            BegunFile::Named(file) => Ok(file.name(path)?.map(BegunFile::Named)),
            BegunFile::Unnamed { ref file, .. } => match link(file, path) {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(self)),
                Err(error) => Err(error),
            },
        }
    }
}

/// Gives a file without a name one that no file has.
fn link(file: &File, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, by_descriptor(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A new file, locked.
fn temporary(folder: &Path, begun: &str, access: Access) -> io::Result<BegunFile> {
    let mode = match access {
        Access::Umask => 0o666,
        Access::Mode(mode) => mode,
    };
    let file = BegunFile::create(folder, begun, mode)?;
    if access != Access::Umask {
        file.as_file().set_permissions(PermissionsExt::from_mode(mode))?;
    }
    // Without locks in the file system, a file that is being written may be taken for an orphaned one.
    let _ = file.as_file().try_lock();
    Ok(file)
}

fn fill(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out).and_then(|()| out.flush())
}

/// Whether a file under a temporary name, or a folder that its user locks, is left from a process that has ended.
pub fn is_orphaned(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Whether an existing file must not be replaced: it is not regular, or an open file under its name in `/proc`.
fn is_stream(path: &Path) -> bool {
    let is_open = ["/proc", "/dev/fd", "/dev/stdout", "/dev/stderr"].iter().any(|name| path.starts_with(name));
    std::fs::metadata(path).is_ok_and(|there| is_open || !there.is_file())
}

/// The target of links, which may not exist.
fn target(path: &Path) -> io::Result<PathBuf> {
    /// The number of links that the system follows.
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        if !path.is_symlink() {
            break;
        }
        if !is_followed(&path)? {
            let why = format!("the link {} is another user's, in a folder where all may write: give another file", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let to = std::fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    Ok(path)
}

/// Whether a link may be followed, by the system's rule, even if the system has the rule switched off.
fn is_followed(link: &Path) -> io::Result<bool> {
    const STICKY_AND_OF_ALL: u32 = 0o1002;
    let folder = std::fs::metadata(link.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let owner = std::fs::symlink_metadata(link)?.uid();
    let is_shared = folder.mode() & STICKY_AND_OF_ALL == STICKY_AND_OF_ALL;
    if is_shared && owner != rustix::process::geteuid().as_raw() && owner != folder.uid() {
        return Ok(false);
    }
    match rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        // All links are followed, and what they lead to is not there.
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
    fn links_are_followed_and_stay() {
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
    fn links_of_others_in_folders_of_all_are_not_followed() {
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
            // The second one by a link of our own.
            let _ = symlink("link", at("shared/far"));
            let error = write(&at(path), ".begun-", |out| out.write_all(b"theirs")).unwrap_err();
            assert!(error.to_string().contains("is another user's"), "{error}");
        }
        assert_eq!(text(&at("precious")), "mine");
    }

    #[test]
    fn what_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let failing = |out: &mut dyn Write| out.write_all(b"half").and_then(|()| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(write(&path, ".begun-", failing).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((text(&path), fs::read_dir(folder.path()).unwrap().count()), ("old".into(), 1));
    }

    #[test]
    fn private_files_stay_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, ".begun-", |_| Ok(())).unwrap();
        assert_eq!(mode(), 0o644);
        write_for(&path, ".begun-", Access::PRIVATE, |_| Ok(())).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn files_get_names_that_no_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("taken"), "old").unwrap();
        let file = UnnamedFile::write(folder.path(), ".begun-", Access::PRIVATE, |out| out.write_all(b"new")).unwrap();
        let file = file.name(&at("taken")).unwrap().expect("the name is taken");
        assert!(file.name(&at("free")).unwrap().is_none());
        assert_eq!((text(&at("taken")), text(&at("free"))), ("old".into(), "new".into()));
    }

    #[test]
    fn files_that_are_written_have_no_name_or_are_locked() {
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
        let named = BegunFile::Named(named);
        assert!(named.rename(&folder.path().join("file")).is_ok() && begun().unwrap().ends_with("file"));
        fs::write(folder.path().join("left"), "").unwrap();
        assert!(is_orphaned(&folder.path().join("left")));
    }
}
