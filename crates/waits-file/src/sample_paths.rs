//! The paths that samples interrupted. The caller reads them from streams of the same run.

use crate::process_file::ProcessFile;
use anyhow::Result;
use std::collections::BTreeSet;
use std::rc::Rc;
use trodden_wire::waits::SampleRecord;

/// The path that a sample interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedPath {
    /// The function that contains the path.
    pub function: String,
    /// The lines on the path, and how the path ends, as shown in reports.
    pub lines: Rc<str>,
}

/// Provides the paths that samples interrupted.
pub trait SamplePaths {
    /// Returns the path of each of a thread's samples; `None` where the path is unknown.
    fn paths_of(&mut self, process: &ProcessFile, thread: u32, samples: &[SampleRecord]) -> Result<Vec<Option<TimedPath>>>;

    /// Returns true if no sample of the recording had a path.
    fn is_unused(&self) -> bool;

    /// Returns notes about missing data.
    fn notes(&self) -> &BTreeSet<String>;
}

/// Whether a frame's function and a path's function are the same, ignoring parameters and enclosing scopes.
pub fn is_function(frame: &str, path: &str) -> bool {
    fn base(name: &str) -> &str {
        let unparameterised = name.split(['(', '<']).next().unwrap_or(name);
        unparameterised.rsplit("::").next().unwrap_or(unparameterised)
    }
    !frame.is_empty() && (frame == path || base(frame) == base(path) && !base(path).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_regardless_of_parameters_and_scopes() {
        assert!(is_function("filter", "filter"));
        assert!(is_function("app::filter<f64>(double)", "filter"));
        assert!(!is_function("filter", "filters") && !is_function("", ""));
    }
}
