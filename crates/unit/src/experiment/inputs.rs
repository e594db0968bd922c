//! Files that builds read, by their content: a folder in which each has its [`Identity`] as its name.
//!
//! An experiment names files so, and so their own names may hold any bytes, may change, and may be of another machine.
//! `ROOT/inputs/abcdef...`; requests to the plugin lie there, too, beside the files that they name.

use super::settings::{Settings, SettingsFile};
use crate::whole_file::write_whole;
use crate::{FunctionParts, Identity, KnownPaths, SegmentSet, TransformationPlan, Weights, WrongContent};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of files by their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFolder {
    folder: PathBuf,
}

/// What a file is to a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// Measured frequencies.
    Weights,
    /// Known paths.
    Known,
    /// All paths but the watched ones.
    Watched,
    /// Interesting paths.
    Interesting,
    /// Interprocedural segments.
    Segments,
    /// A copy's part.
    Part,
    /// A plan of transformations.
    Apply,
}

/// Why a file is of no use to a build.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be read.
    #[error("{key}: the file {file} cannot be read ({source}): give one that can", file = file.display())]
    Unreadable {
        /// The setting's key.
        key: &'static str,
        /// The file.
        file: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is not such a file.
    #[error("{key}: {file}: {reason}", file = file.display())]
    Content {
        /// The setting's key.
        key: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong, with the remedy.
        reason: WrongContent,
    },
    /// It cannot be stored.
    #[error("cannot write {file} ({source}): set TRODDEN_CACHE to a folder that can be written", file = file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is not there.
    #[error(
        "the file {identity} ({key}) of the build is not in {folder}: set TRODDEN_CACHE to the store of that build, or {remedy}",
        folder = folder.display()
    )]
    Missing {
        /// The setting's key.
        key: &'static str,
        /// What to do.
        remedy: &'static str,
        /// The file's identity.
        identity: Identity,
        /// Where it should be.
        folder: PathBuf,
    },
    /// Its content is not that of its name.
    #[error("the file {file} is damaged: remove it, and build again from the files that were given", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
    },
}

impl InputKind {
    /// All kinds.
    pub const ALL: [InputKind; 7] = [
        InputKind::Weights,
        InputKind::Known,
        InputKind::Watched,
        InputKind::Interesting,
        InputKind::Segments,
        InputKind::Part,
        InputKind::Apply,
    ];

    /// The key of its setting, and what to do where such a file is lost.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            InputKind::Weights => ("weights", "give it again (--weights)"),
            InputKind::Known => ("known", "give the profile again (--residual)"),
            InputKind::Watched => ("watched", "make the program again (trodden instrument --watch)"),
            InputKind::Interesting => ("interesting", "make the program again (trodden instrument --interesting)"),
            InputKind::Segments => ("segments", "make the program again (trodden instrument --segments)"),
            InputKind::Part => ("part", "take the program of which the copy was made"),
            InputKind::Apply => ("apply", "run `trodden pgo` again"),
        }
    }

    /// Where settings name a file of this kind.
    pub fn of(self, settings: &mut Settings) -> &mut Option<SettingsFile> {
        match self {
            InputKind::Weights => &mut settings.weights,
            InputKind::Known => &mut settings.known,
            InputKind::Watched => &mut settings.watched,
            InputKind::Interesting => &mut settings.interesting,
            InputKind::Segments => &mut settings.segments,
            InputKind::Part => &mut settings.part,
            InputKind::Apply => &mut settings.apply,
        }
    }

    /// Whether bytes are such a file.
    fn check(self, bytes: &[u8]) -> Result<(), WrongContent> {
        match self {
            InputKind::Weights => Weights::from_bytes(bytes).map(drop),
            InputKind::Known | InputKind::Watched | InputKind::Interesting => KnownPaths::from_bytes(bytes).map(drop),
            InputKind::Segments => SegmentSet::from_bytes(bytes).map(drop),
            InputKind::Part => FunctionParts::from_bytes(bytes).map(drop),
            InputKind::Apply => TransformationPlan::from_bytes(bytes).map(drop),
        }
    }
}

impl InputFolder {
    /// The folder of that path, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> InputFolder {
        InputFolder { folder: folder.into() }
    }

    /// Where a file lies, or would.
    pub fn path(&self, identity: Identity) -> PathBuf {
        self.folder.join(identity.to_string())
    }

    /// Puts a file of a kind into the folder.
    ///
    /// # Errors
    /// It cannot be read, is another file, or cannot be written.
    pub fn put_file(&self, kind: InputKind, file: &Path) -> Result<Identity, InputError> {
        let (key, _) = kind.words();
        let bytes = std::fs::read(file).map_err(|source| InputError::Unreadable { key, file: file.to_owned(), source })?;
        kind.check(&bytes).map_err(|reason| InputError::Content { key, file: file.to_owned(), reason })?;
        self.put(&bytes)
    }

    /// Puts content into the folder; it appears whole or not at all.
    pub fn put(&self, bytes: &[u8]) -> Result<Identity, InputError> {
        let identity = Identity::from_content(bytes);
        let path = self.path(identity);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() == bytes.len() as u64) {
            return Ok(identity);
        }
        write_whole(&path, bytes).map(|()| identity).map_err(|source| InputError::Unwritable { file: path, source })
    }

    /// Whether a file of a kind is there.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, kind: InputKind, identity: Identity) -> Result<(), InputError> {
        match self.path(identity).is_file() {
            true => Ok(()),
            false => Err(self.missing(kind, identity)),
        }
    }

    fn missing(&self, kind: InputKind, identity: Identity) -> InputError {
        let (key, remedy) = kind.words();
        InputError::Missing { key, remedy, identity, folder: self.folder.clone() }
    }

    /// The content of a file of a kind.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn get(&self, kind: InputKind, identity: Identity) -> Result<Vec<u8>, InputError> {
        let file = self.path(identity);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.missing(kind, identity)),
            Err(source) => return Err(InputError::Unreadable { key: kind.words().0, file, source }),
        };
        if Identity::from_content(&bytes) == identity { Ok(bytes) } else { Err(InputError::Damaged { file }) }
    }
}
