//! Collectors: ways to observe that a program reaches a site (an address whose executions are recorded), behind one trait. Each carries out
//! a run and records its partial trace.
//!
//! | collector | observes | cost |
//! |---|---|---|
//! | [`PtraceBreakpoints`] | any number of sites | one ptrace stop per hit |
//! | [`SingleStep`] | every instruction | one ptrace stop per instruction |
//! | [`TrampolineCollector`] | any number of sites | a few instructions per hit |
//! | [`Compiled`] | any number of sites | a few instructions per hit; the program must have sleds |
//! | [`UprobeCollector`] | any number of sites | one kernel entry per hit; needs root |
//! | [`Hardware`] | four sites | one ptrace stop per hit; code is not modified |

use crate::CollectError;
use crate::attach::{check_code_is_unwritable, check_path_names_same_file};
use crate::bpf::KernelProbes;
use crate::breakpoints::Breakpoints;
use crate::follow::{FollowEnding, FollowOutcome, follow, watch_library};
use crate::hardware::HardwareBreakpoints;
use crate::images::{self, Library, sites_of};
use crate::journal::AddressLimit;
use crate::mappings::mappings;
use crate::memory::MemoryEffect;
use crate::process_status::may_raise_resource_limits;
use crate::ptrace::{self, Registers};
use crate::repeat::{RepeatDivergence, Repeater, RunLog};
use crate::rings::{MAX_RINGS, RING_STRIDE};
use crate::run::{RunTarget, TraceRun};
use crate::shown_mappings::MappingsShownToProgram;
use crate::single_step::SingleStepping;
use crate::sink::Sink;
use crate::sleds;
use crate::subject::{Executable, TracedProcess, area_size};
use crate::system::SignalWait;
use crate::trampolines;
use crate::uprobes;
use crate::watch::{Watch, WatchMeans};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trodden_binary::Binary;
use trodden_binary::linked::split_address;

/// The outcome of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// How the program ended, and what was noticed while it was followed.
    pub followed: FollowOutcome,
    /// The system calls of the run, for comparison with other runs.
    pub log: RunLog,
    /// The first difference from the run that this run repeats, if any.
    pub divergence: Option<RepeatDivergence>,
}

/// A way to observe that a program reaches a site, that is, an address whose executions are recorded.
pub trait Collector: Sync {
    /// The name that users give to `--collector`.
    fn name(&self) -> &'static str;

    /// Maximum number of sites per run; `None` if there is no limit.
    fn max_sites(&self) -> Option<usize> {
        None
    }

    /// Returns true if the collector does not modify the program's code.
    fn leaves_code_unmodified(&self) -> bool {
        false
    }

    /// Checks that the collector can watch these files.
    ///
    /// # Errors
    /// The files lack what the collector needs, or their code may change without the collector noticing.
    fn check_files(&self, executable: &Executable, libraries: &[Library]) -> Result<(), CollectError> {
        match self.leaves_code_unmodified() {
            true => Ok(()),
            false => [executable].into_iter().chain(libraries.iter().map(|l| &l.executable)).try_for_each(check_segments_are_unwritable),
        }
    }

    /// Starts watching a run's sites in the program, which is stopped.
    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError>;

