//! Paths that samples interrupted. Streams of the same run know them, which the caller reads.

use crate::process_file::ProcessFile;
use anyhow::Result;
use std::collections::BTreeSet;
use std::rc::Rc;
use trodden_wire::waits::SampleRecord;

/// The path of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedPath {
    /// The function that it is a path of.
    pub function: String,
    /// Lines that it runs through, and how it ends.
    pub lines: Rc<str>,
}

/// Says which paths samples interrupted.
pub trait SamplePaths {
    /// The path of each sample of a thread; none where that is not known.
    ///
    /// # Errors
    /// What is known of the thread cannot be read.
    fn of_samples(&mut self, process: &ProcessFile, thread: u32, samples: &[SampleRecord]) -> Result<Vec<Option<TimedPath>>>;

    /// Whether nothing was known of any thread of the recording.
    fn is_unused(&self) -> bool;

    /// What is lacking.
    fn notes(&self) -> &BTreeSet<String>;
}

/// Whether a frame's function, as symbols name it, is that of a path.
pub fn is_function(frame: &str, path: &str) -> bool {
    fn base(name: &str) -> &str {
        let whole = name.split(['(', '<']).next().unwrap_or(name);
        whole.rsplit("::").next().unwrap_or(whole)
    }
    !frame.is_empty() && (frame == path || base(frame) == base(path) && !base(path).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_the_same_whatever_their_parameters_are_called() {
        assert!(is_function("filter", "filter"));
        assert!(is_function("app::filter<f64>(double)", "filter"));
        assert!(!is_function("filter", "filters") && !is_function("", ""));
    }
}
