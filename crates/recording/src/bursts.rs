//! Bursts: switching the counting of programs of the sample tier on and off from outside, and noting for how long it was on.
//!
//! The switch is a byte in a program's raw file, which the program has mapped ([`Switch`]); so nothing is put into the
//! program, and it is not stopped. Pauses between bursts are of random length, lest they keep step with what the
//! program does. Between bursts, as often as the cost of it allows, the counts are read: what was seen in a burst says how much
//! counting slowed it down, and how counts vary over the run says how far estimates can be trusted.
//!
//! The part of a program's time that was counted is measured in its own processor time ([`ProcessorTime`]), so that a program that waits
//! for a processor is neither counted nor missed meanwhile; in wall time where the system forbids that. What bursts lose follows from
//! their lengths: about a quarter of the time they are [`STRETCH`] times longer than asked for, and as much rarer.
//!
//! A recorder that is killed in the middle of a burst leaves the switch on; the next one turns it off.

use crate::processor_time::ProcessorTime;
use crate::waiting::Waiting;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_profile::sampling::{SampledClock, SwitchedOn};
use trodden_profile::{ProfileError, RawProfile, Readings, Sampled, Switch, raw_files};
use trodden_text::words::plural;

/// While no image with a switch is there, how often one is searched for.
const SEARCH: Duration = Duration::from_millis(2);

/// Once there is one, how often more are searched for.
const SEARCH_FOR_MORE: Duration = Duration::from_millis(50);

/// Counts are read as often as possible, but so many times the processor time of a reading must pass before the next.
const PAUSE_PER_READING: u32 = 60;

/// So many times longer some bursts are.
const STRETCH: u32 = 4;

/// The part of all time in which they are.
const STRETCHED: f64 = 0.25;

/// When programs of the sample tier count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How long a burst is.
    pub burst: Duration,
    /// From the beginning of one burst to that of the next, on average.
    pub every: Duration,
}

/// Where raw files are; in folders, more may come.
#[derive(Clone, Debug, Default)]
pub struct BurstFiles {
    /// Files by name.
    pub single: Vec<PathBuf>,
    /// Folders, all of whose raw files count.
    pub folders: Vec<PathBuf>,
}

impl BurstFiles {
    /// The files of a folder.
    pub fn from_folder(folder: &Path) -> BurstFiles {
        BurstFiles { single: Vec::new(), folders: vec![folder.to_owned()] }
    }

    /// The files that are there now.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        let mut all = self.single.clone();
        for folder in &self.folders {
            all.extend(raw_files(folder)?);
        }
        Ok(all)
    }
}

/// Bursts under way, in a thread of their own.
#[derive(Debug)]
pub struct Bursting {
    stop: Sender<()>,
    thread: JoinHandle<Option<Sampled>>,
}

impl Bursting {
    /// Begins as soon as there is an image with a switch.
    ///
    /// # Errors
    /// The times contradict each other.
    pub fn start(files: BurstFiles, bursts: Bursts) -> Result<Bursting> {
        ensure!(bursts.burst <= bursts.every, "a burst is longer than the time from one to the next: give --every at least --burst");
        let (stop, stopped) = channel();
        let controller = BurstController {
            files,
            bursts,
            stopped,
            switches: BTreeMap::new(),
            readings: Readings::default(),
            reading_took: Duration::ZERO,
            random: Random::new(),
            on: SwitchedOn::default(),
            since: SwitchedOn::default(),
            stretch: 1,
            asked_ns: 0,
            processor: ProcessorTime::default(),
            by_processor: false,
            waiting: Waiting::default(),
            last_reading: Instant::now(),
            processor_at_reading: 0,
            late: 0.0,
        };
        Ok(Bursting { stop, thread: std::thread::spawn(move || controller.run()) })
    }

