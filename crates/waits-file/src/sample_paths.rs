//! Interface through which the caller provides the paths that samples interrupted. It reads them from the path streams of the same run.

use crate::process_file::ProcessFile;
use anyhow::Result;
use std::collections::BTreeSet;
use std::rc::Rc;
use trodden_wire::waits::SampleRecord;

/// The path through a function that was being executed when a sample was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedPath {
    /// The function that contains the path.
    pub function: String,
    /// The lines on the path, and how it ends, in the form that reports show.
    pub lines: Rc<str>,
}

/// Provides the paths that samples interrupted.
pub trait SamplePaths {
    /// Returns, for each of a thread's samples, the path that it interrupted; `None` where the path is unknown.
    fn find_paths(&mut self, process: &ProcessFile, thread: u32, samples: &[SampleRecord]) -> Result<Vec<Option<TimedPath>>>;

    /// Returns true if no sample had a path, which suggests that the streams belong to another run.
    fn is_unused(&self) -> bool;

    /// Returns notes for the user about missing data.
    fn notes(&self) -> &BTreeSet<String>;
}

/// Returns true if the names of a frame and of a path mean the same function. Parameters and enclosing scopes are ignored, because the two
/// names come from different sources.
pub fn is_same_function(frame: &str, path: &str) -> bool {
    fn base_name(name: &str) -> &str {
        let unparameterised = name.split(['(', '<']).next().unwrap_or(name);
        unparameterised.rsplit("::").next().unwrap_or(unparameterised)
    }
    !frame.is_empty() && (frame == path || base_name(frame) == base_name(path) && !base_name(path).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_regardless_of_parameters_and_scopes() {
        assert!(is_same_function("filter", "filter"));
        assert!(is_same_function("app::filter<f64>(double)", "filter"));
        assert!(!is_same_function("filter", "filters") && !is_same_function("", ""));
    }
}
