//! The second training of `trodden-lab with --hot-paths -- pgo`: the program runs under QEMU, and a model of the hardware path profiler
//! finds its paths (K. Vaswani, *Efficient Online Path Profiling*, figure 5.9).
//!
//! Trainings call the program by its name. So a script takes the program's place while they run, and starts `trodden-lab
//! simulate` on the program, which lies beside it.

use crate::context::DriverContext;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_hardware::TableParameters;
use trodden_profile::temporary::names;
use trodden_profile::{Merger, Profile};

/// What is added to the program's name while the script is in its place.
const ENDING: &str = ".trodden-trained";

/// The program beside ours that has all parameters of the simulation.
const SIMULATOR: &str = "trodden-lab";

/// Runs the trainings, with the path of the program in a variable, and gives what the table held of all runs together.
///
/// # Errors
/// The table is not understood, a training fails, or it did not run the program.
pub fn train(context: &DriverContext, commands: &[String], variable: &str, program: &Path, table: &str) -> Result<Profile> {
    let folder = context.folder("trodden-train-")?;
    let of = match table {
        "complete" => "--profile-of complete".to_owned(),
        table => format!("--table {}", TableParameters::parse(table)?.name()),
    };
    let place = TakenPlace::take(context, program, folder.path(), &of)?;
    for line in commands {
        let status = Command::new("sh").arg("-c").arg(line).env(variable, program).status().context("cannot run sh")?;
        ensure!(status.success(), "the training `{line}` ends with {status}");
    }
    drop(place);
    let mut files: Vec<PathBuf> = fs::read_dir(folder.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "trodden"));
    files.sort();
    let mut merger = Merger::default();
    for file in &files {
        merger.add(&file.display().to_string(), Profile::read(file)?)?;
    }
    ensure!(!files.is_empty(), "the training counted nothing: does it run the program that is built here?");
    merger.finish().context("the training has no profile")
}

/// The program while a script is in its place.
struct TakenPlace {
    program: PathBuf,
    beside: PathBuf,
}

impl TakenPlace {
    fn take(context: &DriverContext, program: &Path, folder: &Path, of: &str) -> Result<TakenPlace> {
        let mut name = program.file_name().unwrap_or_default().to_owned();
        name.push(ENDING);
        let place = TakenPlace { program: program.to_owned(), beside: program.with_file_name(name) };
        let quoted = |path: &Path| -> Result<String> {
            let text = path.to_str().with_context(|| format!("{} is no Unicode", path.display()))?;
            Ok(shlex::try_quote(text)?.into_owned())
        };
        let (tool, folder) = (quoted(&context.own_folder()?.join(SIMULATOR))?, quoted(folder)?);
        let script = format!(
            "#!/bin/sh\nTRODDEN_QUIET=1 exec {tool} simulate --top 0 --profile {folder}/$$.trodden {of} -o {folder}/$$.txt -- {} \"$@\"\n",
            quoted(&place.beside)?
        );
        let mut names = names();
        names.enter_renamed(&std::path::absolute(&place.beside)?, &std::path::absolute(program)?);
        fs::rename(program, &place.beside).with_context(|| format!("cannot rename {}", program.display()))?;
        drop(names);
        fs::write(program, script).with_context(|| format!("cannot write {}", program.display()))?;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
        Ok(place)
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        // The next step reads the program, and says so if it is not there.
        let mut names = names();
        let _ = fs::rename(&self.beside, &self.program);
        if let Ok(path) = std::path::absolute(&self.beside) {
            names.forget(&path);
        }
    }
}
