//! `trodden record --copies K --segments SET`: copies that count a part of the interprocedural segments each.
//!
//! P3 (Afraz, Saha and Kanade, ESEC/FSE 2015) divides paths within functions, and names paths across them as future work. Here the segments
//! that end in one function are counted by one copy: it needs the contexts of that function, and what leads to those, and no other code.
//! Functions go to copies by their executions, those with most first, each to the copy that has fewest (Graham's LPT).
//!
//! The profile has the image of each copy with what it counted. No segment is counted twice, so the counts of all are exact together.
//! Functions of few executions are counted by all copies: if their counts differ, the copies were not the same execution.

use super::{
    Failed, Input, Runner, WorkFolder, before, deliver, engine, folders, heap, outcomes, print_output, program, run_of, run_to_ends, spec,
    status, tell_differences,
};
use crate::cli::Record;
use crate::commands::copies::PRISTINE;
use crate::commands::copies::spec::{Outcome, file};
use crate::commands::instrument;
use crate::commands::segments::asked;
use crate::driver::experiment;
use crate::driver::recipe::Word;
use crate::notes::note;
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_launch::Stop;
use trodden_profile::segments::are_counted;
use trodden_profile::{Collected, Profile};
use trodden_report::words::plural;
use trodden_unit::experiment::Input as FileInput;
use trodden_unit::{SegmentSet, Settings};

/// Of all executions those of functions that all copies count, in percent.
const CHECKED_PERCENT: u64 = 2;

/// Records a run by copies that share the counting of segments; gives the program's exit status, or 1 if the copies were not the same
/// execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(record: &Record, wanted: &str) -> Result<ExitCode> {
    let options = &record.copies;
    let engine = engine(options)?;
    let set = asked(options.depth as usize, &[], wanted)?;
    let partition = Partition::of(&set, options.copies.unwrap_or(1));
    before::check_destinations(record)?;
    let input = Input::read(options.input.as_deref())?;
    let stop = Stop::new()?;
    let mut work = WorkFolder::of(record)?;
    let spec = spec(&record.command, Vec::new(), work.path(), options.own_folders, input);
    let counted = spec.and_then(|mut spec| {
        spec.ignore_output = options.ignore_output;
        let program = program(&record.command[0])?;
        let programs = partition.make(&set, &program, work.path())?;
        heap::align(&programs, &program)?;
        spec.programs = programs.iter().map(|p| Word::from(p.as_os_str())).collect();
        spec.write(work.path())?;
        count(record, &program, (&Runner { engine, stop: &stop }, work.path()), &partition).context(Failed)
    });
    let (profile, differences, outcome) = counted.map_err(|error| work.end_with(error, &stop))?;
    drop(stop);
    deliver(&Collected { profile, problems: Vec::new() }, &record.destination)?;
    print_output(work.path())?;
    if options.own_folders {
        folders::bring_back(&file(work.path(), "made", 0), &std::env::current_dir()?, &work.path().join(PRISTINE))?;
    }
    if differences.is_empty() {
        return Ok(ExitCode::from(status(&outcome)));
    }
    tell_differences(&differences);
    Ok(ExitCode::FAILURE)
}

/// Which copy counts the segments that end in which function.
struct Partition {
    /// For each copy the numbers of its functions in the set.
    copies: Vec<BTreeSet<u32>>,
    /// Unit and name of the functions that all copies count.
    checked: BTreeSet<(String, String)>,
}

