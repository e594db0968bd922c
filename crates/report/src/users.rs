//! Paths reported by many users, as text and JSON. The view provides only the functions' maps; the counts come from [`AggregatedPath`].

use crate::json::{self, SCHEMA_VERSION, number};
use crate::paint::{self, align_right, truncate_function_name};
use crate::path_listing::{ListedPath, PathListing};
use crate::source::SourceCache;
use crate::text::{PageLayout, TextOptions, render_path};
use crate::view::{Function, ProfileView};
use crate::words::{count, list_names, plural};
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use trodden_analysis::field::FieldUserHash;
use trodden_analysis::field::aggregate::{AggregatedPath, UnitKey};
use trodden_analysis::field::estimate::{CountEstimate, UserSample, UsersEstimate};
use trodden_analysis::field::maps::UnitMaps;
use trodden_analysis::field::reporting::ReportingUsers;
use trodden_profile::{Counts, FunctionPaths, ImageProfile, Profile, Run, UnitProfile};
use trodden_unit::Identity;

const MAX_NAMED_FUNCTIONS: usize = 8;

/// A path that users took.
#[derive(Clone, Debug)]
pub struct PathTakenByUsers<'a> {
    /// Numbers of users, reports and executions, and the users with the most executions.
    pub seen: &'a AggregatedPath,
    /// An estimate for all users. `None` if each user's copy of the program counts all paths.
    pub estimate: Option<UserEstimate>,
}

/// An estimate for all users, extrapolated from those whose copy of the program counts the path.
#[derive(Clone, Copy, Debug)]
pub struct UserEstimate {
    /// Number of users whose copy of the program counts the path.
    pub watching: u64,
    /// Number of users who take the path.
    pub users: UsersEstimate,
    /// Number of executions by all users.
    pub count: CountEstimate,
}

/// The paths to show, with totals.
#[derive(Clone, Copy, Debug)]
pub struct PathsTakenByUsers<'a> {
    /// The paths to show, in order.
    pub taken: &'a [PathTakenByUsers<'a>],
    /// Total number of reports.
    pub reports: u64,
    /// Total number of paths.
    pub paths: u64,
    /// The reports from each copy of the program; `None` if all copies count all paths.
    pub tomography: Option<&'a CopyReportSummary>,
}

/// The reports from a program's copies, which were distributed to different users. Each copy counts some of the paths.
#[derive(Clone, Debug)]
pub struct CopyReportSummary {
    /// Number of users who reported.
    pub reported: u64,
    /// Number of users to which estimates are extrapolated.
    pub all: u64,
    /// The reports from each copy, by the copy's number.
    pub copies: Vec<ReportsFromCopy>,
}

/// The reports from users of one copy.
#[derive(Clone, Debug)]
pub struct ReportsFromCopy {
    /// Number of users who reported.
    pub users: u64,
    /// Number of reports.
    pub reports: u64,
    /// Linkage names of the functions whose paths the copy counts.
    pub functions: Vec<String>,
}