    /// Turns all switches off; `None` if there was none.
    pub fn stop(self) -> Option<Sampled> {
        // From now on, no thread waits for anything.
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct BurstController {
    files: BurstFiles,
    bursts: Bursts,
    stopped: Receiver<()>,
    /// By file; `None` for images without one.
    switches: BTreeMap<PathBuf, Option<Switch>>,
    readings: Readings,
    reading_took: Duration,
    random: Random,
    on: SwitchedOn,
    /// The same since the counts were read.
    since: SwitchedOn,
    /// How many times longer bursts and pauses are until the counts are read again.
    stretch: u32,
    /// Nanoseconds that the switch was to be on.
    asked_ns: u64,
    processor: ProcessorTime,
    /// Whether the recording goes by processor time: decided once, since times of two clocks cannot be added.
    by_processor: bool,
    waiting: Waiting,
    last_reading: Instant,
    /// Processor time at the last reading.
    processor_at_reading: u64,
    /// By how much bursts end late, in seconds.
    late: f64,
}

impl BurstController {
    fn run(mut self) -> Option<Sampled> {
        // Bursts are about as short as the system's usual tolerance for timers; without this, they are longer than asked for.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.find() {
            if self.wait(SEARCH) {
                self.find();
                break;
            }
        }
        self.by_processor = self.processor.now().is_some();
        let began = Instant::now();
        let mut last_search = began;
        self.last_reading = began;
        // Anywhere within the first period, so that no part of it is seen less.
        let is_always_on = self.bursts.burst == self.bursts.every;
        let mut pause = if is_always_on { Duration::ZERO } else { self.bursts.every.mul_f64(self.random.next()) };
        while !self.wait(pause) {
            if last_search.elapsed() >= SEARCH_FOR_MORE {
                self.find();
                last_search = Instant::now();
            }
            if self.burst() {
                break;
            }
            if self.last_reading.elapsed() >= self.reading_took * PAUSE_PER_READING * self.readings.stride() {
                self.read();
                self.stretch = if self.random.next() < STRETCHED { STRETCH } else { 1 };
            }
            pause = ((self.bursts.every - self.bursts.burst) * self.stretch).mul_f64(0.5 + self.random.next());
        }
        self.set_switches(false);
        let wall_ns = began.elapsed().as_nanos() as u64;
        self.read();
        let processor_ns = self.processor_time();
        let any = self.switches.values().any(Option::is_some);
        any.then_some(Sampled {
            readings: self.readings,
            on_ns: self.on.ns,
            total_ns: processor_ns.unwrap_or(wall_ns).max(self.on.ns),
            bursts: self.on.bursts,
            clock: match processor_ns {
                Some(_) => SampledClock::Processor,
                None => SampledClock::Wall { asked_ns: self.asked_ns, waited: self.waiting.share() },
            },
        })
    }

    /// Looks for images that have appeared; whether there is any with a switch. Whatever cannot be opened is reported
    /// when the profile is made.
    fn find(&mut self) -> bool {
        for file in self.files.list().unwrap_or_default() {
            if !self.switches.contains_key(&file)
                && let Ok(switch) = Switch::open(&file)
            {
                switch.iter().for_each(|switch| self.processor.add(switch.process()));
                self.switches.insert(file, switch);
            }
        }
        self.switches.values().any(Option::is_some)
    }

    /// Processor time of the programs, if the recording goes by that.
    fn processor_time(&mut self) -> Option<u64> {
        self.by_processor.then(|| self.processor.now()).flatten()
    }

    /// One burst; whether it was the last.
    fn burst(&mut self) -> bool {
        let asked = self.bursts.burst * self.stretch;
        let processor = self.processor_time();
        let began = Instant::now();
        self.set_switches(true);
        let last = self.wait(asked.saturating_sub(Duration::from_secs_f64(self.late)));
        // Both readings of the clock come just before the switch is turned. What passes between a reading and the switch, be it only that
        // the recorder has to wait for a processor, is missing at the beginning, is too much at the end, and cancels out on average.
        let processor = processor.and_then(|before| Some((before, self.processor_time()?)));
        // Without pauses it stays on.
        if self.bursts.burst < self.bursts.every || last {
            self.set_switches(false);
        }
        let took = began.elapsed();
        // By how much a burst is late does not go by its length.
        self.late = lateness(self.late, self.bursts.burst, (took + self.bursts.burst).saturating_sub(asked));
        let burst = match processor {
            // One that found the program waiting is none.
            Some((before, after)) => SwitchedOn { ns: after.saturating_sub(before), bursts: u64::from(after > before) },
            None => SwitchedOn { ns: took.as_nanos() as u64, bursts: 1 },
        };
        self.on.add(burst);
        self.since.add(burst);
        self.asked_ns += asked.as_nanos() as u64;
        last
    }

    fn set_switches(&self, on: bool) {
        for switch in self.switches.values().flatten() {
            // A disk that is full does not matter: the page is there.
            let _ = switch.set(on);
        }
    }

    fn read(&mut self) {
        let began = processor_time_of_thread();
        let with_switch: Vec<PathBuf> = self.switches.iter().filter(|(_, s)| s.is_some()).map(|(f, _)| f.clone()).collect();
        // What cannot be read now is reported when the profile is made.
        if let Ok(raws) = read(&with_switch) {
            let since = std::mem::take(&mut self.since);
            let passed_ns = match self.processor_time() {
                Some(now) => now.saturating_sub(std::mem::replace(&mut self.processor_at_reading, now)),
                None => self.last_reading.elapsed().as_nanos() as u64,
            };
            self.readings.read(&raws, since, passed_ns);
            self.last_reading = Instant::now();
        }
        self.switches.values().flatten().for_each(|switch| self.waiting.note(switch.process()));
        self.reading_took = processor_time_of_thread().saturating_sub(began);
    }

    /// Whether to stop, after that time or at once.
    fn wait(&self, time: Duration) -> bool {
        !matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// By how many seconds the next burst is to be ended early, after one that took so long: bursts last as long as asked
/// for on average, though a sleeping thread wakes up late, in a virtual machine by as much as a short burst is long.
fn lateness(before: f64, asked: Duration, took: Duration) -> f64 {
    const SHARE: f64 = 1.0 / 8.0;
    // One that was held up for long says nothing of the next.
    let late = (took.as_secs_f64() - asked.as_secs_f64()).min(asked.as_secs_f64());
    (before + late * SHARE).clamp(0.0, asked.as_secs_f64())
}

/// Processor time of the calling thread.
fn processor_time_of_thread() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Reports how a run was sampled.
pub fn report(sampling: &Sampled) {
    let per_cent = if sampling.total_ns == 0 { 0.0 } else { sampling.on_ns as f64 / sampling.total_ns as f64 * 100.0 };
    log::info!("sampled: counted for {per_cent:.2} % of the time, in {}", plural(sampling.bursts.into(), "burst", "bursts"));
}

/// Pseudo-random numbers, for pauses that keep no step with anything (xorshift).
struct Random(u64);

impl Random {
    fn new() -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Random((now ^ u64::from(std::process::id()) << 32) | 1)
    }

    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Reads raw files; those that are not set up yet have no counts.
///
/// # Errors
/// One cannot be read.
pub fn read(files: &[PathBuf]) -> Result<Vec<RawProfile>> {
    let mut raws = Vec::new();
    for file in files {
        match RawProfile::read(file) {
            Ok(raw) => raws.push(raw),
            Err(ProfileError::NotReady(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(raws)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Duration = Duration::from_micros(50);

    /// Mean length of bursts that sleep `overhead` longer than they mean to.
    fn mean_of_bursts(overhead: Duration) -> Duration {
        let (mut late, mut sum) = (0.0, Duration::ZERO);
        for _ in 0..1000 {
            let took = ASKED.saturating_sub(Duration::from_secs_f64(late)) + overhead;
            late = lateness(late, ASKED, took);
            sum += took;
        }
        sum / 1000
    }

    #[test]
    fn bursts_last_as_long_as_asked_for() {
        for overhead in [0, 1, 20, 49] {
            let mean = mean_of_bursts(Duration::from_micros(overhead));
            assert!(mean >= ASKED && mean < ASKED + Duration::from_micros(2), "{overhead} us late: {mean:?}");
        }
    }

    #[test]
    fn bursts_that_cannot_be_short_are_as_short_as_can_be() {
        let overhead = Duration::from_micros(80);
        let mean = mean_of_bursts(overhead);
        assert!(mean >= overhead && mean < overhead + Duration::from_micros(2), "{mean:?}");
    }

    #[test]
    fn what_held_one_burst_up_is_forgotten_soon() {
        let mut late = lateness(0.0, ASKED, Duration::from_secs(1));
        for _ in 0..20 {
            late = lateness(late, ASKED, ASKED.saturating_sub(Duration::from_secs_f64(late)));
        }
        assert!(late < 1e-6, "{late}");
    }
}
