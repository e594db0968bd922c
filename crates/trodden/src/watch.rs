//! `trodden record --watch EXPRESSION`: paths that match an expression are noticed while the program runs.
//!
//! Counters lie in files that the program has mapped, so whoever reads these sees what it does, and the program need not know: it is neither changed nor slowed down. Which
//! path a counter stands for is worked out when it is first seen not to be zero. A match is noticed at the next reading, about a millisecond later, not at the
//! path's end itself; what is noticed only after a process has ended is reported, but cannot be aborted any more.

use crate::assets;
use crate::cli::OnMatch;
use crate::find::nowhere_note;
use crate::notes::{note, warn};
use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trodden_profile::expression::{End, Expression, Matcher, Place};
use trodden_profile::{RawProfile, Run, Walk, Walks, collect, raw_files};
use trodden_report::Name;
use trodden_report::found::words;
use trodden_report::select::chosen;
use trodden_report::words::plural;
use trodden_unit::{Identity, UnitMap};

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
            problem: None,
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
        if let Some(problem) = &watcher.problem {
            warn(format_args!("not all was watched: {problem:#}"));
        }
        watcher.explain();
        let paths = plural(watcher.matching as u128, "path matches", "paths match");
        note(format_args!("{paths}; taken {}", plural(watcher.executions, "time", "times")));
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
    problem: Option<anyhow::Error>,
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) -> Watcher {
        let mut pause = PAUSE;
        while matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            let began = Instant::now();
            // A file may just be being made: the last look tells what stays wrong.
            let _ = self.look(false);
            pause = PAUSE.max(began.elapsed() * SHARE);
        }
        self.problem = self.look(true).err();
        self
    }

    /// Looks at all files; at the end, adds up what matched.
    fn look(&mut self, at_end: bool) -> Result<()> {
        let mut all: HashMap<(Identity, usize, u64), u128> = HashMap::new();
        for file in raw_files(&self.folder)? {
            let raw = match RawProfile::read(&file) {
                Ok(raw) => raw,
                Err(error) if at_end => return Err(error.into()),
                Err(_) => continue,
            };
            let counters = raw.units.iter().map(|u| u.counts.len()).sum();
            let before = self.seen.insert(file.clone(), counters);
            if at_end || before != Some(counters) {
                self.learn(&raw)?;
                self.compare(&raw, process_of(&file), &mut all)?;
            }
        }
        self.matching = all.len();
        self.executions = all.values().sum();
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
        self.images.insert(raw.image, Known { units: units.into_iter().map(|u| u.1).collect() });
        Ok(())
    }

    /// Says what in the expression can match nothing in what ran.
    fn explain(&self) {
        let units = || self.images.values().flat_map(|image| &image.units);
        let mut functions = units().flat_map(|u| u.functions.iter().map(|f| (&*u.map, &u.map.functions[*f]))).peekable();
        if let (None, Some(name), true) = (functions.peek(), &self.expression.function, !self.images.is_empty()) {
            return warn(format_args!(
                "no instrumented function of what ran is called `{name}`; `trodden report --json` names all of them"
            ));
        }
        let mut nowhere: Option<Vec<&Place>> = None;
        for (map, function) in functions {
            let missing = Matcher::of(&self.expression, map, function).nowhere();
            nowhere = Some(nowhere.map_or(missing.clone(), |n| n.into_iter().filter(|p| missing.contains(p)).collect()));
        }
        nowhere.unwrap_or_default().into_iter().for_each(|place| note(nowhere_note(&words(place))));
    }

    fn compare(&mut self, raw: &RawProfile, process: Option<u32>, all: &mut HashMap<(Identity, usize, u64), u128>) -> Result<()> {
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
        if let (OnMatch::Abort, Some(process), true) = (self.action, process, any) {
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
        if known.units.iter().zip(&raw.units).any(taken) && self.aborted.insert(process) {
            // It may just have ended.
            let _ = kill(Pid::from_raw(process as i32), Signal::SIGABRT);
        }
    }
}

impl Unit {
    /// The function that a counter is of, with its place, if it is one that is meant.
    fn place(&self, counter: u64) -> Option<(usize, u64)> {
        let is = |f: &&usize| {
            let function = &self.map.functions[**f];
            function.table().is_none()
                && (function.first_counter..function.first_counter.saturating_add(function.counters)).contains(&counter)
        };
        self.functions.iter().find(is).map(|f| (*f, counter - self.map.functions[*f].first_counter))
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
