//! Checks a generated program, or one given as source files, against all oracles.

use crate::error::OracleError;
use crate::random::{RandomLanguage, RandomProgram};
use crate::subject::{LinkArgument, LinkCommand, OracleSubject, SubjectRun};
use crate::tools::{OracleTools, run};
use crate::{counts, log, pgo};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_unit::experiment::EXPERIMENT_VARIABLE;
use trodden_unit::{InstrumentedImage, Settings, UnitCache};

/// How a program is compiled and instrumented.
#[derive(Clone, Debug)]
pub struct CheckVariant {
    /// Options for clang.
    pub options: Vec<String>,
    /// Instrumentation settings, in the drivers' syntax.
    pub parameters: String,
    /// C source of an object without instrumentation that is linked into the instrumented program, but not into the plain one.
    pub helper: Option<&'static str>,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckFindings {
    /// Number of compared functions.
    pub functions: usize,
    /// Number of functions with unfinished paths.
    pub unfinished: usize,
    /// Number of functions that were also checked against LLVM's edge profile.
    pub verified_by_pgo: usize,
    /// Descriptions of all differences.
    pub differences: Vec<String>,
}

/// Checks a generated program against all oracles. All files are written to `folder`.
///
/// # Errors
/// The program cannot be built or run, or an oracle fails.
pub fn check(program: &RandomProgram, variant: &CheckVariant, tools: &OracleTools, folder: &Path) -> Result<CheckFindings, OracleError> {
    let source = folder.join(if program.language == RandomLanguage::C { "subject.c" } else { "subject.cpp" });
    fs::write(&source, &program.text).map_err(OracleError::file(&source))?;
    check_sources(&[source], program.language, variant, tools, folder)
}

/// Like [`check`], for a program given as source files.
///
/// # Errors
/// The program cannot be built or run, or an oracle fails.
pub fn check_sources(
    sources: &[PathBuf],
    language: RandomLanguage,
    variant: &CheckVariant,
    tools: &OracleTools,
    folder: &Path,
) -> Result<CheckFindings, OracleError> {
    let build = CheckBuild { language, variant, tools, folder };
    let (objects, plain) = (build.compile_objects(sources, true)?, build.compile_objects(sources, false)?);
    let (instrumented, original) = (folder.join("instrumented"), folder.join("plain"));
    build.link(&objects, &instrumented, true)?;
    build.link(&plain, &original, false)?;
    let subject = OracleSubject::read(&instrumented, build.link_command_of_units(&instrumented)?, folder)?;
    let run = SubjectRun { place: folder.join("subject"), arguments: vec![], input: None, directory: folder.to_owned(), limit_s: 60 };
    let expected = run.execute(&original, &[])?;
    let (outcome, paths) = subject.count_paths(&run, &[])?;
    let mut findings = CheckFindings::default();
    if outcome != expected {
        findings.differences.push(format!("the program behaves differently: {outcome:?} instead of {expected:?}"));
    }
    let (probed_outcome, probed, blocks) = counts::count_blocks(&subject, tools, &run)?;
    let (log_outcome, replay) = log::replay_log(&subject, tools, &run)?;
    if probed_outcome != expected || log_outcome != expected {
        findings.differences.push(format!(
            "the program behaves differently with the oracles' probes: {probed_outcome:?} and {log_outcome:?} instead of {expected:?}"
        ));
    }
    let by_blocks = counts::check(&subject, &paths, &probed, &blocks)?;
    let by_log = replay.check(&subject, &paths)?;
    findings.functions = by_log.functions;
    findings.unfinished = by_log.unfinished.len();
    findings.differences.extend(by_blocks.differences.iter().map(|d| format!("block counters: {d}")));
    let (_, by_pgo) = pgo::check(&subject, tools, &run, &by_blocks.left_by_tail_call)?;
    findings.verified_by_pgo = by_pgo.functions;
    findings.differences.extend(by_pgo.differences.iter().map(|d| format!("LLVM: {d}")));
    findings.differences.extend(by_log.differences.iter().map(|d| format!("log: {d}")));
    Ok(findings)
}

