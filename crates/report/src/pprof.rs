//! A profile for `pprof`: a gzipped protocol buffer. Field numbers and meanings are those of `profile.proto` in google/pprof.
//!
//! Each executed path is a sample with two values: executions and executed instructions. A path is presented as if its function called it,
//! so a sample's stack has the path as its leaf, then the function.

use crate::error::ReportError;
use crate::measure::PathMeasure;
use crate::path_listing::{PathListing, ShownPathStart};
use crate::select::PathSelection;
use crate::view::{Function as Profiled, ProfileView};
use crate::words;
use std::collections::HashMap;
use std::io::Write;

const MAX_OUTLINE_LINES: usize = 12;

/// Writes the selected paths as a compressed profile. Fails if no function matches the selection.
pub fn write_pprof(view: &ProfileView, selection: &PathSelection) -> Result<Vec<u8>, ReportError> {
    let profile = build_profile(view, selection)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&prost::Message::encode_to_vec(&profile)).map_err(ReportError::Compress)?;
    encoder.finish().map_err(ReportError::Compress)
}

/// Builds the uncompressed `Profile` message for the selected paths. Fails if no function matches the selection.
pub fn build_profile(view: &ProfileView, selection: &PathSelection) -> Result<PprofProfile, ReportError> {
    let ranking = selection.rank(view)?;
    let mut builder = PprofBuilder::default();
    builder.intern("");
    let sample_type = vec![builder.build_value_type("executions", "count"), builder.build_value_type("instructions", "count")];
    for ranked in &ranking.paths {
        let outer = builder.intern_function_location(ranked.function);
        let leaf = builder.intern_path_location(ranked.function, &PathListing::from_path(ranked.function, ranked.path), ranked.path.id);
        let instructions = ranked.function.weight(ranked.path, PathMeasure::Instructions);
        let value = vec![clamp_to_i64(ranked.path.count.into()), clamp_to_i64(instructions)];
        builder.samples.push(PprofSample { location_id: vec![leaf, outer], value });
    }
    let run = &view.profile.run;
    let comment = vec![builder.intern(&words::command(&run.command))];
    let default_sample_type = builder.intern(if selection.measure == PathMeasure::Count { "executions" } else { "instructions" });
    Ok(PprofProfile {
        sample_type,
        sample: builder.samples,
        location: builder.locations,
        function: builder.functions,
        string_table: builder.strings,
        time_nanos: clamp_to_i64(run.started_ns.into()),
        duration_nanos: clamp_to_i64(run.duration_ns.into()),
        comment,
        default_sample_type,
    })
}

fn clamp_to_i64(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Builds the message's tables, and stores each string once.
#[derive(Default)]
struct PprofBuilder {
    strings: Vec<String>,
    known: HashMap<String, i64>,
    samples: Vec<PprofSample>,
    locations: Vec<PprofLocation>,
    functions: Vec<PprofFunction>,
    /// Location IDs of functions, by the address of their maps.
    function_locations: HashMap<*const trodden_unit::FunctionMap, u64>,
}

impl PprofBuilder {
    fn intern(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        let place = self.strings.len() as i64;
        self.strings.push(text.to_string());
        self.known.insert(text.to_string(), place);
        place
    }

    fn build_value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.intern(kind), unit: self.intern(unit) }
    }

    fn intern_function_location(&mut self, function: &Profiled) -> u64 {
        let key = std::ptr::from_ref(function.map);
        if let Some(&known) = self.function_locations.get(&key) {
            return known;
        }
        let line = function.line().unwrap_or(0);
        let location = self.add_location(&function.name.full, &function.name.linkage, function.file().unwrap_or(""), line);
        self.function_locations.insert(key, location);
        location
    }

    fn intern_path_location(&mut self, function: &Profiled, listing: &PathListing, id: u64) -> u64 {
        let line = match listing.begins {
            ShownPathStart::AfterCut { line: Some(line), .. } => line,
            _ => listing.steps.iter().filter_map(|s| s.chain.first()).map(|p| p.line).next().unwrap_or(0),
        };
        let name = format!("{} path {id} ({})", function.name.short, listing.outline(MAX_OUTLINE_LINES));
        self.add_location(&name, &name, function.file().unwrap_or(""), line)
    }

    fn add_location(&mut self, name: &str, system_name: &str, file: &str, line: u32) -> u64 {
        let id = self.functions.len() as u64 + 1;
        let function = PprofFunction {
            id,
            name: self.intern(name),
            system_name: self.intern(system_name),
            filename: self.intern(file),
            start_line: line.into(),
        };
        self.functions.push(function);
        self.locations.push(PprofLocation { id, line: vec![PprofLine { function_id: id, line: line.into() }] });
        id
    }
}

/// The message `Profile` of `profile.proto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofProfile {
    /// Types of the samples' values.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Executed paths.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<PprofSample>,
    /// Code locations.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<PprofLocation>,
    /// Functions and paths.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<PprofFunction>,
    /// All strings. The first one is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Start of the run, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Wall time of the run, in nanoseconds.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// Comments, as indices into the string table.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value shown by default, as an index into the string table.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// Name and unit of a value. Both are indices into the string table.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ValueType {
    /// Index of the name.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// Index of the unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// An executed path.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofSample {
    /// Location of the path, then location of its function.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// Number of executions, then number of executed instructions.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

/// A function or path as the location of a stack frame.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofLocation {
    /// ID, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A single line.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<PprofLine>,
}

/// A source line in a function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PprofLine {
    /// ID of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Line number in the function's file.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function, or a path that is presented as a function. Names are indices into the string table.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PprofFunction {
    /// ID, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Demangled name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Linkage name.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Line of the declaration.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
