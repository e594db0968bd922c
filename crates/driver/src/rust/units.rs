//! Compiles the objects of an unoptimised crate, which are the codegen units into which rustc divides the crate for incremental builds, and
//! the allocator shim. Only changed units are compiled.
//!
//! If there are several units, each is summarised first. The summaries tell each unit whether the functions of other units return
//! ([`trodden_unit::tasks`]). Summaries and objects are cached, and the cache key of an object includes the summaries that its unit used.
//! One clang process handles several small units, because starting clang takes longer than summarising or compiling one of them.

use super::compiler::CrateCompiler;
use super::objects::RustObject;
use crate::rebuild::map_in_parallel;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use trodden_unit::Identity;
use trodden_unit::tasks::{CallSummary, UnitTask, UnitTaskOutput, UnitTasks, find_returning_functions};

/// Maximum amount of bitcode in bytes that one process handles. More is divided among several processes.
const BYTES_PER_PROCESS: usize = 1 << 20;

pub fn compile(compiler: &CrateCompiler, objects: &[RustObject], folder: &Path) -> Result<Vec<PathBuf>> {
    let contents: Vec<Identity> = objects.iter().map(|object| Identity::from_content(&object.bitcode)).collect();
    CrateObjects { compiler, objects, contents: &contents, folder }.compile()
}

struct CrateObjects<'o> {
    compiler: &'o CrateCompiler,
    objects: &'o [RustObject],
    contents: &'o [Identity],
    folder: &'o Path,
}

