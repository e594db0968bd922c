//! Ways to build a program of the corpus, and what its runs need, by the [table](crate::kinds).
//!
//! `trodden:OPTIONS` is trodden with settings of `TRODDEN_INSTRUMENT`, such as
//! `trodden:max-paths=64+chords=off`: whatever drivers know can be measured without a change here.

use crate::kinds::{BenchCompiler, KINDS, Kind, Rust};
use crate::packages;
use crate::steps;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use crate::kinds::Trained;

/// Flags that all variants have.
const FLAGS: &str = "-O2 -g";

/// A way to build.
#[derive(Clone, Debug)]
pub struct Variant {
    kind: &'static Kind,
    options: String,
}

impl PartialEq for Variant {
    fn eq(&self, other: &Variant) -> bool {
        self.name() == other.name()
    }
}

impl Variant {
    /// Reads a name: one of the table, or `trodden:OPTIONS`, options joined by `+`.
    ///
    /// # Errors
    /// There is none of that name; the message lists all.
    pub fn parse(text: &str) -> Result<Variant> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let Some(kind) = KINDS.iter().find(|k| k.name == name) else {
            bail!("there is no variant {name}; there are {}, trodden:OPTIONS", Variant::names().join(", "));
        };
        if !options.is_empty() && kind.compiler != BenchCompiler::Trodden {
            bail!("{name} takes no options: only trodden does, as trodden:{options}");
        }
        Ok(Variant { kind, options: options.replace('+', " ") })
    }

    /// Nothing counted.
    pub fn plain() -> Variant {
        Variant { kind: &KINDS[0], options: String::new() }
    }

    /// Counted by trodden as it does by default.
    pub fn trodden() -> Variant {
        Variant { kind: &KINDS[1], options: String::new() }
    }

    /// Names of the table.
    pub fn names() -> Vec<&'static str> {
        KINDS.iter().map(|k| k.name).collect()
    }

    /// Its name in tables.
    pub fn name(&self) -> String {
        if self.options.is_empty() { self.kind.name.to_owned() } else { format!("{}:{}", self.kind.name, self.options.replace(' ', "+")) }
    }

    /// What it is, in words.
    pub fn about(&self) -> String {
        if self.options.is_empty() { self.kind.about.to_owned() } else { format!("{} with {}", self.kind.name, self.options) }
    }

    /// Its name in folders; build systems do not like colons. A variant that only runs otherwise shares another's.
    pub fn folder(&self) -> String {
        let builder = self.kind.build_of.and_then(|name| KINDS.iter().find(|k| k.name == name)).unwrap_or(self.kind);
        let built = Variant { kind: builder, options: self.options.clone() };
        built.name().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect()
    }

    /// What it is compared with.
    pub fn base(&self) -> Option<Variant> {
        self.kind.base.and_then(|name| Variant::parse(name).ok())
    }

    /// Whether trodden's own tools build it.
    pub fn is_trodden(&self) -> bool {
        self.kind.compiler == BenchCompiler::Trodden
    }

    /// What it takes of a profile of the program's short run.
    pub fn trained(&self) -> Option<Trained> {
        self.kind.trained
    }

    /// The scheme of the short run's paths that alone it counts, if it is such: rebuilt of trodden's build.
    pub fn scheme(&self) -> Option<&'static str> {
        self.kind.scheme
    }

    /// Whether its counts are all that happened, so that they can be checked: not if paths are left out, threads lose
    /// counts or a switch is off.
    pub fn is_exact(&self) -> bool {
        const NOT: [&str; 2] = ["when=bursts", "table-slots=700"];
        let options = format!("{} {}", self.kind.options, self.options);
        let knows = matches!(self.kind.trained, Some(Trained::Known | Trained::KnownWithSuite));
        self.is_trodden() && !knows && self.kind.scheme.is_none() && !options.split_whitespace().any(|w| NOT.contains(&w))
    }

    /// What runs it, if it is not run by itself.
    pub fn under(&self) -> Option<&'static str> {
        self.kind.under
    }

    /// Whether a recorder samples its runs: so its counts are compared with those of the full tier, and its instructions
    /// are not the same twice.
    pub fn is_recorded(&self) -> bool {
        self.kind.recorded
    }

    /// Whether it says anything about programs in Rust.
    ///
    /// # Errors
    /// It does not; the message is the reason.
    pub fn suits_rust(&self) -> Result<()> {
        match self.kind.rust {
            Rust::No(reason) => bail!(reason),
            Rust::Flags(_) | Rust::Trodden => Ok(()),
        }
    }

    /// Sees to it that what it takes is there, installing packages where that can be done.
    ///
    /// # Errors
    /// Something is missing; the message is the reason.
    pub fn ensure(&self) -> Result<()> {
        let Some(tool) = self.tool() else { return Ok(()) };
        if steps::on_path(tool) {
            return Ok(());
        }
        let packages: Vec<String> = self.kind.packages.iter().map(|p| (*p).to_owned()).collect();
        if !packages::are_offered(&packages) {
            bail!("{tool} is not installed, and this system offers no package {}", packages.join(", "));
        }
        packages::ensure_packages(&packages)?;
        if steps::on_path(tool) { Ok(()) } else { bail!("{tool} is not there: install {}", packages.join(", ")) }
    }

    /// A program without which it is nothing.
    fn tool(&self) -> Option<&'static str> {
        match (self.kind.under, self.kind.compiler) {
            (Some(under), _) => under.split(' ').next(),
            (None, BenchCompiler::Named(cc, _)) => Some(cc),
            (None, BenchCompiler::AflsClang) => Some("afl-clang-fast"),
            (None, BenchCompiler::Clang | BenchCompiler::Trodden) => None,
        }
    }

    /// Files of the project that change what is built.
    pub fn tools(&self) -> Vec<PathBuf> {
        let release = steps::target().join("release");
        if self.is_trodden() { vec![release.join("trodden"), release.join("libtrodden_instrument.so")] } else { Vec::new() }
    }

    /// Variables for the build, as the recipes read them.
    ///
    /// # Errors
    /// The compiler is not there, callbacks do not compile, or the search path cannot be made.
    pub fn build_environment(&self) -> Result<Vec<(&'static str, OsString)>> {
        let kind = self.kind;
        let (cc, cxx) = compilers(kind.compiler)?;
        let mut link = OsString::from(kind.flags);
        if let Some(source) = kind.callbacks {
            link.push(" ");
            link.push(callbacks(source)?);
        }
        let flags = [FLAGS, kind.flags].join(" ");
        let mut variables: Vec<(&'static str, OsString)> =
            vec![("CC", cc.into()), ("CXX", cxx.into()), ("CFLAGS", flags.trim().into()), ("LDFLAGS", link)];
        match kind.rust {
            Rust::Flags("") | Rust::No(_) => {}
            Rust::Flags(flags) => variables.push(("RUSTFLAGS", format!("{flags}={}", std::env::temp_dir().display()).into())),
            Rust::Trodden => variables.push(("CARGO_BUILD", "cargo trodden build".into())),
        }
        if self.is_trodden() {
            variables.push(("PATH", steps::path_with(&[steps::target().join("release")])?));
            variables.push(("TRODDEN_INSTRUMENT", format!("{} {}", kind.options, self.options).trim().into()));
        }
        variables.extend(kind.build.iter().map(|(name, value)| (*name, OsString::from(value))));
        Ok(variables)
    }

    /// Variables for a run, whose counts go to a folder.
    pub fn run_environment(&self, counts: &Path) -> Vec<(&'static str, OsString)> {
        self.kind.counts.iter().map(|(name, file)| (*name, counts.join(file).into())).collect()
    }
}

