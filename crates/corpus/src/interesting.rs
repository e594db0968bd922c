//! Builds a corpus program twice: so that it counts all paths, and so that it counts only the interesting paths, which are given.

use crate::corpus::Corpus;
use crate::input::CorpusInput;
use crate::oracle::trodden;
use crate::steps;
use crate::variant::CorpusVariant;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A corpus program that counts all paths, and a profile of it. From both, builds can be made that count only interesting paths.
pub struct InterestingBuilds {
    program: String,
    input: CorpusInput,
    /// The file with the profile of the program that counts all paths.
    pub full: PathBuf,
    folder: PathBuf,
}

impl InterestingBuilds {
    /// Builds a program so that it counts all paths, and runs it on an input.
    pub fn prepare(corpus: &Corpus, program: &str, input: CorpusInput) -> Result<InterestingBuilds> {
        let variant = CorpusVariant::trodden();
        corpus.fetch(program)?;
        corpus.build_once(program, &variant)?;
        corpus.create_inputs(program)?;
        let folder = corpus.folder().join("interesting");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let full = std::path::absolute(folder.join(format!("{program}.{}.trodden", input.name())))
            .context("cannot determine the current folder. Change to an existing folder")?;
        let builds = InterestingBuilds { program: program.to_owned(), input, full, folder };
        builds.record_profile(corpus, &variant.folder(), &builds.full)?;
        Ok(builds)
    }

    /// Runs the program that counts all paths a second time. Returns the file with the new profile.
    pub fn run_full_again(&self, corpus: &Corpus) -> Result<PathBuf> {
        let stored = self.folder.join(format!("{}.{}.again.trodden", self.program, self.input.name()));
        self.record_profile(corpus, &CorpusVariant::trodden().folder(), &stored)?;
        Ok(stored)
    }

    /// Instruments the program again, so that it counts only the interesting paths, and runs it. `set` says which paths these are, and
    /// `scheme` how they are numbered. Returns the file with the profile.
    pub fn run(&self, corpus: &Corpus, scheme: &str, set: &str) -> Result<PathBuf> {
        let build = format!("interesting-{scheme}");
        let place = corpus.folder().join("bin").join(&build);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        let full = corpus.program(&self.program, &CorpusVariant::trodden());
        let mut instrument = trodden();
        instrument.arg("instrument").arg(full).arg("-o").arg(place.join(&self.program)).args(["--interesting", set]);
        instrument.env(steps::LABORATORY_VARIABLE, format!("--scheme {scheme}"));
        steps::output(&mut instrument)?;
        let stored = self.folder.join(format!("{}.{}.{scheme}.trodden", self.program, self.input.name()));
        self.record_profile(corpus, &build, &stored)?;
        Ok(stored)
    }

    /// Instruments the program again, so that it counts all paths in hash tables that are large enough for the paths' complete lengths, and
    /// runs it. Writes the profile to `stored`.
    pub fn run_in_tables(&self, corpus: &Corpus, stored: &Path) -> Result<()> {
        let build = "interesting-table";
        let place = corpus.folder().join("bin").join(build);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        let full = corpus.program(&self.program, &CorpusVariant::trodden());
        let mut instrument = trodden();
        instrument.arg("instrument").arg(full).arg("-o").arg(place.join(&self.program));
        steps::output(instrument.env(steps::LABORATORY_VARIABLE, "--table-slots 262144"))?;
        self.record_profile(corpus, build, stored)
    }

    fn record_profile(&self, corpus: &Corpus, build: &str, stored: &Path) -> Result<()> {
        let counts = corpus.folder().join("counts").join(format!("interesting-{build}")).join(&self.program);
        if counts.exists() {
            std::fs::remove_dir_all(&counts).with_context(|| format!("cannot remove {}", counts.display()))?;
        }
        std::fs::create_dir_all(&counts).with_context(|| format!("cannot create {}", counts.display()))?;
        let output =
            std::path::absolute(counts.join("%m.raw")).context("cannot determine the current folder. Change to an existing folder")?;
        corpus.run_as(build, &self.program, self.input, "", &[("TRODDEN_OUTPUT", output.into())])?;
        steps::output(trodden().args(["import", "--no-store", "-o"]).arg(stored).arg(&counts)).map(drop)
    }
}
