//! Estimates from a program's code how often each function is called in a run.
//!
//! A direct call is executed as often as its block; if a block calls the same function twice, this counts as one call. `main` and all
//! functions that no other function calls by name are assumed to be called once from outside the program. From these numbers,
//! [`trodden_flow::call_frequencies`] computes the calls of all functions, including recursive ones.

use super::block_frequencies;
use std::collections::HashMap;
use trodden_flow::call_frequencies::{WeightedCall, call_frequencies};
use trodden_unit::{Frame, FunctionMap, MapError, UnitMap};

/// Returns the estimated number of calls to each function in a run, in the order of the units and their functions.
pub fn estimate_calls_of_program(units: &[(Frame, UnitMap)]) -> Result<Vec<f64>, MapError> {
    let names = CallNames::from_units(units);
    let mut calls = Vec::new();
    let functions = units.iter().enumerate().flat_map(|(unit, (_, map))| map.functions.iter().map(move |f| (unit, f)));
    for (caller, (unit, function)) in functions.clone().enumerate() {
        let named = function.calls.iter().filter_map(|call| Some((call.block, names.find_callee(unit, call.callee.as_deref()?)?)));
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            continue;
        }
        let executed = block_frequencies(function);
        calls.extend(named.into_iter().map(|(block, callee)| WeightedCall { caller, callee, executions: executed.node(block) }));
    }
    let mut roots: Vec<f64> = functions.map(|(_, function)| f64::from(u8::from(function.plain_name() == "main"))).collect();
    let mut is_called = vec![false; roots.len()];
    calls.iter().filter(|call| call.caller != call.callee).for_each(|call| is_called[call.callee] = true);
    roots.iter_mut().zip(is_called).filter(|(_, is_called)| !is_called).for_each(|(root, _)| *root = 1.0);
    Ok(call_frequencies(&roots, &calls))
}

/// Indices of functions by name. Local functions are visible only in their unit.
struct CallNames<'a> {
    local: Vec<HashMap<&'a str, usize>>,
    all: HashMap<&'a str, usize>,
}

impl<'a> CallNames<'a> {
    fn from_units(units: &'a [(Frame, UnitMap)]) -> CallNames<'a> {
        let mut names = CallNames { local: vec![HashMap::new(); units.len()], all: HashMap::new() };
        let mut next = 0;
        for (unit, (_, map)) in units.iter().enumerate() {
            let first = next;
            for function in &map.functions {
                names.add(unit, function.local, function.plain_name(), next);
                next += 1;
            }
            let index_of = |name: &str| map.functions.iter().position(|f: &FunctionMap| f.name == name);
            for alias in &map.aliases {
                if let Some(index) = index_of(&alias.of) {
                    names.add(unit, false, strip_mangling_mark(&alias.name), first + index);
                }
            }
        }
        names
    }

    fn add(&mut self, unit: usize, local: bool, name: &'a str, number: usize) {
        let names = if local { &mut self.local[unit] } else { &mut self.all };
        names.entry(name).or_insert(number);
    }

    /// Returns the index of the function that `name` denotes in a unit; `None` if the program does not define it.
    fn find_callee(&self, unit: usize, name: &str) -> Option<usize> {
        let name = strip_mangling_mark(name);
        self.local[unit].get(name).or_else(|| self.all.get(name)).copied()
    }
}

/// Strips LLVM's `\x01` prefix, which marks linkage names that must not be mangled.
fn strip_mangling_mark(name: &str) -> &str {
    name.strip_prefix('\u{1}').unwrap_or(name)
}
