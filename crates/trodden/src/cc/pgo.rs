//! Collecting builds for profile-guided optimisation: LLVM inserts its edge counters early, and the plugin makes markers of them late.
//!
//! A profile for `-fprofile-use` must hold the values of LLVM's own counters. So clang is asked for its instrumentation
//! (by options of its front end, for those of the driver would link LLVM's runtime, too), with atomic updates, which
//! the optimiser leaves whole; what the plugin makes of them is described in [`trodden_unit::edge_profile`].

use super::arguments::CommandLine;
use crate::experiment::asks_for_edge_profile;
use anyhow::{Result, bail};
use std::env;
use std::ffi::OsString;
use trodden_unit::experiment::{Observe, Settings};

/// Options of LLVM: names are read by the plugin, which has no decompressor.
pub const LLVM_OPTIONS: [&str; 1] = ["-enable-name-compression=false"];
/// The user's own use of profiles cannot be in the same build.
const FOREIGN: &[&str] =
    &["-fprofile-generate", "-fprofile-use", "-fprofile-instr-", "-fcs-profile-generate", "-fcoverage-mapping", "-fprofile-sample-"];

/// Variable that names the edge profile by which the drivers compile.
pub const USE_VARIABLE: &str = "TRODDEN_PROFILE_USE";

/// What is added to compile by an edge profile, if the environment names one. Warnings of functions that the profile
/// does not know would be many.
pub fn use_options(line: &CommandLine) -> Vec<OsString> {
    let Some(file) = used().filter(|_| line.kind.compiles()) else { return Vec::new() };
    let mut option = OsString::from("-fprofile-use=");
    option.push(file);
    vec![option, "-Wno-profile-instr-unprofiled".into(), "-Wno-profile-instr-out-of-date".into()]
}

/// The edge profile by which the environment asks to compile.
pub fn used() -> Option<OsString> {
    env::var_os(USE_VARIABLE).filter(|file| !file.is_empty())
}

/// Whether names of functions must be those of a plain build, because a profile goes by them.
pub fn names_matter(settings: &Settings) -> bool {
    asked_for(settings) || used().is_some()
}

/// Whether settings ask for an edge profile.
pub fn asked_for(settings: &Settings) -> bool {
    settings.observe == Some(Observe::EdgeProfile)
}

/// What is added to rustc. It has no option for atomic updates, LLVM has.
///
/// # Errors
/// The environment's settings cannot be read.
pub fn rustc_options() -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    if asks_for_edge_profile()? {
        let arguments = LLVM_OPTIONS.into_iter().chain(["-instrprof-atomic-counter-update-all"]);
        options.push("-Cprofile-generate".into());
        options.extend(arguments.map(|a| OsString::from(format!("-Cllvm-args={a}"))));
    }
    options.extend(used().map(|file| {
        let mut option = OsString::from("-Cprofile-use=");
        option.push(file);
        option
    }));
    Ok(options)
}

/// Takes LLVM's runtime for profiles, which nothing in the program needs any more, out of a link that rustc asks for.
pub fn without_runtime(words: &mut Vec<OsString>) {
    const ROOT: &str = "__llvm_profile_runtime";
    let mut kept: Vec<OsString> = Vec::with_capacity(words.len());
    for word in words.drain(..) {
        let text = word.to_string_lossy();
        if text == ROOT || text == format!("-Wl,{ROOT}") {
            kept.pop();
        } else {
            let is_runtime = text.contains("libprofiler_builtins-") || (text.contains("-u") && text.ends_with(ROOT));
            kept.extend((!is_runtime).then_some(word));
        }
    }
    *words = kept;
}

/// What is added to compile.
///
/// # Errors
/// The user's own options have to do with profiles.
pub fn compile_options(line: &CommandLine) -> Result<Vec<OsString>> {
    if !line.kind.compiles() || !asks_for_edge_profile()? {
        return Ok(Vec::new());
    }
    let is_foreign = |word: &str| FOREIGN.iter().any(|f| word.starts_with(f));
    if let Some(word) = line.words.iter().map(|w| w.to_string_lossy()).find(|w| is_foreign(w)) {
        bail!("{word} cannot be used together with `--pgo`: leave it out of the build that collects");
    }
    let front_end = ["-fprofile-instrument=llvm", "-fprofile-update=atomic"].into_iter();
    let words = front_end.chain(LLVM_OPTIONS.into_iter().flat_map(|o| ["-mllvm", o]));
    Ok(words.flat_map(|w| ["-Xclang", w]).map(OsString::from).collect())
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
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            without_runtime(&mut words);
            assert_eq!(words, ["a.o", "-u", "main", "-o", "prog"].map(OsString::from), "{spelling}");
        }
    }
}