fn compilers(compiler: BenchCompiler) -> Result<(String, String)> {
    let pair = |cc: &str, cxx: &str| (cc.to_owned(), cxx.to_owned());
    Ok(match compiler {
        BenchCompiler::Clang => pair("clang-22", "clang++-22"),
        BenchCompiler::Trodden => pair("trodden cc", "trodden c++"),
        BenchCompiler::Named(cc, cxx) => pair(cc, cxx),
        BenchCompiler::AflsClang => {
            let said = steps::output(Command::new("afl-clang-fast").arg("--version").env("AFL_QUIET", "1"))?;
            let Some(major) = clang_version(&said) else { bail!("afl-clang-fast does not say which clang it takes: {}", said.trim()) };
            (format!("clang-{major}"), format!("clang++-{major}"))
        }
    })
}

/// The major version in what clang says of itself.
fn clang_version(said: &str) -> Option<u32> {
    let rest = said.split_once("clang version ")?.1;
    rest.split('.').next()?.parse().ok()
}

/// Compiles a file of callbacks once; gives the object.
fn callbacks(name: &str) -> Result<PathBuf> {
    let source = steps::root().join("xtask/src/bench/callbacks").join(name);
    let object = steps::target().join(format!("xtask-callbacks-{name}.o"));
    steps::output(Command::new("clang-22").args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Vec<(&'static str, String)> {
        let environment = Variant::parse(name).unwrap().build_environment().unwrap();
        environment.into_iter().map(|(n, v)| (n, v.into_string().unwrap())).collect()
    }

    #[test]
    fn every_variant_is_found_by_its_name_and_so_is_its_base() {
        for name in Variant::names() {
            let variant = Variant::parse(name).unwrap();
            assert_eq!(variant.name(), name);
            assert_eq!(variant.base().is_some(), variant.kind.base.is_some(), "the base of {name} is no variant");
            assert!(variant.base().is_none_or(|b| b.base().is_none()), "the base of {name} has a base");
        }
        assert_eq!((Variant::plain().name().as_str(), Variant::trodden().name().as_str()), ("plain", "trodden"));
        assert!(Variant::parse("clang").unwrap_err().to_string().contains("clang-edges"));
    }

    #[test]
    fn words_reach_the_plugin_and_make_a_folder_of_their_own() {
        let variant = Variant::parse("trodden:max-paths=64+chords=off").unwrap();
        assert_eq!(variant.name(), "trodden:max-paths=64+chords=off");
        assert_eq!(variant.folder(), "trodden-max-paths-64-chords-off");
        assert!(variables("trodden:max-paths=64+chords=off").contains(&("TRODDEN_INSTRUMENT", "max-paths=64 chords=off".into())));
        assert_ne!(variant, Variant::trodden());
        assert!(Variant::parse("gcc:x=1").is_err());
    }

    #[test]
    fn builds_differ_in_compiler_and_flags() {
        assert!(variables("plain").contains(&("CFLAGS", "-O2 -g".into())));
        let regions = variables("clang-regions");
        assert!(regions.contains(&("CFLAGS", "-O2 -g -fprofile-instr-generate".into())));
        assert!(regions.contains(&("LDFLAGS", "-fprofile-instr-generate".into())));
        assert!(variables("gcc-coverage").contains(&("CC", "gcc".into())));
        assert!(Variant::parse("gcc").unwrap().suits_rust().is_err());
        assert!(Variant::trodden().suits_rust().is_ok());
    }

    #[test]
    fn callgrind_runs_the_plain_build() {
        let callgrind = Variant::parse("callgrind").unwrap();
        assert_eq!(callgrind.folder(), "plain");
        assert!(callgrind.under().unwrap().starts_with("valgrind "));
    }

    #[test]
    fn what_is_sampled_is_what_costs_nothing_otherwise() {
        let (off, on) = (Variant::parse("sample-off:max-paths=64").unwrap(), Variant::parse("sample:max-paths=64").unwrap());
        assert_eq!((off.folder(), off.is_recorded()), ("sample-off-max-paths-64".into(), false));
        assert_eq!((on.folder(), on.is_recorded()), (off.folder(), true));
        assert_eq!(variables("sample"), variables("sample-off"));
        assert!(!on.is_exact() && !off.is_exact());
    }

    #[test]
    fn afls_clang_is_known_by_what_it_says() {
        assert_eq!(clang_version("Debian clang version 14.0.6\nTarget: x86_64\n"), Some(14));
        assert_eq!(clang_version("afl-cc 4.04c"), None);
    }
}
