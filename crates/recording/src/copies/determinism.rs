//! Checks whether a program is deterministic, by running it several times in the fixed surroundings of a copy (environment, addresses,
//! input).

use super::CopyContext;
use super::launching::{CopyRun, CopyRunner, build_job_spec, launch_copies, read_results, resolve_program, sequential_engine};
use super::outcomes::describe_outcome_differences;
use super::preparation::CopyInput;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use trodden_driver::recipe::OsText;
use trodden_launch::StopFlag;
use trodden_profile::copies::path_differences;

/// The result of a determinism check.
#[derive(Clone, Debug)]
pub struct DeterminismCheck {
    /// Differences between runs under the same conditions.
    pub differences: Vec<String>,
    /// Differences that appear when addresses are randomised. Determined only if there are no other differences.
    pub by_addresses: Vec<String>,
}

impl DeterminismCheck {
    /// Returns true if no run differed.
    pub fn behaves_the_same(&self) -> bool {
        self.differences.is_empty() && self.by_addresses.is_empty()
    }
}

/// Runs a program `runs` times as a copy would run, and once more with randomised addresses. Returns the differences.
pub fn check_repeatable(
    command: &[OsString],
    runs: u32,
    context: CopyContext,
    input: &dyn Fn() -> Result<CopyInput>,
) -> Result<DeterminismCheck> {
    let program = resolve_program(&command[0], context)?;
    let input = input()?;
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let folder = context.recording.temporary_folder("trodden-doctor-")?;
    let runs = runs as usize;
    let mut spec = build_job_spec(command, vec![OsText::from(program.as_os_str()); runs + 1], folder.path(), false, input, context)?;
    spec.random_addresses = Some(runs);
    let _job = spec.write(folder.path())?;
    // All runs use the same working folder, so they run one at a time.
    let all: Vec<usize> = (0..=runs).collect();
    launch_copies(folder.path(), &all, &CopyRunner { engine: sequential_engine(None), stop: &stop, context })?;
    drop(stop);
    let mut copies = read_results(folder.path(), &all, context)?;
    let randomised = copies.pop().context("no run of the program produced a result")?;
    ensure!(
        !copies[0].profile.images.is_empty(),
        "nothing was counted, because {} was not built with trodden. Build it with `trodden build -- ...`",
        program.display()
    );
    let mut found = describe_outcome_differences(&copies);
    for (at, copy) in copies.iter().enumerate().skip(1) {
        found.extend(path_differences(&copies[0].profile, &copy.profile).into_iter().map(|d| format!("run {at}: {d}")));
    }
    // If runs differ even under the same conditions, the effect of addresses cannot be isolated.
    let by_addresses = if found.is_empty() { address_differences(&copies[0], &randomised) } else { Vec::new() };
    Ok(DeterminismCheck { differences: found, by_addresses })
}

/// Returns how the run with randomised addresses differs. Such differences matter because copies have code of different size, so some
/// addresses also differ between copies.
fn address_differences(fixed: &CopyRun, randomised: &CopyRun) -> Vec<String> {
    let mut differences = path_differences(&fixed.profile, &randomised.profile);
    if fixed.outcome != randomised.outcome {
        differences.push("its output or exit status differs".into());
    }
    differences
}
