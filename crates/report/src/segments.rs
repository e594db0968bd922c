//! Interprocedural segments, which are chains of nested calls with a path in each function ([`trodden_unit::segments`]). They are written
//! as text with the paths of caller and callee side by side, as JSON, and as SARIF with code flows that pass from function to function.

use crate::escape;
use crate::json::{SCHEMA_VERSION, number};
use crate::paint::{self, Painter, align_left, align_right};
use crate::path_listing::{ListedPath, PathListing};
use crate::sarif;
use crate::select::share;
use crate::source::SourceCache;
use crate::text::{PageLayout, TextOptions, render_path};
use crate::view::{Function, ProfileView};
use crate::words::{count, percent, plural};
use serde_json::{Value, json};
use std::collections::HashMap;
use trodden_profile::segments::{FunctionPath, Segment, function_map};
use trodden_profile::{FunctionPaths, ImageProfile};
use trodden_unit::{FunctionMap, Storage};

const RULE_ID: &str = "untested-segment";
const MIN_PATH_COLUMN_WIDTH: usize = 48;
const COLUMN_SEPARATOR: &str = " │ ";

/// Which segments to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentList {
    /// All executed segments.
    Executed,
    /// Executed segments that no test executed.
    Untested,
}

/// The most frequent segments of one depth. The depth is the number of nested calls.
pub struct SegmentRanking<'v, 'a> {
    kind: SegmentList,
    depth: usize,
    program: String,
    rows: Vec<SegmentRow<'v, 'a>>,
    distinct: usize,
    executed: u128,
    /// Totals over all executed segments, tested or not.
    all: SegmentAndExecutionCount,
}

/// The number of different segments, and their total number of executions.
pub type SegmentAndExecutionCount = (usize, u128);

struct SegmentRow<'v, 'a> {
    paths: Vec<ListedPath<'v, 'a>>,
    count: u64,
}

impl<'v, 'a> SegmentRanking<'v, 'a> {
    /// Adds up the given segments.
    pub fn count_segments_and_executions(segments: &[(&ImageProfile, Segment, u64)]) -> SegmentAndExecutionCount {
        (segments.len(), segments.iter().map(|s| u128::from(s.2)).sum())
    }

    /// Selects the `top` most frequent segments. `segments` may contain only untested segments, but `all` is the total over all executed
    /// segments.
    pub fn new(
        kind: SegmentList,
        depth: usize,
        segments: &[(&'a ImageProfile, Segment, u64)],
        view: &'v ProfileView<'a>,
        top: usize,
        all: SegmentAndExecutionCount,
    ) -> SegmentRanking<'v, 'a> {
        let functions: HashMap<*const _, &Function> = view.functions.iter().map(|f| (std::ptr::from_ref(f.map), f)).collect();
        let path = |image: &'a ImageProfile, at: &FunctionPath| {
            let function = *functions.get(&std::ptr::from_ref(function_map(image, at.function)))?;
            Some(ListedPath { function, id: at.path, listing: decode_path_listing(function, at.path)? })
        };
        let mut sorted: Vec<&(&ImageProfile, Segment, u64)> = segments.iter().collect();
        sorted.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
        let row = |(image, segment, count): &(&'a ImageProfile, Segment, u64)| {
            let paths: Option<Vec<ListedPath>> = segment.iter().map(|at| path(image, at)).collect();
            Some(SegmentRow { paths: paths?, count: *count })
        };
        SegmentRanking {
            kind,
            depth,
            program: view.profile.images.first().map(|i| i.path.clone()).unwrap_or_default(),
            rows: sorted.into_iter().filter_map(row).take(top).collect(),
            distinct: segments.len(),
            executed: SegmentRanking::count_segments_and_executions(segments).1,
            all,
        }
    }

    /// Renders the segments as text.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions) -> String {
        let page = &PageLayout::new(options);
        let what = match self.kind {
            SegmentList::Executed => "interprocedural segment",
            SegmentList::Untested => "untested interprocedural segment",
        };
        let all = format!(
            "{} of depth {}, executed {}{}",
            plural(self.distinct as u128, what, &format!("{what}s")),
            self.depth,
            plural(self.executed, "time", "times"),
            match self.kind {
                SegmentList::Executed => String::new(),
                SegmentList::Untested => format!(
                    "; of {} and {}",
                    plural(self.all.0 as u128, "segment", "segments"),
                    plural(self.all.1, "execution", "executions")
                ),
            }
        );
        let mut out = format!("{}  {}\n", page.paint(paint::TITLE, &escape::escape_line(&self.program)), page.paint(paint::DIM, &all));
        for (rank, row) in self.rows.iter().enumerate() {
            let names: Vec<String> = row.paths.iter().map(ListedPath::name).collect();
            let times = format!("{}  {}", plural(row.count.into(), "time", "times"), percent(share(row.count.into(), self.executed)));
            let rank = page.paint(paint::TITLE, &align_right(&(rank + 1).to_string(), 3));
            out.push_str(&format!("\n{rank}  {}  {}\n", page.paint(paint::NAME, &names.join(" > ")), page.paint(paint::DIM, &times)));
            let outer = row.paths.len().saturating_sub(2);
            for path in &row.paths[..outer] {
                out.push_str(&format!("      {}\n", page.paint(paint::NAME, &path.name())));
                out.push_str(&render_path(path.function, &path.listing, sources, page));
            }
            out.push_str(&render_side_by_side(&row.paths[outer..], sources, options));
        }
        if self.distinct > self.rows.len() {
            out.push_str(&format!("\n... and {} more (--top)\n", count((self.distinct - self.rows.len()) as u128)));
        }
        out
    }

