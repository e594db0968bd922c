//! The outcome of comparing trodden's counts with those of an oracle.

use std::fmt;

/// What was compared, and what differs.
#[derive(Clone, Debug, Default)]
pub struct CountVerdict {
    /// Number of compared functions.
    pub functions: usize,
    /// Number of compared functions that were executed.
    pub executed: usize,
    /// Functions with unfinished paths.
    pub unfinished: Vec<String>,
    /// Functions with tail calls that did not return. The block after such a call is counted although it was not reached.
    pub left_by_tail_call: Vec<String>,
    /// Functions that the oracle cannot check, each with the reason.
    pub not_checked: Vec<String>,
    /// The differences found.
    pub differences: Vec<CountDifference>,
}

/// A difference in the counts of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountDifference {
    /// The function.
    pub function: String,
    /// What differs.
    pub what: String,
}

impl CountVerdict {
    /// Returns true if there are no differences.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Adds a difference unless the numbers are equal.
    pub fn compare<T: PartialEq + fmt::Display>(&mut self, function: &str, what: impl FnOnce() -> String, trodden: T, oracle: T) {
        if trodden != oracle {
            let what = format!("{}: trodden {trodden}, oracle {oracle}", what());
            self.differences.push(CountDifference { function: function.to_owned(), what });
        }
    }
}

impl fmt::Display for CountDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.what)
    }
}
