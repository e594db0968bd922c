//! Builds with LLVM's counters, for profile-guided optimisation and coverage. The compiler inserts them early, and the plugin removes them
//! late.
//!
//! A profile for `-fprofile-use` must contain the values of LLVM's own counters, and `llvm-cov` needs those of clang's or rustc's coverage.
//! So clang is asked to insert its instrumentation, by options of the front end, since those of the driver would also link LLVM's runtime.
//! Updates are atomic, because the optimiser leaves these intact. [`trodden_unit::edge_profile`] describes what the plugin does with them.

use super::arguments::CommandLine;
use crate::context::DriverContext;
use crate::experiment::from_environment;
use crate::other_programs::option_with_value;
use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use trodden_unit::experiment::{Observe, Settings};

/// Options of LLVM for all counters. The plugin reads function names, and cannot decompress them.
pub const LLVM_OPTIONS: [&str; 1] = ["-enable-name-compression=false"];
/// Options of LLVM for coverage. If the optimiser merged calls on different lines, it would be unknown which of them did not return.
const COVERAGE_LLVM_OPTIONS: [&str; 2] = ["-sink-common-insts=false", "-hoist-common-insts=false"];
/// Prefixes of clang's own profiling options, which cannot be used in the same build.
const CONFLICTING: &[&str] = &[
    "-fprofile-generate",
    "-fprofile-use",
    "-fprofile-instr-",
    "-fcs-profile-generate",
    "-fcoverage-mapping",
    "-fcoverage-mcdc",
    "-fprofile-sample-",
];

/// Variable that names the edge profile with which the drivers compile.
pub const USE_VARIABLE: &str = "TRODDEN_PROFILE_USE";

/// LLVM's counters that a build contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmCounters {
    /// Counters of edges, for `-fprofile-use`.
    Edges,
    /// Counters of source regions, for `llvm-cov`.
    Coverage,
    /// Counters of source regions and bitmaps of test vectors (MC/DC), for `llvm-cov`.
    Mcdc,
}

impl LlvmCounters {
    /// Returns the counters that settings request, if any.
    pub fn from_settings(settings: &Settings) -> Option<LlvmCounters> {
        match settings.observe? {
            Observe::EdgeProfile => Some(LlvmCounters::Edges),
            Observe::Coverage => Some(LlvmCounters::Coverage),
            Observe::Mcdc => Some(LlvmCounters::Mcdc),
            _ => None,
        }
    }

    /// Returns the option of `trodden build` that requests these counters.
    fn option(self) -> &'static str {
        match self {
            LlvmCounters::Edges => "--pgo",
            LlvmCounters::Coverage => "--coverage",
            LlvmCounters::Mcdc => "--coverage=mcdc",
        }
    }

    /// Returns the options of clang's front end that insert the counters. `-mno-constructor-aliases`: from `-O1` on, clang would replace
    /// calls of an empty destructor by calls of the base class's, and the regions of the empty one would not be counted.
    /// `-fdebug-info-for-profiling`: otherwise, line tables have no linkage names of inlined functions.
    fn clang_options(self) -> &'static [&'static str] {
        match self {
            LlvmCounters::Edges => &["-fprofile-instrument=llvm"],
            LlvmCounters::Coverage => {
                &["-fprofile-instrument=clang", "-fcoverage-mapping", "-mno-constructor-aliases", "-fdebug-info-for-profiling"]
            }
            LlvmCounters::Mcdc => &[
                "-fprofile-instrument=clang",
                "-fcoverage-mapping",
                "-fcoverage-mcdc",
                "-mno-constructor-aliases",
                "-fdebug-info-for-profiling",
            ],
        }
    }

    /// Returns the options of LLVM that the counters need.
    fn llvm_options(self) -> Vec<&'static str> {
        let more: &[&str] = if self == LlvmCounters::Edges { &[] } else { &COVERAGE_LLVM_OPTIONS };
        LLVM_OPTIONS.iter().chain(more).copied().collect()
    }

    /// Returns the options of rustc that insert the counters; rustc has none for MC/DC. Coverage counters are updated atomically by
    /// default, edge counters by an option of LLVM.
    fn rustc_options(self) -> &'static [&'static str] {
        match self {
            LlvmCounters::Edges => &["-Cprofile-generate", "-Cllvm-args=-instrprof-atomic-counter-update-all"],
            LlvmCounters::Coverage | LlvmCounters::Mcdc => &["-Cinstrument-coverage"],
        }
    }
}

