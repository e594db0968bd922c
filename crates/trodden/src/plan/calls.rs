//! From how many places each function of a program is called: LLVM's call graph of each unit's kept bitcode, added up.
//!
//! Only direct calls count, as in the paper on partitioned path profiling: an indirect call names nobody.

use crate::toolchain::Tool;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use trodden_unit::{Frame, FunctionMap};

/// Calls of functions, by name; of local ones, by unit as well.
#[derive(Default)]
pub struct Calls {
    direct: HashMap<(usize, String), u32>,
}

impl Calls {
    /// Reads the call graphs of units.
    ///
    /// # Errors
    /// A unit has no bitcode, or `opt` is missing or refuses it.
    pub fn of(units: &[(Frame, &str)]) -> Result<Calls> {
        let tool = Tool::Opt.find()?;
        let folder = tempfile::Builder::new().prefix("trodden-calls-").tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join("unit.bc");
        let mut calls = Calls::default();
        for (at, (frame, source)) in units.iter().enumerate() {
            let bitcode = frame.bitcode().with_context(|| {
                format!("who calls whom in the unit of {source} is not known without its bitcode: give --all-procedures, or keep bitcode when building")
            })?;
            fs::write(&file, bitcode).with_context(|| format!("cannot write {}", file.display()))?;
            calls.read(at, &call_graph(&tool, &file).with_context(|| format!("unit of {source}"))?);
        }
        Ok(calls)
    }

    /// Call sites of a function of a unit.
    pub fn sites(&self, unit: usize, function: &FunctionMap) -> u32 {
        let inside = |at: usize| self.direct.get(&(at, function.plain_name().to_owned())).copied().unwrap_or(0);
        if function.local { inside(unit) } else { self.units().map(inside).sum() }
    }

    fn units(&self) -> impl Iterator<Item = usize> {
        0..self.direct.keys().map(|(at, _)| at + 1).max().unwrap_or(0)
    }

    /// Reads a call graph as `print-callgraph` writes it: below each function a line for each call, with the place of the call.
    fn read(&mut self, unit: usize, text: &str) {
        for line in text.lines().map(str::trim) {
            let called =
                line.strip_prefix("CS<0x").and_then(|l| l.split_once("> calls function '")).and_then(|(_, name)| name.strip_suffix('\''));
            if let Some(name) = called {
                *self.direct.entry((unit, name.trim_start_matches('\u{1}').to_owned())).or_default() += 1;
            }
        }
    }
}

fn call_graph(tool: &Path, file: &Path) -> Result<String> {
    let mut command = Command::new(tool);
    command.arg("-passes=print-callgraph").arg("-disable-output").arg(file).stdin(Stdio::null());
    let made = command.output().with_context(|| format!("cannot run {}", tool.display()))?;
    let text = String::from_utf8_lossy(&made.stderr).into_owned();
    if !made.status.success() {
        bail!("{} refuses its bitcode: {}", tool.display(), text.trim());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_calls_are_counted_and_callers_outside_are_not() {
        let text = "Call graph node <<null function>><<0x1>>  #uses=0\n  CS<None> calls function 'f'\n\n\
                    Call graph node for function: 'h'<<0x2>>  #uses=1\n  CS<0x3> calls function 'f'\n  CS<0x4> calls function 'f'\n  CS<0x5> calls external node\n";
        let mut calls = Calls::default();
        calls.read(0, text);
        assert_eq!(calls.direct, HashMap::from([((0, "f".to_owned()), 2)]));
    }
}
