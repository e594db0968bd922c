//! The units into which rustc divides a crate for incremental builds. Only units that changed are compiled.
//!
//! The call summaries of all units tell which functions return ([`trodden_unit::tasks`]). Summaries and objects are cached. The key of an
//! object includes the returning functions of other units that its unit calls.

use super::compiler::CrateCompiler;
use crate::rebuild::in_parallel;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use trodden_unit::Identity;
use trodden_unit::tasks::{CallSummary, UnitTask, UnitWork, returning};

/// Bytes of bitcode per process: more bitcode is divided among more processes.
const BYTES_PER_PROCESS: usize = 1 << 20;

/// Returns the objects of a crate's units, in the cache. Temporary files go to `folder`.
pub fn compile(compiler: &CrateCompiler, units: &[&[u8]], folder: &Path) -> Result<Vec<PathBuf>> {
    let contents: Vec<Identity> = units.iter().map(|bitcode| Identity::from_content(bitcode)).collect();
    let job = UnitsJob { compiler, units, folder };
    let summaries = job.summaries(&contents)?;
    let known = returning(&summaries);
    let callees: Vec<Vec<String>> = summaries.iter().map(|summary| summary.called_functions_in(&known)).collect();
    let step = |at: usize| format!("unit {}", callees[at].join(" "));
    let objects: Vec<PathBuf> = (0..units.len()).map(|at| compiler.cache_file(&step(at), contents[at], "o")).collect();
    let missing: Vec<usize> = (0..units.len()).filter(|at| !objects[*at].is_file()).collect();
    job.run_tasks(&missing, &objects, |at| UnitWork::Compile { returning: callees[at].clone() })?;
    Ok(objects)
}

struct UnitsJob<'u> {
    compiler: &'u CrateCompiler,
    units: &'u [&'u [u8]],
    folder: &'u Path,
}

impl UnitsJob<'_> {
    /// Returns the call summaries of the units. Missing and corrupt summaries are made.
    fn summaries(&self, contents: &[Identity]) -> Result<Vec<CallSummary>> {
        let files: Vec<PathBuf> = contents.iter().map(|content| self.compiler.cache_file("summary", *content, "calls")).collect();
        let read = |file: &PathBuf| CallSummary::from_bytes(&fs::read(file).ok()?);
        let missing: Vec<usize> = (0..files.len()).filter(|at| read(&files[*at]).is_none()).collect();
        self.run_tasks(&missing, &files, |_| UnitWork::Summarize)?;
        files.iter().map(|file| read(file).with_context(|| format!("cannot read {}", file.display()))).collect()
    }

    /// Runs a task for each of the units with these indices. `files` are the cache files for the results of all units.
    fn run_tasks(&self, indices: &[usize], files: &[PathBuf], work: impl Fn(usize) -> UnitWork) -> Result<()> {
        let mut tasks = Vec::new();
        for &at in indices {
            let task = UnitTask { bitcode: format!("{at}.bc"), output: format!("{at}.out"), work: work(at) };
            let bitcode = self.folder.join(&task.bitcode);
            fs::write(&bitcode, self.units[at]).with_context(|| format!("cannot write {}", bitcode.display()))?;
            tasks.push((self.units[at].len(), task));
        }
        let shares = divide(tasks, thread::available_parallelism().map_or(1, usize::from));
        let numbered: Vec<(usize, Vec<UnitTask>)> = shares.into_iter().enumerate().collect();
        in_parallel(&numbered, |(number, tasks)| self.compiler.compiler.execute(tasks, &self.compiler.codegen, self.folder, *number))?;
        indices.iter().try_for_each(|&at| self.compiler.move_to_cache(&self.folder.join(format!("{at}.out")), &files[at]))
    }
}

/// Divides tasks, given with the sizes of their units, among processes.
fn divide(mut tasks: Vec<(usize, UnitTask)>, max_processes: usize) -> Vec<Vec<UnitTask>> {
    let bytes: usize = tasks.iter().map(|(size, _)| size).sum();
    let processes = bytes.div_ceil(BYTES_PER_PROCESS).min(max_processes).min(tasks.len());
    let mut shares: Vec<(usize, Vec<UnitTask>)> = vec![(0, Vec::new()); processes];
    tasks.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    for (size, task) in tasks {
        let least = shares.iter_mut().min_by_key(|(sum, _)| *sum).expect("tasks need a process");
        least.0 += size;
        least.1.push(task);
    }
    shares.into_iter().map(|(_, tasks)| tasks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_divided_by_size() {
        let task = |name: &str| UnitTask { bitcode: name.into(), output: String::new(), work: UnitWork::Summarize };
        let names = |sizes: &[(usize, &str)], max: usize| {
            let shares = divide(sizes.iter().map(|(size, name)| (*size, task(name))).collect(), max);
            shares.iter().map(|share| share.iter().map(|task| &*task.bitcode).collect::<String>()).collect::<Vec<_>>()
        };
        let large = BYTES_PER_PROCESS;
        assert_eq!(names(&[], 4), [""; 0]);
        assert_eq!(names(&[(1, "a"), (2, "b")], 4), ["ba"]);
        assert_eq!(names(&[(large, "a"), (3 * large, "b"), (large, "c")], 2), ["b", "ac"]);
    }
}
