//! `trodden record --watch EXPRESSION`: paths that match an expression are noticed while the program runs.
//!
//! Counters lie in files that the program has mapped, so whoever reads these sees what it does, and the program need not know: it is neither changed nor slowed down. Which
//! path a counter stands for is worked out when it is first seen not to be zero. A match is noticed at the next reading, about a millisecond later, not at the
//! path's end itself; what is noticed only after a process has ended is reported, but cannot be aborted any more. Whom to abort stands in the raw file's name, and is believed of a
//! process that has this file mapped: numbers are given again, and mean other processes in other namespaces.

use crate::assets;
use crate::cli::OnMatch;
use crate::notes::{note, warn};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trodden_profile::expression::{End, Expression, Matcher};
use trodden_profile::{RawProfile, Run, Walk, Walks, collect, raw_files};
use trodden_report::Name;
use trodden_report::select::chosen;
use trodden_unit::{Identity, Storage, UnitMap};

/// From one reading to the next, at least.
const PAUSE: Duration = Duration::from_millis(1);
/// Of a processor's time, readings take no more than one part of so many.
const SHARE: u32 = 20;
/// Raw files of watched programs: one for each process, so that it is known whom to abort.
pub const FILES: &str = "%m.%p.raw";

/// A program that is watched.
pub struct Watching {
    stop: Sender<()>,
    thread: JoinHandle<Watcher>,
}

impl Watching {
    /// Begins to look at the raw files of a folder.
    ///
    /// # Errors
    /// The expression cannot be read, or says what is not known while the program runs.
    pub fn start(folder: &Path, expression: &str, action: OnMatch) -> Result<Watching> {
        let expression: Expression = expression.parse()?;
        let calls = expression.patterns.iter().flatten().any(|s| s.end == Some(End::Call));
        ensure!(!calls, "`call` cannot be watched: that a call does not come back is known only when the program has ended");
        let (stop, stopped) = channel();
        let watcher = Watcher {
            folder: folder.to_owned(),
            expression,
            action,
            clock: Instant::now(),
            images: HashMap::new(),
            seen: HashMap::new(),
            told: HashSet::new(),
            aborted: HashSet::new(),
            matching: 0,
            executions: 0,
            problems: Vec::new(),
        };
        Ok(Watching { stop, thread: std::thread::spawn(move || watcher.run(&stopped)) })
    }

    /// Looks a last time, and says what matched.
    ///
    /// # Errors
    /// Nothing could be watched.
    pub fn stop(self) -> Result<()> {
        drop(self.stop);
        let watcher = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        watcher.problems.iter().for_each(|problem| warn(format_args!("not all was watched: {problem:#}")));
        note(format_args!("{} paths match; they were taken {} times", watcher.matching, watcher.executions));
        Ok(())
    }
}

/// What is known of an image.
struct Known {
    /// Its units in the order of raw files.
    units: Vec<Unit>,
}

struct Unit {
    map: Arc<UnitMap>,
    /// The functions that are meant.
    functions: Vec<usize>,
    /// Counters of paths that match, or (`false`) do not; others have not been seen.
    counters: HashMap<u64, bool>,
}

