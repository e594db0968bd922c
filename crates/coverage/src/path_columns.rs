//! Numbers of paths of source files and functions, over all programs of a profile.
//!
//! Programs may have the same code of a function, from a static library or the same source: its paths are those that any of them took.
//! Code that differs, because a source was compiled in several ways, has paths of its own.

use crate::file_names::FileNames;
use std::collections::BTreeMap;
use trodden_analysis::{Combinations, combinations};
use trodden_profile::FunctionPaths;
use trodden_report::coverage::{combinations_of, examples};
use trodden_report::{Function, View};

/// A function's code in one program or several.
pub struct SameCode<'v, 'a> {
    /// It, as one of the programs has it.
    pub function: &'v Function<'a>,
    /// Its source file, as the mapping names it; `None` if the mapping does not have it.
    pub file: Option<String>,
    paths: FunctionPaths,
}

impl SameCode<'_, '_> {
    /// Numbers of its paths.
    pub fn combinations(&self) -> Combinations {
        combinations_of(self.function, &self.paths)
    }

    /// Untested combinations in words.
    pub fn examples(&self, most: usize) -> Vec<String> {
        examples(self.function, &self.paths, most)
    }
}

/// The code of all functions of a profile.
pub fn all_code<'v, 'a>(view: &'v View<'a>, names: &FileNames) -> Vec<SameCode<'v, 'a>> {
    let mut groups: BTreeMap<_, Vec<&Function>> = BTreeMap::new();
    let mut ordinals: BTreeMap<_, usize> = BTreeMap::new();
    for function in distinct(view) {
        let file = function.file().and_then(|file| names.in_mapping(view.profile, function.image, file));
        let code = (file.clone(), function.map.name.as_str(), function.map.local, function.map.shape, function.map.code);
        // Several units of a program may each have a local function of one source.
        let ordinal = ordinals.entry((function.image.identity, code.clone())).or_default();
        groups.entry((code, *ordinal)).or_default().push(function);
        *ordinal += 1;
    }
    let same_code = |((code, _), functions): ((_, usize), Vec<&'v Function<'a>>)| {
        let (file, ..): (Option<String>, &str, bool, u64, u64) = code;
        SameCode { function: functions[0], file, paths: combinations::of_all(functions.iter().map(|f| &f.paths)) }
    };
    let mut all: Vec<SameCode> = groups.into_iter().map(same_code).collect();
    all.sort_by_key(|code| std::cmp::Reverse(code.function.instructions));
    all
}

/// A function that several units have counts once in each image.
fn distinct<'v, 'a>(view: &'v View<'a>) -> Vec<&'v Function<'a>> {
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

/// Paths by source file.
pub fn by_file(code: &[SameCode]) -> BTreeMap<String, Combinations> {
    let mut files: BTreeMap<String, Combinations> = BTreeMap::new();
    for code in code {
        let Some(file) = &code.file else { continue };
        let sum = files.entry(file.clone()).or_default();
        *sum = sum.plus(code.combinations());
    }
    files
}

/// The code of a function of the mapping, by the name that profiles have: that of a local one of C has its file in front.
pub fn of_function<'c, 'v, 'a>(code: &'c [SameCode<'v, 'a>], name: &str, files: &[String]) -> Vec<&'c SameCode<'v, 'a>> {
    let is_named = |code: &&SameCode| {
        let linkage = &code.function.name.linkage;
        linkage == name || linkage == plain_name(name)
    };
    let named = || code.iter().filter(is_named);
    let here: Vec<&SameCode> = named().filter(|code| code.file.as_ref().is_some_and(|file| files.contains(file))).collect();
    // Where debug information names no file of the mapping, the name of a function that is not local has to do.
    match here.is_empty() {
        true => {
            named().filter(|code| code.file.is_none() && (code.function.name.linkage == name || code.function.file().is_none())).collect()
        }
        false => here,
    }
}

/// `f` of `file.c:f`. Mangled names have no colon.
pub fn plain_name(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}
