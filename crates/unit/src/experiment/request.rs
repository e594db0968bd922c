//! Requests to the compiler plugin, in a file whose path is in [`EXPERIMENT_VARIABLE`].
//!
//! clang cannot pass options to the plugin, and environment variables contain only text. Therefore a request is a file ([`FileFormat`]), in
//! the same [`InputFolder`] as the files to which the experiment refers.

use super::exclusions;
use super::inputs::{InputError, InputFolder, InputPurpose};
use super::settings::{Keep, Settings, SettingsFile};
use super::{Experiment, ExperimentError};
use crate::Identity;
use crate::observe::Observation;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use trodden_container::{ContentError, FileFormat, FileKind};

/// Environment variable with the path of the request file. If it is not set, units are instrumented for the default experiment.
pub const EXPERIMENT_VARIABLE: &str = "TRODDEN_EXPERIMENT";

const FORMAT: FileFormat = FileFormat { kind: FileKind::REQUEST, version: 1, remedy: "Start the build again" };

/// A request to the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRequest {
    /// What the build observes.
    pub experiment: Experiment,
    /// What the plugin does with a compilation unit.
    pub action: UnitAction,
    /// Which data about the unit is stored in the object file.
    pub keep: Keep,
    /// Default pattern for the names of a flight recorder's files. When the program runs, an environment variable overrides it.
    pub recorder: Option<OsString>,
}

/// What the plugin does with a compilation unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitAction {
    /// Instruments the unit.
    #[default]
    Instrument,
    /// Write the properties of the unit's instructions to a file, and generate no code.
    Describe {
        /// Path of the file to write, which may contain any bytes.
        output: OsString,
    },
    /// Transform the unit's code according to the plan with this identity, and do not instrument it.
    Apply(Identity),
}

/// Reason why a request cannot be created or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum RequestError {
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(
        "cannot read {file} (named by {EXPERIMENT_VARIABLE}): {source}. Unset the variable, or build with trodden, which sets it",
        file = file.display()
    )]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("cannot use {file} (named by {EXPERIMENT_VARIABLE}): {wrong}", file = file.display())]
    Other { file: PathBuf, wrong: ContentError },
}

impl PluginRequest {
    /// Creates a request for a build without a flight recorder.
    pub fn new(experiment: Experiment, action: UnitAction, keep: Keep) -> PluginRequest {
        PluginRequest { experiment, action, keep, recorder: None }
    }

    /// Writes the request to a folder. Returns the path of the file, which is the value for [`EXPERIMENT_VARIABLE`].
    pub fn write(&self, folder: &InputFolder) -> Result<PathBuf, InputError> {
        Ok(folder.path(folder.put(&FORMAT.to_bytes(self))?))
    }

    /// Reads a request. Also returns the folder of the request, which contains the files to which the request refers. Fails if the file
    /// cannot be read, is not a request, or is of a different version.
    pub fn read(file: &Path) -> Result<(PluginRequest, InputFolder), RequestError> {
        let bytes = std::fs::read(file).map_err(|source| RequestError::Unreadable { file: file.to_owned(), source })?;
        let request = FORMAT.read(&bytes).map_err(|wrong| RequestError::Other { file: file.to_owned(), wrong })?;
        Ok((request, InputFolder::new(file.parent().unwrap_or(Path::new("")))))
    }

    /// Returns the settings that describe the request.
    pub fn settings(&self) -> Settings {
        let apply = match self.action {
            UnitAction::Apply(plan) => Some(SettingsFile::Stored(plan)),
            UnitAction::Instrument | UnitAction::Describe { .. } => None,
        };
        Settings { apply, keep: Some(self.keep), recorder: self.recorder.clone(), ..Settings::from(&self.experiment) }
    }

    /// Returns true if programs built by this request count nothing, so that they need no runtime.
    pub fn has_no_counters(&self) -> bool {
        let counts = !matches!(self.experiment.observation(), Observation::BlockAddresses(_) | Observation::TraceSleds(_));
        !counts || self.action != UnitAction::Instrument
    }
}

impl Settings {
    /// Checks all files that the settings name, copies them to the folder, and replaces their paths by their identities. Fails if a file
    /// cannot be read or stored, has invalid content, or is given by an identity that is not in the folder.
    pub fn resolve(mut self, folder: &InputFolder) -> Result<Settings, InputError> {
        for kind in InputPurpose::ALL {
            let input = kind.setting_mut(&mut self);
            match input {
                Some(SettingsFile::File(file)) => *input = Some(SettingsFile::Stored(folder.put_file(kind, file)?)),
                Some(SettingsFile::Stored(identity)) => folder.check(kind, *identity)?,
                None => {}
            }
        }
        Ok(self)
    }

    /// Creates the request, and stores its files in a folder. Fails if a file cannot be read or stored. If the settings cannot be combined,
    /// fails before anything is stored.
    pub fn request(self, folder: &InputFolder) -> Result<PluginRequest, RequestError> {
        exclusions::check(&self).map_err(ExperimentError::from)?;
        let settings = self.resolve(folder)?;
        let action = match settings.apply.as_ref().and_then(SettingsFile::stored) {
            Some(plan) => UnitAction::Apply(plan),
            None => UnitAction::Instrument,
        };
        let request = PluginRequest::new(Experiment::new(&settings)?, action, settings.keep.unwrap_or_default());
        Ok(PluginRequest { recorder: settings.recorder, ..request })
    }
}
