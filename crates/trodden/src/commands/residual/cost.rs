//! What finding untested paths and segments costs: code size, and processor time of the field's runs.
//!
//! Tables 3.4 and 3.5 and figure 3.19 of Vaswani's thesis as numbers: each build against the one that counts nothing.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use trodden_recording::cpu_time;

/// The builds that are compared, the first counting nothing.
pub struct Costs {
    rows: Vec<Row>,
    rounds: u32,
}

struct Row {
    name: &'static str,
    /// Bytes of `.text`.
    code: u64,
    /// Least user and system time of the field's command.
    time: Option<Duration>,
}

impl Costs {
    /// Measures: `builds` with their names, the first counting nothing; `field` gives the command that is run `rounds` times with each, in
    /// turns.
    ///
    /// # Errors
    /// A build cannot be read, or the field's command does not run.
    pub fn measure(builds: &[(&'static str, &Path)], field: impl Fn(&Path) -> Result<String>, rounds: u32) -> Result<Costs> {
        let row = |(name, file): &(&'static str, &Path)| Ok(Row { name, code: code_size(file)?, time: None });
        let mut rows: Vec<Row> = builds.iter().map(row).collect::<Result<_>>()?;
        for _ in 0..rounds {
            for (row, (_, file)) in rows.iter_mut().zip(builds) {
                let time = run(&field(file)?)?;
                row.time = Some(row.time.map_or(time, |least| least.min(time)));
            }
        }
        Ok(Costs { rows, rounds })
    }

    fn ratio(&self, row: &Row) -> (f64, Option<f64>) {
        let plain = &self.rows[0];
        let time = row.time.zip(plain.time).map(|(time, plain)| time.as_secs_f64() / plain.as_secs_f64().max(1e-9));
        (row.code as f64 / plain.code.max(1) as f64, time)
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::from("What it costs, of the build that counts nothing\n");
        out += "  build                       code    time\n";
        for row in &self.rows {
            let (code, time) = self.ratio(row);
            let time = time.map_or(String::from("      -"), |ratio| format!("{ratio:>7.3}"));
            out += &format!("  {:<24}  {code:>6.2} {time}\n", row.name);
        }
        match self.rounds {
            0 => out + "  (--rounds N measures times)\n\n",
            _ => out + "\n",
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let (code, time) = self.ratio(row);
            json!({
                "build": row.name,
                "code_bytes": row.code,
                "code_ratio": code,
                "time_us": row.time.map(|t| t.as_micros() as u64),
                "time_ratio": time,
            })
        };
        json!(self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

fn code_size(file: &Path) -> Result<u64> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let object = object::File::parse(&*bytes).with_context(|| format!("{} is no program", file.display()))?;
    Ok(object.section_by_name(".text").map_or(0, |section| section.size()))
}

/// User and system time of a command, with its children.
fn run(command: &str) -> Result<Duration> {
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
