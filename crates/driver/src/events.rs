//! A log of a build's driver calls: a file of JSON lines, named by `TRODDEN_LOG`, from which the build's summary is derived.
//!
//! Drivers run in parallel, so each event is appended with a single write. A compile event is written before the compiler runs, so readers
//! must check whether its output exists.

use crate::cc::arguments::CompilerCommandLine;
use crate::compile_step::first_source;
use crate::context::DriverContext;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use trodden_unit::InstrumentedImage;

pub const LOG_VARIABLE: &str = "TRODDEN_LOG";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum DriverEvent {
    /// A compilation unit is about to be compiled with the plugin.
    Compile {
        source: String,
        /// The object's path, if the command line names it. Its type is `OsString`, because a `PathBuf` can be serialised only if it is
        /// UTF-8.
        output: Option<OsString>,
    },
    Link {
        output: OsString,
        /// Identity of the linked image; `None` if it contains no instrumented code.
        image: Option<String>,
        units: Vec<String>,
    },
}

impl DriverEvent {
    pub fn compiled(line: &CompilerCommandLine) -> DriverEvent {
        let output = line.output.as_ref().and_then(|o| std::path::absolute(Path::new(o)).ok()).map(PathBuf::into_os_string);
        DriverEvent::Compile { source: first_source(line).to_string_lossy().into_owned(), output }
    }

    pub fn linked(output: &Path, image: Option<&InstrumentedImage>) -> DriverEvent {
        let units = image.map(|i| i.units.iter().map(|u| u.unit.to_string()).collect()).unwrap_or_default();
        DriverEvent::Link { output: output.into(), image: image.map(|i| i.identity.to_string()), units }
    }
}

pub fn append_event(context: &DriverContext, event: &DriverEvent) {
    let Some(path) = context.value(LOG_VARIABLE) else { return };
    let mut text = serde_json::to_string(event).expect("events are plain data");
    text.push('\n');
    let written = OpenOptions::new().append(true).create(true).open(path).and_then(|mut f| f.write_all(text.as_bytes()));
    if let Err(error) = written {
        log::warn!("cannot write to the log of the build, {}: {error}", Path::new(path).display());
    }
}

pub fn read(path: &Path) -> anyhow::Result<Vec<DriverEvent>> {
    use anyhow::Context;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the build's log {}", path.display()))?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the log of the build contains an invalid event: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn paths_may_contain_any_bytes() {
        let event = DriverEvent::Link { output: OsString::from_vec(b"lat\xe91".to_vec()), image: None, units: Vec::new() };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<DriverEvent>(&text).unwrap(), event);
    }
}
