//! Compilation of a Rust crate's units in one process of the plugin, and what the units know of each other's functions.
//!
//! rustc divides a crate into units and recompiles only those that changed. Only within a unit does the compiler know which calls may not
//! return. If nothing else were known, paths would depend on how the crate is divided. Therefore each unit is summarised first, and then
//! every unit learns which functions of the other units always return.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Environment variable with the path of a file that contains [`UnitTasks`]. If it is set, the plugin ignores the module that clang
/// compiles.
pub const TASKS_VARIABLE: &str = "TRODDEN_UNITS";

/// LLVM attribute that marks functions of other units that always return.
pub const RETURNS_ATTRIBUTE: &str = "trodden-returns";

/// The tasks of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTasks {
    /// Summaries of the crate's units that this process does not summarise itself.
    pub others: Vec<CallSummary>,
    /// The tasks.
    pub tasks: Vec<UnitTask>,
}

/// A task of the plugin for one unit. Paths of files are relative to the plugin's working folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTask {
    /// File that contains the unit's bitcode.
    pub bitcode: String,
    /// The file to write.
    pub output: String,
    /// The kind of output.
    pub work: UnitTaskOutput,
}

/// What a task writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitTaskOutput {
    /// A [`CallSummary`].
    Summarize,
    /// The instrumented object.
    Compile {
        /// Linkage names of functions of other units that always return.
        returning: Vec<String>,
    },
    /// A [`CallSummary`] in a separate file, and the instrumented object file. The latter depends on the summaries of all units.
    SummarizeAndCompile {
        /// The file for the summary.
        summary: String,
    },
    /// The object file without instrumentation.
    CompilePlain,
}

/// What a unit and the other units have to know of each other's functions, in order to find out which calls always return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    /// Functions with external linkage, each with functions that other units may define. The function always returns if all of these do.
    pub returning: BTreeMap<String, BTreeSet<String>>,
    /// Functions that the unit calls but does not define. As far as the unit knows, they may not return.
    pub called: BTreeSet<String>,
}

/// Encodes tasks or a summary.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("sequences have known lengths")
}

/// Decodes tasks. Fails if the bytes do not encode tasks.
pub fn tasks_from_bytes(bytes: &[u8]) -> Result<UnitTasks, postcard::Error> {
    postcard::from_bytes(bytes)
}

impl CallSummary {
    /// Decodes a summary; `None` if the bytes do not encode one.
    pub fn from_bytes(bytes: &[u8]) -> Option<CallSummary> {
        postcard::from_bytes(bytes).ok()
    }

    /// Returns the functions in `returning` that the unit calls.
    pub fn called_functions_among(&self, returning: &BTreeSet<&str>) -> Vec<String> {
        self.called.iter().filter(|name| returning.contains(name.as_str())).cloned().collect()
    }
}

/// Finds all functions that always return. They are the largest set of functions that depend only on functions in the set.
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

    fn create_summary(returning: &[(&str, &[&str])]) -> CallSummary {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CallSummary {
            returning: returning.iter().map(|(name, callees)| ((*name).to_owned(), set(callees))).collect(),
            called: set(&["b", "unknown"]),
        }
    }

    #[test]
    fn functions_return_if_all_their_callees_return() {
        let units = [
            // `a` and `b` depend on each other, because they call each other.
            create_summary(&[("a", &["b"]), ("leaf", &[]), ("fails", &["unknown"])]),
            create_summary(&[("b", &["a", "leaf"]), ("also_fails", &["leaf", "fails"])]),
        ];
        let found = find_returning_functions(&units.iter().collect::<Vec<_>>());
        assert_eq!(found.iter().copied().collect::<Vec<_>>(), ["a", "b", "leaf"]);
        assert_eq!(units[0].called_functions_among(&found), ["b"]);
        assert_eq!(CallSummary::from_bytes(&to_bytes(&units[0])).as_ref(), Some(&units[0]));
    }
}
