//! Builds that use LLVM's counters, for profile-guided optimisation and coverage. The compiler inserts these counters early, and the plugin
//! removes them late.
//!
//! A profile for `-fprofile-use` must contain the values of LLVM's own counters, and `llvm-cov` needs the values of clang's or rustc's
//! coverage counters. Clang therefore inserts its instrumentation. Front end options request it, because the equivalent driver options
//! would also link LLVM's runtime. Counters are updated atomically, because the optimiser leaves atomic updates intact.
//! [`trodden_unit::edge_profile`] describes how the plugin replaces these updates.

use super::arguments::CompilerCommandLine;
use crate::context::DriverContext;
use crate::experiment::from_environment;
use crate::other_programs::option_with_value;
use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use trodden_unit::experiment::{Observe, Settings};

/// LLVM options for all kinds of counters. They keep function names uncompressed, because the plugin reads them and cannot decompress them.
pub const LLVM_OPTIONS: [&str; 1] = ["-enable-name-compression=false"];
/// Additional LLVM options for coverage. They keep the optimiser from merging calls on different lines, because it would be unknown which
/// of the merged calls did not return.
const COVERAGE_LLVM_OPTIONS: [&str; 2] = ["-sink-common-insts=false", "-hoist-common-insts=false"];
/// Prefixes of clang's profiling options that cannot be combined with LLVM's counters in trodden builds.
const CONFLICTING_OPTIONS: &[&str] = &[
    "-fprofile-generate",
    "-fprofile-use",
    "-fprofile-instr-",
    "-fcs-profile-generate",
    "-fcoverage-mapping",
    "-fcoverage-mcdc",
    "-fprofile-sample-",
];

/// Environment variable with the path of the edge profile that the drivers pass to clang's `-fprofile-use`.
pub const PROFILE_USE_VARIABLE: &str = "TRODDEN_PROFILE_USE";

/// The kind of LLVM counters that a build inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmCounters {
    /// Edge counters, for `-fprofile-use`.
    Edges,
    /// Counters for source regions, for `llvm-cov`.
    Coverage,
    /// Counters for source regions and bitmaps of test vectors (MC/DC), for `llvm-cov`.
    Mcdc,
}

impl LlvmCounters {
    /// Returns the counters that the settings request; `None` if they request none.
    pub fn from_settings(settings: &Settings) -> Option<LlvmCounters> {
        match settings.observe? {
            Observe::EdgeProfile => Some(LlvmCounters::Edges),
            Observe::Coverage => Some(LlvmCounters::Coverage),
            Observe::Mcdc => Some(LlvmCounters::Mcdc),
            _ => None,
        }
    }

    fn build_option(self) -> &'static str {
        match self {
            LlvmCounters::Edges => "--pgo",
            LlvmCounters::Coverage => "--coverage",
            LlvmCounters::Mcdc => "--coverage=mcdc",
        }
    }

    /// Returns the front end options that insert the counters. From `-O1` on, `-mno-constructor-aliases` keeps clang from replacing calls
    /// to an empty destructor by calls to the base class's destructor, which would leave the empty destructor's regions uncounted.
    /// `-fdebug-info-for-profiling` adds the linkage names of inlined functions to line tables.
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

    fn llvm_options(self) -> Vec<&'static str> {
        let more: &[&str] = if self == LlvmCounters::Edges { &[] } else { &COVERAGE_LLVM_OPTIONS };
        LLVM_OPTIONS.iter().chain(more).copied().collect()
    }

    /// Returns the rustc options that insert the counters. rustc has no options for MC/DC. It updates coverage counters atomically by
    /// default, but edge counters only with an LLVM option.
    fn rustc_options(self) -> &'static [&'static str] {
        match self {
            LlvmCounters::Edges => &["-Cprofile-generate", "-Cllvm-args=-instrprof-atomic-counter-update-all"],
            LlvmCounters::Coverage | LlvmCounters::Mcdc => &["-Cinstrument-coverage"],
        }
    }
}

