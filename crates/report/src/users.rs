//! Paths that many users took, on a terminal and as JSON. The view has the maps; what was counted is told apart from it.

use crate::json::{self, SCHEMA_VERSION, number};
use crate::paint::{self, fit, right};
use crate::source::SourceCache;
use crate::story::Story;
use crate::text::{Page, TextOptions, tell};
use crate::view::{Function, View};
use crate::words::{count, plural};
use serde_json::{Map, Value, json};
use trodden_profile::FunctionPaths;
use trodden_unit::Identity;

/// A path, and who took it.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The build.
    pub image: Identity,
    /// The unit.
    pub unit: Identity,
    /// The path's counter in the unit.
    pub counter: u64,
    /// Different users.
    pub users: u64,
    /// Reports.
    pub reports: u64,
    /// Executions.
    pub count: u64,
    /// Those who took it most, with executions.
    pub most: Vec<(String, u64)>,
}

/// A path with its function.
struct Told<'v, 'a> {
    function: &'v Function<'a>,
    id: u64,
    story: Story,
}

fn told<'v, 'a>(view: &'v View<'a>, taken: &Taken) -> Option<Told<'v, 'a>> {
    let has = |f: &&Function| {
        let range = f.map.first_counter..f.map.first_counter.saturating_add(f.map.counters);
        f.unit.unit == taken.unit && f.image.identity == taken.image && range.contains(&taken.counter)
    };
    let function = view.functions.iter().find(has)?;
    let id = taken.counter - function.map.first_counter;
    // By itself: what other paths were counted makes no difference to what it is.
    let paths = FunctionPaths::decode(function.map, [(id, taken.count)]).ok()?;
    let story = match (paths.complete.first(), paths.unfinished.first()) {
        (Some(path), _) => Story::of(function, path),
        (None, path) => Story::of_unfinished(function, path?),
    };
    Some(Told { function, id, story })
}

/// For a terminal. `reports` and `paths` are how many there are in all.
pub fn users_text(view: &View, taken: &[Taken], reports: u64, paths: u64, sources: &SourceCache, options: &TextOptions) -> String {
    let page = &Page::new(options);
    let of = format!("of {}", plural(reports.into(), "report", "reports"));
    let mut out = format!("{}  {}\n", page.paint(paint::TITLE, "Untested paths of users"), page.paint(paint::DIM, &of));
    out.push_str(&format!("{} of {} shown, by users\n\n", taken.len(), plural(paths.into(), "path", "paths")));
    for (rank, path) in taken.iter().enumerate() {
        let told = told(view, path);
        let name = told.as_ref().map_or_else(|| format!("unit {}, counter", path.unit), |t| format!("{}  path", t.function.name.short));
        let id = told.as_ref().map_or(path.counter, |t| t.id);
        let name = page.paint(paint::NAME, &fit(&name, page.width.saturating_sub(30).max(20)));
        out.push_str(&format!("{}  {name} {id}\n", page.paint(paint::TITLE, &right(&(rank + 1).to_string(), 3))));
        let most: Vec<String> =
            path.most.iter().map(|(user, n)| format!("{} ({})", user.get(..8).unwrap_or(user), count((*n).into()))).collect();
        out.push_str(&format!(
            "      {}, {}, {}; most: {}\n",
            plural(path.users.into(), "user", "users"),
            plural(path.reports.into(), "report", "reports"),
            plural(path.count.into(), "execution", "executions"),
            most.join(", ")
        ));
        if let Some(told) = told {
            out.push_str(&tell(told.function, &told.story, sources, page));
        }
        out.push('\n');
    }
    out
}

/// As JSON; the schema is described in the user guide.
pub fn users_json(view: &View, taken: &[Taken], reports: u64, paths: u64, sources: &SourceCache) -> Value {
    let path = |(at, path): (usize, &Taken)| {
        let told = told(view, path);
        let mut out = told.as_ref().map_or_else(Map::new, |t| json::told(t.function, &t.story, sources));
        let most: Vec<Value> = path.most.iter().map(|(user, n)| json!({ "user": user, "count": number(*n) })).collect();
        let more = json!({
            "rank": at + 1,
            "image_identity": path.image.to_string(),
            "unit": path.unit.to_string(),
            "counter": number(path.counter),
            "function": told.as_ref().map(|t| t.function.name.full.as_str()),
            "id": told.as_ref().map(|t| number(t.id)),
            "users": number(path.users),
            "reports": number(path.reports),
            "count": number(path.count),
            "most": most,
        });
        out.extend(more.as_object().cloned().unwrap_or_default());
        Value::Object(out)
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "users",
        "reports": number(reports),
        "paths_found": number(paths),
        "paths": taken.iter().enumerate().map(path).collect::<Vec<_>>(),
    })
}
