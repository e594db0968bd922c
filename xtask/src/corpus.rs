//! `cargo xtask corpus`: downloads, builds and runs the real-world programs of `corpus/`.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps::{self, BuildProfile, build_trodden};
use trodden_corpus::{Corpus, CorpusInput, CorpusVariant};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask corpus list
  cargo xtask corpus build gzip lua --variant trodden
  cargo xtask corpus run gzip --variant trodden --input ref
  cargo xtask corpus run all --variant trodden          run the whole corpus and compare the output with plain builds
  TRODDEN_CLANG=clang-19 cargo xtask corpus run all     the same, with programs that clang 19 compiles")]
pub struct CorpusOptions {
    /// Step to execute, after the steps that it depends on.
    #[arg(value_enum)]
    step: CorpusStep,
    /// Names of programs, or `all`.
    #[arg(default_value = "all")]
    programs: Vec<String>,
    /// Variant to build the programs as.
    #[arg(long, value_parser = CorpusVariant::parse, default_value = "trodden")]
    variant: CorpusVariant,
    /// Input to run them on.
    #[arg(long, value_enum, default_value_t = CorpusInput::Train)]
    input: CorpusInput,
    /// Working folder [default: `corpus` in cargo's target folder, or `corpus-CLANG` if TRODDEN_CLANG is set]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Use debug builds of trodden.
    #[arg(long)]
    debug: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CorpusStep {
    /// List the programs.
    List,
    /// Fetch the sources.
    Fetch,
    /// Build the programs, even if they are up to date.
    Build,
    /// Run the programs and compare their output with that of plain builds.
    Run,
}

/// Environment variable with the name of the clang that trodden uses. Plain builds always use clang 22.
pub const CLANG_VARIABLE: &str = "TRODDEN_CLANG";

/// Returns the corpus (the test programs and their builds) in a folder below cargo's target folder. Each clang that [`CLANG_VARIABLE`]
/// names has its own folder, but all folders share the downloaded sources, because builds work on copies of them.
pub fn corpus_in_target() -> Result<Corpus> {
    let default = Corpus::in_target();
    let Some(clang) = std::env::var_os(CLANG_VARIABLE) else { return Ok(default) };
    let name = Path::new(&clang).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = steps::target_folder().join(format!("corpus-{name}"));
    for part in ["apt", "downloads", "src"] {
        let (shared, link) = (default.folder().join(part), folder.join(part));
        for created in [&shared, &folder] {
            fs::create_dir_all(created).with_context(|| format!("cannot create the folder {}", created.display()))?;
        }
        if link.symlink_metadata().is_err() {
            symlink(&shared, &link).with_context(|| format!("cannot create the link {}", link.display()))?;
        }
    }
    Ok(Corpus::in_folder(&folder))
}

/// Path to start this program again. It is valid even if a build has replaced the program's file.
pub const OWN_PROGRAM_PATH: &str = "/proc/self/exe";

/// The corpus programs that `cargo xtask test` runs: gzip and Lua in C (gzip is configured by autoconf), and MiniSat in C++.
const SUITE_PROGRAMS: [&str; 3] = ["gzip", "lua", "minisat"];

/// Runs [`SUITE_PROGRAMS`] in a separate process with a debug build of trodden. If `clang` is given, trodden uses it. Fails if a program
/// cannot be built or run, or if its output differs from that of its plain build.
pub fn run_suite_programs(clang: Option<&str>) -> Result<()> {
    steps::log_headline(&format!("Programs of the corpus{}", clang.map(|clang| format!(" with {clang}")).unwrap_or_default()));
    let mut run = Command::new(OWN_PROGRAM_PATH);
    run.args(["corpus", "run", "--debug"]).args(SUITE_PROGRAMS);
    match clang {
        Some(clang) => run.env(CLANG_VARIABLE, clang),
        None => run.env_remove(CLANG_VARIABLE),
    };
    steps::run(&mut run)
}

/// Removes Rust programs from the list and prints which ones, if [`CLANG_VARIABLE`] is set: the clang that it names may be too old to read
/// the bitcode of rustc's newer LLVM.
pub fn remove_uncompilable_programs(corpus: &Corpus, programs: Vec<String>) -> Result<Vec<String>> {
    let Some(clang) = std::env::var_os(CLANG_VARIABLE) else { return Ok(programs) };
    let mut kept = Vec::new();
    for program in programs {
        match corpus.is_rust(&program)? {
            true => eprintln!("skipping {program}: {} may be older than rustc's LLVM", clang.display()),
            false => kept.push(program),
        }
    }
    Ok(kept)
}

pub fn run(options: &CorpusOptions) -> Result<()> {
    let corpus = match &options.folder {
        Some(folder) => Corpus::in_folder(folder),
        None => corpus_in_target()?,
    };
    if options.debug {
        steps::use_build_profile(BuildProfile::Dev);
    }
    if options.step == CorpusStep::List {
        print!("{}", corpus.describe_programs()?);
        return Ok(());
    }
    let programs = remove_uncompilable_programs(&corpus, corpus.programs(&options.programs)?)?;
    packages::ensure_packages_for(PackagePurpose::Corpus)?;
    corpus.ensure_packages(&programs)?;
    if options.variant.is_trodden() && options.step != CorpusStep::Fetch {
        build_trodden()?;
    }
    for program in &programs {
        corpus.fetch(program)?;
        match options.step {
            CorpusStep::List | CorpusStep::Fetch => {}
            CorpusStep::Build => corpus.build(program, &options.variant)?,
            CorpusStep::Run => run_and_compare(&corpus, program, options)?,
        }
    }
    Ok(())
}

fn run_and_compare(corpus: &Corpus, program: &str, options: &CorpusOptions) -> Result<()> {
    corpus.create_inputs(program)?;
    let checksum = |variant: &CorpusVariant| -> Result<String> {
        corpus.build_once(program, variant)?;
        corpus.run(program, variant, options.input, "")
    };
    let (plain, other) = (checksum(&CorpusVariant::plain())?, checksum(&options.variant)?);
    if plain != other {
        bail!(
            "{program}: the {} build and the plain build have different outputs. Compare the files in {}",
            options.variant.name(),
            corpus.folder().join("out").display()
        );
    }
    println!("{program} {}: plain and {} builds have the same output", options.input.name(), options.variant.name());
    Ok(())
}
