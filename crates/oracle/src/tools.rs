//! Running LLVM's tools, and locating the parts of trodden under test.

use crate::error::OracleError;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trodden_unit::experiment::EXPERIMENT_VARIABLE;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;

/// The locations of LLVM's tools and of trodden's plugin and runtime.
#[derive(Clone, Debug)]
pub struct OracleTools {
    llvm: PathBuf,
    /// The plugin.
    pub plugin: PathBuf,
    /// The runtime object.
    pub runtime: PathBuf,
}

const RUNTIME_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_rt.o"));
/// The C source of the recorder that probes call.
pub const RECORDER_SOURCE: &str = include_str!("probes.c");
const DEFAULT_CLANG: &str = "clang-22";

impl OracleTools {
    /// Takes the plugin from `TRODDEN_PLUGIN`, or builds it with cargo, and writes the runtime object to `folder`. If `TRODDEN_CLANG` is
    /// set, LLVM's tools are those of that clang.
    ///
    /// # Errors
    /// The plugin cannot be built, or the folder cannot be written.
    pub fn prepare(folder: &Path) -> Result<OracleTools, OracleError> {
        let clang = std::env::var_os("TRODDEN_CLANG").unwrap_or_else(|| DEFAULT_CLANG.into());
        let plugin = match std::env::var_os("TRODDEN_PLUGIN") {
            Some(plugin) => plugin.into(),
            None => build_plugin()?,
        };
        let found = run(Command::new(&clang).arg("-print-prog-name=clang"))?;
        let llvm = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()).with_file_name("");
        fs::create_dir_all(folder).map_err(OracleError::file(folder))?;
        let runtime = folder.join("trodden_rt.o");
        write_atomically(&runtime, RUNTIME_OBJECT)?;
        Ok(OracleTools { llvm, plugin, runtime })
    }

    /// Returns a command that runs an LLVM tool.
    pub fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(self.llvm.join(tool));
        command.env_remove("TRODDEN_OUTPUT").env_remove(SETTINGS_VARIABLE).env_remove(EXPERIMENT_VARIABLE);
        command
    }

    /// Disassembles a module, without its debug information.
    ///
    /// # Errors
    /// `opt` cannot read the bitcode.
    pub fn disassemble(&self, bitcode: &Path) -> Result<String, OracleError> {
        let output = run(self.command("opt").args(["--strip-debug", "-S", "-o", "-"]).arg(bitcode))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Compiles a module that is already optimised. With `probes`, a unit store and a plugin request's file, the plugin inserts trodden's
    /// probes.
    ///
    /// # Errors
    /// clang fails.
    pub fn compile_module(
        &self,
        module: &Path,
        codegen: &[String],
        output: &Path,
        probes: Option<(&Path, &Path)>,
    ) -> Result<(), OracleError> {
        let mut clang = self.command("clang");
        clang.args(codegen).args(["-Qunused-arguments", "-Wno-override-module", "-Xclang", "-disable-llvm-passes", "-x", "ir", "-c"]);
        if let Some((store, request)) = probes {
            let mut plugin = std::ffi::OsString::from("-fpass-plugin=");
            plugin.push(&self.plugin);
            clang.arg(plugin).env("TRODDEN_CACHE", store).env(EXPERIMENT_VARIABLE, request).env("TRODDEN_CODEGEN", codegen.join("\u{1f}"));
        }
        run(clang.arg(module).arg("-o").arg(output)).map(drop)
    }
}

/// Replaces a file atomically: concurrent readers see either the old or the new content.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), OracleError> {
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&temporary, bytes).map_err(OracleError::file(&temporary))?;
    fs::rename(&temporary, path).map_err(OracleError::file(path))
}

fn build_plugin() -> Result<PathBuf, OracleError> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--package", "trodden-instrument", "--message-format", "json", "--manifest-path"]).arg(manifest);
    let messages = run(&mut cargo)?;
    plugin_path(&messages.stdout).ok_or_else(|| OracleError::Failed {
        command: "cargo build --package trodden-instrument".into(),
        message: "its output names no libtrodden_instrument.so".into(),
    })
}

fn plugin_path(messages: &[u8]) -> Option<PathBuf> {
    let lines = messages.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<serde_json::Value>(l).ok());
    let files = lines.flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default());
    files.filter_map(|f| f.as_str().map(PathBuf::from)).find(|f| f.ends_with("libtrodden_instrument.so"))
}

/// Runs a command and waits for it to end.
///
/// # Errors
/// The command cannot be started or fails; the message contains the beginning of its standard error.
pub fn run(command: &mut Command) -> Result<Output, OracleError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|source| OracleError::Tool { tool: program.clone(), source })?;
    if !output.status.success() {
        let words: Vec<&OsStr> = command.get_args().collect();
        let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
        let message = format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr).chars().take(4000).collect::<String>());
        return Err(OracleError::Failed { command: format!("{program} {}", words.join(" ")), message });
    }
    Ok(output)
}
