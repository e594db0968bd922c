//! Checks one run of a program against the oracles (`trodden-oracle check`).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_oracle::{CountVerdict, OracleError, OracleSubject, OracleTools, SubjectRun, counts, log, pgo, program};
use trodden_unit::UnitCache;

pub struct ProgramTrial {
    pub store: Option<PathBuf>,
    /// File to which the report is appended; `None` for standard error.
    pub report: Option<PathBuf>,
    pub log: bool,
    pub command: Vec<OsString>,
}

/// Checks the run. Returns the program's exit status if all counts are equal, and 1 otherwise.
pub fn check(trial: &ProgramTrial) -> Result<ExitCode, OracleError> {
    let folder = tempfile::tempdir().map_err(OracleError::file(&std::env::temp_dir()))?;
    let tools = OracleTools::prepare(folder.path())?;
    let (name, arguments) = trial.command.split_first().expect("the command line requires a program");
    let run = prepare_run(name, arguments, folder.path())?;
    let store = trial.store.clone().or_else(|| UnitCache::root_from_environment(|name| std::env::var_os(name))).unwrap_or_default();
    let subject = program::read(Path::new(name), &store, folder.path())?.with_inputs_of(&UnitCache::new(&store));
    let mut text = String::new();
    let (outcome, by_blocks) = counts::verify_in_one_run(&subject, &tools, &run)?;
    let mut equal = describe_verdict(&mut text, name, "block counters", &by_blocks);
    let (_, by_pgo) = pgo::check(&subject, &tools, &run, &by_blocks.left_by_tail_call)?;
    equal &= describe_verdict(&mut text, name, "LLVM's edge profile", &by_pgo);
    if trial.log {
        let (_, paths) = subject.count_paths(&run, &[])?;
        equal &= check_with_log(&subject, &tools, &run, &paths, &mut text, name)?;
    }
    std::io::stdout().write_all(&outcome.output).map_err(OracleError::file(Path::new("standard output")))?;
    write_report(trial, &text)?;
    let status = outcome.status.code().unwrap_or_else(|| 128 + outcome.status.signal().unwrap_or(0));
    Ok(ExitCode::from(if equal { status as u8 } else { 1 }))
}

fn check_with_log(
    subject: &OracleSubject,
    tools: &OracleTools,
    run: &SubjectRun,
    paths: &[counts::UnitCounts],
    text: &mut String,
    name: &OsString,
) -> Result<bool, OracleError> {
    let (_, replay) = log::replay_log(subject, tools, run)?;
    Ok(describe_verdict(text, name, "log of steps", &replay.check(subject, paths)?))
}

/// Prepares the run that the user requested. Standard input is saved to a file, since the program runs several times.
fn prepare_run(name: &OsString, arguments: &[OsString], folder: &Path) -> Result<SubjectRun, OracleError> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).map_err(OracleError::file(Path::new("standard input")))?;
    let kept = folder.join("standard-input");
    fs::write(&kept, &input).map_err(OracleError::file(&kept))?;
    let directory = std::env::current_dir().map_err(OracleError::file(Path::new(".")))?;
    let place = folder.join("run").join(Path::new(name).file_name().unwrap_or(name));
    Ok(SubjectRun { place, arguments: arguments.to_vec(), input: Some(kept), directory, limit_s: 3600 })
}

fn describe_verdict(text: &mut String, program: &OsString, oracle: &str, verdict: &CountVerdict) -> bool {
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let different: std::collections::BTreeSet<&str> = verdict.differences.iter().map(|d| d.function.as_str()).collect();
    let equal = verdict.functions - different.len();
    let CountVerdict { functions, executed, .. } = verdict;
    let mut put = |line: String| writeln!(text, "{line}").expect("writing to a string does not fail");
    put(format!("{program}: {oracle}: {equal} of {functions} functions equal ({executed} executed), {} differ", different.len()));
    let lists = [
        ("unfinished", &verdict.unfinished),
        ("tail call did not return", &verdict.left_by_tail_call),
        ("not checked", &verdict.not_checked),
    ];
    for (what, list) in lists {
        list.iter().for_each(|line| put(format!("  {what}: {line}")));
    }
    verdict.differences.iter().take(200).for_each(|d| put(format!("  differs: {d}")));
    verdict.is_equal()
}

fn write_report(trial: &ProgramTrial, text: &str) -> Result<(), OracleError> {
    let Some(path) = &trial.report else {
        eprint!("{text}");
        return Ok(());
    };
    let mut file = fs::File::options().create(true).append(true).open(path).map_err(OracleError::file(path))?;
    file.write_all(text.as_bytes()).map_err(OracleError::file(path))
}
