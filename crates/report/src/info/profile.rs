//! Summary of a stored profile for `trodden info`.

use super::SCHEMA_VERSION;
use crate::words::{self, plural};
use crate::{escape, json};
use serde::{Serialize, Serializer};
use std::fmt::{self, Write};
use std::path::Path;
use trodden_profile::{ProcessEnding, RecoveredProfile, Run};
use trodden_unit::count_distinct_functions;

/// Summary of those parts of a profile that could be read.
#[derive(Debug, Serialize)]
pub struct ProfileSummary<'a> {
    schema_version: u32,
    #[serde(serialize_with = "serialize_run")]
    run: &'a Run,
    images: Vec<ProfiledImageSummary<'a>>,
    lost: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProfiledImageSummary<'a> {
    path: &'a str,
    image: String,
    build_id: Option<&'a str>,
    units: usize,
    functions: usize,
    functions_entered: usize,
    counters: u64,
    counters_hit: usize,
}

impl<'a> ProfileSummary<'a> {
    /// Summarises a profile.
    pub fn new(recovered: &'a RecoveredProfile) -> ProfileSummary<'a> {
        ProfileSummary {
            schema_version: SCHEMA_VERSION,
            run: &recovered.profile.run,
            images: recovered.profile.images.iter().map(summarise_image).collect(),
            lost: recovered.lost.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns true if the complete profile could be read.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// Renders the summary as text. `size` is the size of the file in bytes.
    pub fn text(&self, file: &Path, size: u64) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, file, size);
        out
    }

    fn write(&self, out: &mut String, file: &Path, size: u64) -> fmt::Result {
        let run = self.run;
        let line = escape::escape_line;
        writeln!(out, "{} ({})", line(&file.display().to_string()), plural(size.into(), "byte", "bytes"))?;
        writeln!(out, "  command    {}", if run.command.is_empty() { "several".to_owned() } else { line(&words::command(&run.command)) })?;
        writeln!(out, "  folder     {}", line(&run.directory))?;
        writeln!(out, "  host       {}", line(&run.host))?;
        writeln!(out, "  suite      {}", line(run.suite.as_deref().unwrap_or("none")))?;
        writeln!(out, "  runs       {}", run.runs)?;
        writeln!(out, "  duration   {:.3} s", run.duration_ns as f64 / 1e9)?;
        writeln!(out, "  ending     {}", format_ending(run.ending, run.runs))?;
        writeln!(out, "  recorder   trodden {}", line(&run.recorder))?;
        for image in &self.images {
            writeln!(out, "\n{}", line(image.path))?;
            writeln!(out, "  image      {}", image.image)?;
            writeln!(out, "  build id   {}", image.build_id.unwrap_or("none"))?;
            writeln!(
                out,
                "  functions  {} entered of {} in {}",
                image.functions_entered,
                image.functions,
                plural(image.units as u128, "unit", "units")
            )?;
            writeln!(out, "  paths      {} taken of {}", image.counters_hit, image.counters)?;
        }
        if !self.lost.is_empty() {
            writeln!(out, "\nCorrupt parts ({})", self.lost.len())?;
            self.lost.iter().try_for_each(|l| writeln!(out, "  {}", line(l)))?;
        }
        Ok(())
    }
}

fn serialize_run<S: Serializer>(run: &&Run, serializer: S) -> Result<S::Ok, S::Error> {
    json::run_json(run).serialize(serializer)
}

fn summarise_image(image: &trodden_profile::ImageProfile) -> ProfiledImageSummary<'_> {
    let functions = || image.units.iter().flat_map(|u| u.map.functions.iter().map(move |f| (u, f)));
    ProfiledImageSummary {
        path: &image.path,
        image: image.identity.to_string(),
        build_id: image.build_id.as_deref(),
        units: image.units.len(),
        functions: count_distinct_functions(functions().map(|(_, f)| f)),
        functions_entered: count_distinct_functions(functions().filter(|(u, f)| u.counts_of(f).next().is_some()).map(|(_, f)| f)),
        // A unit may also have counters that do not count paths.
        counters: functions().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.counters)),
        counters_hit: functions().map(|(u, f)| u.counts_of(f).count()).sum(),
    }
}

fn format_ending(ending: Option<ProcessEnding>, runs: u64) -> String {
    match ending {
        None if runs > 1 => "several".into(),
        None => "unknown".into(),
        Some(ProcessEnding::Exit(status)) => format!("exit status {status}"),
        Some(ProcessEnding::Signal(signal)) => format!("signal {signal}"),
    }
}
