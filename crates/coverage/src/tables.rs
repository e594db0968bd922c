//! Coverage tables with a row for each file or function. In addition to LLVM's numbers, a row has numbers of paths.

use crate::by_test::changed_lines;
use crate::caveats::CoverageCaveat;
use crate::diff::format_ranges;
use crate::packages::PackageFinder;
use crate::path_columns::{self, group_by_code, plain_name};
use crate::{CoverageMapping, LineExecutions};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use trodden_analysis::PathCombinationCounts;
use trodden_analysis::changes::normalize;
use trodden_report::coverage::{CoverageRatio, CoverageRow, CoverageTable};
use trodden_report::words::plural;
use trodden_report::{DemangledName, ProfileView};

/// Returns the coverage of each file.
pub fn coverage_by_file(mapping: &CoverageMapping, view: &ProfileView) -> Result<CoverageTable> {
    let data = mapping.export(&["-summary-only"])?;
    let paths = path_columns::combinations_by_file(&group_by_code(view, &mapping.names));
    let mut table = CoverageTable { of: "file", ..CoverageTable::default() };
    let mut packages = PackageFinder::default();
    for file in data["files"].as_array().into_iter().flatten() {
        let name = file["filename"].as_str().unwrap_or_default();
        let own = paths.get(&normalize(name)).copied();
        let package = packages.find_package_of_file(Path::new(name)).map(|package| package.name);
        let mut row = CoverageRow { paths: own, package, ..summary_row(name.to_owned(), &file["summary"])? };
        add_caveats(&mut row, mapping, &normalize(name));
        // The mapping also contains headers without code.
        if row.regions.all > 0 || row.paths.is_some() {
            table.rows.push(row);
        }
    }
    let paths = table.rows.iter().filter_map(|r| r.paths).reduce(PathCombinationCounts::add_combinations);
    table.total = CoverageRow { paths, ..summary_row("total".into(), &data["totals"])? };
    shorten_names(&mut table.rows, &mut packages);
    table.packages = sum_by_package(&mut table.rows);
    Ok(table)
}

/// Makes file names relative to the folder of the Rust workspace, or, without a workspace, to the common folder of all files.
fn shorten_names(rows: &mut [CoverageRow], packages: &mut PackageFinder) {
    let workspace = rows.iter().find_map(|row| packages.find_package_of_file(Path::new(&row.name))).map(|package| package.workspace);
    if let Some(workspace) = workspace {
        for row in rows {
            if let Ok(short) = Path::new(&row.name).strip_prefix(&workspace) {
                row.name = short.to_string_lossy().into_owned();
            }
        }
        return;
    }
    let prefix = common_folder_length(rows.iter().map(|r| r.name.as_str()));
    rows.iter_mut().for_each(|r| r.name = r.name[prefix..].to_owned());
}

/// Orders the rows by package. If there are several packages, returns the sum for each of them.
fn sum_by_package(rows: &mut [CoverageRow]) -> Vec<CoverageRow> {
    let mut sums: Vec<CoverageRow> = Vec::new();
    for row in rows.iter() {
        let Some(package) = &row.package else { continue };
        match sums.iter_mut().find(|sum| sum.name == *package) {
            Some(sum) => *sum = add_rows(sum, row),
            None => {
                sums.push(CoverageRow { name: package.clone(), package: None, remarks: Vec::new(), caveats: Vec::new(), ..row.clone() })
            }
        }
    }
    if sums.len() < 2 {
        return Vec::new();
    }
    rows.sort_by_key(|row| sums.iter().position(|sum| row.package.as_ref() == Some(&sum.name)).unwrap_or(sums.len()));
    sums
}

