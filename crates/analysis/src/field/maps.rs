//! Maps of the units of which reports have paths.

use super::aggregate::UnitKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use trodden_unit::{UnitCache, UnitMap};

/// Maps of units, from the store; one that is looked for in vain is so once.
pub struct UnitMaps {
    store: UnitCache,
    /// Those of the program whose copies were distributed.
    program: BTreeMap<UnitKey, Arc<UnitMap>>,
    known: BTreeMap<UnitKey, Option<Arc<UnitMap>>>,
}

/// Maximum number of maps kept in memory. Rows are sorted by unit, so few are needed at a time.
const MAX_MAPS: usize = 64;

impl UnitMaps {
    /// Maps of a store, besides those of a program whose copies were distributed.
    pub fn new(store: UnitCache, program: BTreeMap<UnitKey, Arc<UnitMap>>) -> UnitMaps {
        UnitMaps { store, program, known: BTreeMap::new() }
    }

    /// The store.
    pub fn store(&self) -> &UnitCache {
        &self.store
    }

    /// The map of a unit, if it is known.
    pub fn of(&mut self, key: UnitKey) -> Option<Arc<UnitMap>> {
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