/// Returns the options for compiling with the edge profile that the environment names, if any. They also silence warnings about functions
/// without a profile, which are usually numerous.
pub fn profile_use_options(context: &DriverContext, line: &CompilerCommandLine) -> Vec<OsString> {
    let Some(file) = profile_to_use(context).filter(|_| line.compiles) else { return Vec::new() };
    vec![option_with_value("-fprofile-use=", file), "-Wno-profile-instr-unprofiled".into(), "-Wno-profile-instr-out-of-date".into()]
}

/// Returns the path of the edge profile that the environment names, if any.
pub fn profile_to_use(context: &DriverContext) -> Option<&OsStr> {
    context.value(PROFILE_USE_VARIABLE)
}

/// Returns true if functions must have the same names as in a build without trodden, because an edge profile, which refers to functions by
/// name, is collected or used.
pub fn must_keep_function_names(context: &DriverContext, settings: &Settings) -> bool {
    LlvmCounters::from_settings(settings) == Some(LlvmCounters::Edges) || profile_to_use(context).is_some()
}

/// Returns the counters that the environment's settings request.
pub fn requested_counters(context: &DriverContext) -> Result<Option<LlvmCounters>> {
    Ok(LlvmCounters::from_settings(&from_environment(context)?))
}

/// Returns the options to pass to rustc. Fails if the environment's settings cannot be read, or request MC/DC, which rustc does not
/// support.
pub fn rustc_options(context: &DriverContext) -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    if let Some(counters) = requested_counters(context)? {
        if counters == LlvmCounters::Mcdc {
            bail!("rustc does not support MC/DC coverage. Build Rust with `--coverage` instead of `--coverage=mcdc`");
        }
        options.extend(counters.rustc_options().iter().map(OsString::from));
        options.extend(counters.llvm_options().into_iter().map(|a| OsString::from(format!("-Cllvm-args={a}"))));
    }
    options.extend(profile_to_use(context).map(|file| option_with_value("-Cprofile-use=", file)));
    Ok(options)
}

/// Removes LLVM's profile runtime from the linker arguments that rustc passes. The program does not need it, because the plugin has removed
/// LLVM's counters.
pub fn remove_profile_runtime(arguments: &mut Vec<OsString>) {
    const RUNTIME_SYMBOL: &str = "__llvm_profile_runtime";
    let mut kept: Vec<OsString> = Vec::with_capacity(arguments.len());
    for argument in arguments.drain(..) {
        let text = argument.to_string_lossy();
        if text == RUNTIME_SYMBOL || text == format!("-Wl,{RUNTIME_SYMBOL}") {
            kept.pop();
        } else {
            let is_runtime = text.contains("libprofiler_builtins-") || (text.contains("-u") && text.ends_with(RUNTIME_SYMBOL));
            kept.extend((!is_runtime).then_some(argument));
        }
    }
    *arguments = kept;
}

/// Returns the options for inserting counters. Fails if the user's arguments contain clang's own profiling options.
pub fn compile_options(context: &DriverContext, line: &CompilerCommandLine) -> Result<Vec<OsString>> {
    let Some(counters) = requested_counters(context)?.filter(|_| line.compiles) else { return Ok(Vec::new()) };
    let conflicts = |argument: &str| CONFLICTING_OPTIONS.iter().any(|f| argument.starts_with(f));
    if let Some(argument) = line.arguments.iter().map(|w| w.to_string_lossy()).find(|w| conflicts(w)) {
        bail!("{argument} cannot be combined with `{}`, which inserts the same instrumentation. Omit {argument}", counters.build_option());
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
            remove_profile_runtime(&mut arguments);
            assert_eq!(arguments, ["a.o", "-u", "main", "-o", "prog"].map(OsString::from), "{spelling}");
        }
    }
}