fn add_rows(sum: &CoverageRow, row: &CoverageRow) -> CoverageRow {
    let add = |a: CoverageRatio, b: CoverageRatio| CoverageRatio { all: a.all + b.all, hit: a.hit + b.hit };
    let either = |a: Option<CoverageRatio>, b: Option<CoverageRatio>| [a, b].into_iter().flatten().reduce(add);
    CoverageRow {
        regions: add(sum.regions, row.regions),
        functions: either(sum.functions, row.functions),
        lines: either(sum.lines, row.lines),
        branches: add(sum.branches, row.branches),
        mcdc: either(sum.mcdc, row.mcdc),
        paths: [sum.paths, row.paths].into_iter().flatten().reduce(PathCombinationCounts::add_combinations),
        ..sum.clone()
    }
}

fn add_caveats(row: &mut CoverageRow, mapping: &CoverageMapping, file: &str) {
    let of_file = || mapping.caveats.iter().filter(|caveat| caveat.file == file);
    row.remarks.extend(of_file().map(CoverageCaveat::remark_with_name));
    row.caveats.extend(of_file().map(CoverageCaveat::json));
}

/// Reads a summary from the output of `llvm-cov`. It is the summary of a file, or the total.
fn summary_row(name: String, summary: &Value) -> Result<CoverageRow> {
    let share = |what: &str| -> Result<CoverageRatio> {
        let of = |key: &str| summary[what][key].as_u64().with_context(|| format!("llvm-cov's export lacks `{what}.{key}` for {name}"));
        Ok(CoverageRatio { all: of("count")?, hit: of("covered")? })
    };
    let mcdc = share("mcdc")?;
    Ok(CoverageRow {
        regions: share("regions")?,
        functions: Some(share("functions")?),
        lines: Some(share("lines")?),
        branches: share("branches")?,
        mcdc: (mcdc.all > 0).then_some(mcdc),
        name,
        ..CoverageRow::default()
    })
}

