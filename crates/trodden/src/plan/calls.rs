//! From how many places each function of a program is called: LLVM's call graph of each unit's kept bitcode, added up.
//!
//! Only direct calls count, as in the paper on partitioned path profiling: an indirect call names nobody.

use crate::rebuild::on_all_processors;
use crate::toolchain::Tool;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use trodden_unit::{Frame, FunctionMap};

/// Calls of functions, by name; of local ones, by unit as well.
pub struct Calls {
    /// Of each unit.
    direct: Vec<HashMap<String, u32>>,
    /// Of all of them.
    all: HashMap<String, u32>,
}

impl Calls {
    /// Reads the call graphs of units.
    ///
    /// # Errors
    /// A unit has no bitcode, or `opt` is missing or refuses it.
    pub fn of(units: &[(Frame, &str)]) -> Result<Calls> {
        let tool = Tool::Opt.find()?;
        let folder = tempfile::Builder::new().prefix("trodden-calls-").tempdir().context("cannot make a temporary folder")?;
        let read = Mutex::new(Calls { direct: vec![HashMap::new(); units.len()], all: HashMap::new() });
        let numbered: Vec<(usize, &(Frame, &str))> = units.iter().enumerate().collect();
        on_all_processors(&numbered, "call graphs", |(at, (frame, source))| {
            let bitcode = frame.bitcode().with_context(|| {
                format!("who calls whom in the unit of {source} is not known without its bitcode: give --all-procedures, or keep bitcode when building")
            })?;
            let file = folder.path().join(format!("{at}.bc"));
            fs::write(&file, bitcode).with_context(|| format!("cannot write {}", file.display()))?;
            let text = call_graph(&tool, &file).with_context(|| format!("unit of {source}"))?;
            fs::remove_file(&file)?;
            read.lock().unwrap_or_else(|e| e.into_inner()).read(*at, &text);
            Ok(())
        })?;
        Ok(read.into_inner().unwrap_or_else(|e| e.into_inner()))
    }

    /// Call sites of a function of a unit.
    pub fn sites(&self, unit: usize, function: &FunctionMap) -> u32 {
        let known = if function.local { &self.direct[unit] } else { &self.all };
        known.get(function.plain_name()).copied().unwrap_or(0)
    }

    /// Reads a call graph as `print-callgraph` writes it: below each function a line for each call, with the place of the call.
    fn read(&mut self, unit: usize, text: &str) {
        for line in text.lines().map(str::trim) {
            let called =
                line.strip_prefix("CS<0x").and_then(|l| l.split_once("> calls function '")).and_then(|(_, name)| name.strip_suffix('\''));
            if let Some(name) = called {
                let name = name.trim_start_matches('\u{1}');
                *self.direct[unit].entry(name.to_owned()).or_default() += 1;
                *self.all.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}

fn call_graph(tool: &Path, file: &Path) -> Result<String> {
    let mut command = Command::new(tool);
    // The compiler verified it; that takes a third of the time.
    command.args(["-passes=print-callgraph", "-disable-verify", "-disable-output"]).arg(file).stdin(Stdio::null());
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
        let mut calls = Calls { direct: vec![HashMap::new(); 2], all: HashMap::new() };
        calls.read(0, text);
        calls.read(1, text);
        assert_eq!(calls.direct[0], HashMap::from([("f".to_owned(), 2)]));
        assert_eq!(calls.all, HashMap::from([("f".to_owned(), 4)]));
    }
}