impl Partition {
    fn of(set: &SegmentSet, copies: usize) -> Partition {
        let mut functions: Vec<(u64, u32)> = set.functions().iter().zip(0..).map(|(f, n)| (f.executions, n)).collect();
        functions.retain(|(_, n)| !set.functions()[*n as usize].contexts.is_empty());
        functions.sort_by_key(|(executions, number)| (Reverse(*executions), *number));
        // A copy that counts nothing says nothing.
        let copies = copies.min(functions.len().max(1));
        let all: u64 = functions.iter().map(|f| f.0).sum();
        let mut few = 0;
        let is_checked = |(executions, _): &&(u64, u32)| {
            few += executions;
            few.saturating_mul(100) <= all.saturating_mul(CHECKED_PERCENT)
        };
        let checked: BTreeSet<u32> = functions.iter().rev().take_while(is_checked).map(|f| f.1).collect();
        let mut loads: Vec<(u64, BTreeSet<u32>)> = vec![(0, checked.clone()); copies];
        for (executions, number) in functions.iter().filter(|f| !checked.contains(&f.1)) {
            let least = loads.iter_mut().min_by_key(|(load, _)| *load).expect("there is a copy");
            least.0 += executions;
            least.1.insert(*number);
        }
        let most = loads.iter().map(|l| l.0).max().unwrap_or(0);
        note(format_args!(
            "{} of segments of {} shared by {copies} copies, of which one counts {most} at most",
            plural(all.into(), "execution", "executions"),
            plural(functions.len() as u128, "function", "functions"),
        ));
        let name = |number: &u32| {
            let function = &set.functions()[*number as usize];
            (function.unit.clone(), function.name.clone())
        };
        Partition { copies: loads.into_iter().map(|l| l.1).collect(), checked: checked.iter().map(name).collect() }
    }

    /// Makes the copies. Their names have one length, since the kernel puts them on the stack.
    fn make(&self, set: &SegmentSet, program: &Path, work: &Path) -> Result<Vec<PathBuf>> {
        let make = |(at, functions): (usize, &BTreeSet<u32>)| {
            let part = set.part(|number| functions.contains(&number));
            let segments = Some(FileInput::Stored(experiment::inputs()?.put(&part.to_bytes())?));
            let output = work.join(format!("copy-{at:04}"));
            let request = experiment::resolve(Settings { segments, ..Settings::default() })?;
            let made = instrument::make(program, &output, &request)?;
            ensure!(made.is_some(), "{} has no instrumented unit: build it with trodden", program.display());
            Ok(output)
        };
        self.copies.iter().enumerate().map(make).collect()
    }
}

/// Runs the copies; gives their counts as one profile, where they differ, and how the first ended.
fn count(
    record: &Record,
    program: &Path,
    (runner, work): (&Runner, &Path),
    partition: &Partition,
) -> Result<(Profile, Vec<String>, Outcome)> {
    let (copies, _) = run_to_ends(partition.copies.len(), work, runner)?;
    let mut differences = outcomes(&copies);
    let run = run_of(record, &copies);
    let profiles = copies.iter().map(|copy| copy.profile.clone()).collect();
    let (mut images, different) = merge(profiles, &partition.checked);
    // The copies' own files are gone with their folder.
    for image in images.iter_mut().filter(|image| Path::new(&image.path).starts_with(work)) {
        image.path = program.display().to_string();
    }
    differences.extend(different);
    ensure!(images.iter().any(are_counted), "no copy counted a segment: {} runs none of its functions", record.command[0].display());
    let mut profile = Profile { run, images, sampling: None };
    profile.run.diverged = differences.len() as u64;
    Ok((profile, differences, copies[0].outcome.clone()))
}

/// The images of all copies, each with what only it counts; what all count is left to the first. Says where that differs.
fn merge(profiles: Vec<Profile>, checked: &BTreeSet<(String, String)>) -> (Vec<trodden_profile::ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut first: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
        for mut image in profile.images {
            if !are_counted(&image) {
                if copy == 0 {
                    images.push(image);
                }
                continue;
            }
            for unit in &mut image.units {
                let of_unit = unit.map.functions.iter().filter(|f| checked.contains(&(unit.map.source.clone(), f.name.clone())));
                for words in of_unit.filter_map(|f| Some((f.name.clone(), f.segment_words()?.range()))) {
                    let (name, range) = words;
                    for (word, count) in unit.counts.within(range.clone()) {
                        *own.entry((unit.map.source.clone(), name.clone(), word - range.start)).or_default() += count;
                    }
                    if copy > 0 {
                        unit.counts.executions.retain(|(word, _)| !range.contains(word));
                    }
                }
            }
            images.push(image);
        }
        if copy == 0 {
            first = own;
        } else if own != first {
            let at = own.iter().chain(&first).map(|(key, _)| key).find(|key| own.get(*key) != first.get(*key));
            differences
                .extend(at.map(|(_, name, _)| format!("copy {copy} counted the segments that end in `{name}` otherwise than copy 0")));
        }
    }
    (images, differences)
}
