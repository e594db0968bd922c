//! `cargo xtask corpus`: fetching, building and running the programs of `corpus/`.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps::build_trodden;
use trodden_corpus::{Corpus, Input, Variant};

/// `cargo xtask corpus`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask corpus list
  cargo xtask corpus build gzip lua --variant trodden
  cargo xtask corpus run gzip --variant trodden --input ref
  cargo xtask corpus run all --variant trodden          the whole corpus: fetched and built where needed, output compared with the plain \
  build's")]
pub struct CorpusOptions {
    /// What to do; each step does those before it where they are needed.
    #[arg(value_enum)]
    step: Step,
    /// Programs, or `all`.
    #[arg(default_value = "all")]
    programs: Vec<String>,
    /// How to build them.
    #[arg(long, value_parser = Variant::parse, default_value = "trodden")]
    variant: Variant,
    /// Which run.
    #[arg(long, value_enum, default_value_t = Input::Train)]
    input: Input,
    /// Where to work.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Print what there is.
    List,
    /// Fetch sources.
    Fetch,
    /// Build, though it was built before.
    Build,
    /// Run, and compare the output with the plain build's.
    Run,
}

/// Does a step for the programs named.
///
/// # Errors
/// A program is unknown, or a step of it failed.
pub fn run(options: &CorpusOptions) -> Result<()> {
    let corpus = options.folder.as_deref().map_or_else(Corpus::own, Corpus::at);
    if options.step == Step::List {
        print!("{}", corpus.about()?);
        return Ok(());
    }
    let programs = corpus.programs(&options.programs)?;
    packages::ensure(PackagePurpose::Corpus)?;
    corpus.ensure_packages(&programs)?;
    if options.variant.is_trodden() && options.step != Step::Fetch {
        build_trodden()?;
    }
    for program in &programs {
        corpus.fetch(program)?;
        match options.step {
            Step::List | Step::Fetch => {}
            Step::Build => corpus.build(program, &options.variant)?,
            Step::Run => compared_run(&corpus, program, options)?,
        }
    }
    Ok(())
}

fn compared_run(corpus: &Corpus, program: &str, options: &CorpusOptions) -> Result<()> {
    corpus.inputs(program)?;
    let sum = |variant: &Variant| -> Result<String> {
        corpus.build_once(program, variant)?;
        corpus.run(program, variant, options.input, "")
    };
    let (plain, other) = (sum(&Variant::plain())?, sum(&options.variant)?);
    if plain != other {
        bail!(
            "{program}: the {} build prints something else than the plain build: compare the files in {}",
            options.variant.name(),
            corpus.folder().join("out").display()
        );
    }
    println!("{program} {}: same output, plain and {}", options.input.name(), options.variant.name());
    Ok(())
}
