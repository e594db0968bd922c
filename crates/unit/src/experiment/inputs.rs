//! Input files of builds, stored by content: the name of each file in the folder (`ROOT/inputs/`) is its [`Identity`].
//!
//! Experiments refer to files by identity. Therefore the original files may be renamed, have names with any bytes, or be on a different
//! machine. Requests to the plugin are stored in the same folder as the files that they refer to.

use super::settings::{Settings, SettingsFile};
use crate::atomic_file::write_atomically;
use crate::{ContentError, FunctionParts, FunctionWeights, Identity, IterationSet, KnownPaths, SegmentSet, TransformationPlan};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of files that are named after their content's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFolder {
    folder: PathBuf,
}

/// Purpose of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputPurpose {
    /// Measured edge frequencies, by which probes are placed.
    Weights,
    /// Known paths. Only other paths are counted.
    Known,
    /// All paths except the watched ones. Only the watched paths are counted.
    Watched,
    /// Interesting paths.
    Interesting,
    /// Interprocedural segments.
    Segments,
    /// Paths over iterations.
    Iterations,
    /// The part of the paths that an instrumented copy of the program counts.
    Part,
    /// A plan for transforming the program's code.
    Apply,
}

/// Reason why a build cannot use an input file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum InputError {
    #[error("cannot read {file} (named by setting `{key}`): {source}. Pass a readable file", file = file.display())]
    Unreadable {
        /// The setting's key.
        key: &'static str,
        file: PathBuf,
        source: io::Error,
    },
    #[error("cannot use {file} for setting `{key}`: {reason}", file = file.display())]
    Content { key: &'static str, file: PathBuf, reason: ContentError },
    #[error("cannot write {file}: {source}. Set TRODDEN_CACHE to a writable folder", file = file.display())]
    Unwritable { file: PathBuf, source: io::Error },
    #[error(
        "the build's file for setting `{key}` ({identity}) is not in the folder {folder}. Set TRODDEN_CACHE to the unit cache of that \
         build, or {remedy}",
        folder = folder.display()
    )]
    Missing { key: &'static str, remedy: &'static str, identity: Identity, folder: PathBuf },
    #[error("{file} is corrupt. Delete this file, and build the program again", file = file.display())]
    Corrupt { file: PathBuf },
}

impl InputPurpose {
    /// All purposes.
    pub const ALL: [InputPurpose; 8] = [
        InputPurpose::Weights,
        InputPurpose::Known,
        InputPurpose::Watched,
        InputPurpose::Interesting,
        InputPurpose::Segments,
        InputPurpose::Iterations,
        InputPurpose::Part,
        InputPurpose::Apply,
    ];

    fn setting_key_and_remedy(self) -> (&'static str, &'static str) {
        match self {
            InputPurpose::Weights => ("weights", "specify it again (--weights)"),
            InputPurpose::Known => ("known", "specify the profile again (--residual)"),
            InputPurpose::Watched => ("watched", "create the program again (trodden instrument --watch)"),
            InputPurpose::Interesting => ("interesting", "create the program again (trodden instrument --interesting)"),
            InputPurpose::Segments => ("segments", "create the program again (trodden instrument --segments)"),
            InputPurpose::Iterations => ("iterations", "use the program that the copy was made from"),
            InputPurpose::Part => ("part", "use the program that the copy was made from"),
            InputPurpose::Apply => ("apply", "run `trodden pgo` again"),
        }
    }

    /// Returns the setting that names the file for this purpose.
    pub fn setting_mut(self, settings: &mut Settings) -> &mut Option<SettingsFile> {
        match self {
            InputPurpose::Weights => &mut settings.weights,
            InputPurpose::Known => &mut settings.known,
            InputPurpose::Watched => &mut settings.watched,
            InputPurpose::Interesting => &mut settings.interesting,
            InputPurpose::Segments => &mut settings.segments,
            InputPurpose::Iterations => &mut settings.iterations,
            InputPurpose::Part => &mut settings.part,
            InputPurpose::Apply => &mut settings.apply,
        }
    }

    fn check(self, bytes: &[u8]) -> Result<(), ContentError> {
        match self {
            InputPurpose::Weights => FunctionWeights::from_bytes(bytes).map(drop),
            InputPurpose::Known | InputPurpose::Watched | InputPurpose::Interesting => KnownPaths::from_bytes(bytes).map(drop),
            InputPurpose::Segments => SegmentSet::from_bytes(bytes).map(drop),
            InputPurpose::Iterations => IterationSet::from_bytes(bytes).map(drop),
            InputPurpose::Part => FunctionParts::from_bytes(bytes).map(drop),
            InputPurpose::Apply => TransformationPlan::from_bytes(bytes).map(drop),
        }
    }
}

impl InputFolder {
    /// Creates a handle to a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> InputFolder {
        InputFolder { folder: folder.into() }
    }

    /// Returns the path under which content with this identity is stored. The file may not exist.
    pub fn path(&self, identity: Identity) -> PathBuf {
        self.folder.join(identity.to_string())
    }

    /// Checks the content of a file and copies the file to the folder. Returns its identity. Fails if the file cannot be read or has
    /// invalid content, or if the folder cannot be written.
    pub fn put_file(&self, kind: InputPurpose, file: &Path) -> Result<Identity, InputError> {
        let (key, _) = kind.setting_key_and_remedy();
        let bytes = std::fs::read(file).map_err(|source| InputError::Unreadable { key, file: file.to_owned(), source })?;
        kind.check(&bytes).map_err(|reason| InputError::Content { key, file: file.to_owned(), reason })?;
        self.put(&bytes)
    }

    /// Stores content in the folder by atomic replacement, and returns its identity.
    pub fn put(&self, bytes: &[u8]) -> Result<Identity, InputError> {
        let identity = Identity::from_content(bytes);
        let path = self.path(identity);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() == bytes.len() as u64) {
            return Ok(identity);
        }
        write_atomically(&path, bytes).map(|()| identity).map_err(|source| InputError::Unwritable { file: path, source })
    }

    /// Fails if the file is not in the folder.
    pub fn check(&self, kind: InputPurpose, identity: Identity) -> Result<(), InputError> {
        match self.path(identity).is_file() {
            true => Ok(()),
            false => Err(self.missing_file_error(kind, identity)),
        }
    }

    fn missing_file_error(&self, kind: InputPurpose, identity: Identity) -> InputError {
        let (key, remedy) = kind.setting_key_and_remedy();
        InputError::Missing { key, remedy, identity, folder: self.folder.clone() }
    }

    /// Reads a file of the folder. Fails if the file is not in the folder, cannot be read, or is corrupt.
    pub fn get(&self, kind: InputPurpose, identity: Identity) -> Result<Vec<u8>, InputError> {
        let file = self.path(identity);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.missing_file_error(kind, identity)),
            Err(source) => return Err(InputError::Unreadable { key: kind.setting_key_and_remedy().0, file, source }),
        };
        if Identity::from_content(&bytes) == identity { Ok(bytes) } else { Err(InputError::Corrupt { file }) }
    }
}
