//! Unit maps for the paths in reports.

use super::aggregate::UnitKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use trodden_unit::{UnitCache, UnitMap};

/// Unit maps from the cache. Failed lookups are also remembered.
pub struct UnitMaps {
    store: UnitCache,
    /// The maps of a program that was distributed as copies.
    program: BTreeMap<UnitKey, Arc<UnitMap>>,
    known: BTreeMap<UnitKey, Option<Arc<UnitMap>>>,
}

/// Maximum number of maps kept in memory. Rows are sorted by unit, so few maps are needed at a time.
const MAX_CACHED_MAPS: usize = 64;

impl UnitMaps {
    /// Creates a lookup of unit maps in `store` and in `program`, which has the maps of a program that was distributed as copies.
    pub fn new(store: UnitCache, program: BTreeMap<UnitKey, Arc<UnitMap>>) -> UnitMaps {
        UnitMaps { store, program, known: BTreeMap::new() }
    }

    /// Returns the unit cache.
    pub fn store(&self) -> &UnitCache {
        &self.store
    }

    /// Returns the map of a unit, or `None` if the map is not found.
    pub fn load_unit_map(&mut self, key: UnitKey) -> Option<Arc<UnitMap>> {
        if let Some(map) = self.program.get(&key) {
            return Some(map.clone());
        }
        if let Some(map) = self.known.get(&key) {
            return map.clone();
        }
        if self.known.len() >= MAX_CACHED_MAPS {
            self.known.clear();
        }
        let map = self.store.get(key.unit).ok().flatten().and_then(|frame| frame.map().ok()).map(Arc::new);
        self.known.insert(key, map.clone());
        map
    }
}
