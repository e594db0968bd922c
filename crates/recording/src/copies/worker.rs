//! Runs one copy, on any machine. Everything that could make copies behave differently is fixed: addresses (no randomisation), the
//! environment (the same variables, with values of the same lengths), the program's name on the command line, standard input and, if
//! requested, the working folder.

use super::folders;
use super::spec::{CopyJobSpec, CopyOutcome, copy_file, write_atomically, write_result};
use crate::bursts::{BurstFiles, BurstThread};
use crate::streams::record::{STREAM_FILE_NAME_PATTERN, drain_during, write_raw_counts_of_log};
use crate::{BurstSchedule, RecordingContext, cpu_time, host_name, new_run_metadata, output_pattern, process_ending};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::personality::{self, Persona};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::temporary::{self, TemporaryFolder};
use trodden_profile::copies::CopyTimes;
use trodden_profile::stream::StreamDrainTotals;
use trodden_profile::{Run, collect, raw_files};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG_EXTENSION, files_with_extension, move_logs_to_folder};
use trodden_unit::Identity;
use trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE;
use trodden_wire::stream::{DEFAULT_REGIONS, MAX_WAIT_LIMIT_MS, STREAM_ENVIRONMENT_VARIABLE};

/// Burst schedule of a first run. The program counts during a tenth of the time.
const FIRST_RUN_BURSTS: BurstSchedule = BurstSchedule { burst: Duration::from_micros(200), period: Duration::from_millis(2) };

/// Runs one copy of a job and writes its outcome and counts to the file `result`. Fails if the copy cannot be run, or counts are lost. If
/// the program fails, this is not an error but part of the result.
pub fn run_worker(folder: &Path, copy: usize, result: &Path, context: &RecordingContext) -> Result<()> {
    let spec = CopyJobSpec::read(folder)?;
    let program = spec.programs.get(copy).with_context(|| format!("the job has no copy of the program with number {copy}"))?.to_path();
    let run_folders = RunFolders::new(folder, &spec, copy)?;
    let fixed_addresses = disable_address_randomisation(spec.random_addresses != Some(copy));
    let (mut command, out, err) = build_command(&spec, &program, &run_folders)?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let bursting =
        spec.sampled.then(|| BurstThread::start(BurstFiles::from_folder(run_folders.raw.path()), FIRST_RUN_BURSTS)).transpose()?;
    let (status, drained) = match spec.streamed {
        true => drain_during(run_folders.raw.path(), CompressionMethod::Phrases, || command.status()),
        false => (command.status(), Ok(StreamDrainTotals::default())),
    };
    let wall_ns = clock.elapsed().as_nanos() as u64;
    bursting.map(BurstThread::stop);
    drained?;
    if spec.streamed {
        keep_streams_of_copy(&run_folders, folder, copy)?;
    }
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    let ending = process_ending(status);
    let run = Run { ending: Some(ending), ..new_run_metadata() };
    let collected = collect(raw_files(run_folders.raw.path())?, run, context.units.as_ref());
    if let Some(problem) = collected.problems.iter().find(|p| p.loses_counts()) {
        bail!("the counts of a copy of the program are lost: {problem}");
    }
    let times = CopyTimes { wall_ns, cpu_ns: cpu_time(), started_ns: started.as_nanos() as u64, host: host_name(), fixed_addresses };
    write_atomically(&copy_file(folder, "times", copy).with_extension("json"), &serde_json::to_vec(&times)?)?;
    let outcome = if spec.ignore_output {
        CopyOutcome { ending, output: String::new(), error_output: String::new() }
    } else {
        CopyOutcome { ending, output: hash_file_content(&out)?, error_output: hash_file_content(&err)? }
    };
    fs::rename(&out, copy_file(folder, "out", copy))?;
    fs::rename(&err, copy_file(folder, "err", copy))?;
    run_folders.keep_changes(folder, copy)?;
    write_result(result, &outcome, &collected.profile, &context.temporary)
}

