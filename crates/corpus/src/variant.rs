//! A variant of a corpus program is one of the [ways to build it](crate::kinds). If trodden builds the variant, it may have additional
//! settings.
//!
//! The variant `trodden:OPTIONS` has these settings for the instrumentation, for example `trodden:max-paths=64+chords=off`. Any setting
//! that trodden's compilers accept can thus be measured.

use crate::kinds::{BUILD_KINDS, BenchCompiler, BuildKind, RustSupport};
use crate::packages;
use crate::steps;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use crate::kinds::TrainingRuns;

const SHARED_FLAGS: &str = "-O2 -g";

/// A way to build and run a program of the corpus.
#[derive(Clone, Debug)]
pub struct CorpusVariant {
    kind: &'static BuildKind,
    options: String,
}

impl PartialEq for CorpusVariant {
    fn eq(&self, other: &CorpusVariant) -> bool {
        self.name() == other.name()
    }
}

impl CorpusVariant {
    /// Parses the name of a variant. For variants that trodden builds, `:` and settings joined by `+` may follow. Fails if the name is
    /// unknown, in which case the error lists all names, or if the variant cannot have settings.
    pub fn parse(text: &str) -> Result<CorpusVariant> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let Some(kind) = BUILD_KINDS.iter().find(|k| k.name == name) else {
            bail!("unknown variant `{name}`. Choose one of {}, or trodden:OPTIONS", CorpusVariant::names().join(", "));
        };
        if !options.is_empty() && kind.compiler != BenchCompiler::Trodden {
            bail!("variant `{name}` does not accept options. Use trodden:{options}");
        }
        Ok(CorpusVariant { kind, options: options.replace('+', " ") })
    }

    /// Returns the variant without instrumentation.
    pub fn plain() -> CorpusVariant {
        CorpusVariant { kind: &BUILD_KINDS[0], options: String::new() }
    }

    /// Returns the variant that trodden builds with default settings.
    pub fn trodden() -> CorpusVariant {
        CorpusVariant { kind: &BUILD_KINDS[1], options: String::new() }
    }

    /// Returns the names of all variants without additional settings.
    pub fn names() -> Vec<&'static str> {
        BUILD_KINDS.iter().map(|k| k.name).collect()
    }

    /// Returns the name of the variant in the syntax that [`CorpusVariant::parse`] accepts.
    pub fn name(&self) -> String {
        if self.options.is_empty() { self.kind.name.to_owned() } else { format!("{}:{}", self.kind.name, self.options.replace(' ', "+")) }
    }

    /// Returns a description of the variant for tables of results.
    pub fn about(&self) -> String {
        if self.options.is_empty() { self.kind.about.to_owned() } else { format!("{} with {}", self.kind.name, self.options) }
    }

    /// Returns the name of the folder for the variant's build. It contains no characters that confuse build systems. Variants that differ
    /// only in how the program is run have the same folder.
    pub fn folder(&self) -> String {
        let builder = self.kind.build_of.and_then(|name| BUILD_KINDS.iter().find(|k| k.name == name)).unwrap_or(self.kind);
        let built = CorpusVariant { kind: builder, options: self.options.clone() };
        built.name().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect()
    }

    /// Returns the variant with which this variant is compared; `None` if it is itself such a baseline.
    pub fn base(&self) -> Option<CorpusVariant> {
        self.kind.base.and_then(|name| CorpusVariant::parse(name).ok())
    }

    /// Returns true if trodden's compilers build the variant.
    pub fn is_trodden(&self) -> bool {
        self.kind.compiler == BenchCompiler::Trodden
    }

    /// Returns the runs whose profile is available to the build; `None` if the build uses no profile.
    pub fn training_runs(&self) -> Option<TrainingRuns> {
        self.kind.training_runs
    }

    /// If the variant counts only the paths that the short run executes, returns the name of the scheme that numbers these paths. Such a
    /// variant is made from trodden's default build.
    pub fn scheme(&self) -> Option<&'static str> {
        self.kind.scheme
    }

    /// Returns true if the variant counts all executions of all paths. The oracles can only check variants that do.
    pub fn is_exact(&self) -> bool {
        const INEXACT_OPTIONS: [&str; 2] = ["when=bursts", "table-slots=700"];
        let options = format!("{} {}", self.kind.options, self.options);
        let knows = matches!(self.kind.training_runs, Some(TrainingRuns::Train | TrainingRuns::TrainAndSuite));
        self.is_trodden() && !knows && self.kind.scheme.is_none() && !options.split_whitespace().any(|w| INEXACT_OPTIONS.contains(&w))
    }

    /// Returns the command line of the simulator in which the program is run, if there is one.
    pub fn simulator(&self) -> Option<&'static str> {
        self.kind.simulator
    }

    /// Returns true if `trodden record` samples the program's runs. The number of instructions that are executed then varies from run to
    /// run.
    pub fn is_sampled(&self) -> bool {
        self.kind.sampled
    }

    /// Fails if the variant cannot build Rust programs. The error gives the reason.
    pub fn check_rust_support(&self) -> Result<()> {
        match self.kind.rust {
            RustSupport::No(reason) => bail!(reason),
            RustSupport::Flags(_) | RustSupport::Trodden => Ok(()),
        }
    }

    /// Installs the Debian packages with the variant's compiler or simulator, unless it is installed. Fails if it is missing and cannot be
    /// installed.
    pub fn ensure_tools_exist(&self) -> Result<()> {
        let Some(tool) = self.required_tool() else { return Ok(()) };
        if steps::is_on_search_path(tool) {
            return Ok(());
        }
        let packages: Vec<String> = self.kind.packages.iter().map(|p| (*p).to_owned()).collect();
        if !packages::are_packages_offered(&packages) {
            bail!(
                "{tool} is not installed, and this system's package manager does not offer it. Install {tool} by hand (on Debian: \
                 package {})",
                packages.join(", ")
            );
        }
        packages::ensure_packages(&packages)?;
        if steps::is_on_search_path(tool) {
            Ok(())
        } else {
            bail!("cannot find {tool} on the search path, although {} was installed. Add its folder to PATH", packages.join(", "))
        }
    }

    fn required_tool(&self) -> Option<&'static str> {
        match (self.kind.simulator, self.kind.compiler) {
            (Some(under), _) => under.split(' ').next(),
            (None, BenchCompiler::Named(cc, _)) => Some(cc),
            (None, BenchCompiler::AflClang) => Some("afl-clang-fast"),
            (None, BenchCompiler::Clang | BenchCompiler::Trodden) => None,
        }
    }

    /// Returns the paths of those of trodden's own programs and libraries that build the variant.
    pub fn tools(&self) -> Vec<PathBuf> {
        let programs = steps::programs_folder();
        if self.is_trodden() { vec![programs.join("trodden"), programs.join("libtrodden_instrument.so")] } else { Vec::new() }
    }

    /// Returns the environment variables that the programs' recipes read when they build the variant. Fails if the compiler is missing, the
    /// callbacks do not compile, or the target folder's path cannot be part of `PATH`.
    pub fn build_environment(&self) -> Result<Vec<(&'static str, OsString)>> {
        let kind = self.kind;
        let (cc, cxx) = find_compilers(kind.compiler)?;
        let mut link = OsString::from(kind.flags);
        if let Some(source) = kind.callbacks {
            link.push(" ");
            link.push(compile_callbacks(source)?);
        }
        let flags = [SHARED_FLAGS, kind.flags].join(" ");
        let mut variables: Vec<(&'static str, OsString)> =
            vec![("CC", cc.into()), ("CXX", cxx.into()), ("CFLAGS", flags.trim().into()), ("LDFLAGS", link)];
        match kind.rust {
            RustSupport::Flags("") | RustSupport::No(_) => {}
            RustSupport::Flags(flags) => variables.push(("RUSTFLAGS", format!("{flags}={}", std::env::temp_dir().display()).into())),
            RustSupport::Trodden => variables.push(("CARGO_BUILD", "cargo trodden build".into())),
        }
        if self.is_trodden() {
            variables.push(("PATH", steps::search_path_with(&[steps::programs_folder()])?));
            variables.push(("TRODDEN_INSTRUMENT", format!("{} {}", kind.options, self.options).trim().into()));
        }
        variables.extend(kind.build_variables.iter().map(|(name, value)| (*name, OsString::from(value))));
        Ok(variables)
    }

    /// Returns the environment variables for a run that writes its counts to the folder `counts`.
    pub fn run_environment(&self, counts: &Path) -> Vec<(&'static str, OsString)> {
        self.kind.run_variables.iter().map(|(name, file)| (*name, counts.join(file).into())).collect()
    }
}