    /// Returns the segments as JSON. The user guide documents the schema.
    pub fn json(&self) -> Value {
        let path = |p: &ListedPath| {
            json!({
                "function": p.function.name.full, "linkage_name": p.function.name.linkage, "file": p.function.file(),
                "line": p.function.line(), "path": number(p.id), "outline": p.listing.outline(usize::MAX),
                "blocks": p.listing.steps.iter().flat_map(|s| &s.blocks).map(|b| b.0).collect::<Vec<_>>(),
            })
        };
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": match self.kind { SegmentList::Executed => "segments", SegmentList::Untested => "untested-segments" },
            "depth": self.depth,
            "distinct": self.distinct,
            "executions": number(self.executed),
            "of_distinct": self.all.0,
            "of_executions": number(self.all.1),
            "segments": self.rows.iter().map(|row| json!({
                "count": number(row.count),
                "paths": row.paths.iter().map(path).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns the segments as SARIF. Each segment is a result with one code flow through all of its functions.
    pub fn sarif(&self, sources: &SourceCache) -> Value {
        let rule = json!({
            "id": RULE_ID,
            "shortDescription": { "text": "Paths of a caller and a callee that no test takes together." },
            "fullDescription": { "text": "The program took this callee's path after this caller's path, and no recorded test did." },
        });
        sarif::build_sarif_log(json!([rule]), self.rows.iter().map(|row| build_segment_result(row, sources)).collect())
    }
}

fn build_segment_result(row: &SegmentRow, sources: &SourceCache) -> Value {
    let names: Vec<String> = row.paths.iter().map(|p| format!("path {} of {}", p.id, p.function.name.full)).collect();
    let taken = plural(row.count.into(), "time", "times");
    let text = format!("No test takes {}. The program took it {taken}.", names.join(", then "));
    let flow = row.paths.iter().enumerate().flat_map(|(deeper, p)| {
        p.listing.steps.iter().filter_map(move |s| sarif::call_step(p.function, &p.listing, s, sources, deeper)).collect::<Vec<_>>()
    });
    let flow: Vec<Value> = flow.collect();
    let fingerprint: Vec<String> =
        row.paths.iter().map(|p| format!("{}/{:016x}/{}", p.function.name.linkage, p.function.map.shape, p.id)).collect();
    let mut out = json!({
        "ruleId": RULE_ID,
        "ruleIndex": 0,
        "level": "note",
        "message": { "text": text },
        "locations": row.paths.last().and_then(|p| sarif::declaration_location(p.function, sources)).into_iter().collect::<Vec<_>>(),
        "partialFingerprints": { "trodden/v1": fingerprint.join(" ") },
        "occurrenceCount": row.count.min(i64::MAX as u64),
        "properties": { "paths": row.paths.iter().map(|p| p.id).collect::<Vec<_>>() },
    });
    if !flow.is_empty() {
        out["codeFlows"] = json!([{ "threadFlows": [{ "locations": flow }] }]);
    }
    out
}

fn render_side_by_side(paths: &[ListedPath], sources: &SourceCache, options: &TextOptions) -> String {
    let width = (PageLayout::new(options).width.saturating_sub(COLUMN_SEPARATOR.chars().count() + 4) / 2).max(MIN_PATH_COLUMN_WIDTH);
    let page = PageLayout { painter: Painter { color: false }, width, steps: options.steps };
    let column = |path: &ListedPath| -> Vec<String> {
        let outline = render_path(path.function, &path.listing, sources, &page);
        let lines = outline.lines().map(|line| line.strip_prefix("      ").unwrap_or(line).to_owned());
        std::iter::once(path.name()).chain(lines).collect()
    };
    let columns: Vec<Vec<String>> = paths.iter().map(column).collect();
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |column: &Vec<String>, row: usize| align_left(column.get(row).map_or("", String::as_str), width);
    let line = |row: usize| columns.iter().map(|c| cell(c, row)).collect::<Vec<_>>().join(COLUMN_SEPARATOR);
    (0..rows).map(|row| format!("    {}\n", line(row).trim_end())).collect()
}

/// Lists the path with the given number, which may end at a call. Returns `None` if the number cannot be decoded.
fn decode_path_listing(function: &Function, id: u64) -> Option<PathListing> {
    // Decoding skips unfinished paths if the function counts segments. But a segment contains the unfinished path of the caller, so a copy
    // of the map is decoded as if it had plain counters.
    let map = FunctionMap { storage: Storage::Array, ..function.map.clone() };
    let paths = FunctionPaths::decode(&map, [(id, 1)]).ok()?;
    let path = paths.all().find(|path| path.id == id)?;
    Some(PathListing::from_path(function, path))
}