    /// Carries out a run. If the collection ends before the program does ([`FollowEnding::Detached`]), the program continues, and the
    /// caller must wait for it.
    ///
    /// # Errors
    /// The program cannot be started or followed.
    fn collect(&self, run: TraceRun, sink: &mut dyn Sink) -> Result<RunOutcome, CollectError> {
        // Length: a subject is started, watched and detached in one place, whatever fails.
        let mut run = run;
        let (executable, recipe, stop, limit) = (run.executable, run.recipe, run.stop, run.limit);
        let area_size = area_size(sites_of(0, run.sites).len());
        if let Some(core) = recipe.core {
            crate::system::pin_thread_to_core(core)?;
        }
        let (subject, threads) = match std::mem::replace(&mut run.target, RunTarget::Attach(0)) {
            RunTarget::Start(program) => {
                check_address_space(inherited_address_limit(), self.name(), area_size)?;
                let subject = TracedProcess::start(*program, executable, &recipe, area_size)?;
                let thread = subject.process;
                // Ignore an error: the receiver may no longer exist.
                run.process_sender.take().into_iter().for_each(|begun| _ = begun.send(thread as u32));
                (subject, vec![thread])
            }
            target @ (RunTarget::Attach(_) | RunTarget::Adopt(_)) => {
                let (process, mut parked) = match target {
                    RunTarget::Adopt(parked) => (parked.process(), Some(parked)),
                    RunTarget::Attach(process) => (process, None),
                    RunTarget::Start(_) => unreachable!("this arm is for the other two"),
                };
                run.libraries.iter().try_for_each(|library| check_path_names_same_file(process, &library.executable.path))?;
                if !self.leaves_code_unmodified() {
                    let files = [executable].into_iter().chain(run.libraries.iter().map(|l| &l.executable));
                    files.into_iter().try_for_each(|file| check_code_is_unwritable(process, &file.path))?;
                }
                TracedProcess::attach(process, executable, parked.as_mut(), area_size)?
            }
        };
        let first = run.first.take();
        let session = subject.session.clone();
        // If anything fails from here on, the tracer detaches, and the program continues untraced. But a program that has not executed its
        // first instruction yet, and that cannot be traced, is killed, since its results would appear without a trace.
        let watched = (|| {
            let mut watch = Watch::new(&run, &subject, self.watch(&subject, &run)?);
            let mapped = [subject.injected_area()].into_iter().chain(watch.mapped()).collect();
            let shown = MappingsShownToProgram::new(subject.process, mapped, &code_ranges_in_memory(executable, &subject))?;
            let mut calls = Repeater::new(recipe, first, shown);
            for (library, start) in images::find_already_mapped(run.libraries, subject.process)? {
                watch_library((&subject, subject.process), &mut watch, &mut calls, library, start)?;
            }
            if !subject.fresh {
                release_pages_that_differ_from_file(&mut watch, &subject, &run, sink)?;
            }
            watch.guard(subject.process)?;
            Ok((watch, calls))
        })();
        let (is_over, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let waiting = SignalWait::from_this_thread();
        let watched = watched.map_err(|error: CollectError| {
            if subject.fresh && error.is_refusal() {
                // SAFETY: the call only sends a signal. The program is a child that has not been reaped.
                unsafe { libc::kill(subject.process, libc::SIGKILL) };
            }
            session.close_after_error(error)
        });
        let (followed, calls) = watched.and_then(|(mut watch, mut calls)| {
            let followed = std::thread::scope(|scope| {
                // After a panic, too, the thread that interrupts the follower must end.
                let _over = FlagSetOnDrop(&is_over);
                scope.spawn(|| interrupt_follower_at_end(waiting, stop, (&is_over, &ended), limit));
                follow(&subject, &threads, &mut watch, &mut calls, sink, &ended, run.note)
            });
            followed.map(|followed| (followed, calls)).map_err(|error| session.close_after_error(error))
        })?;
        let (log, divergence) = {
            let is_truncated = matches!(followed.ending, FollowEnding::Killed(_) | FollowEnding::Detached);
            calls.finish(followed.ending != FollowEnding::Detached, is_truncated)
        };
        Ok(RunOutcome { followed, log, divergence })
    }
}

/// Returns the address-space limit that programs inherit from this process, or `None` if there is no limit.
fn inherited_address_limit() -> Option<AddressLimit> {
    AddressLimit::of(std::process::id() as i32).filter(|limit| limit.is_limited())
}

/// Checks that a program's limited address space has room for the collector's mappings.
fn check_address_space(limit: Option<AddressLimit>, collector: &str, area_size: u64) -> Result<(), CollectError> {
    let Some(limit) = limit else { return Ok(()) };
    let needed =
        area_size + if collector == TrampolineCollector.name() || collector == Compiled.name() { MAX_RINGS * RING_STRIDE } else { 0 };
    match limit.soft.saturating_add(needed) <= limit.hard || may_raise_resource_limits() {
        true => Ok(()),
        false => Err(CollectError::NoRoom { limit: limit.soft, needed }),
    }
}

/// Checks that a file has no writable code, which a plain store could change.
fn check_segments_are_unwritable(executable: &Executable) -> Result<(), CollectError> {
    let fault = |at: u64| format!("has writable code at {:#x} (`ld -N`). Use `--collector single-step`", split_address(at).1);
    let of = |at| CollectError::Executable { path: executable.path.clone(), fault: fault(at) };
    executable.writable_code.map_or(Ok(()), |at| Err(of(at)))
}

/// Stops watching the code pages of a running process that differ from the file, because the program has changed them.
fn release_pages_that_differ_from_file(
    watch: &mut Watch,
    subject: &TracedProcess,
    run: &TraceRun,
    sink: &mut dyn Sink,
) -> Result<(), CollectError> {
    let executables = [run.executable].into_iter().chain(run.libraries.iter().map(|l| &l.executable));
    for executable in executables {
        for range in watch.changed_pages(&subject.memory, executable)? {
            watch.release(subject, &range, sink).map_err(CollectError::Store)?;
            watch.handle_memory_change(subject, subject.process, &range, MemoryEffect::Written)?;
        }
    }
    Ok(())
}

/// Returns the code ranges of a program in memory.
fn code_ranges_in_memory(executable: &Executable, subject: &TracedProcess) -> Vec<Range<u64>> {
    executable.code.iter().map(|c| c.start.wrapping_add(subject.bias)..c.end.wrapping_add(subject.bias)).collect()
}

struct FlagSetOnDrop<'a>(&'a AtomicBool);

