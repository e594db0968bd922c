//! Bursts: while `--sample` programs run, this module switches their counting on and off, and measures how long it was on.
//!
//! The switch is a byte in the program's mapped raw file ([`SamplingSwitch`]). Nothing is injected into the program, and it keeps running.
//! Pauses between bursts have random lengths, to avoid resonance with the program. Counts are read during pauses, as often as the cost
//! allows, to estimate how much counting slows the program down and how accurate the counts are. Time is the program's processor time
//! ([`ProcessorTime`]), or wall time if the system gives no access to processor time. Some bursts are [`BURST_STRETCH_FACTOR`] times
//! longer, to estimate how many executions short bursts miss. If a recorder is killed while the switch is on, the next recorder turns the
//! switch off.

use crate::processor_time::ProcessorTime;
use crate::waiting::SchedulerWaitingTime;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_profile::sampling::{SampledClock, SwitchedOnTime};
use trodden_profile::{CounterReadings, ProfileError, RawProfile, SampledRun, SamplingSwitch, raw_files};
use trodden_text::words::plural;

/// Interval between searches for raw files, until one with a sampling switch is found.
const IMAGE_SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// Minimum interval between searches for further raw files, after one with a sampling switch was found.
const IMAGE_SEARCH_AGAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum pause between two readings of the counts, as a multiple of the processor time that a reading takes.
const MIN_PAUSE_PER_READING_TIME: u32 = 60;

/// Factor by which some bursts and pauses are prolonged ("stretched").
const BURST_STRETCH_FACTOR: u32 = 4;

/// Probability that bursts and pauses are stretched until the next reading of the counts.
const STRETCHED_BURST_FRACTION: f64 = 0.25;

/// The times at which `--sample` programs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstSchedule {
    /// Length of a normal burst; stretched bursts are longer.
    pub burst: Duration,
    /// Mean time between the starts of consecutive normal bursts.
    pub period: Duration,
}

/// The raw files that belong to a recording.
#[derive(Clone, Debug, Default)]
pub struct BurstFiles {
    /// Individual files.
    pub single: Vec<PathBuf>,
    /// Folders all of whose raw files belong to the recording, including files that appear later.
    pub folders: Vec<PathBuf>,
}

impl BurstFiles {
    /// Selects all present and future raw files in a folder.
    pub fn from_folder(folder: &Path) -> BurstFiles {
        BurstFiles { single: Vec::new(), folders: vec![folder.to_owned()] }
    }

    /// Returns the paths of the raw files that exist now.
    pub fn list_files(&self) -> Result<Vec<PathBuf>> {
        let mut all = self.single.clone();
        for folder in &self.folders {
            all.extend(raw_files(folder)?);
        }
        Ok(all)
    }
}

/// A thread that switches the counting of programs on and off.
#[derive(Debug)]
pub struct BurstThread {
    stop: Sender<()>,
    thread: JoinHandle<Option<SampledRun>>,
}

impl BurstThread {
    /// Starts a thread that waits for an image with a switch and then performs bursts until it is stopped. Fails if the bursts are longer
    /// than their period.
    pub fn start(files: BurstFiles, bursts: BurstSchedule) -> Result<BurstThread> {
        ensure!(
            bursts.burst <= bursts.period,
            "--burst (the time with counting) is longer than --every, but a burst must end before the next one starts. Raise --every or \
             lower --burst"
        );
        let (stop, stopped) = channel();
        let controller = BurstController {
            files,
            bursts,
            stopped,
            switches: BTreeMap::new(),
            readings: CounterReadings::default(),
            reading_took: Duration::ZERO,
            random: BurstRandom::new(),
            on: SwitchedOnTime::default(),
            on_since_reading: SwitchedOnTime::default(),
            stretch: 1,
            intended_ns: 0,
            processor: ProcessorTime::default(),
            uses_processor_time: false,
            waiting: SchedulerWaitingTime::default(),
            last_reading: Instant::now(),
            processor_at_reading: 0,
            end_delay: 0.0,
        };
        Ok(BurstThread { stop, thread: std::thread::spawn(move || controller.run()) })
    }

