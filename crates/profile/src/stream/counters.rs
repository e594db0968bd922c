//! Looks up the functions and paths to which the counters of an image belong.

use super::live::StreamHeader;
use crate::model::ImageProfile;
use crate::paths::{DecodedPath, PathDecoder, PathEnd};
use std::cell::RefCell;
use std::collections::HashMap;
use trodden_unit::{EdgeKind, FunctionMap, UnitMap};

/// A function of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex {
    /// Index of the function's unit in the image.
    pub unit: usize,
    /// Its index in the unit.
    pub function: usize,
}

/// What a path's event says about the activation (the frame) of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathRole {
    /// The path reached a call. The path continues after the call.
    Call,
    /// The path ended at a back edge or another cut edge. The frame continues with the next path.
    Continues,
    /// The path ended at a call that does not return, so the frame executes no more code.
    DoesNotReturn,
    /// The path ended the frame: the function returned, made a tail call, or resumed unwinding.
    Leaves,
}

/// Lookup of the function and path to which each counter of an image belongs.
#[derive(Debug)]
pub struct CounterLookup<'a> {
    image: &'a ImageProfile,
    /// First counter, number of counters, and index of each function, sorted by first counter.
    ranges: Vec<(u32, u32, FunctionIndex)>,
    roles: RefCell<HashMap<u32, Option<PathRole>>>,
    decoders: RefCell<HashMap<FunctionIndex, Option<PathDecoder<'a>>>>,
}

impl<'a> CounterLookup<'a> {
    /// Creates the lookup for an image whose maps have a path for each event ([`ImageProfile::with_events_as_paths`]).
    pub fn new(header: &StreamHeader, image: &'a ImageProfile) -> CounterLookup<'a> {
        let mut ranges = Vec::new();
        for (index, unit) in image.units.iter().enumerate() {
            let Some((_, first, _)) = header.units.iter().find(|u| u.0 == unit.unit) else { continue };
            for (function, map) in unit.map.functions.iter().enumerate() {
                ranges.push(((first + map.first_counter) as u32, map.counters as u32, FunctionIndex { unit: index, function }));
            }
        }
        ranges.sort_by_key(|r| r.0);
        CounterLookup { image, ranges, roles: RefCell::default(), decoders: RefCell::default() }
    }

    /// Returns the function and the path ID to which a counter belongs; `None` if the counter's unit has no map.
    pub fn path(&self, counter: u32) -> Option<(FunctionIndex, u64)> {
        let after = self.ranges.partition_point(|r| r.0 <= counter);
        let (first, counters, index) = *self.ranges.get(after.checked_sub(1)?)?;
        (counter - first < counters).then(|| (index, u64::from(counter - first)))
    }

    /// Returns the map of a function.
    pub fn function(&self, index: FunctionIndex) -> &'a FunctionMap {
        &self.image.units[index.unit].map.functions[index.function]
    }

    /// Returns the map of a function's unit.
    pub fn unit_map(&self, index: FunctionIndex) -> &'a UnitMap {
        &self.image.units[index.unit].map
    }

    /// Returns the function to which a counter belongs, and the decoded path. `None` if there is no such path, or if the function's map is
    /// corrupt.
    pub fn decode(&self, counter: u32) -> Option<(FunctionIndex, DecodedPath)> {
        let (index, id) = self.path(counter)?;
        let mut decoders = self.decoders.borrow_mut();
        let decoder = decoders.entry(index).or_insert_with(|| PathDecoder::from_function(self.function(index)).ok());
        Some((index, decoder.as_ref()?.decode(id)?))
    }

    /// Returns what an event of the counter's path says about its frame. `None` if [`CounterLookup::decode`] returns `None`.
    pub fn path_role(&self, counter: u32) -> Option<PathRole> {
        if let Some(known) = self.roles.borrow().get(&counter) {
            return *known;
        }
        let role = self.decode(counter).map(|(index, walk)| match walk.end {
            None => PathRole::Call,
            Some(PathEnd::Exit(edge)) => match self.function(index).graph.kind(edge) {
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