fn find_compilers(compiler: BenchCompiler) -> Result<(String, String)> {
    let pair = |cc: &str, cxx: &str| (cc.to_owned(), cxx.to_owned());
    Ok(match compiler {
        BenchCompiler::Clang => pair("clang-22", "clang++-22"),
        BenchCompiler::Trodden => pair("trodden cc", "trodden c++"),
        BenchCompiler::Named(cc, cxx) => pair(cc, cxx),
        BenchCompiler::AflClang => {
            let version = steps::output(Command::new("afl-clang-fast").arg("--version").env("AFL_QUIET", "1"))?;
            let Some(major) = clang_version(&version) else {
                bail!("cannot find the version of clang in the output of `afl-clang-fast --version`: {}", version.trim())
            };
            (format!("clang-{major}"), format!("clang++-{major}"))
        }
    })
}

fn clang_version(output: &str) -> Option<u32> {
    let rest = output.split_once("clang version ")?.1;
    rest.split('.').next()?.parse().ok()
}

/// Folder with C sources of the functions that are called by code compiled with clang's sanitizer coverage.
const CALLBACKS_FOLDER: &str = "crates/lab/src/experiments/bench/callbacks";

fn compile_callbacks(name: &str) -> Result<PathBuf> {
    let source = steps::checkout_root().join(CALLBACKS_FOLDER).join(name);
    let object = steps::target_folder().join(format!("xtask-callbacks-{name}.o"));
    steps::output(Command::new("clang-22").args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_of_all_kinds_exist() {
        for name in BUILD_KINDS.iter().filter_map(|kind| kind.callbacks) {
            assert!(steps::checkout_root().join(CALLBACKS_FOLDER).join(name).is_file(), "{name}");
        }
    }

    fn build_variables(name: &str) -> Vec<(&'static str, String)> {
        let environment = CorpusVariant::parse(name).unwrap().build_environment().unwrap();
        environment.into_iter().map(|(n, v)| (n, v.into_string().unwrap())).collect()
    }

    #[test]
    fn every_variant_and_its_base_parse_by_name() {
        for name in CorpusVariant::names() {
            let variant = CorpusVariant::parse(name).unwrap();
            assert_eq!(variant.name(), name);
            assert_eq!(variant.base().is_some(), variant.kind.base.is_some(), "the base of {name} is not a variant");
            assert!(variant.base().is_none_or(|b| b.base().is_none()), "the base of {name} has a base");
        }
        assert_eq!((CorpusVariant::plain().name().as_str(), CorpusVariant::trodden().name().as_str()), ("plain", "trodden"));
        assert!(CorpusVariant::parse("clang").unwrap_err().to_string().contains("clang-edges"));
    }

    #[test]
    fn options_reach_the_plugin_and_give_the_build_its_own_folder() {
        let variant = CorpusVariant::parse("trodden:max-paths=64+chords=off").unwrap();
        assert_eq!(variant.name(), "trodden:max-paths=64+chords=off");
        assert_eq!(variant.folder(), "trodden-max-paths-64-chords-off");
        assert!(build_variables("trodden:max-paths=64+chords=off").contains(&("TRODDEN_INSTRUMENT", "max-paths=64 chords=off".into())));
        assert_ne!(variant, CorpusVariant::trodden());
        assert!(CorpusVariant::parse("gcc:x=1").is_err());
    }

    #[test]
    fn variants_set_compiler_and_flags() {
        assert!(build_variables("plain").contains(&("CFLAGS", "-O2 -g".into())));
        let regions = build_variables("clang-regions");
        assert!(regions.contains(&("CFLAGS", "-O2 -g -fprofile-instr-generate".into())));
        assert!(regions.contains(&("LDFLAGS", "-fprofile-instr-generate".into())));
        assert!(build_variables("gcc-coverage").contains(&("CC", "gcc".into())));
        assert!(CorpusVariant::parse("gcc").unwrap().check_rust_support().is_err());
        assert!(CorpusVariant::trodden().check_rust_support().is_ok());
    }

    #[test]
    fn callgrind_runs_the_plain_build() {
        let callgrind = CorpusVariant::parse("callgrind").unwrap();
        assert_eq!(callgrind.folder(), "plain");
        assert!(callgrind.simulator().unwrap().starts_with("valgrind "));
    }

    #[test]
    fn sample_variant_runs_the_build_of_sample_off() {
        let (off, on) = (CorpusVariant::parse("sample-off:max-paths=64").unwrap(), CorpusVariant::parse("sample:max-paths=64").unwrap());
        assert_eq!((off.folder(), off.is_sampled()), ("sample-off-max-paths-64".into(), false));
        assert_eq!((on.folder(), on.is_sampled()), (off.folder(), true));
        assert_eq!(build_variables("sample"), build_variables("sample-off"));
        assert!(!on.is_exact() && !off.is_exact());
    }

    #[test]
    fn clang_version_is_read_from_its_output() {
        assert_eq!(clang_version("Debian clang version 14.0.6\nTarget: x86_64\n"), Some(14));
        assert_eq!(clang_version("afl-cc 4.04c"), None);
    }
}