/// Writes a plugin request for settings in the drivers' syntax to a unit store, and returns the request's file.
///
/// # Errors
/// The settings are invalid or inconsistent, or name a file that cannot be read.
pub fn write_request(settings: &str, store: &Path) -> Result<PathBuf, OracleError> {
    let inputs = UnitCache::new(store).inputs();
    Ok(settings.parse::<Settings>()?.request(&inputs)?.write(&inputs)?)
}

pub(crate) struct CheckBuild<'a> {
    pub language: RandomLanguage,
    pub variant: &'a CheckVariant,
    pub tools: &'a OracleTools,
    pub folder: &'a Path,
}

impl CheckBuild<'_> {
    pub fn driver(&self) -> &'static str {
        if self.language == RandomLanguage::C { "clang" } else { "clang++" }
    }

    pub fn compile_objects(&self, sources: &[PathBuf], instrumented: bool) -> Result<Vec<PathBuf>, OracleError> {
        let mut objects = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            let object = self.folder.join(format!("{i}.{}.o", if instrumented { "instrumented" } else { "plain" }));
            let mut clang = self.tools.command(self.driver());
            clang.args(&self.variant.options).args(["-gline-tables-only", "-w", "-c"]).arg(source).arg("-o").arg(&object);
            if instrumented {
                let mut plugin = OsString::from("-fpass-plugin=");
                plugin.push(&self.tools.plugin);
                let store = self.folder.join("store");
                clang.env(EXPERIMENT_VARIABLE, write_request(&self.variant.parameters, &store)?).arg(plugin).env("TRODDEN_CACHE", store);
                clang.env("TRODDEN_CODEGEN", self.variant.options.join("\u{1f}"));
            }
            run(&mut clang)?;
            objects.push(object);
        }
        Ok(objects)
    }

    pub fn link(&self, objects: &[PathBuf], program: &Path, instrumented: bool) -> Result<(), OracleError> {
        let mut link = self.tools.command(self.driver());
        link.args(objects).args(["-pthread", "-o"]).arg(program);
        if instrumented {
            link.arg(&self.tools.runtime);
        }
        if let Some(helper) = self.compile_helper()?.filter(|_| instrumented) {
            link.arg(helper);
        }
        run(&mut link).map(drop)
    }

    fn compile_helper(&self) -> Result<Option<PathBuf>, OracleError> {
        let Some(text) = self.variant.helper else { return Ok(None) };
        let (source, object) = (self.folder.join("helper.c"), self.folder.join("helper.o"));
        fs::write(&source, text).map_err(OracleError::file(&source))?;
        run(self.tools.command("clang").args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))?;
        Ok(Some(object))
    }

    /// Returns the link command that rebuilds an instrumented program from its units.
    pub fn link_command_of_units(&self, program: &Path) -> Result<LinkCommand, OracleError> {
        let image = InstrumentedImage::read(&fs::read(program).map_err(OracleError::file(program))?)?;
        let mut arguments: Vec<LinkArgument> = image.units.iter().map(|u| LinkArgument::Unit(u.unit)).collect();
        arguments.push(LinkArgument::Plain("-pthread".into()));
        arguments.extend(self.compile_helper()?.map(|helper| LinkArgument::Plain(helper.into())));
        Ok(LinkCommand { driver: self.driver(), directory: self.folder.to_owned(), arguments })
    }
}

impl CheckVariant {
    /// Returns one variant for each level of optimisation. The seed decides which parameters each level is combined with.
    pub fn variants_for_seed(seed: u64) -> Vec<CheckVariant> {
        const OPTIMISATION_LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
        const CHECKED_SETTINGS: [&str; 12] = [
            "",
            "table-slots=512 array-paths=8",
            "threads=atomic table-slots=700 array-paths=2",
            "max-paths=64",
            "max-paths=2",
            "reach=all trip-counts=on",
            "max-paths=16 chords=off",
            "trip-counts=on",
            "chords=off trip-counts=on early=off",
            "max-paths=1000000",
            "early=off",
            "max-paths=64 trip-counts=on",
        ];
        let variant = |(i, level): (usize, &&str)| CheckVariant {
            options: vec![(*level).into()],
            parameters: CHECKED_SETTINGS[(seed as usize + i) % CHECKED_SETTINGS.len()].into(),
            helper: None,
        };
        OPTIMISATION_LEVELS.iter().enumerate().map(variant).collect()
    }
}
