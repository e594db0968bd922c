//! Errors in experiment settings.

use super::rule::SettingsConflict;
use super::settings::SettingsFile;
use crate::Identity;
use std::path::PathBuf;

/// Reason why settings do not describe a valid experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum ExperimentError {
    #[error(transparent)]
    Excluded(#[from] SettingsConflict),
    /// Settings name a file by its path. The file must be read first, to compute its identity.
    #[error("the file {file} of setting `{key}` has not been read: call `Settings::resolve` first", file = file.display())]
    Unresolved { key: &'static str, file: PathBuf },
}

/// Returns the identity of the input file that the setting `key` names; `None` if there is no such setting. Fails if the file has not been
/// read.
pub(crate) fn stored_input_identity(key: &'static str, input: &Option<SettingsFile>) -> Result<Option<Identity>, ExperimentError> {
    match input {
        None => Ok(None),
        Some(SettingsFile::Stored(identity)) => Ok(Some(*identity)),
        Some(SettingsFile::File(file)) => Err(ExperimentError::Unresolved { key, file: file.into() }),
    }
}
