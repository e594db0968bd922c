//! Describes a recorded stream's events: functions by name, paths by their lines, and calls by their position.

use crate::path_listing::{PathListing, ShownPathEnd};
use crate::view::{Function, file_of, inline_chain};
use crate::{DemangledName, ProfileView, SourceCache, words};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trodden_profile::stream::{CounterLookup, FunctionIndex, PathRole, StreamHeader};
use trodden_profile::{EventToPathTranslator, FunctionPaths, ImageProfile};
use trodden_stored::maps::StreamMaps;

const MAX_OUTLINE_LINES: usize = 12;

/// Provides names and descriptions for the events of a stream.
pub struct EventNames<'a> {
    /// Finds the function and path that a counter belongs to.
    pub places: CounterLookup<'a>,
    counted: &'a ImageProfile,
    /// Converts events to paths, for functions that have more events than paths; `None` if a function's map is corrupt.
    paths: RefCell<HashMap<FunctionIndex, Option<EventToPathTranslator>>>,
    functions: HashMap<FunctionIndex, &'a Function<'a>>,
    /// Two sets of names that several functions have in common, such as template instances and overloads: short names, and qualified names.
    shared: [HashSet<String>; 2],
    sources: &'a SourceCache<'a>,
}

/// A source line and its position.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SourceLine {
    /// The file's name in debug information.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    /// The text of the line; `None` if the source is not available.
    pub text: Option<String>,
}

impl<'a> EventNames<'a> {
    /// Prepares names for the events of a stream. `view` must show the stream's [`StreamMaps::events`].
    pub fn new(header: &StreamHeader, maps: &'a StreamMaps, view: &'a ProfileView<'a>, sources: &'a SourceCache<'a>) -> EventNames<'a> {
        let image = maps.image();
        let mut functions = HashMap::new();
        for (unit_place, unit) in image.units.iter().enumerate() {
            for (place, map) in unit.map.functions.iter().enumerate() {
                if let Some(function) = view.functions.iter().find(|f| std::ptr::eq(f.map, map)) {
                    functions.insert(FunctionIndex { unit: unit_place, function: place }, function);
                }
            }
        }
        EventNames {
            places: CounterLookup::new(header, image),
            counted: &maps.counted,
            paths: RefCell::default(),
            functions,
            shared: find_shared_names(image),
            sources,
        }
    }

    /// Returns the shortest unambiguous name of a function.
    pub fn function_name(&self, place: FunctionIndex) -> String {
        let DemangledName { short, qualified, full, .. } = DemangledName::from_linkage(&self.places.function(place).name);
        let own = [short, qualified].into_iter().zip(&self.shared).find(|(name, shared)| !shared.contains(name));
        own.map_or(full, |(name, _)| name)
    }

    /// Returns the number of the path that an event represents, which is the same as in builds without streams. Events at calls, which only
    /// streams record, have separate numbers with the prefix `c`. Returns `None` if the unit has no map.
    pub fn path_number(&self, counter: u32) -> Option<String> {
        let (place, event) = self.places.path(counter)?;
        let function = &self.counted.units[place.unit].map.functions[place.function];
        let Some(words) = function.event_words() else { return Some(event.to_string()) };
        let mut paths = self.paths.borrow_mut();
        let paths = paths.entry(place).or_insert_with(|| EventToPathTranslator::new(function, words).ok());
        Some(paths.as_ref()?.path(event).map_or_else(|| format!("c{event}"), |path| path.to_string()))
    }

    /// Lists the path that an event represents. Returns `None` if the path is unknown.
    pub fn listing(&self, counter: u32) -> Option<PathListing> {
        let (place, id) = self.places.path(counter)?;
        let function = self.functions.get(&place)?;
        let paths = FunctionPaths::decode(function.map, [(id, 1)]).ok()?;
        let path = paths.all().find(|path| path.id == id)?;
        Some(PathListing::from_path(function, path))
    }

    /// Describes an event's path in one line: its source lines, and how it ends.
    pub fn describe_path(&self, counter: u32) -> String {
        let Some(listing) = self.listing(counter) else { return format!("path of counter {counter}") };
        let ends = match listing.ends {
            ShownPathEnd::Call { lines: Some((first, last)), .. } if first == last => format!("call in line {first}"),
            ShownPathEnd::Call { lines: Some((first, last)), .. } => format!("call in lines {first}-{last}"),
            ShownPathEnd::Call { .. } => "call".into(),
            ref ends => words::describe_end(ends),
        };
        format!("{}: {ends}", listing.outline(MAX_OUTLINE_LINES))
    }

    /// Returns the lines of the block in which an event's path ends or reaches a call. Lines of inlined code are replaced by the line of
    /// the call.
    pub fn lines_at_path_end(&self, counter: u32) -> Vec<SourceLine> {
        let Some((place, walk)) = self.places.decode(counter) else { return Vec::new() };
        let (unit, function) = (self.places.unit_map(place), self.places.function(place));
        let Some(block) = walk.blocks.last().and_then(|b| function.blocks.get(b.index())) else { return Vec::new() };
        let mut lines: Vec<(String, u32)> = Vec::new();
        for position in block.positions.iter().chain(&block.branch) {
            // For inlined code, this is the position of the call in the function itself.
            let own = *inline_chain(unit, *position).first().unwrap_or(position);
            if let Some(file) = file_of(unit, own).filter(|_| own.line > 0) {
                lines.push((file.to_owned(), own.line));
            }
        }
        lines.sort();
        lines.dedup();
        lines.into_iter().map(|(file, line)| SourceLine { text: self.sources.line(&file, line), file, line }).collect()
    }

    /// Returns the line of a function's declaration; `None` without debug information.
    pub fn declaration(&self, place: FunctionIndex) -> Option<SourceLine> {
        let (unit, function) = (self.places.unit_map(place), self.places.function(place));
        let position = function.position?;
        let file = file_of(unit, position)?.to_owned();
        Some(SourceLine { text: self.sources.line(&file, position.line), line: position.line, file })
    }

    /// Returns the word for an event's kind, given the role of the event's path.
    pub fn role_name(&self, role: PathRole) -> &'static str {
        match role {
            PathRole::Call => "call",
            PathRole::Continues => "path",
            PathRole::DoesNotReturn => "stop",
            PathRole::Leaves => "exit",
        }
    }
}

fn find_shared_names(image: &ImageProfile) -> [HashSet<String>; 2] {
    let linkage: HashSet<&str> = image.units.iter().flat_map(|unit| &unit.map.functions).map(|f| f.name.as_str()).collect();
    let (mut seen, mut shared): ([HashSet<String>; 2], [HashSet<String>; 2]) = Default::default();
    for DemangledName { short, qualified, .. } in linkage.into_iter().map(DemangledName::from_linkage) {
        for (kind, name) in [short, qualified].into_iter().enumerate() {
            if !seen[kind].insert(name.clone()) {
                shared[kind].insert(name);
            }
        }
    }
    shared
}

/// Formats lines as a range in the file of the last line: `list.c:12`, `list.c:12-14`. Returns `None` if there are no lines.
pub fn format_lines(lines: &[SourceLine]) -> Option<String> {
    let (last, file) = lines.last().map(|l| (l.line, &l.file))?;
    let first = lines.iter().filter(|l| l.file == *file).map(|l| l.line).min()?;
    let name = Path::new(file).file_name().map_or(file.clone().into(), |n| n.to_string_lossy());
    Some(if first == last { format!("{name}:{last}") } else { format!("{name}:{first}-{last}") })
}
