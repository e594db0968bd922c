//! Unit maps for the paths in reports.

use super::aggregate::UnitKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use trodden_unit::{UnitCache, UnitMap};

/// Unit maps from the cache. Failed lookups are remembered as well.
pub struct UnitMaps {
    store: UnitCache,
    /// Maps of the program whose copies were distributed.
    program: BTreeMap<UnitKey, Arc<UnitMap>>,
    known: BTreeMap<UnitKey, Option<Arc<UnitMap>>>,
}

/// Maximum number of maps kept in memory. Rows are sorted by unit, so few are needed at a time.
const MAX_MAPS: usize = 64;

impl UnitMaps {
    /// Uses the maps of `store`, and of a program whose copies were distributed.
    pub fn new(store: UnitCache, program: BTreeMap<UnitKey, Arc<UnitMap>>) -> UnitMaps {
        UnitMaps { store, program, known: BTreeMap::new() }
    }

    /// The unit cache.
    pub fn store(&self) -> &UnitCache {
        &self.store
    }

    /// The map of a unit; `None` if it is not found.
    pub fn get(&mut self, key: UnitKey) -> Option<Arc<UnitMap>> {
        if let Some(map) = self.program.get(&key) {
            return Some(map.clone());
        }
        if let Some(map) = self.known.get(&key) {
            return map.clone();
        }
        if self.known.len() >= MAX_MAPS {
            self.known.clear();
        }
        let map = self.store.get(key.unit).ok().flatten().and_then(|frame| frame.map().ok()).map(Arc::new);
        self.known.insert(key, map.clone());
        map
    }
}
