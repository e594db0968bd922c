//! Builds with LLVM's counters, which the compiler inserts early and the plugin takes out late: for profile-guided
//! optimisation and coverage.
//!
//! A profile for `-fprofile-use` must hold the values of LLVM's own counters, and `llvm-cov` wants those of clang's or
//! rustc's coverage. So clang is asked for its instrumentation (by options of its front end, for those of the driver
//! would link LLVM's runtime, too), with atomic updates, which the optimiser leaves whole; what the plugin makes of them
//! is described in [`trodden_unit::edge_profile`].

use super::arguments::CommandLine;
use crate::context::DriverContext;
use crate::experiment::of_environment;
use crate::other_programs::joined;
use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use trodden_unit::experiment::{Observe, Settings};

/// Options of LLVM: names are read by the plugin, which has no decompressor.
pub const LLVM_OPTIONS: [&str; 1] = ["-enable-name-compression=false"];
/// Options of LLVM for coverage: of two calls on different lines that the optimiser makes one, it is not known which did not return.
const COVERAGE_LLVM_OPTIONS: [&str; 2] = ["-sink-common-insts=false", "-hoist-common-insts=false"];
/// The user's own use of profiles cannot be in the same build.
const FOREIGN: &[&str] = &[
    "-fprofile-generate",
    "-fprofile-use",
    "-fprofile-instr-",
    "-fcs-profile-generate",
    "-fcoverage-mapping",
    "-fcoverage-mcdc",
    "-fprofile-sample-",
];

/// Variable that names the edge profile by which the drivers compile.
pub const USE_VARIABLE: &str = "TRODDEN_PROFILE_USE";

/// Counters of LLVM's that a build has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmCounters {
    /// Of edges, for `-fprofile-use`.
    Edges,
    /// Of regions of the source, for `llvm-cov`.
    Coverage,
    /// The same, and of the test vectors of decisions.
    Mcdc,
}

impl LlvmCounters {
    /// Those that settings ask for.
    pub fn from_settings(settings: &Settings) -> Option<LlvmCounters> {
        match settings.observe? {
            Observe::EdgeProfile => Some(LlvmCounters::Edges),
            Observe::Coverage => Some(LlvmCounters::Coverage),
            Observe::Mcdc => Some(LlvmCounters::Mcdc),
            _ => None,
        }
    }

    /// The option of `trodden build`.
    fn option(self) -> &'static str {
        match self {
            LlvmCounters::Edges => "--pgo",
            LlvmCounters::Coverage => "--coverage",
            LlvmCounters::Mcdc => "--coverage=mcdc",
        }
    }

    /// Options of clang's front end that insert them. From `-O1` on, clang calls the base class's destructor in place of an empty one,
    /// whose regions would have no code that counts them. Tables of lines have linkage names of inlined functions by request only.
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

    /// Options of LLVM that the counters need.
    fn llvm_options(self) -> Vec<&'static str> {
        let more: &[&str] = if self == LlvmCounters::Edges { &[] } else { &COVERAGE_LLVM_OPTIONS };
        LLVM_OPTIONS.iter().chain(more).copied().collect()
    }

    /// Options of rustc that insert them; it has none for MC/DC. Those of coverage are updated atomically; of edges
    /// LLVM has the option for it.
    fn rustc_options(self) -> &'static [&'static str] {
        match self {
            LlvmCounters::Edges => &["-Cprofile-generate", "-Cllvm-args=-instrprof-atomic-counter-update-all"],
            LlvmCounters::Coverage | LlvmCounters::Mcdc => &["-Cinstrument-coverage"],
        }
    }
}

/// What is added to compile by an edge profile, if the environment names one. Warnings of functions that the profile
/// does not know would be many.
pub fn use_options(context: &DriverContext, line: &CommandLine) -> Vec<OsString> {
    let Some(file) = used(context).filter(|_| line.compiles) else { return Vec::new() };
    vec![joined("-fprofile-use=", file), "-Wno-profile-instr-unprofiled".into(), "-Wno-profile-instr-out-of-date".into()]
}

/// The edge profile by which the environment asks to compile.
pub fn used(context: &DriverContext) -> Option<&OsStr> {
    context.value(USE_VARIABLE)
}

/// Whether names of functions must be those of a plain build, because a profile goes by them.
pub fn names_matter(context: &DriverContext, settings: &Settings) -> bool {
    LlvmCounters::from_settings(settings) == Some(LlvmCounters::Edges) || used(context).is_some()
}

/// The counters that the environment asks for.
///
/// # Errors
/// The environment's settings cannot be read.
pub fn wanted(context: &DriverContext) -> Result<Option<LlvmCounters>> {
    Ok(LlvmCounters::from_settings(&of_environment(context)?))
}

/// What is added to rustc.
///
/// # Errors
/// The environment's settings cannot be read, or ask for what rustc does not have.
pub fn rustc_options(context: &DriverContext) -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    if let Some(counters) = wanted(context)? {
        if counters == LlvmCounters::Mcdc {
            bail!("rustc has no counters of test vectors (MC/DC): build Rust with `--coverage`, without `=mcdc`");
        }
        options.extend(counters.rustc_options().iter().map(OsString::from));
        options.extend(counters.llvm_options().into_iter().map(|a| OsString::from(format!("-Cllvm-args={a}"))));
    }
    options.extend(used(context).map(|file| joined("-Cprofile-use=", file)));
    Ok(options)
}

/// Takes LLVM's runtime for profiles, which nothing in the program needs any more, out of a link that rustc asks for.
pub fn without_runtime(arguments: &mut Vec<OsString>) {
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

/// What is added to compile.
///
/// # Errors
/// The user's own options have to do with profiles.
pub fn compile_options(context: &DriverContext, line: &CommandLine) -> Result<Vec<OsString>> {
    let Some(counters) = wanted(context)?.filter(|_| line.compiles) else { return Ok(Vec::new()) };
    let is_foreign = |argument: &str| FOREIGN.iter().any(|f| argument.starts_with(f));
    if let Some(argument) = line.arguments.iter().map(|w| w.to_string_lossy()).find(|w| is_foreign(w)) {
        bail!("{argument} cannot be used together with `{}`: leave it out of this build, which inserts what is needed", counters.option());
    }
    let front_end = counters.clang_options().iter().copied().chain(["-fprofile-update=atomic"]);
    let arguments = front_end.chain(counters.llvm_options().into_iter().flat_map(|o| ["-mllvm", o]));
    Ok(arguments.flat_map(|w| ["-Xclang", w]).map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_taken_out_of_links_in_all_spellings() {
        for spelling in [
            "-u __llvm_profile_runtime",
            "-Wl,-u,__llvm_profile_runtime",
            "-Wl,-u -Wl,__llvm_profile_runtime",
            "-Wl,-u__llvm_profile_runtime",
        ] {
            let line = format!("a.o /x/libprofiler_builtins-12.rlib {spelling} -u main -o prog");
            let mut arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            without_runtime(&mut arguments);
            assert_eq!(arguments, ["a.o", "-u", "main", "-o", "prog"].map(OsString::from), "{spelling}");
        }
    }
}
