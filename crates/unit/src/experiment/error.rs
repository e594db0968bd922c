//! Errors of experiments.

use super::rule::SettingsConflict;
use super::settings::SettingsFile;
use crate::Identity;
use std::path::PathBuf;

/// Reason why settings do not describe an experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// The settings contradict each other, or something is missing.
    #[error(transparent)]
    Excluded(#[from] SettingsConflict),
    /// A file has not been read yet, so that its identity is unknown.
    #[error("{key} names the file {file}, which has no identity yet: resolve the settings first \
        (`Settings::resolve`)", file = file.display())]
    Unresolved {
        /// The setting's key.
        key: &'static str,
        /// The file.
        file: PathBuf,
    },
}

/// Returns the identity of a file that settings name.
pub(crate) fn identity(key: &'static str, input: &Option<SettingsFile>) -> Result<Option<Identity>, ExperimentError> {
    match input {
        None => Ok(None),
        Some(SettingsFile::Stored(identity)) => Ok(Some(*identity)),
        Some(SettingsFile::File(file)) => Err(ExperimentError::Unresolved { key, file: file.into() }),
    }
}
