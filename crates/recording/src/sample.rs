//! Samples programs that are already running. The user names them by raw file, folder or process ID.

use crate::bursts::{BurstFiles, BurstThread, read_raw_files};
use crate::{BurstSchedule, ProfileDestination, RecordingContext, deliver_profile, host_name, is_mapped_by_process, new_run_metadata};
use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_profile::sampling::subtract_earlier_counts;
use trodden_profile::{Run, Sampling, SamplingSwitch, collect, is_raw_file};
use trodden_trace::{ProcessMapping, mappings};

/// Arguments of [`attach`].
#[derive(Clone, Debug)]
pub struct SamplingJob {
    /// Raw files, folders with raw files, or process IDs.
    pub subjects: Vec<PathBuf>,
    /// Time for which to sample; `None` to sample until a signal arrives, or until all processes given by ID have ended.
    pub time: Option<Duration>,
    /// The times at which the programs count.
    pub bursts: BurstSchedule,
    /// Where the profile is written.
    pub destination: ProfileDestination,
}

/// Samples running programs and stores their profile. Fails if a program or file does not exist or was not built with `--sample`, or its
/// counts cannot be read.
pub fn attach(job: &SamplingJob, context: &RecordingContext) -> Result<()> {
    let (files, processes) = resolve_subjects(&job.subjects)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let before = read_raw_files(&files.list_files()?)?;
    ensure!(
        files.list_files()?.iter().any(|f| matches!(SamplingSwitch::open(f), Ok(Some(_)))),
        "cannot sample {}: the program must be built with --sample and started with TRODDEN_OUTPUT, and no other recorder may be active. \
         Rebuild and restart it, or end the other recorder",
        job.subjects.iter().map(|s| s.display().to_string()).collect::<Vec<_>>().join(", ")
    );
    if processes.is_empty() && !files.list_files()?.iter().any(|file| is_mapped_by_process(file)) {
        log::warn!("no running process uses these files, so only processes that start later are sampled");
    }
    let (started, clock) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now());
    let bursting = BurstThread::start(files.clone(), job.bursts)?;
    let alive = |p: &u32| Path::new(&format!("/proc/{p}")).exists();
    while !stop.load(Ordering::Relaxed)
        && job.time.is_none_or(|t| clock.elapsed() < t)
        && (processes.is_empty() || processes.iter().any(alive))
    {
        let left = job.time.map_or(Duration::from_millis(50), |t| t.saturating_sub(clock.elapsed()));
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    let sampled = bursting.stop();
    let run = Run {
        command: processes.first().map(|p| command_of(*p)).unwrap_or_default(),
        host: host_name(),
        suite: job.destination.suite.clone(),
        started_ns: started.as_nanos() as u64,
        duration_ns: clock.elapsed().as_nanos() as u64,
        ..new_run_metadata()
    };
    let mut now = read_raw_files(&files.list_files()?)?;
    subtract_earlier_counts(&mut now, &before);
    let mut collected = collect::collect_loaded(now, run, context.units.as_ref());
    collected.profile.sampling = sampled.map(|s| Sampling::Bursts(s.estimate_counts(&collected.profile)));
    deliver_profile(&collected, &job.destination, context)?.check_nothing_was_lost()
}

/// Resolves names to raw files. Also returns the processes whose IDs were given.
fn resolve_subjects(names: &[PathBuf]) -> Result<(BurstFiles, Vec<u32>)> {
    let (mut files, mut processes) = (BurstFiles::default(), Vec::new());
    for name in names {
        let number = name.to_str().and_then(|n| n.parse::<u32>().ok()).filter(|_| !name.exists());
        match number {
            Some(process) => {
                let found = raw_files_of(process)?;
                ensure!(
                    !found.is_empty(),
                    "process {process} writes no file of raw counts. Build the program with --sample, and start it with \
                     TRODDEN_OUTPUT=FOLDER/%m.raw"
                );
                files.single.extend(found);
                processes.push(process);
            }
            None if name.is_dir() => files.folders.push(name.clone()),
            None if name.exists() => files.single.push(name.clone()),
            None => bail!("cannot attach to {}: expected a file, a folder or the ID of a running process", name.display()),
        }
    }
    Ok((files, processes))
}

fn raw_files_of(process: u32) -> Result<Vec<PathBuf>> {
    ensure!(Path::new(&format!("/proc/{process}")).exists(), "process {process} does not exist. It may have ended");
    let mappings = mappings(process as i32).with_context(|| format!("cannot read the memory mappings of process {process}"))?;
    let mut paths: Vec<PathBuf> = mappings.into_iter().filter(ProcessMapping::is_file).map(|m| m.name.into()).collect();
    paths.sort();
    paths.dedup();
    Ok(paths.into_iter().filter(|path| path.is_file() && is_raw_file(path)).collect())
}

fn command_of(process: u32) -> Vec<String> {
    let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    arguments.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}
