//! Counts paths by source file and by function, over all programs of a profile.
//!
//! Several programs may contain the same code of a function, because they link the same static library or compile the same source. A path
//! through this code counts as taken if any of the programs took it. A function that was compiled in several ways has separate paths for
//! each of them.

use crate::file_names::FileNames;
use std::collections::BTreeMap;
use trodden_analysis::{PathCombinationCounts, combinations};
use trodden_profile::FunctionPaths;
use trodden_report::coverage::{count_combinations, describe_untested_paths};
use trodden_report::{Function, ProfileView};

/// The code of a function, which several programs may contain.
pub struct FunctionCode<'v, 'a> {
    pub function: &'v Function<'a>,
    /// The source file's name in the coverage mapping; `None` if the mapping does not contain the file.
    pub file: Option<String>,
    paths: FunctionPaths,
}

impl FunctionCode<'_, '_> {
    pub fn combinations(&self) -> PathCombinationCounts {
        count_combinations(self.function, &self.paths)
    }

    pub fn describe_untested_examples(&self, limit: usize) -> Vec<String> {
        describe_untested_paths(self.function, &self.paths, limit)
    }
}

/// Groups the functions of all programs by their code. The group whose first function executed the most instructions comes first.
pub fn group_by_code<'v, 'a>(view: &'v ProfileView<'a>, names: &FileNames) -> Vec<FunctionCode<'v, 'a>> {
    let mut groups: BTreeMap<_, Vec<&Function>> = BTreeMap::new();
    let mut ordinals: BTreeMap<_, usize> = BTreeMap::new();
    for function in distinct_functions(view) {
        let file = function.file().and_then(|file| names.name_in_mapping(view.profile, function.image, file));
        let code = (file.clone(), function.map.name.as_str(), function.map.local, function.map.shape, function.map.code);
        // A program may contain the same local function in several compilation units. These are told apart by their order.
        let ordinal = ordinals.entry((function.image.identity, code.clone())).or_default();
        groups.entry((code, *ordinal)).or_default().push(function);
        *ordinal += 1;
    }
    let same_code = |((code, _), functions): ((_, usize), Vec<&'v Function<'a>>)| {
        let (file, ..): (Option<String>, &str, bool, u64, u64) = code;
        FunctionCode { function: functions[0], file, paths: combinations::merge_programs(functions.iter().map(|f| &f.paths)) }
    };
    let mut all: Vec<FunctionCode> = groups.into_iter().map(same_code).collect();
    all.sort_by_key(|code| std::cmp::Reverse(code.function.instructions));
    all
}

/// Returns the functions of a profile. If several units of an image contain a copy of a function, returns only the copy with the most
/// executed paths.
fn distinct_functions<'v, 'a>(view: &'v ProfileView<'a>) -> Vec<&'v Function<'a>> {
    let mut best: BTreeMap<_, &Function> = BTreeMap::new();
    for (at, function) in view.functions.iter().enumerate() {
        let which = if function.map.local { at + 1 } else { 0 };
        let known = best.entry((function.image.identity, function.map.name.as_str(), which)).or_insert(function);
        if function.paths.complete.len() > known.paths.complete.len() {
            *known = function;
        }
    }
    best.into_values().collect()
}

pub fn combinations_by_file(code: &[FunctionCode]) -> BTreeMap<String, PathCombinationCounts> {
    let mut files: BTreeMap<String, PathCombinationCounts> = BTreeMap::new();
    for code in code {
        let Some(file) = &code.file else { continue };
        let sum = files.entry(file.clone()).or_default();
        *sum = sum.add_combinations(code.combinations());
    }
    files
}

/// Finds the code of the function with this name in LLVM's profiles, where the name of a local C function starts with the source file.
pub fn find_function_code<'c, 'v, 'a>(code: &'c [FunctionCode<'v, 'a>], name: &str, files: &[String]) -> Vec<&'c FunctionCode<'v, 'a>> {
    let is_named = |code: &&FunctionCode| {
        let linkage = &code.function.name.linkage;
        linkage == name || linkage == plain_name(name)
    };
    let named = || code.iter().filter(is_named);
    let here: Vec<&FunctionCode> = named().filter(|code| code.file.as_ref().is_some_and(|file| files.contains(file))).collect();
    // If no code is in a file of the mapping, functions that are not local are identified by name only.
    match here.is_empty() {
        true => {
            named().filter(|code| code.file.is_none() && (code.function.name.linkage == name || code.function.file().is_none())).collect()
        }
        false => here,
    }
}

/// Removes the file from a name such as `file.c:f`. Mangled names contain no colon.
pub fn plain_name(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}
