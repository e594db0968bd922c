//! Measures what finding untested paths and segments costs: code size, and processor time of production runs (as in tables 3.4 and 3.5 and
//! figure 3.19 of Vaswani's thesis).

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Costs of several builds, the first of which counts nothing.
pub struct BuildCosts {
    /// Costs of each build.
    pub builds: Vec<BuildCost>,
    /// Number of runs of the production workload per build.
    pub rounds: u32,
}

/// Cost of one build.
pub struct BuildCost {
    /// What the build counts.
    pub name: &'static str,
    /// Size of `.text`, in bytes.
    pub code: u64,
    /// User plus system time of the production workload, as the minimum of all runs.
    pub time: Option<Duration>,
}

impl BuildCosts {
    /// Measures `builds`, the first of which counts nothing. `field` returns the command that runs a build as in production; each build is
    /// run `rounds` times. `cpu_time` returns the processor time of terminated child processes, in nanoseconds.
    pub fn measure(
        builds: &[(&'static str, &Path)],
        field: impl Fn(&Path) -> Result<String>,
        rounds: u32,
        cpu_time: fn() -> u64,
    ) -> Result<BuildCosts> {
        let row = |(name, file): &(&'static str, &Path)| Ok(BuildCost { name, code: code_size(file)?, time: None });
        let mut costs: Vec<BuildCost> = builds.iter().map(row).collect::<Result<_>>()?;
        for _ in 0..rounds {
            for (row, (_, file)) in costs.iter_mut().zip(builds) {
                let time = run_timed(&field(file)?, cpu_time)?;
                row.time = Some(row.time.map_or(time, |least| least.min(time)));
            }
        }
        Ok(BuildCosts { builds: costs, rounds })
    }

    /// Returns the code size and the time of a build, relative to the build that counts nothing.
    pub fn ratio(&self, row: &BuildCost) -> (f64, Option<f64>) {
        let plain = &self.builds[0];
        let time = row.time.zip(plain.time).map(|(time, plain)| time.as_secs_f64() / plain.as_secs_f64().max(1e-9));
        (row.code as f64 / plain.code.max(1) as f64, time)
    }
}

fn code_size(file: &Path) -> Result<u64> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let object = object::File::parse(&*bytes).with_context(|| format!("{} is not an object file", file.display()))?;
    Ok(object.section_by_name(".text").map_or(0, |section| section.size()))
}

/// Runs a command, and returns the user and system time of the command and its children.
fn run_timed(command: &str, cpu_time: fn() -> u64) -> Result<Duration> {
    let before = cpu_time();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for variable in [trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE, trodden_wire::stream::STREAM_ENVIRONMENT_VARIABLE] {
        shell.env_remove(variable);
    }
    let status = shell.status().context("cannot run `sh`")?;
    ensure!(status.code().is_some(), "the command `{command}` (--field) was killed by a signal");
    Ok(Duration::from_nanos(cpu_time().saturating_sub(before)))
}
