//! Ways to build a program of the corpus, and what its runs need.

use crate::steps;
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flags that all variants have.
const FLAGS: &str = "-O2 -g";

/// A way to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// By clang and rustc, nothing counted.
    Plain,
    /// By trodden's drivers: every path is counted.
    Trodden,
    /// `-fprofile-generate`: edges, counted by LLVM's optimiser.
    ClangEdges,
}

impl Variant {
    /// Its name in tables and folders.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Trodden => "trodden",
            Variant::ClangEdges => "clang-edges",
        }
    }

    /// Files of the project that change what is built.
    pub fn tools(self) -> Vec<PathBuf> {
        let release = steps::target().join("release");
        if self == Variant::Trodden { vec![release.join("trodden"), release.join("libtrodden_instrument.so")] } else { Vec::new() }
    }

    /// Variables for the build, as the recipes read them.
    ///
    /// # Errors
    /// The search path cannot be made.
    pub fn build_environment(self) -> Result<Vec<(&'static str, OsString)>> {
        let flags = |more: &str| OsString::from(format!("{FLAGS}{more}"));
        let clang = [("CC", "clang-22".into()), ("CXX", "clang++-22".into())];
        let own: Vec<(&'static str, OsString)> = match self {
            Variant::Plain => vec![("CFLAGS", flags("")), ("LDFLAGS", "".into())],
            Variant::Trodden => {
                let path = steps::path_with(&[steps::target().join("release")])?;
                let (cc, cxx, cargo) = ("trodden cc".into(), "trodden c++".into(), "cargo trodden build".into());
                return Ok(vec![
                    ("CFLAGS", flags("")),
                    ("LDFLAGS", "".into()),
                    ("PATH", path),
                    ("CC", cc),
                    ("CXX", cxx),
                    ("CARGO_BUILD", cargo),
                ]);
            }
            Variant::ClangEdges => {
                let rust = format!("-Cprofile-generate={}", std::env::temp_dir().display());
                // Programs that a build runs are not of interest.
                vec![
                    ("CFLAGS", flags(" -fprofile-generate")),
                    ("LDFLAGS", "-fprofile-generate".into()),
                    ("RUSTFLAGS", rust.into()),
                    ("LLVM_PROFILE_FILE", "/dev/null".into()),
                ]
            }
        };
        Ok(clang.into_iter().chain(own).collect())
    }

    /// Variables for a run, whose counts go to a folder.
    pub fn run_environment(self, counts: &Path) -> Vec<(&'static str, OsString)> {
        match self {
            Variant::Plain => Vec::new(),
            Variant::Trodden => vec![("TRODDEN_OUTPUT", counts.join("%m.raw").into())],
            Variant::ClangEdges => vec![("LLVM_PROFILE_FILE", counts.join("%m.profraw").into())],
        }
    }
}
