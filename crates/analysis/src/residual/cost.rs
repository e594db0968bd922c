//! What finding untested paths and segments costs: code size, and processor time of the field's runs.
//!
//! Tables 3.4 and 3.5 and figure 3.19 of Vaswani's thesis as numbers: each build against the one that counts nothing.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The builds that are compared, the first counting nothing.
pub struct Costs {
    /// The builds.
    pub builds: Vec<BuildCost>,
    /// How often the field's command was run with each.
    pub rounds: u32,
}

/// What a build costs.
pub struct BuildCost {
    /// What it counts.
    pub name: &'static str,
    /// Bytes of `.text`.
    pub code: u64,
    /// Least user and system time of the field's command.
    pub time: Option<Duration>,
}

impl Costs {
    /// Measures: `builds` with their names, the first counting nothing; `field` gives the command that is run `rounds` times with each, in
    /// turns. `cpu_time` gives the processor time of all children that have ended, in ns.
    ///
    /// # Errors
    /// A build cannot be read, or the field's command does not run.
    pub fn measure(
        builds: &[(&'static str, &Path)],
        field: impl Fn(&Path) -> Result<String>,
        rounds: u32,
        cpu_time: fn() -> u64,
    ) -> Result<Costs> {
        let row = |(name, file): &(&'static str, &Path)| Ok(BuildCost { name, code: code_size(file)?, time: None });
        let mut costs: Vec<BuildCost> = builds.iter().map(row).collect::<Result<_>>()?;
        for _ in 0..rounds {
            for (row, (_, file)) in costs.iter_mut().zip(builds) {
                let time = run(&field(file)?, cpu_time)?;
                row.time = Some(row.time.map_or(time, |least| least.min(time)));
            }
        }
        Ok(Costs { builds: costs, rounds })
    }

    /// Code and time of a build, as multiples of those of the build that counts nothing.
    pub fn ratio(&self, row: &BuildCost) -> (f64, Option<f64>) {
        let plain = &self.builds[0];
        let time = row.time.zip(plain.time).map(|(time, plain)| time.as_secs_f64() / plain.as_secs_f64().max(1e-9));
        (row.code as f64 / plain.code.max(1) as f64, time)
    }
}

fn code_size(file: &Path) -> Result<u64> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let object = object::File::parse(&*bytes).with_context(|| format!("{} is no program", file.display()))?;
    Ok(object.section_by_name(".text").map_or(0, |section| section.size()))
}

/// User and system time of a command, with its children.
fn run(command: &str, cpu_time: fn() -> u64) -> Result<Duration> {
    let before = cpu_time();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for variable in [trodden_wire::OUTPUT_VARIABLE, trodden_wire::stream::STREAM_VARIABLE] {
        shell.env_remove(variable);
    }
    let status = shell.status().context("cannot run sh")?;
    ensure!(status.code().is_some(), "the field's command {command} was ended by a signal");
    Ok(Duration::from_nanos(cpu_time().saturating_sub(before)))
}