    /// Turns all switches off. Returns the measurements, or `None` if no image had a switch.
    pub fn stop(self) -> Option<SampledRun> {
        // Dropping the sender wakes the thread up if it is waiting.
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct BurstController {
    files: BurstFiles,
    bursts: BurstSchedule,
    stopped: Receiver<()>,
    /// The sampling switch of each raw file found so far; `None` for files without one.
    switches: BTreeMap<PathBuf, Option<SamplingSwitch>>,
    readings: CounterReadings,
    reading_took: Duration,
    random: BurstRandom,
    on: SwitchedOnTime,
    /// The part of `on` since the last reading of the counts.
    on_since_reading: SwitchedOnTime,
    /// Factor by which bursts and pauses are prolonged until the next reading.
    stretch: u32,
    /// Total requested length of all bursts, in nanoseconds.
    intended_ns: u64,
    processor: ProcessorTime,
    /// True if all times are processor times. Decided once, because times from different clocks cannot be added.
    uses_processor_time: bool,
    waiting: SchedulerWaitingTime,
    last_reading: Instant,
    processor_at_reading: u64,
    /// Estimate, in seconds, of how late bursts end.
    end_delay: f64,
}

impl BurstController {
    fn run(mut self) -> Option<SampledRun> {
        // The default timer slack lets the kernel wake a thread up so late that short bursts would double in length.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.find_new_images() {
            if self.wait_or_stop(IMAGE_SEARCH_INTERVAL) {
                self.find_new_images();
                break;
            }
        }
        self.uses_processor_time = self.processor.total_ns().is_some();
        let began = Instant::now();
        let mut last_search = began;
        self.last_reading = began;
        // The first burst starts at a random time within the first period, so that each part of the run is equally likely to be counted.
        let is_always_on = self.bursts.burst == self.bursts.period;
        let mut pause = if is_always_on { Duration::ZERO } else { self.bursts.period.mul_f64(self.random.next_fraction()) };
        while !self.wait_or_stop(pause) {
            if last_search.elapsed() >= IMAGE_SEARCH_AGAIN_INTERVAL {
                self.find_new_images();
                last_search = Instant::now();
            }
            if self.perform_burst() {
                break;
            }
            if self.last_reading.elapsed() >= self.reading_took * MIN_PAUSE_PER_READING_TIME * self.readings.reading_interval_factor() {
                self.read_counts();
                self.stretch = if self.random.next_fraction() < STRETCHED_BURST_FRACTION { BURST_STRETCH_FACTOR } else { 1 };
            }
            pause = ((self.bursts.period - self.bursts.burst) * self.stretch).mul_f64(0.5 + self.random.next_fraction());
        }
        self.set_sampling_switches(false);
        let wall_ns = began.elapsed().as_nanos() as u64;
        self.read_counts();
        let processor_ns = self.processor_time();
        let any = self.switches.values().any(Option::is_some);
        any.then_some(SampledRun {
            readings: self.readings,
            on_ns: self.on.ns,
            total_ns: processor_ns.unwrap_or(wall_ns).max(self.on.ns),
            bursts: self.on.bursts,
            clock: match processor_ns {
                Some(_) => SampledClock::Processor,
                None => SampledClock::Wall { intended_ns: self.intended_ns, waited: self.waiting.waiting_share() },
            },
        })
    }

    /// Searches for new raw files. Returns true if any file found so far has a sampling switch. Files that cannot be opened are reported
    /// later, when the profile is read.
    fn find_new_images(&mut self) -> bool {
        for file in self.files.list_files().unwrap_or_default() {
            if !self.switches.contains_key(&file)
                && let Ok(switch) = SamplingSwitch::open(&file)
            {
                switch.iter().for_each(|switch| self.processor.add(switch.process()));
                self.switches.insert(file, switch);
            }
        }
        self.switches.values().any(Option::is_some)
    }

    /// Returns the processor time of all programs in nanoseconds; `None` if the recording uses wall time.
    fn processor_time(&mut self) -> Option<u64> {
        self.uses_processor_time.then(|| self.processor.total_ns()).flatten()
    }

    /// Performs one burst. Returns true if the recording was stopped during the burst.
    fn perform_burst(&mut self) -> bool {
        let requested = self.bursts.burst * self.stretch;
        let processor = self.processor_time();
        let began = Instant::now();
        self.set_sampling_switches(true);
        let last = self.wait_or_stop(requested.saturating_sub(Duration::from_secs_f64(self.end_delay)));
        // The clock is read just before the switch is turned on, and just before it is turned off. The delay between reading and switching
        // makes the measured time too long at the start and too short at the end, so both effects cancel out on average.
        let processor = processor.and_then(|before| Some((before, self.processor_time()?)));
        let elapsed = began.elapsed();
        // If there are no pauses, the switch stays on.
        if self.bursts.burst < self.bursts.period || last {
            self.set_sampling_switches(false);
        }
        let took = began.elapsed();
        // Bursts end late by the same delay whether they are stretched or not, so the estimate assumes a normal burst.
        self.end_delay = update_end_delay(self.end_delay, self.bursts.burst, (took + self.bursts.burst).saturating_sub(requested));
        let burst = match processor {
            // A burst is counted only if the program ran during it.
            Some((before, after)) => SwitchedOnTime { ns: after.saturating_sub(before), bursts: u64::from(after > before) },
            None => SwitchedOnTime { ns: elapsed.as_nanos() as u64, bursts: 1 },
        };
        self.on.add(burst);
        self.on_since_reading.add(burst);
        self.intended_ns += requested.as_nanos() as u64;
        last
    }

    fn set_sampling_switches(&self, on: bool) {
        for switch in self.switches.values().flatten() {
            // The switch's page is already in memory, so a full disk cannot make this fail.
            let _ = switch.set_counting(on);
        }
    }

    fn read_counts(&mut self) {
        let began = processor_time_of_thread();
        let with_switch: Vec<PathBuf> = self.switches.iter().filter(|(_, s)| s.is_some()).map(|(f, _)| f.clone()).collect();
        // A file that cannot be read now is reported later, when the profile is read.
        if let Ok(raws) = read_raw_files(&with_switch) {
            let on = std::mem::take(&mut self.on_since_reading);
            let passed_ns = match self.processor_time() {
                Some(now) => now.saturating_sub(std::mem::replace(&mut self.processor_at_reading, now)),
                None => self.last_reading.elapsed().as_nanos() as u64,
            };
            self.readings.read(&raws, on, passed_ns);
            self.last_reading = Instant::now();
        }
        self.switches.values().flatten().for_each(|switch| self.waiting.update(switch.process()));
        self.reading_took = processor_time_of_thread().saturating_sub(began);
    }

    /// Waits for a time, or until the recording is stopped. Returns true if it was stopped.
    fn wait_or_stop(&self, time: Duration) -> bool {
        !matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// Updates the estimate of how late bursts end, in seconds. A sleeping thread wakes up late; on virtual machines, the delay can be as long
/// as a short burst. Bursts are ended earlier by this estimate, to correct their mean length.
fn update_end_delay(before: f64, requested: Duration, took: Duration) -> f64 {
    /// Weight of the latest burst in the new estimate.
    const LATEST_BURST_WEIGHT: f64 = 1.0 / 8.0;
    // Limited, because a single long delay says nothing about the next burst.
    let excess = (took.as_secs_f64() - requested.as_secs_f64()).min(requested.as_secs_f64());
    (before + excess * LATEST_BURST_WEIGHT).clamp(0.0, requested.as_secs_f64())
}

fn processor_time_of_thread() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Logs the fraction of the run during which the programs counted.
pub fn log_counting_fraction(sampling: &SampledRun) {
    let per_cent = if sampling.total_ns == 0 { 0.0 } else { sampling.on_ns as f64 / sampling.total_ns as f64 * 100.0 };
    log::info!("counts were sampled during {per_cent:.2} % of the run time, in {}", plural(sampling.bursts.into(), "burst", "bursts"));
}

struct BurstRandom(u64);

impl BurstRandom {
    fn new() -> BurstRandom {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        BurstRandom((now ^ u64::from(std::process::id()) << 32) | 1)
    }

    /// Returns a number in [0, 1).
    fn next_fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Reads raw files. Skips files that are not initialised yet.
pub fn read_raw_files(files: &[PathBuf]) -> Result<Vec<RawProfile>> {
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

    const REQUESTED_BURST: Duration = Duration::from_micros(50);

    /// Simulates 1,000 bursts that end late by `overhead`, and returns their mean length.
    fn mean_burst_length(overhead: Duration) -> Duration {
        let (mut delay, mut sum) = (0.0, Duration::ZERO);
        for _ in 0..1000 {
            let took = REQUESTED_BURST.saturating_sub(Duration::from_secs_f64(delay)) + overhead;
            delay = update_end_delay(delay, REQUESTED_BURST, took);
            sum += took;
        }
        sum / 1000
    }

    #[test]
    fn mean_burst_length_is_as_requested() {
        for overhead in [0, 1, 20, 49] {
            let mean = mean_burst_length(Duration::from_micros(overhead));
            assert!(mean >= REQUESTED_BURST && mean < REQUESTED_BURST + Duration::from_micros(2), "{overhead} us late: {mean:?}");
        }
    }

    #[test]
    fn bursts_shorter_than_the_delay_last_as_long_as_the_delay() {
        let overhead = Duration::from_micros(80);
        let mean = mean_burst_length(overhead);
        assert!(mean >= overhead && mean < overhead + Duration::from_micros(2), "{mean:?}");
    }

    #[test]
    fn single_long_delay_is_soon_forgotten() {
        let mut delay = update_end_delay(0.0, REQUESTED_BURST, Duration::from_secs(1));
        for _ in 0..20 {
            delay = update_end_delay(delay, REQUESTED_BURST, REQUESTED_BURST.saturating_sub(Duration::from_secs_f64(delay)));
        }
        assert!(delay < 1e-6, "{delay}");
    }
}
