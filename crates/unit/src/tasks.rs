//! Units of a Rust crate that the plugin compiles in one process, and what these units know of each other's functions.
//!
//! rustc divides a crate into units and recompiles only the units that changed. Within a unit, the compiler knows which calls may not
//! return. So that paths do not depend on how the crate is divided, each unit is summarised first, and every unit then learns which
//! functions of the other units return.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Environment variable that names a file with [`UnitTasks`]. If it is set, the plugin ignores the module that clang compiles.
pub const TASKS_VARIABLE: &str = "TRODDEN_UNITS";

/// LLVM attribute of a function that is defined in a different unit and always returns.
pub const RETURNS_ATTRIBUTE: &str = "trodden-returns";

/// The tasks of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTasks {
    /// Summaries of the crate's units that the process does not summarise itself.
    pub others: Vec<CallSummary>,
    /// The tasks.
    pub tasks: Vec<UnitTask>,
}

/// A task of the plugin. Files are named relative to its working folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTask {
    /// The file with the unit's bitcode.
    pub bitcode: String,
    /// The file to write.
    pub output: String,
    /// The kind of output.
    pub work: UnitWork,
}

/// The kind of a task's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitWork {
    /// A [`CallSummary`].
    Summarize,
    /// The instrumented object.
    Compile {
        /// Functions of other units that always return.
        returning: Vec<String>,
    },
    /// A [`CallSummary`] in a file of its own, and the instrumented object, which depends on the summaries of all units.
    SummarizeAndCompile {
        /// The file for the summary.
        summary: String,
    },
    /// The object, which is not instrumented.
    CompilePlain,
}

/// The facts about a unit's functions that other units need, and the facts that the unit needs from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    /// The functions with external linkage that always return, provided that the named functions, which other units may define, do so.
    pub returning: BTreeMap<String, BTreeSet<String>>,
    /// The functions that the unit calls but does not define, and that may not return as far as the unit knows.
    pub called: BTreeSet<String>,
}

/// Converts tasks or a summary to bytes.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("sequences have known lengths")
}

/// Reads tasks. Fails if the bytes are not tasks.
pub fn tasks_from_bytes(bytes: &[u8]) -> Result<UnitTasks, postcard::Error> {
    postcard::from_bytes(bytes)
}

impl CallSummary {
    /// Reads a summary. `None` if the bytes are not a summary.
    pub fn from_bytes(bytes: &[u8]) -> Option<CallSummary> {
        postcard::from_bytes(bytes).ok()
    }

    /// Returns the functions in the set that the unit calls.
    pub fn called_functions_in(&self, returning: &BTreeSet<&str>) -> Vec<String> {
        self.called.iter().filter(|name| returning.contains(name.as_str())).cloned().collect()
    }
}

/// Finds all functions that always return: the largest set of functions that depend only on functions in the set.
pub fn find_returning_functions<'s>(summaries: &[&'s CallSummary]) -> BTreeSet<&'s str> {
    let all = || summaries.iter().flat_map(|summary| &summary.returning);
    let mut known: BTreeSet<&str> = all().map(|(name, _)| name.as_str()).collect();
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, callees) in all() {
        for callee in callees {
            callers.entry(callee).or_default().push(name);
            if !known.contains(callee.as_str()) {
                wrong.push(name.as_str());
            }
        }
    }
    while let Some(name) = wrong.pop() {
        if known.remove(name) {
            wrong.extend(callers.get(name).into_iter().flatten());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(returning: &[(&str, &[&str])]) -> CallSummary {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CallSummary {
            returning: returning.iter().map(|(name, callees)| ((*name).to_owned(), set(callees))).collect(),
            called: set(&["b", "unknown"]),
        }
    }

    #[test]
    fn functions_return_if_all_their_callees_return() {
        let units = [
            // `a` and `b` call each other.
            summary(&[("a", &["b"]), ("leaf", &[]), ("fails", &["unknown"])]),
            summary(&[("b", &["a", "leaf"]), ("also_fails", &["leaf", "fails"])]),
        ];
        let found = find_returning_functions(&units.iter().collect::<Vec<_>>());
        assert_eq!(found.iter().copied().collect::<Vec<_>>(), ["a", "b", "leaf"]);
        assert_eq!(units[0].called_functions_in(&found), ["b"]);
        assert_eq!(CallSummary::from_bytes(&to_bytes(&units[0])).as_ref(), Some(&units[0]));
    }
}
