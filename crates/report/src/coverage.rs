//! Coverage tables for files and functions, with LLVM's source coverage and path coverage.
//!
//! Regions, functions, lines and branches belong to the source and are counted as `llvm-cov` counts them. Paths belong to the optimised
//! code. A function that was inlined everywhere has no paths: its code is on its callers' paths.

use crate::escape;
use crate::paint;
use crate::path_listing::{PathListing, ShownPathStart};
use crate::schema::SCHEMA_VERSION;
use crate::text::{PageLayout, TextOptions};
use crate::view::Function;
use crate::words;
use serde_json::{Value, json};
use trodden_analysis::PathCombinationCounts;
use trodden_analysis::combinations::find_untested_paths;
use trodden_profile::FunctionPaths;

/// The number of items of some kind, such as lines, and how many of them were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageRatio {
    /// Number of items.
    pub all: u64,
    /// Number of executed items.
    pub hit: u64,
}

impl CoverageRatio {
    /// Returns the percentage of executed items; 100 if there are no items.
    pub fn percent(self) -> f64 {
        if self.all == 0 { 100.0 } else { 100.0 * self.hit as f64 / self.all as f64 }
    }

    fn json(self) -> Value {
        json!({ "count": self.all, "covered": self.hit, "percent": self.percent() })
    }
}

/// The coverage of a file, a function, a package, or the complete program.
#[derive(Clone, Debug, Default)]
pub struct CoverageRow {
    /// Name of the file, function or package, or `total`.
    pub name: String,
    /// The Rust package that contains the file; `None` for other rows.
    pub package: Option<String>,
    /// Source regions.
    pub regions: CoverageRatio,
    /// Coverage of functions; `None` if the row describes a single function.
    pub functions: Option<CoverageRatio>,
    /// Coverage of lines; `None` if the row describes a single function.
    pub lines: Option<CoverageRatio>,
    /// Coverage of branches. Each branch counts as two items, one for each direction.
    pub branches: CoverageRatio,
    /// Coverage of conditions (MC/DC): those that were shown to affect their decision independently. `None` if the program was built
    /// without condition counters.
    pub mcdc: Option<CoverageRatio>,
    /// Coverage of paths in the optimised code; `None` if the function was inlined everywhere and has no code of its own.
    pub paths: Option<PathCombinationCounts>,
    /// Notes shown below the row, such as untested paths and inexact counts.
    pub remarks: Vec<String>,
    /// JSON objects for the functions with inexact counts.
    pub caveats: Vec<Value>,
}

/// A table with a row for each file or function.
#[derive(Clone, Debug, Default)]
pub struct CoverageTable {
    /// What a row describes: `file` or `function`.
    pub of: &'static str,
    /// The rows. Files of a package are consecutive.
    pub rows: Vec<CoverageRow>,
    /// Sums for each Rust package; empty unless there are several packages.
    pub packages: Vec<CoverageRow>,
    /// Sum over all rows.
    pub total: CoverageRow,
}

impl CoverageTable {
    /// Returns the table as JSON.
    pub fn json(&self) -> Value {
        json!({
            "schema_version": SCHEMA_VERSION, "kind": "coverage", "of": self.of,
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
            "packages": self.packages.iter().map(row_json).collect::<Vec<_>>(), "total": row_json(&self.total),
        })
    }

    /// Returns the rows that determine which columns the table has: the file or function rows, or the total if there are no others.
    fn rows_for_columns(&self) -> impl Iterator<Item = &CoverageRow> {
        let total = self.rows.is_empty().then_some(&self.total);
        self.rows.iter().chain(total)
    }

    /// Returns all rows in display order. Each package precedes its files, and the total is last.
    fn display_rows(&self) -> Vec<ShownRow<'_>> {
        let mut shown = Vec::new();
        let mut current: Option<&str> = None;
        for row in &self.rows {
            let package = self.packages.iter().find(|package| row.package.as_ref() == Some(&package.name));
            if let Some(package) = package.filter(|package| current != Some(package.name.as_str())) {
                shown.push(ShownRow { row: package, is_sum: true, is_in_package: false });
            }
            current = package.map(|package| &*package.name);
            shown.push(ShownRow { row, is_sum: false, is_in_package: package.is_some() });
        }
        shown.push(ShownRow { row: &self.total, is_sum: true, is_in_package: false });
        shown
    }

    /// Renders the table as text.
    pub fn text(&self, options: &TextOptions) -> String {
        let page = PageLayout::new(options);
        let rows = self.display_rows();
        let columns: Vec<CoverageColumn> =
            COVERAGE_COLUMNS.iter().copied().filter(|c| self.rows_for_columns().any(|r| (c.cell)(r).is_some())).collect();
        let cells: Vec<Vec<String>> =
            rows.iter().map(|r| columns.iter().map(|c| (c.cell)(r.row).unwrap_or_else(|| "-".into())).collect()).collect();
        let indentation = |row: &ShownRow| if row.is_in_package { "  " } else { "" };
        let names: Vec<String> = rows.iter().map(|r| format!("{}{}", indentation(r), escape::escape_line(&r.row.name))).collect();
        let first = names.iter().map(|n| paint::width(n)).chain([self.of.len()]).max().unwrap_or(0);
        let widths: Vec<usize> =
            columns.iter().enumerate().map(|(at, c)| cells.iter().map(|r| r[at].len()).chain([c.title.len()]).max().unwrap_or(0)).collect();
        let titles = columns.iter().zip(&widths).map(|(c, width)| format!("  {}", paint::align_right(c.title, *width)));
        let mut out =
            format!("{}\n", page.paint(paint::TITLE, &format!("{}{}", paint::align_left(self.of, first), titles.collect::<String>())));
        for (at, (name, row)) in names.iter().zip(&rows).enumerate() {
            let texts = cells[at].iter().zip(&widths).map(|(text, width)| format!("  {}", paint::align_right(text, *width)));
            let line = format!("{}{}", paint::align_left(name, first), texts.collect::<String>());
            let style = if row.is_sum { paint::TITLE } else { anstyle::Style::new() };
            out += &format!("{}\n", page.paint(style, &line));
            row.row.remarks.iter().for_each(|remark| out += &format!("    {}\n", escape::escape_line(remark)));
        }
        out
    }
}

