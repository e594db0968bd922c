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

/// Effect of a path's event on its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathRole {
    /// The path reached a call, and continues after the call.
    Call,
    /// The path ended at a back edge or a different cut edge, and the frame continues.
    Continues,
    /// The path ended at a call that does not return.
    DoesNotReturn,
    /// The frame ended: the function returned, made a tail call, or resumed unwinding.
    Leaves,
}

/// Finds the function and path that belong to each counter of an image.
#[derive(Debug)]
pub struct CounterLookup<'a> {
    image: &'a ImageProfile,
    /// First counter, number of counters, function; ascending.
    ranges: Vec<(u32, u32, FunctionIndex)>,
    roles: RefCell<HashMap<u32, Option<PathRole>>>,
    decoders: RefCell<HashMap<FunctionIndex, Option<PathDecoder<'a>>>>,
}

impl<'a> CounterLookup<'a> {
    /// Indexes an image. Its maps must have a path for each event ([`ImageProfile::with_event_paths`]).
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

    /// Returns the function and path ID of a counter; `None` if its unit has no map.
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
    pub fn unit(&self, index: FunctionIndex) -> &'a UnitMap {
        &self.image.units[index.unit].map
    }

    /// Returns the function of a counter and its decoded path; `None` if there is no such path, or the function's map is corrupt.
    pub fn decode(&self, counter: u32) -> Option<(FunctionIndex, DecodedPath)> {
        let (index, id) = self.path(counter)?;
        let mut decoders = self.decoders.borrow_mut();
        let decoder = decoders.entry(index).or_insert_with(|| PathDecoder::from_function(self.function(index)).ok());
        Some((index, decoder.as_ref()?.decode(id)?))
    }

    /// Returns the effect of a path's event on its frame; `None` as for [`CounterLookup::decode`].
    pub fn role(&self, counter: u32) -> Option<PathRole> {
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
