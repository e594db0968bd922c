//! Counts the call sites of each function in all units of a program. Indirect calls are not counted, since they do not name their callee.

use std::collections::HashMap;
use trodden_unit::{Frame, FunctionMap, UnitMap};

/// Numbers of call sites by callee name: in each unit, and in all units together.
pub struct CallSiteCounts<'a> {
    units: &'a [(Frame, UnitMap)],
    by_unit: Vec<HashMap<&'a str, u32>>,
    all: HashMap<&'a str, u32>,
}

impl CallSiteCounts<'_> {
    pub fn from_units(units: &[(Frame, UnitMap)]) -> CallSiteCounts<'_> {
        let by_unit: Vec<HashMap<&str, u32>> = units.iter().map(|(_, map)| count_sites(map)).collect();
        let mut all = HashMap::<&str, u32>::new();
        for (name, sites) in by_unit.iter().flatten() {
            let sum = all.entry(*name).or_default();
            *sum = sum.saturating_add(*sites);
        }
        CallSiteCounts { units, by_unit, all }
    }

    /// Returns the number of call sites of a unit's function. Calls by an alias of the function are included.
    pub fn call_site_count(&self, unit: usize, function: &FunctionMap) -> u32 {
        let known = if function.local { &self.by_unit[unit] } else { &self.all };
        let sites_of = |sites: &HashMap<&str, u32>, name: &str| sites.get(name).copied().unwrap_or(0);
        let aliases = self.units[unit].1.aliases.iter().filter(|alias| alias.of == function.name);
        aliases.fold(sites_of(known, function.plain_name()), |sum, alias| sum.saturating_add(sites_of(&self.all, &alias.name)))
    }
}

fn count_sites(map: &UnitMap) -> HashMap<&str, u32> {
    let mut sites = HashMap::new();
    map.calls.iter().for_each(|callee| *sites.entry(callee.plain_name()).or_default() += callee.sites);
    sites
}