/// Returns the options to add for compiling with an edge profile, if the environment names one. Disables warnings about functions without
/// a profile, of which there would be many.
pub fn use_options(context: &DriverContext, line: &CommandLine) -> Vec<OsString> {
    let Some(file) = profile_to_use(context).filter(|_| line.compiles) else { return Vec::new() };
    vec![option_with_value("-fprofile-use=", file), "-Wno-profile-instr-unprofiled".into(), "-Wno-profile-instr-out-of-date".into()]
}

/// Returns the edge profile that the environment names.
pub fn profile_to_use(context: &DriverContext) -> Option<&OsStr> {
    context.value(USE_VARIABLE)
}

/// Returns true if functions must have the same names as in a plain build, because a profile refers to them by name.
pub fn names_must_match(context: &DriverContext, settings: &Settings) -> bool {
    LlvmCounters::from_settings(settings) == Some(LlvmCounters::Edges) || profile_to_use(context).is_some()
}

/// Returns the counters that the environment requests.
pub fn requested(context: &DriverContext) -> Result<Option<LlvmCounters>> {
    Ok(LlvmCounters::from_settings(&from_environment(context)?))
}

/// Returns the options to add for rustc.
///
/// # Errors
/// Fails if the settings in the environment cannot be read, or request MC/DC, which rustc does not support.
pub fn rustc_options(context: &DriverContext) -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    if let Some(counters) = requested(context)? {
        if counters == LlvmCounters::Mcdc {
            bail!("rustc does not support MC/DC coverage. Build Rust with `--coverage` instead of `--coverage=mcdc`");
        }
        options.extend(counters.rustc_options().iter().map(OsString::from));
        options.extend(counters.llvm_options().into_iter().map(|a| OsString::from(format!("-Cllvm-args={a}"))));
    }
    options.extend(profile_to_use(context).map(|file| option_with_value("-Cprofile-use=", file)));
    Ok(options)
}

/// Removes LLVM's profile runtime, which the program no longer needs, from the arguments of a link that rustc requests.
pub fn remove_runtime(arguments: &mut Vec<OsString>) {
    const ROOT: &str = "__llvm_profile_runtime";
    let mut kept: Vec<OsString> = Vec::with_capacity(arguments.len());
    for argument in arguments.drain(..) {
        let text = argument.to_string_lossy();
        if text == ROOT || text == format!("-Wl,{ROOT}") {
            kept.pop();
        } else {
            let is_runtime = text.contains("libprofiler_builtins-") || (text.contains("-u") && text.ends_with(ROOT));
            kept.extend((!is_runtime).then_some(argument));
        }
    }
    *arguments = kept;
}

/// Returns the options to add for inserting counters.
///
/// # Errors
/// Fails if the user's options include clang's own profiling options.
pub fn compile_options(context: &DriverContext, line: &CommandLine) -> Result<Vec<OsString>> {
    let Some(counters) = requested(context)?.filter(|_| line.compiles) else { return Ok(Vec::new()) };
    let conflicts = |argument: &str| CONFLICTING.iter().any(|f| argument.starts_with(f));
    if let Some(argument) = line.arguments.iter().map(|w| w.to_string_lossy()).find(|w| conflicts(w)) {
        bail!("{argument} cannot be used together with `{}`, which inserts the same instrumentation. Omit {argument}", counters.option());
    }
    let front_end = counters.clang_options().iter().copied().chain(["-fprofile-update=atomic"]);
    let arguments = front_end.chain(counters.llvm_options().into_iter().flat_map(|o| ["-mllvm", o]));
    Ok(arguments.flat_map(|w| ["-Xclang", w]).map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_runtime_is_removed_however_the_option_is_spelled() {
        for spelling in [
            "-u __llvm_profile_runtime",
            "-Wl,-u,__llvm_profile_runtime",
            "-Wl,-u -Wl,__llvm_profile_runtime",
            "-Wl,-u__llvm_profile_runtime",
        ] {
            let line = format!("a.o /x/libprofiler_builtins-12.rlib {spelling} -u main -o prog");
            let mut arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            remove_runtime(&mut arguments);
            assert_eq!(arguments, ["a.o", "-u", "main", "-o", "prog"].map(OsString::from), "{spelling}");
        }
    }
}