impl Drop for FlagSetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sets `ended` and interrupts the thread that follows the program as soon as the collection is to end: on request (`stop`) or after the
/// time `limit`. `ended` belongs to this run alone, so that the run's limit does not end other runs.
fn interrupt_follower_at_end(
    waiting: SignalWait,
    stop: &AtomicBool,
    (is_over, ended): (&AtomicBool, &AtomicBool),
    limit: Option<Duration>,
) {
    let begun = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) || limit.is_some_and(|limit| begun.elapsed() >= limit) {
            ended.store(true, Ordering::Relaxed);
            waiting.interrupt();
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Collector that sets breakpoints by ptrace, and executes the replaced instructions in slots.
#[derive(Clone, Copy, Debug)]
pub struct PtraceBreakpoints;

impl Collector for PtraceBreakpoints {
    fn name(&self) -> &'static str {
        "ptrace"
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        if run.sites.is_empty() {
            return Ok(WatchMeans::Nothing);
        }
        let mut breakpoints = Breakpoints::new();
        breakpoints.add(subject, run.executable, &sites_of(0, run.sites), run.jumps)?;
        Ok(WatchMeans::Breakpoints(breakpoints))
    }
}

/// Collector that patches the program in memory with jumps to copies of its blocks, which record themselves.
#[derive(Clone, Copy, Debug)]
pub struct TrampolineCollector;

impl Collector for TrampolineCollector {
    fn name(&self) -> &'static str {
        "trampolines"
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        if run.sites.is_empty() {
            return Ok(WatchMeans::Nothing);
        }
        let set = trampolines::Trampolines::install(subject, run, false)?;
        Ok(WatchMeans::Trampolines(Box::new(set)))
    }
}

/// Collector that uses jumps in witness sleds, which are `nop`s that were compiled into the program. Blocks without a sled are watched as
/// by [`TrampolineCollector`].
#[derive(Clone, Copy, Debug)]
pub struct Compiled;

impl Collector for Compiled {
    fn name(&self) -> &'static str {
        "compiled"
    }

    fn check_files(&self, executable: &Executable, libraries: &[Library]) -> Result<(), CollectError> {
        TrampolineCollector.check_files(executable, libraries)?;
        for path in [&executable.path].into_iter().chain(libraries.iter().map(|l| &l.executable.path)) {
            let fault = |fault: String| CollectError::Executable { path: path.clone(), fault };
            if sleds::find_first_sled(&Binary::read(path).map_err(|e| fault(e.to_string()))?).is_some() {
                return Ok(());
            }
        }
        let remedy = "Build it with `trodden-lab with --witnesses -- build`, or use `--collector trampolines`";
        Err(CollectError::Executable { path: executable.path.clone(), fault: format!("has no witness sleds. {remedy}") })
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        if run.sites.is_empty() {
            return Ok(WatchMeans::Nothing);
        }
        let set = trampolines::Trampolines::install(subject, run, true)?;
        Ok(WatchMeans::Trampolines(Box::new(set)))
    }
}

/// Collector that single-steps every instruction of the image.
#[derive(Clone, Copy, Debug)]
pub struct SingleStep;

impl Collector for SingleStep {
    fn name(&self) -> &'static str {
        "single-step"
    }

    fn leaves_code_unmodified(&self) -> bool {
        true
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        Ok(WatchMeans::Steps(SingleStepping::new(subject.process, &code_ranges_in_memory(run.executable, subject))?))
    }
}