impl<'a> PathTakenByUsers<'a> {
    /// Combines a path with an estimate for all users. `tomography` is `None` if all copies count all paths; then there is no estimate.
    pub fn new(seen: &'a AggregatedPath, tomography: Option<&CopyReportSummary>) -> PathTakenByUsers<'a> {
        let estimate = tomography.zip(seen.counting_users).map(|(tomography, watching)| {
            let sample = UserSample { all: tomography.all, sampled: watching.max(seen.users) };
            UserEstimate {
                watching: sample.sampled,
                users: sample.estimate_users(seen.users),
                count: sample.count(seen.count, seen.squares),
            }
        });
        PathTakenByUsers { seen, estimate }
    }
}

impl CopyReportSummary {
    /// Summarises the reports from copies. `functions` lists the functions that each copy counts. Estimates are for `population` users, or,
    /// if it is `None`, for the users who reported. Fails if no user reported, or if more users reported than the population has.
    pub fn new(population: Option<u64>, functions: Vec<Vec<String>>, reporting: &ReportingUsers) -> Result<CopyReportSummary> {
        let reported = reporting.reporting_user_count();
        let all = population.unwrap_or(reported);
        let users = plural(reported.into(), "user", "users");
        ensure!(all >= reported, "--population {all} is too small, because {users} sent reports. Pass the number of all users");
        ensure!(
            reported > 0,
            "none of the users' reports comes from these copies of the program. Pass the folder of the copies that were distributed"
        );
        let row = |(functions, copy): (Vec<String>, u32)| ReportsFromCopy {
            users: reporting.users_with_any(&[copy]),
            reports: reporting.reports(copy),
            functions,
        };
        Ok(CopyReportSummary { reported, all, copies: functions.into_iter().zip(0..).map(row).collect() })
    }
}

/// Builds a profile that has the units' maps but no counts, so that the paths can be named. Also returns the number of paths whose map is
/// unknown.
pub fn profile_without_counts(paths: &[AggregatedPath], maps: &mut UnitMaps) -> (Profile, usize) {
    let mut missing = 0;
    let mut units = BTreeMap::<UnitKey, UnitProfile>::new();
    for path in paths {
        let Some(map) = maps.load_unit_map(path.unit) else {
            missing += 1;
            continue;
        };
        let unit = UnitProfile { unit: path.unit.unit, map, counts: Counts::default() };
        units.entry(path.unit).or_insert(unit);
    }
    let images =
        units.into_iter().map(|(key, unit)| ImageProfile { identity: key.image, path: String::new(), build_id: None, units: vec![unit] });
    (Profile { run: Run::default(), images: images.collect(), sampling: None }, missing)
}

/// Returns a user's name: a hexadecimal hash, or `unknown`.
pub fn user_name(user: &FieldUserHash) -> String {
    if *user == [0; 16] { "unknown".into() } else { Identity(*user).to_string() }
}

fn find_listed_path<'v, 'a>(view: &'v ProfileView<'a>, taken: &AggregatedPath) -> Option<ListedPath<'v, 'a>> {
    let has = |f: &&Function| {
        let range = f.map.first_counter..f.map.first_counter.saturating_add(f.map.counters);
        f.unit.unit == taken.unit.unit && f.image.identity == taken.unit.image && range.contains(&taken.counter)
    };
    let function = view.functions.iter().find(has)?;
    let id = taken.counter - function.map.first_counter;
    // A single path can be decoded, because decoding does not depend on the counts of other paths.
    let paths = FunctionPaths::decode(function.map, [(id, taken.count)]).ok()?;
    let listing = PathListing::from_path(function, paths.all().next()?);
    Some(ListedPath { function, id, listing })
}

/// Renders the paths as text.
pub fn users_text(view: &ProfileView, all: &PathsTakenByUsers, sources: &SourceCache, options: &TextOptions) -> String {
    let page = &PageLayout::new(options);
    let PathsTakenByUsers { taken, reports, paths, tomography } = *all;
    let of = format!("in {}", plural(reports.into(), "report", "reports"));
    let (title, order) = match tomography {
        Some(_) => ("Paths that users took", "by the share of users who took them among those whose copy counts them"),
        None => ("Untested paths that users took", "by users"),
    };
    let mut out = format!("{}  {}\n", page.paint(paint::TITLE, title), page.paint(paint::DIM, &of));
    out.push_str(&format!("{} of {} shown, {order}\n", count(taken.len() as u128), plural(paths.into(), "path", "paths")));
    tomography.iter().for_each(|t| out.push_str(&render_copies(t)));
    out.push('\n');
    for (rank, PathTakenByUsers { seen: path, estimate }) in taken.iter().enumerate() {
        let found = find_listed_path(view, path);
        let name =
            found.as_ref().map_or_else(|| format!("unit {}, counter", path.unit.unit), |t| format!("{}  path", t.function.name.short));
        let id = found.as_ref().map_or(path.counter, |t| t.id);
        let name = page.paint(paint::NAME, &truncate_function_name(&name, page.width.saturating_sub(30).max(20)));
        out.push_str(&format!("{}  {name} {id}\n", page.paint(paint::TITLE, &align_right(&(rank + 1).to_string(), 3))));
        let top_users: Vec<String> =
            path.top_users.iter().map(|(user, n)| format!("{:.8} ({})", user_name(user), count((*n).into()))).collect();
        out.push_str(&format!(
            "      {}, {}, {}; most: {}\n",
            plural(path.users.into(), "user", "users"),
            plural(path.reports.into(), "report", "reports"),
            plural(path.count.into(), "execution", "executions"),
            top_users.join(", ")
        ));
        if let (Some(estimate), Some(tomography)) = (estimate, tomography) {
            out.push_str(&render_estimate(path.users, estimate, tomography.all));
        }
        if let Some(found) = found {
            out.push_str(&render_path(found.function, &found.listing, sources, page));
        }
        out.push('\n');
    }
    out
}

/// Renders how many users reported, and for which copies nobody did.
fn render_copies(tomography: &CopyReportSummary) -> String {
    let CopyReportSummary { reported, all, copies } = tomography;
    let mut out = format!("{} of {} reported", plural((*reported).into(), "user", "users"), plural(copies.len() as u128, "copy", "copies"));
    out.push_str(&if reported == all {
        ".\n".to_owned()
    } else {
        format!("; estimates are for {}.\n", plural((*all).into(), "user", "users"))
    });
    for (number, copy) in copies.iter().enumerate().filter(|(_, copy)| copy.users == 0) {
        let paths = match copy.functions.is_empty() {
            true => "counts nothing".to_owned(),
            false => format!("counts paths of {}", list_names(&copy.functions, MAX_NAMED_FUNCTIONS)),
        };
        out.push_str(&format!("no user reported for copy {number}, which {paths}\n"));
    }
    out
}

fn render_estimate(saw: u64, estimate: &UserEstimate, all: u64) -> String {
    let UserEstimate { watching, users, count } = estimate;
    let error = count.error.map_or("unknown error".to_owned(), |e| format!("standard error {e:.0}"));
    format!(
        "      {saw} of {} whose copy counts it; estimate for all {all}: {:.0} users ({:.0} to {:.0}), {:.0} executions ({error})\n",
        plural((*watching).into(), "user", "users"),
        users.value,
        users.low.floor(),
        users.high.ceil(),
        count.value
    )
}

/// Returns the paths as JSON. The user guide documents the schema.
pub fn users_json(view: &ProfileView, all: &PathsTakenByUsers, sources: &SourceCache) -> Value {
    let path = |(at, PathTakenByUsers { seen: path, estimate }): (usize, &PathTakenByUsers)| {
        let found = find_listed_path(view, path);
        let mut out = found.as_ref().map_or_else(Map::new, |t| json::listing_json(t.function, &t.listing, sources));
        let top_users: Vec<Value> =
            path.top_users.iter().map(|(user, n)| json!({ "user": user_name(user), "count": number(*n) })).collect();
        let more = json!({
            "rank": at + 1,
            "image_identity": path.unit.image.to_string(),
            "unit": path.unit.unit.to_string(),
            "counter": number(path.counter),
            "function": found.as_ref().map(|t| t.function.name.full.as_str()),
            "id": found.as_ref().map(|t| number(t.id)),
            "users": number(path.users),
            "reports": number(path.reports),
            "count": number(path.count),
            "most": top_users,
        });
        if let Some(UserEstimate { watching, users, count }) = *estimate {
            let estimate = json!({
                "watching": number(watching),
                "estimated_users": users.value,
                "estimated_users_low": users.low,
                "estimated_users_high": users.high,
                "estimated_count": count.value,
                "estimated_count_error": count.error,
            });
            out.extend(estimate.as_object().cloned().unwrap_or_default());
        }
        out.extend(more.as_object().cloned().unwrap_or_default());
        Value::Object(out)
    };
    let copy = |copy: &ReportsFromCopy| json!({"users": number(copy.users), "reports": number(copy.reports), "functions": copy.functions});
    let mut out = json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "users",
        "reports": number(all.reports),
        "paths_found": number(all.paths),
        "paths": all.taken.iter().enumerate().map(path).collect::<Vec<_>>(),
    });
    if let Some(tomography) = all.tomography {
        out["users"] = number(tomography.reported);
        out["population"] = number(tomography.all);
        out["copies"] = tomography.copies.iter().map(copy).collect();
    }
    out
}