struct Watcher {
    folder: PathBuf,
    expression: Expression,
    action: OnMatch,
    clock: Instant,
    images: HashMap<Identity, Known>,
    /// Of each file, how many of its counters were not zero.
    seen: HashMap<PathBuf, usize>,
    told: HashSet<(Identity, usize, u64)>,
    aborted: HashSet<u32>,
    matching: usize,
    executions: u128,
    /// What the last look came upon.
    problems: Vec<anyhow::Error>,
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) -> Watcher {
        let mut pause = PAUSE;
        while matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            let began = Instant::now();
            self.look(false);
            pause = PAUSE.max(began.elapsed() * SHARE);
        }
        self.look(true);
        self
    }

    /// Looks at all files; at the end, adds up what matched.
    fn look(&mut self, at_end: bool) {
        let mut all: HashMap<(Identity, usize, u64), u128> = HashMap::new();
        let files = raw_files(&self.folder).map_err(anyhow::Error::from);
        let (files, mut problems) = files.map_or_else(|error| (Vec::new(), vec![error]), |files| (files, Vec::new()));
        for file in files {
            problems.extend(self.look_at(&file, at_end, &mut all).err());
        }
        self.matching = all.len();
        self.executions = all.values().sum();
        // A file may just be being made: the last look tells what stays wrong.
        self.problems = problems;
    }

    fn look_at(&mut self, file: &Path, at_end: bool, all: &mut HashMap<(Identity, usize, u64), u128>) -> Result<()> {
        let raw = RawProfile::read(file)?;
        let counters = raw.units.iter().map(|u| u.counts.len()).sum();
        if !at_end && self.seen.get(file) == Some(&counters) {
            return Ok(());
        }
        self.learn(&raw)?;
        self.compare(&raw, process_of(file), at_end, all)?;
        self.seen.insert(file.to_owned(), counters);
        Ok(())
    }

    /// Finds the maps of an image that is seen for the first time.
    fn learn(&mut self, raw: &RawProfile) -> Result<()> {
        if self.images.contains_key(&raw.image) {
            return Ok(());
        }
        let collected = collect([&raw.file], Run::default(), assets::store().ok().as_ref());
        let Some(image) = collected.profile.images.into_iter().next() else {
            let problem = collected.problems.first().map(ToString::to_string).unwrap_or_default();
            anyhow::bail!("{}: {problem}", raw.image_path.display());
        };
        let names: Vec<Name> = image.units.iter().flat_map(|u| &u.map.functions).map(|f| Name::of(&f.name)).collect();
        let meant: HashSet<usize> = match &self.expression.function {
            Some(text) => chosen(names.iter(), text)?.into_iter().collect(),
            None => (0..names.len()).collect(),
        };
        let mut first = 0;
        let mut units = Vec::new();
        for unit in image.units {
            let count = unit.map.functions.len();
            let functions = (0..count).filter(|f| meant.contains(&(first + f))).collect();
            first += count;
            units.push((unit.unit, Unit { map: unit.map, functions, counters: HashMap::new() }));
        }
        // Units whose maps are missing are not in the profile.
        ensure!(raw.units.iter().map(|u| u.unit).eq(units.iter().map(|u| u.0)), "{}: maps of units are missing", raw.image_path.display());
        let units: Vec<Unit> = units.into_iter().map(|u| u.1).collect();
        let unwatched: usize = units.iter().map(Unit::unwatched).sum();
        if unwatched > 0 {
            warn(format_args!(
                "{}: {unwatched} functions count in tables (--table-slots) or, as copies do, by sums of labels: these are not watched",
                raw.image_path.display()
            ));
        }
        self.images.insert(raw.image, Known { units });
        Ok(())
    }

    fn compare(
        &mut self,
        raw: &RawProfile,
        process: Option<u32>,
        at_end: bool,
        all: &mut HashMap<(Identity, usize, u64), u128>,
    ) -> Result<()> {
        let Some(known) = self.images.get_mut(&raw.image) else { return Ok(()) };
        let mut fresh = Vec::new();
        for (place, (unit, counted)) in known.units.iter_mut().zip(&raw.units).enumerate() {
            for (counter, count) in counted.wide() {
                let matches = match unit.counters.get(&counter) {
                    Some(matches) => *matches,
                    None => unit.judge(&self.expression, counter)?,
                };
                if matches {
                    *all.entry((raw.image, place, counter)).or_default() += count;
                    if self.told.insert((raw.image, place, counter)) {
                        fresh.push(unit.words(counter)?);
                    }
                }
            }
        }
        let any = all.keys().any(|(image, ..)| *image == raw.image);
        if self.action != OnMatch::Count {
            let after = self.clock.elapsed().as_secs_f64();
            let of = process.map_or(String::new(), |p| format!(" in process {p}"));
            fresh.iter().for_each(|words| note(format_args!("after {after:.3} s{of}: {words}")));
        }
        if let (OnMatch::Abort, Some(process), true) = (self.action, process, any && !at_end) {
            self.abort(raw, process);
        }
        Ok(())
    }

    /// Aborts a process that has taken a path, once.
    fn abort(&mut self, raw: &RawProfile, process: u32) {
        let Some(known) = self.images.get(&raw.image) else { return };
        let taken = |(unit, counted): (&Unit, &trodden_profile::RawUnitCounts)| {
            counted.counts.iter().any(|(c, _)| unit.counters.get(c) == Some(&true))
        };
        if known.units.iter().zip(&raw.units).any(taken)
            && self.aborted.insert(process)
            && let Err(error) = abort(process, &raw.file)
        {
            warn(format_args!("process {process} is not aborted: {error:#}"));
        }
    }
}