/// Collector that sets kernel uprobes, which run a BPF program.
#[derive(Clone, Copy, Debug)]
pub struct UprobeCollector;

impl Collector for UprobeCollector {
    fn name(&self) -> &'static str {
        "uprobes"
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        if run.sites.is_empty() {
            return Ok(WatchMeans::Nothing);
        }
        let path = &run.executable.path;
        let binary = Binary::read(path).map_err(|e| CollectError::Executable { path: path.clone(), fault: e.to_string() })?;
        let slots = if subject.fresh { place_displaced_instruction_page(subject, &binary)? } else { None };
        let (mut probed, mut unprobed) = (Vec::new(), Vec::new());
        for (&site, number) in run.sites.iter().zip(0..) {
            match uprobes::probe_address(&binary, run.blocks, site).filter(|_| run.jumps.binary_search(&site).is_err()) {
                Some(place) => probed.push((place, number)),
                None => unprobed.push((number, site)),
            }
        }
        // The uprobes come first, so that no breakpoint is left behind if the kernel rejects them.
        let probes = uprobes::Uprobes::attach(&binary, subject.process, &probed, slots)?;
        let mut breakpoints = Breakpoints::new();
        breakpoints.add(subject, run.executable, &unprobed, run.jumps)?;
        Ok(WatchMeans::Uprobes(probes, breakpoints))
    }
}

/// The kernel's page is placed below this address, far from the image, the heap and libraries.
const MAX_KERNEL_PAGE_ADDRESS: u64 = 0x6000_0000_0000;

/// Makes the kernel map its page for displaced instructions where it does not move other mappings. The kernel takes the highest free
/// address when it first displaces an instruction, which would move the program's later mappings relative to a run without probes. So all
/// higher gaps are filled temporarily, while the program's first instruction is executed under a probe and then undone.
fn place_displaced_instruction_page(subject: &TracedProcess, binary: &Binary) -> Result<Option<Range<u64>>, CollectError> {
    let thread = subject.process;
    let Some(first) = uprobes::file_offset(binary, binary.entry()) else { return Ok(None) };
    let mut filled = Vec::new();
    let mut free = MAX_KERNEL_PAGE_ADDRESS;
    for mapping in mappings(thread)?.into_iter().filter(|m| m.end > MAX_KERNEL_PAGE_ADDRESS) {
        if mapping.start > free {
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE) as u64;
            let size = mapping.start - free;
            let got = subject.inject_system_call(
                thread,
                Some(subject.area),
                libc::SYS_mmap,
                [free, size, libc::PROT_NONE as u64, flags, u64::MAX, 0],
            )?;
            filled.extend((got as u64 == free).then_some([free, size]));
        }
        free = mapping.end;
    }
    let trigger = KernelProbes::attach(binary.path(), &[first], &[0], thread).map_err(CollectError::Uprobes)?;
    let saved = ptrace::read_registers(thread)?;
    ptrace::write_registers(thread, &Registers { rip: binary.entry().wrapping_add(subject.bias), orig_rax: u64::MAX, ..saved })?;
    subject.step(thread)?;
    ptrace::write_registers(thread, &saved)?;
    drop(trigger);
    for [start, size] in filled {
        subject.inject_system_call(thread, Some(subject.area), libc::SYS_munmap, [start, size, 0, 0, 0, 0])?;
    }
    Ok(mappings(thread)?.into_iter().find(|m| m.name == "[uprobes]").map(|m| m.start..m.end))
}

/// Collector that sets hardware breakpoints in the four debug registers.
#[derive(Clone, Copy, Debug)]
pub struct Hardware;

impl Collector for Hardware {
    fn name(&self) -> &'static str {
        "hardware"
    }

    fn leaves_code_unmodified(&self) -> bool {
        true
    }

    fn max_sites(&self) -> Option<usize> {
        Some(crate::hardware::MAX_HARDWARE_BREAKPOINTS)
    }

    fn watch(&self, subject: &TracedProcess, run: &TraceRun) -> Result<WatchMeans, CollectError> {
        let in_memory = run.sites.iter().map(|s| s.wrapping_add(subject.bias)).collect();
        Ok(WatchMeans::Hardware(HardwareBreakpoints::new(in_memory)?))
    }
}