/// Writes raw files with the path counts in a copy's streams, and moves the streams to the job folder.
fn keep_streams_of_copy(run_folders: &RunFolders, folder: &Path, copy: usize) -> Result<()> {
    let logs = files_with_extension(run_folders.raw.path(), LOG_EXTENSION)?;
    for log in &logs {
        ensure!(
            write_raw_counts_of_log(log)? == 0,
            "copy {copy} of the program lost events, so its counts would be wrong. Record again with fewer copies at a time (--jobs)"
        );
    }
    let kept = copy_file(folder, "logs", copy);
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| format!("cannot remove {}", kept.display()))?;
    }
    fs::create_dir(&kept).with_context(|| format!("cannot create the folder {}", kept.display()))?;
    move_logs_to_folder(&logs, &kept)
}

struct RunFolders {
    raw: TemporaryFolder,
    /// Root of the private working folder; `None` if the copy runs in the user's folder.
    own: Option<TemporaryFolder>,
    directory: PathBuf,
}

impl RunFolders {
    fn new(folder: &Path, spec: &CopyJobSpec, copy: usize) -> Result<RunFolders> {
        // All names have the same length, because the size of the environment influences the address of the stack.
        let temporary = |prefix: &str| temporary::create_shared_folder_in(folder, &format!("{prefix}-{copy:04}-"));
        let raw = temporary("raw")?;
        let Some(pristine) = &spec.pristine else { return Ok(RunFolders { raw, own: None, directory: spec.directory.to_path() }) };
        let own = temporary("own")?;
        let directory = folders::make_private_folder(own.path(), &spec.directory.to_path(), &pristine.to_path())?;
        Ok(RunFolders { raw, own: Some(own), directory })
    }

    /// If this is the first copy, keeps its private working folder, so that its changes can be copied back later.
    fn keep_changes(self, folder: &Path, copy: usize) -> Result<()> {
        if let (0, Some(own)) = (copy, self.own) {
            let kept = copy_file(folder, "made", copy);
            if !kept.exists() {
                own.rename_and_keep(&kept)?;
            }
        }
        Ok(())
    }
}

fn build_command(spec: &CopyJobSpec, program: &Path, run_folders: &RunFolders) -> Result<(Command, PathBuf, PathBuf)> {
    let (out, err) = (run_folders.raw.path().join("out"), run_folders.raw.path().join("err"));
    // Only the owner may read what the program prints.
    let made = |path: &Path| {
        let made = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
        made.with_context(|| format!("cannot write {}", path.display()))
    };
    let input = match &spec.input {
        Some(file) => Stdio::from(File::open(file.to_path()).with_context(|| format!("cannot read {}", file.to_path().display()))?),
        None => Stdio::null(),
    };
    let mut command = Command::new(program);
    let arguments: Vec<_> = spec.command.iter().map(|w| w.to_os()).collect();
    command.arg0(&arguments[0]).args(&arguments[1..]).current_dir(&run_folders.directory);
    command.env_clear().envs(spec.environment.iter().map(|(name, value)| (name.to_os(), value.to_os())));
    let names = if spec.streamed { STREAM_FILE_NAME_PATTERN } else { "%m.raw" };
    if spec.streamed {
        // A copy may wait for the recorder as long as necessary.
        command.env(STREAM_ENVIRONMENT_VARIABLE, format!("whole,{DEFAULT_REGIONS},{MAX_WAIT_LIMIT_MS}"));
    }
    command
        .env(OUTPUT_ENVIRONMENT_VARIABLE, output_pattern(run_folders.raw.path(), names))
        .stdin(input)
        .stdout(made(&out)?)
        .stderr(made(&err)?);
    Ok((command, out, err))
}

/// Turns address randomisation for child processes off or on. Returns true if addresses are now fixed. Returns false in containers that
/// forbid fixed addresses.
fn disable_address_randomisation(fixed: bool) -> bool {
    let set = |now: Persona| if fixed { now | Persona::ADDR_NO_RANDOMIZE } else { now - Persona::ADDR_NO_RANDOMIZE };
    personality::get().is_ok_and(|now| personality::set(set(now)).is_ok()) && fixed
}

fn hash_file_content(path: &Path) -> Result<String> {
    Ok(Identity::from_content(&fs::read(path).with_context(|| format!("cannot read {}", path.display()))?).to_string())
}