impl CrateObjects<'_> {
    fn compile(&self) -> Result<Vec<PathBuf>> {
        let units: Vec<usize> = (0..self.objects.len()).filter(|at| self.objects[*at].is_counted).collect();
        let summaries = if units.len() > 1 { self.read_or_make_summaries(&units)? } else { vec![CallSummary::default(); units.len()] };
        let known = find_returning_functions(&summaries.iter().collect::<Vec<_>>());
        let mut told = vec![Vec::new(); self.objects.len()];
        units.iter().zip(&summaries).for_each(|(unit, summary)| told[*unit] = summary.called_functions_among(&known));
        let place = |at: usize| match self.objects[at].is_counted {
            true => self.compiler.cache_file(&format!("unit {}", told[at].join(" ")), self.contents[at], "o"),
            false => self.plain_cache_file(at),
        };
        let places: Vec<PathBuf> = (0..self.objects.len()).map(place).collect();
        let made = |at: usize| self.folder.join(object_file(at));
        let missing = (0..places.len()).filter(|at| !places[*at].is_file() && !made(*at).is_file());
        let work = |at: usize| match self.objects[at].is_counted {
            true => UnitTaskOutput::Compile { returning: told[at].clone() },
            false => UnitTaskOutput::CompilePlain,
        };
        self.execute_tasks(missing.map(|at| (at, object_file(at), work(at))).collect(), &[], max_processes())?;
        for (at, place) in places.iter().enumerate().filter(|(at, _)| made(*at).is_file()) {
            self.compiler.move_to_cache(&made(at), place)?;
        }
        Ok(places)
    }

    /// Returns the cache file for an object that is not instrumented.
    fn plain_cache_file(&self, at: usize) -> PathBuf {
        self.compiler.cache_file("plain", self.contents[at], "o")
    }

    /// Returns the summaries of the units. Summaries that are not cached or are corrupt are made again. If the units without a summary are
    /// small, the same process compiles them, together with the objects that are not instrumented.
    fn read_or_make_summaries(&self, units: &[usize]) -> Result<Vec<CallSummary>> {
        let places: Vec<PathBuf> = units.iter().map(|unit| self.compiler.cache_file("summary", self.contents[*unit], "calls")).collect();
        let read = |place: &PathBuf| CallSummary::from_bytes(&fs::read(place).ok()?);
        let cached: Vec<Option<CallSummary>> = places.iter().map(read).collect();
        let missing: Vec<usize> = (0..units.len()).filter(|number| cached[*number].is_none()).collect();
        let bytes: usize = missing.iter().map(|number| self.objects[units[*number]].bitcode.len()).sum();
        if missing.is_empty() {
        } else if bytes > BYTES_PER_PROCESS {
            let tasks = missing.iter().map(|number| (units[*number], summary_file(units[*number]), UnitTaskOutput::Summarize));
            self.execute_tasks(tasks.collect(), &[], max_processes())?;
        } else {
            let others: Vec<CallSummary> = cached.iter().flatten().cloned().collect();
            let of_unit = |unit: usize| (unit, object_file(unit), UnitTaskOutput::SummarizeAndCompile { summary: summary_file(unit) });
            let plain = (0..self.objects.len()).filter(|at| !self.objects[*at].is_counted && !self.plain_cache_file(*at).is_file());
            let plain = plain.map(|at| (at, object_file(at), UnitTaskOutput::CompilePlain));
            self.execute_tasks(missing.iter().map(|number| of_unit(units[*number])).chain(plain).collect(), &others, 1)?;
        }
        missing
            .iter()
            .try_for_each(|number| self.compiler.move_to_cache(&self.folder.join(summary_file(units[*number])), &places[*number]))?;
        let all = cached.into_iter().zip(&places);
        all.map(|(known, place)| known.or_else(|| read(place)).with_context(|| format!("cannot read {}", place.display()))).collect()
    }

    /// Performs work on units, in at most `max_processes` processes. Each element of `works` has the index of an object, the file to write,
    /// and what to do with the object.
    fn execute_tasks(&self, works: Vec<(usize, String, UnitTaskOutput)>, others: &[CallSummary], max_processes: usize) -> Result<()> {
        let mut tasks = Vec::with_capacity(works.len());
        for (at, output, work) in works {
            let (task, content) = (UnitTask { bitcode: format!("{at}.bc"), output, work }, &self.objects[at].bitcode);
            self.compiler.compiler.check_bitcode(content, &self.objects[at].name)?;
            let bitcode = self.folder.join(&task.bitcode);
            fs::write(&bitcode, content).with_context(|| format!("cannot write {}", bitcode.display()))?;
            tasks.push((content.len(), task));
        }
        let shares: Vec<(usize, Vec<UnitTask>)> = divide_tasks(tasks, max_processes).into_iter().enumerate().collect();
        map_in_parallel(&shares, |(number, tasks)| {
            let tasks = UnitTasks { others: others.to_vec(), tasks: tasks.clone() };
            self.compiler.compiler.execute(&tasks, &self.compiler.codegen, self.folder, *number)
        })
        .map(drop)
        .with_context(|| format!("cannot instrument the Rust crate of {}", self.objects.first().map_or("", |object| &object.name)))
    }
}

fn object_file(at: usize) -> String {
    format!("{at}.o")
}

fn summary_file(at: usize) -> String {
    format!("{at}.calls")
}

fn max_processes() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Divides tasks among processes, so that each has about the same amount of bitcode. Each task is given with the size of its unit's bitcode
/// in bytes.
fn divide_tasks(mut tasks: Vec<(usize, UnitTask)>, max_processes: usize) -> Vec<Vec<UnitTask>> {
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
        let task = |name: &str| UnitTask { bitcode: name.into(), output: String::new(), work: UnitTaskOutput::Summarize };
        let names = |sizes: &[(usize, &str)], max: usize| {
            let shares = divide_tasks(sizes.iter().map(|(size, name)| (*size, task(name))).collect(), max);
            shares.iter().map(|share| share.iter().map(|task| &*task.bitcode).collect::<String>()).collect::<Vec<_>>()
        };
        let large = BYTES_PER_PROCESS;
        assert_eq!(names(&[], 4), [""; 0]);
        assert_eq!(names(&[(1, "a"), (2, "b")], 4), ["ba"]);
        assert_eq!(names(&[(large, "a"), (3 * large, "b"), (large, "c")], 2), ["b", "ac"]);
    }
}
