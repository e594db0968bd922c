//! Differences between what trodden says of a function and what an oracle says.

use std::fmt;

/// What was checked, and how it went.
#[derive(Clone, Debug, Default)]
pub struct CountVerdict {
    /// Functions that were compared.
    pub functions: usize,
    /// Of those, executed at least once.
    pub executed: usize,
    /// Functions with unfinished paths, each with how many.
    pub unfinished: Vec<String>,
    /// Tail calls that did not come back: there the returning block was counted before the call.
    pub left_by_tail_call: Vec<String>,
    /// Functions that the oracle cannot check, each with the reason.
    pub not_checked: Vec<String>,
    /// Differences.
    pub differences: Vec<CountDifference>,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountDifference {
    /// The function.
    pub function: String,
    /// What differs.
    pub what: String,
}

impl CountVerdict {
    /// Whether trodden and the oracle agree on everything.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Notes a difference unless both numbers are the same.
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