struct ShownRow<'r> {
    row: &'r CoverageRow,
    is_sum: bool,
    is_in_package: bool,
}

/// Renders tables as an HTML page without scripts.
pub fn page(title: &str, tables: &[CoverageTable]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title>\n<style>{STYLE_SHEET}</style>\n<h1>{0}</h1>\n",
        escape_html(title)
    );
    out += "<p><i>Untested combinations</i> are paths that no test took, although each of their branch outcomes was taken by some test. \
            Lines with <i>never together</i> list the outcomes of one such path.</p>\n";
    for table in tables {
        let columns: Vec<CoverageColumn> =
            COVERAGE_COLUMNS.iter().copied().filter(|c| table.rows.iter().any(|r| (c.cell)(r).is_some())).collect();
        let titles: String = columns.iter().map(|c| format!("<th>{}</th>", c.title)).collect();
        out += &format!("<div class=scroll tabindex=0><table><thead><tr><th>{}</th>{titles}</tr></thead><tbody>\n", table.of);
        for ShownRow { row, is_sum, is_in_package } in table.display_rows() {
            let class = match (is_sum, is_in_package) {
                (true, _) => "sum",
                (false, true) => "part",
                (false, false) => "row",
            };
            let cells: String =
                columns.iter().map(|c| format!("<td>{}</td>", escape_html(&(c.cell)(row).unwrap_or_else(|| "-".into())))).collect();
            let remarks: String = row.remarks.iter().map(|r| format!("<div>{}</div>", escape_html(r))).collect();
            out += &format!("<tr class={class}><th>{}</th>{cells}</tr>\n", escape_html(&row.name));
            if !remarks.is_empty() {
                out += &format!("<tr class=remarks><td colspan={}>{remarks}</td></tr>\n", columns.len() + 1);
            }
        }
        out += "</tbody></table></div>\n";
    }
    out + "</html>\n"
}

const STYLE_SHEET: &str = ":root{color-scheme:light dark;--ink:#1c1c1c;--faint:#666;--line:#ddd;--ground:#fff}\
    @media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--faint:#9aa3ad;--line:#3a4048;--ground:#16191d}}\
    body{font:14px/1.5 system-ui,sans-serif;margin:1rem auto;max-width:75rem;padding:0 1rem;color:var(--ink);background:var(--ground)}\
    h1{font-size:1.5rem}.scroll{overflow-x:auto;margin-bottom:2rem}table{border-collapse:collapse}\
    th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums;vertical-align:top}\
    td{white-space:nowrap}th:first-child{text-align:left;font-weight:500}thead th,thead th:first-child,.sum,.sum th,.sum th:first-child\
    {font-weight:600}.part th:first-child{padding-left:2rem}\
    tr:has(+.remarks)>*{border-bottom:0}.remarks td{text-align:left;white-space:normal}\
    .remarks div{font:12px/1.5 ui-monospace,monospace;color:var(--faint);box-sizing:border-box;\
    max-width:min(110ch,calc(100vw - 4rem));padding-left:2em;text-indent:-1em}";

