//! The second training of `trodden-lab with --hot-paths -- pgo`: the program runs under QEMU, and a model of the hardware path profiler
//! collects its paths (K. Vaswani, *Efficient Online Path Profiling*, figure 5.9).
//!
//! The training commands call the program by name. Therefore, while they run, the program is renamed, and a script under the program's name
//! runs `trodden-lab simulate` on the renamed program.

use crate::context::DriverContext;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_hardware::TableParameters;
use trodden_profile::temporary::lock_registry;
use trodden_profile::{Profile, ProfileMerger};

/// Suffix for the name of the program while a script replaces it.
const TRAINED_SUFFIX: &str = ".trodden-trained";

const SIMULATOR_PROGRAM: &str = "trodden-lab";

/// Runs the training commands and merges the contents of the path tables that the simulated profiler filled. The environment variable
/// `variable` tells the commands the program's path. `table` describes the path table. Fails if the description is invalid, or if a
/// training command fails or does not run the program.
pub fn train(context: &DriverContext, commands: &[String], variable: &str, program: &Path, table: &str) -> Result<Profile> {
    let folder = context.folder("trodden-train-")?;
    let profile_option = match table {
        "complete" => "--profile-of complete".to_owned(),
        table => format!("--table {}", TableParameters::parse(table)?.name()),
    };
    let substitute = ScriptSubstitute::install(context, program, folder.path(), &profile_option)?;
    for line in commands {
        let status = Command::new("sh").arg("-c").arg(line).env(variable, program).status().context("cannot run sh")?;
        ensure!(status.success(), "the training command `{line}` failed ({status})");
    }
    drop(substitute);
    let mut files: Vec<PathBuf> = fs::read_dir(folder.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "trodden"));
    files.sort();
    let mut merger = ProfileMerger::default();
    for file in &files {
        merger.add(&file.display().to_string(), Profile::read(file)?)?;
    }
    ensure!(!files.is_empty(), "the training run counted nothing. Check that the --train command runs the program that was built");
    merger.into_merged_profile().context("the training run wrote no profile")
}

/// A script that replaces a program under its name. Dropping this value restores the program.
struct ScriptSubstitute {
    program: PathBuf,
    original: PathBuf,
}

impl ScriptSubstitute {
    fn install(context: &DriverContext, program: &Path, folder: &Path, profile_option: &str) -> Result<ScriptSubstitute> {
        let mut name = program.file_name().unwrap_or_default().to_owned();
        name.push(TRAINED_SUFFIX);
        let substitute = ScriptSubstitute { program: program.to_owned(), original: program.with_file_name(name) };
        let quoted = |path: &Path| -> Result<String> {
            let text = path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))?;
            Ok(shlex::try_quote(text)?.into_owned())
        };
        let (tool, folder) = (quoted(&context.executable_folder()?.join(SIMULATOR_PROGRAM))?, quoted(folder)?);
        let script = format!(
            "#!/bin/sh\nTRODDEN_QUIET=1 exec {tool} simulate --top 0 --profile {folder}/$$.trodden {profile_option} -o {folder}/$$.txt \
                -- {} \"$@\"\n",
            quoted(&substitute.original)?
        );
        let mut names = lock_registry();
        names.register_renamed(&std::path::absolute(&substitute.original)?, &std::path::absolute(program)?);
        fs::rename(program, &substitute.original).with_context(|| format!("cannot rename {}", program.display()))?;
        drop(names);
        fs::write(program, script).with_context(|| format!("cannot write {}", program.display()))?;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
        Ok(substitute)
    }
}

impl Drop for ScriptSubstitute {
    fn drop(&mut self) {
        // A failure need not be reported here: the next step reads the program and then fails.
        let mut names = lock_registry();
        let _ = fs::rename(&self.original, &self.program);
        if let Ok(path) = std::path::absolute(&self.original) {
            names.unregister(&path);
        }
    }
}
