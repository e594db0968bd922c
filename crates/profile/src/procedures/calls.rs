//! From how many places each function of a program is called, added up over its units.
//!
//! Only direct calls count, as in the paper on partitioned path profiling: an indirect call names no callee.

use std::collections::HashMap;
use trodden_unit::{Frame, FunctionMap, UnitMap};

/// Calls of functions, by name; of local ones, by unit as well.
pub struct UnitCalls<'a> {
    units: &'a [(Frame, UnitMap)],
    /// Of each unit.
    direct: Vec<HashMap<&'a str, u32>>,
    /// Of all of them.
    all: HashMap<&'a str, u32>,
}

impl UnitCalls<'_> {
    /// Adds up what units call.
    pub fn from_units(units: &[(Frame, UnitMap)]) -> UnitCalls<'_> {
        let direct: Vec<HashMap<&str, u32>> = units.iter().map(|(_, map)| sites(map)).collect();
        let mut all = HashMap::<&str, u32>::new();
        for (name, sites) in direct.iter().flatten() {
            let sum = all.entry(*name).or_default();
            *sum = sum.saturating_add(*sites);
        }
        UnitCalls { units, direct, all }
    }

    /// Call sites of a function of a unit, those of its aliases among them.
    pub fn sites(&self, unit: usize, function: &FunctionMap) -> u32 {
        let known = if function.local { &self.direct[unit] } else { &self.all };
        let of = |sites: &HashMap<&str, u32>, name: &str| sites.get(name).copied().unwrap_or(0);
        let aliases = self.units[unit].1.aliases.iter().filter(|alias| alias.of == function.name);
        aliases.fold(of(known, function.plain_name()), |sum, alias| sum.saturating_add(of(&self.all, &alias.name)))
    }
}

fn sites(map: &UnitMap) -> HashMap<&str, u32> {
    let mut sites = HashMap::new();
    map.calls.iter().for_each(|callee| *sites.entry(callee.plain_name()).or_default() += callee.sites);
    sites
}