/// Sends SIGABRT to the process of this number if it has a raw file mapped.
fn abort(process: u32, file: &Path) -> Result<()> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw).context("that is no number of a process")?;
    // From here on no other process is meant, even if the number is given again.
    let held = pidfd_open(number, PidfdFlags::empty()).context("it has ended, or is in another namespace")?;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).context("what it has mapped cannot be read")?;
    let inode = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.ino();
    ensure!(
        maps.lines().any(|line| is_mapping(line, file, inode)),
        "it has not mapped {}: it has ended, or is another process",
        file.display()
    );
    pidfd_send_signal(held, Signal::ABORT).context("it has ended")
}

/// Whether a line of `/proc/PID/maps` (proc_pid_maps(5)) is of this file. Folders are called differently in other mount namespaces, and devices on some file systems; the name of a raw
/// file holds an identity.
fn is_mapping(line: &str, file: &Path, inode: u64) -> bool {
    let mut words = line.split_ascii_whitespace().skip(4);
    words.next().is_some_and(|word| word.parse() == Ok(inode)) && Path::new(line).file_name() == file.file_name()
}

impl Unit {
    /// The path that a word counts: its function's place, if that is one that is meant, and the path's number.
    fn place(&self, word: u64) -> Option<(usize, u64)> {
        self.functions.iter().find_map(|place| {
            let function = &self.map.functions[*place];
            let path = match &function.storage {
                Storage::Array { .. } => word.checked_sub(function.first_counter).filter(|path| *path < function.counters)?,
                Storage::Chosen(chosen) => {
                    let word = word.checked_sub(chosen.first_word)?;
                    chosen.paths[chosen.paths.binary_search_by_key(&word, |p| p.0).ok()?].1
                }
                Storage::Table(_) | Storage::Labels(_) => return None,
            };
            Some((*place, path))
        })
    }

    /// How many of the functions that are meant count such that no word is one path's.
    fn unwatched(&self) -> usize {
        let is = |f: &&usize| matches!(self.map.functions[**f].storage, Storage::Table(_) | Storage::Labels(_));
        self.functions.iter().filter(is).count()
    }

    fn walk(&self, counter: u64) -> Result<Option<(usize, u64, Walk)>> {
        let Some((place, id)) = self.place(counter) else { return Ok(None) };
        Ok(Walks::of(&self.map.functions[place])?.walk(id).map(|walk| (place, id, walk)))
    }

    /// Whether a counter is of a path that matches.
    fn judge(&mut self, expression: &Expression, counter: u64) -> Result<bool> {
        let matches = self.walk(counter)?.is_some_and(|(place, _, walk)| {
            let matcher = Matcher::of(expression, &self.map, &self.map.functions[place]);
            // Who comes to a call that may not return is told when the path goes on.
            walk.end.is_some() && matcher.matches(&walk.blocks, walk.beginning, walk.end)
        });
        self.counters.insert(counter, matches);
        Ok(matches)
    }

    fn words(&self, counter: u64) -> Result<String> {
        let Some((place, id, walk)) = self.walk(counter)? else { return Ok(String::new()) };
        let function = &self.map.functions[place];
        let mut lines: Vec<u32> =
            walk.blocks.iter().filter_map(|b| function.blocks.get(b.index())).flat_map(|b| b.positions.first()).map(|p| p.line).collect();
        lines.dedup();
        let lines: Vec<String> = lines.iter().filter(|l| **l > 0).map(u32::to_string).collect();
        Ok(format!("path {id} of {} was taken: lines {}", Name::of(&function.name).full, lines.join(" ")))
    }
}

/// The process in the name of a file.
fn process_of(file: &Path) -> Option<u32> {
    file.file_stem()?.to_str()?.rsplit_once('.')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_aborted_only_if_it_has_mapped_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0123.7.raw");
        fs::write(&file, "x").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let line = |inode: u64, name: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 fe:01 {inode}      /elsewhere a/{name}");
        assert!(is_mapping(&line(inode, "0123.7.raw"), &file, inode));
        assert!(!is_mapping(&line(inode + 1, "0123.7.raw"), &file, inode) && !is_mapping(&line(inode, "0123.8.raw"), &file, inode));
        // Whoever has just taken the number of a process that has ended lives on.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let refused = abort(other.id(), &file).unwrap_err().to_string();
        assert!(refused.contains("another process"), "{refused}");
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
