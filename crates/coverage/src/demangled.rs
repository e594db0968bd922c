//! Demangles the function names in the output of `llvm-cov export`, which contains only linkage names.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trodden_report::DemangledName;

/// Extracts the linkage name from the name by which LLVM's profiles identify a function. For a local function, that name starts with the
/// source file.
pub fn linkage_name(name: &str) -> &str {
    name.rsplit_once([';', ':']).map_or(name, |(_, linkage)| linkage)
}

/// Demangles a function's name in the output of `llvm-cov`. The name of a local function keeps its prefix: `file.cc:local`.
fn demangle(exported: &str) -> String {
    let (file, linkage) = exported.rsplit_once(':').unwrap_or(("", exported));
    let full = DemangledName::from_linkage(linkage).full;
    match file {
        _ if full == linkage => exported.to_owned(),
        "" => full,
        file => format!("{file}:{full}"),
    }
}

pub fn demangle_json(export: &mut Value) {
    let data = export["data"].as_array_mut().into_iter().flatten();
    for function in data.filter_map(|data| data["functions"].as_array_mut()).flatten() {
        if let Some(name) = function["name"].as_str().map(demangle) {
            function["name"] = name.into();
        }
    }
}

/// Demangles the function names in an LCOV tracefile, whose readers identify functions by name. Functions whose demangled names are equal
/// are merged if they are declared on the same line; otherwise, they keep their linkage names.
pub fn demangle_lcov(tracefile: &str) -> String {
    tracefile.split_inclusive("end_of_record\n").map(demangle_record).collect()
}

fn demangle_record(record: &str) -> String {
    let split = |line: &'_ str, tag: &str| -> Option<(String, String)> {
        let (number, name) = line.strip_prefix(tag)?.split_once(',')?;
        Some((number.to_owned(), name.to_owned()))
    };
    let mut lines_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (line, name) in record.lines().filter_map(|line| split(line, "FN:")) {
        lines_of.entry(demangle(&name)).or_default().insert(line);
    }
    let shown = |name: String| Some(demangle(&name)).filter(|text| lines_of.get(text).is_some_and(|l| l.len() == 1)).unwrap_or(name);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (count, name) in record.lines().filter_map(|line| split(line, "FNDA:")) {
        let sum = calls.entry(shown(name)).or_default();
        *sum = sum.saturating_add(count.parse().unwrap_or(0));
    }
    let mut written = BTreeSet::new();
    let renamed = record.lines().filter_map(|line| {
        let text = match (split(line, "FN:"), split(line, "FNDA:")) {
            (Some((place, name)), _) => format!("FN:{place},{}", shown(name)),
            (_, Some((_, name))) => {
                let name = shown(name);
                format!("FNDA:{},{name}", calls[&name])
            }
            _ => return Some(format!("{line}\n")),
        };
        written.insert(text.clone()).then(|| format!("{text}\n"))
    });
    renamed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_on_one_line_are_merged() {
        let functions = [(2, "_ZN1BC1Ei", 3), (2, "_ZN1BC2Ei", 4), (5, "d.cc:_ZL5locali", 1), (6, "main", 1)];
        let declared: String = functions.iter().map(|(line, name, _)| format!("FN:{line},{name}\n")).collect();
        let called: String = functions.iter().map(|(_, name, calls)| format!("FNDA:{calls},{name}\n")).collect();
        let shown = demangle_lcov(&format!("SF:d.cc\n{declared}{called}FNF:3\nDA:2,7\nend_of_record\n"));
        let names = "FN:2,B::B(int)\nFN:5,d.cc:local(int)\nFN:6,main\nFNDA:7,B::B(int)\nFNDA:1,d.cc:local(int)\nFNDA:1,main\n";
        assert_eq!(shown, format!("SF:d.cc\n{names}FNF:3\nDA:2,7\nend_of_record\n"));
    }

    #[test]
    fn equal_names_on_several_lines_stay_mangled() {
        let text = "SF:l.rs\nFN:2,_ZN1BC1Ei\nFN:3,_ZN1BC2Ei\nFNDA:1,_ZN1BC1Ei\nFNDA:2,_ZN1BC2Ei\nend_of_record\n";
        assert_eq!(demangle_lcov(text), text);
    }
}