/// Returns the coverage of each function. Each instance of a template has its own row. `max_examples` is the maximum number of untested
/// combinations of branches that are listed for a function.
pub fn coverage_by_function(mapping: &CoverageMapping, view: &ProfileView, max_examples: usize) -> Result<CoverageTable> {
    let data = mapping.export(&[])?;
    let wanted: BTreeSet<&str> = data["files"].as_array().into_iter().flatten().filter_map(|f| f["filename"].as_str()).collect();
    let files_of = |function: &Value| -> Vec<String> {
        function["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(normalize).collect()
    };
    let code = group_by_code(view, &mapping.names);
    let mut table = CoverageTable { of: "function", ..CoverageTable::default() };
    let mut met = BTreeSet::new();
    for function in data["functions"].as_array().into_iter().flatten() {
        let names = || function["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let Some(linkage) = function["name"].as_str().filter(|_| names().any(|f| wanted.contains(f))) else { continue };
        let files = files_of(function);
        let own = path_columns::find_function_code(&code, linkage, &files);
        let mut row = CoverageRow { name: DemangledName::from_linkage(plain_name(linkage)).short, ..CoverageRow::default() };
        row.regions = count_regions(&function["regions"]);
        row.branches = count_branches(&function["branches"]);
        let is_same =
            |caveat: &&CoverageCaveat| caveat.function.replace(';', ":") == linkage.replace(';', ":") && files.contains(&caveat.file);
        let caveats = || mapping.caveats.iter().filter(is_same);
        row.caveats = caveats().map(CoverageCaveat::json).collect();
        if met.insert((linkage, files.first().cloned())) {
            row.paths = own.iter().map(|code| code.combinations()).reduce(PathCombinationCounts::add_combinations);
            row.remarks = own.iter().flat_map(|code| code.describe_untested_examples(max_examples)).take(max_examples).collect();
        } else if !own.is_empty() {
            row.remarks = vec![SHARED_PATHS_REMARK.to_owned()];
        }
        row.remarks.extend(caveats().map(CoverageCaveat::remark));
        table.rows.push(row);
    }
    table.rows.sort_by_key(|r| std::cmp::Reverse(r.paths.map_or(0, |p| p.untested)));
    let all = table.rows.iter().filter_map(|r| r.paths).reduce(PathCombinationCounts::add_combinations);
    table.total = CoverageRow { paths: all, ..summary_row("total".into(), &data["totals"])? };
    Ok(table)
}

/// Remark for a function whose paths are counted in the row of an earlier function.
const SHARED_PATHS_REMARK: &str = "compiled in several ways; the first row with this name counts the paths of all of them";

/// Counts code regions. `llvm-cov` exports each region as [first line, column, last line, column, count, file, expanded file, kind].
fn count_regions(regions: &Value) -> CoverageRatio {
    const CODE_REGION_KIND: u64 = 0;
    let code = regions.as_array().into_iter().flatten().filter(|r| r[7].as_u64() == Some(CODE_REGION_KIND));
    code.fold(CoverageRatio::default(), |sum, r| count_item(sum, r[4].as_u64()))
}

/// Counts branches, with two items for each: its two directions. `llvm-cov` exports a branch as [first line, column, last line, column,
/// true count, false count, ...].
fn count_branches(branches: &Value) -> CoverageRatio {
    let all = branches.as_array().into_iter().flatten().flat_map(|b| [b[4].as_u64(), b[5].as_u64()]);
    all.fold(CoverageRatio::default(), count_item)
}

fn count_item(sum: CoverageRatio, count: Option<u64>) -> CoverageRatio {
    CoverageRatio { all: sum.all + 1, hit: sum.hit + u64::from(count.is_some_and(|n| n > 0)) }
}

/// Returns the coverage of those lines that were changed since a commit, by file.
pub fn coverage_by_changed_lines(mapping: &CoverageMapping, commit: &str) -> Result<CoverageTable> {
    let changes = changed_lines(commit)?;
    let mut lines = LineExecutions::from_mapping(mapping)?;
    lines.keep_changed_lines(&changes);
    let mut table = CoverageTable { of: "file", ..CoverageTable::default() };
    let mut total = CoverageRatio::default();
    for (name, lines) in &lines.0 {
        let share = lines.values().fold(CoverageRatio::default(), |sum, n| count_item(sum, Some(*n)));
        total = CoverageRatio { all: total.all + share.all, hit: total.hit + share.hit };
        let missed: Vec<u32> = lines.iter().filter(|(_, n)| **n == 0).map(|(line, _)| *line).collect();
        let word = if missed.len() == 1 { "line" } else { "lines" };
        let remarks = if missed.is_empty() { Vec::new() } else { vec![format!("not executed: {word} {}", format_ranges(&missed))] };
        let mut row = CoverageRow { name: name.clone(), lines: Some(share), remarks, ..CoverageRow::default() };
        add_caveats(&mut row, mapping, &normalize(name));
        table.rows.push(row);
    }
    table.total = CoverageRow { name: "changed lines".into(), lines: Some(total), ..CoverageRow::default() };
    let all = plural(changes.line_counts().0 as u128, "line", "lines");
    log::info!("{all} changed since {commit}; {} of these lines have code", total.all);
    Ok(table)
}

/// Returns the length of the longest folder name, including the slash, with which all names start.
fn common_folder_length<'n>(mut names: impl Iterator<Item = &'n str>) -> usize {
    let Some(first) = names.next() else { return 0 };
    let same = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let length = names.fold(first.len(), |length, name| length.min(same(first, name)));
    first.as_bytes()[..length].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_their_common_folder() {
        assert_eq!(common_folder_length(["/a/b/x.c", "/a/b/y.c", "/a/bc/z.c"].into_iter()), 3);
        assert_eq!(
            (common_folder_length(["/a/x.c"].into_iter()), common_folder_length([].into_iter()), common_folder_length(["x.c"].into_iter())),
            (3, 0, 0)
        );
        assert_eq!((normalize("/a/./b/../c.c"), plain_name("a.c:f"), plain_name("_Zf")), ("/a/c.c".into(), "f", "_Zf"));
    }
}
