//! Maps the counters of an image to functions and paths.

use super::live::StreamHeader;
use crate::model::ImageProfile;
use crate::paths::{DecodedPath, PathDecoder, PathEnd};
use std::cell::RefCell;
use std::collections::HashMap;
use trodden_unit::{EdgeKind, FunctionMap, UnitMap};

/// A function of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex {
    /// Index of its unit in the image.
    pub unit: usize,
    /// Its index in the unit.
    pub function: usize,
}

/// What a path's event says of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathRole {
    /// The frame reached a call, and its path continues after it.
    Call,
    /// The path ended and the frame continues: at a back edge or another cut.
    Continues,
    /// The path ended at a call that does not return.
    DoesNotReturn,
    /// The frame was left: the function returned, made a tail call, or passed an exception on.
    Leaves,
}

/// Finds the functions and paths of an image's counters.
#[derive(Debug)]
pub struct CounterLookup<'a> {
    image: &'a ImageProfile,
    /// First counter, number of counters, function; ascending.
    ranges: Vec<(u32, u32, FunctionIndex)>,
    roles: RefCell<HashMap<u32, Option<PathRole>>>,
    walks: RefCell<HashMap<FunctionIndex, Option<PathDecoder<'a>>>>,
}

impl<'a> CounterLookup<'a> {
    /// Indexes an image whose maps have a path for each event ([`ImageProfile::with_event_paths`]).
    pub fn new(head: &StreamHeader, image: &'a ImageProfile) -> CounterLookup<'a> {
        let mut ranges = Vec::new();
        for (place, unit) in image.units.iter().enumerate() {
            let Some((_, first, _)) = head.units.iter().find(|u| u.0 == unit.unit) else { continue };
            for (function, map) in unit.map.functions.iter().enumerate() {
                ranges.push(((first + map.first_counter) as u32, map.counters as u32, FunctionIndex { unit: place, function }));
            }
        }
        ranges.sort_by_key(|r| r.0);
        CounterLookup { image, ranges, roles: RefCell::default(), walks: RefCell::default() }
    }

    /// Returns the function and path ID of a counter, or `None` if its unit has no map.
    pub fn path(&self, counter: u32) -> Option<(FunctionIndex, u64)> {
        let after = self.ranges.partition_point(|r| r.0 <= counter);
        let (first, counters, place) = *self.ranges.get(after.checked_sub(1)?)?;
        (counter - first < counters).then(|| (place, u64::from(counter - first)))
    }

    /// The map of a function.
    pub fn function(&self, place: FunctionIndex) -> &'a FunctionMap {
        &self.image.units[place.unit].map.functions[place.function]
    }

    /// The map of a function's unit.
    pub fn unit(&self, place: FunctionIndex) -> &'a UnitMap {
        &self.image.units[place.unit].map
    }

    /// Returns a path's blocks, beginning and end; `None` if there is no such path, or its function's map is damaged.
    pub fn decode(&self, counter: u32) -> Option<(FunctionIndex, DecodedPath)> {
        let (place, id) = self.path(counter)?;
        let mut walks = self.walks.borrow_mut();
        let walks = walks.entry(place).or_insert_with(|| PathDecoder::from_function(self.function(place)).ok());
        Some((place, walks.as_ref()?.decode(id)?))
    }

    /// Returns what the event of a path says of its frame; `None` as for [`CounterLookup::decode`].
    pub fn role(&self, counter: u32) -> Option<PathRole> {
        if let Some(known) = self.roles.borrow().get(&counter) {
            return *known;
        }
        let role = self.decode(counter).map(|(place, walk)| match walk.end {
            None => PathRole::Call,
            Some(PathEnd::Exit(edge)) => match self.function(place).edges[edge.index()].kind {
                EdgeKind::Return | EdgeKind::TailCall | EdgeKind::Resume => PathRole::Leaves,
                _ => PathRole::DoesNotReturn,
            },
            Some(PathEnd::Stop) => PathRole::DoesNotReturn,
            Some(PathEnd::Cut(_)) => PathRole::Continues,
        });
        self.roles.borrow_mut().insert(counter, role);
        role
    }
}