/// Escapes control characters, and characters with a meaning in HTML.
pub fn escape_html(text: &str) -> String {
    escape::escape_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[derive(Clone, Copy)]
struct CoverageColumn {
    title: &'static str,
    cell: fn(&CoverageRow) -> Option<String>,
}

const COVERAGE_COLUMNS: &[CoverageColumn] = &[
    CoverageColumn { title: "regions", cell: |r| (r.regions.all > 0).then(|| format_ratio(r.regions)) },
    CoverageColumn { title: "functions", cell: |r| r.functions.map(format_ratio) },
    CoverageColumn { title: "lines", cell: |r| r.lines.map(format_ratio) },
    CoverageColumn { title: "branches", cell: |r| (r.branches.all > 0).then(|| format_ratio(r.branches)) },
    CoverageColumn { title: "MC/DC", cell: |r| r.mcdc.map(format_ratio) },
    CoverageColumn { title: "paths taken of possible", cell: |r| r.paths.map(|p| format!("{} of {}", p.taken, format_count(p.possible))) },
    CoverageColumn { title: "untested combinations", cell: |r| r.paths.map(|p| format_count(p.untested)) },
];

fn format_ratio(share: CoverageRatio) -> String {
    if share.all == 0 { "-".into() } else { format!("{}/{} {:>6.2}%", share.hit, share.all, share.percent()) }
}

/// Formats a number of paths. Large numbers are in scientific notation.
fn format_count(number: u128) -> String {
    const EXACT_BELOW: u128 = 1_000_000_000;
    if number < EXACT_BELOW { number.to_string() } else { format!("{:.1e}", number as f64) }
}

fn row_json(row: &CoverageRow) -> Value {
    let paths =
        row.paths.map(|p| json!({ "possible": p.possible.to_string(), "taken": p.taken, "untested_combinations": p.untested.to_string() }));
    json!({
        "name": row.name, "package": row.package, "regions": row.regions.json(),
        "functions": row.functions.map(CoverageRatio::json),
        "lines": row.lines.map(CoverageRatio::json),
        "branches": row.branches.json(), "mcdc": row.mcdc.map(CoverageRatio::json), "paths": paths, "remarks": row.remarks,
        "not_exact": row.caveats,
    })
}

/// Describes up to `limit` of a function's untested paths: where each path starts, and which direction each branch takes.
pub fn describe_untested_paths(function: &Function, paths: &FunctionPaths, limit: usize) -> Vec<String> {
    let text = |path: &trodden_profile::PathCount| {
        let listing = PathListing::from_path(function, path);
        let begins = match listing.begins {
            ShownPathStart::Entry => Vec::new(),
            _ => vec![words::describe_begin(&listing.begins)],
        };
        let turns = listing.steps.iter().filter(|s| !s.turns.is_empty()).map(|step| {
            let line = step.chain.last().map_or_else(|| "?".to_owned(), |p| p.line.to_string());
            format!("{line} {}", words::format_taken_branches(&step.turns))
        });
        format!("never together: path {}: {}", path.id, begins.into_iter().chain(turns).collect::<Vec<_>>().join("; "))
    };
    find_untested_paths(function.map, &function.dag, paths, limit).iter().map(text).collect()
}

/// Counts the possible, executed and untested paths of a function. `paths` may combine the counts of several programs.
pub fn count_combinations(function: &Function, paths: &FunctionPaths) -> PathCombinationCounts {
    PathCombinationCounts::new(function.map, &function.dag, paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_a_value_are_left_out() {
        let row = CoverageRow {
            name: "a.c".into(),
            regions: CoverageRatio { all: 4, hit: 3 },
            lines: Some(CoverageRatio { all: 0, hit: 0 }),
            ..CoverageRow::default()
        };
        let table = CoverageTable {
            of: "file",
            rows: vec![row.clone()],
            total: CoverageRow { name: "total".into(), ..row },
            ..CoverageTable::default()
        };
        let text = table.text(&TextOptions::default());
        assert!(text.contains("3/4  75.00%") && text.starts_with("file") && !text.contains("MC/DC") && !text.contains("paths"), "{text}");
        assert_eq!(table.json()["rows"][0]["regions"]["covered"], 3);
        let of_template = CoverageTable { rows: vec![CoverageRow { name: "f<int>".into(), ..table.rows[0].clone() }], ..table };
        assert!(page("a & b", &[of_template]).contains("<th>f&lt;int&gt;</th>"));
        assert_eq!((CoverageRatio::default().percent(), format_count(12_345_678_901)), (100.0, "1.2e10".to_owned()));
    }

    #[test]
    fn files_follow_their_package() {
        let row = |name: &str, package: Option<&str>| CoverageRow {
            name: name.into(),
            package: package.map(str::to_owned),
            regions: CoverageRatio { all: 4, hit: 3 },
            ..CoverageRow::default()
        };
        let table = CoverageTable {
            of: "file",
            rows: vec![row("a/src/lib.rs", Some("a")), row("a/src/x.rs", Some("a")), row("b/src/lib.rs", Some("b")), row("c.c", None)],
            packages: vec![row("a", None), row("b", None)],
            total: row("total", None),
        };
        let text = table.text(&TextOptions::default());
        let names: Vec<&str> = text.lines().map(|line| line.split("  3/4").next().unwrap().trim_end()).collect();
        assert_eq!(names[1..], ["a", "  a/src/lib.rs", "  a/src/x.rs", "b", "  b/src/lib.rs", "c.c", "total"], "{text}");
        assert_eq!((&table.json()["rows"][2]["package"], &table.json()["packages"][1]["name"]), (&"b".into(), &"b".into()));
    }
}
