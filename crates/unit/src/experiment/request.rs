//! Requests to the plugin, in a file that [`EXPERIMENT_VARIABLE`] names. clang cannot pass options to the plugin, and environment
//! variables contain only text. Therefore, the request is a file ([`FileFormat`]). It is in the same [`InputFolder`] as the files that the
//! experiment names.

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

/// Environment variable that names the request's file. If it is not set, units are instrumented for the default experiment.
pub const EXPERIMENT_VARIABLE: &str = "TRODDEN_EXPERIMENT";

const FORMAT: FileFormat = FileFormat { kind: FileKind::REQUEST, version: 1, remedy: "Start the build again" };

/// A request to the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRequest {
    /// What the build observes.
    pub experiment: Experiment,
    /// What the plugin does with a unit.
    pub action: UnitAction,
    /// Which data about the unit the object file contains.
    pub keep: Keep,
    /// Default pattern for the file names of a flight recorder. An environment variable may override it when the program runs.
    pub recorder: Option<OsString>,
}

/// What the plugin does with a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitAction {
    /// Instruments the unit.
    #[default]
    Instrument,
    /// Writes the properties of the unit's instructions to a file, and generates no code.
    Describe {
        /// The file. Its name may contain any bytes.
        output: OsString,
    },
    /// Transforms the unit's code according to the plan with this identity, without instrumenting it.
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
    /// Creates a request without a flight recorder.
    pub fn new(experiment: Experiment, action: UnitAction, keep: Keep) -> PluginRequest {
        PluginRequest { experiment, action, keep, recorder: None }
    }

    /// Writes the request to a folder, and returns the file's path for [`EXPERIMENT_VARIABLE`].
    pub fn write(&self, folder: &InputFolder) -> Result<PathBuf, InputError> {
        Ok(folder.path(folder.put(&FORMAT.to_bytes(self))?))
    }

    /// Reads a request. Also returns its folder, which contains the files that the request names. Fails if the file cannot be read, is not
    /// a request, or has a different version.
    pub fn read(file: &Path) -> Result<(PluginRequest, InputFolder), RequestError> {
        let bytes = std::fs::read(file).map_err(|source| RequestError::Unreadable { file: file.to_owned(), source })?;
        let request = FORMAT.read(&bytes).map_err(|wrong| RequestError::Other { file: file.to_owned(), wrong })?;
        Ok((request, InputFolder::new(file.parent().unwrap_or(Path::new("")))))
    }

    /// Returns the settings that describe this request.
    pub fn settings(&self) -> Settings {
        let apply = match self.action {
            UnitAction::Apply(plan) => Some(SettingsFile::Stored(plan)),
            UnitAction::Instrument | UnitAction::Describe { .. } => None,
        };
        Settings { apply, keep: Some(self.keep), recorder: self.recorder.clone(), ..Settings::from(&self.experiment) }
    }

    /// Returns true if a program built by this request counts nothing, and therefore needs no runtime.
    pub fn counts_nothing(&self) -> bool {
        let counts = !matches!(self.experiment.observation(), Observation::BlockAddresses(_) | Observation::TraceSleds(_));
        !counts || self.action != UnitAction::Instrument
    }
}

impl Settings {
    /// Checks all files, copies them to the folder, and replaces their paths by their identities. Fails if a file cannot be read or
    /// stored, or has invalid content, or a file that is named by its identity is not in the folder.
    pub fn resolve(mut self, folder: &InputFolder) -> Result<Settings, InputError> {
        for kind in InputPurpose::ALL {
            let input = kind.setting(&mut self);
            match input {
                Some(SettingsFile::File(file)) => *input = Some(SettingsFile::Stored(folder.put_file(kind, file)?)),
                Some(SettingsFile::Stored(identity)) => folder.check(kind, *identity)?,
                None => {}
            }
        }
        Ok(self)
    }

    /// Creates the request, and stores its files in a folder. Fails if the settings cannot be combined (then it stores nothing), or if a
    /// file cannot be read or stored.
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
