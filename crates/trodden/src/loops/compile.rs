//! A unit's bitcode to assembly, twice: as it is, and through the plugin.
//!
//! `opt` first gives every block a name (`instnamer`); names do not change what code is made, and come back in the assembly's comments.

use super::machine::{self, Functions};
use crate::assets;
use crate::cc::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE, PARAMETERS_VARIABLE};
use crate::cli::{Parameters, parameters_over};
use crate::rebuild::codegen_of;
use crate::toolchain::{LLVM_MAJOR, Tool, is_program};
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_unit::store::STORE_VARIABLE;
use trodden_unit::{Frame, INTERESTING_KEY, KNOWN_KEY, RESIDUAL_WORD, UnitMap, WATCHED_KEY};

/// Both versions of a unit.
#[derive(Debug)]
pub struct Assembly {
    /// For each function the names of its blocks, in order.
    pub labels: Labels,
    /// As it is.
    pub plain: Functions,
    /// Counting.
    pub counted: Functions,
}

/// For each function the names of its blocks, in order.
pub type Labels = HashMap<String, Vec<String>>;

/// Makes both versions; what is counted is counted as in the program, but for the parameters given.
///
/// # Errors
/// The bitcode was not kept, or a tool is missing or fails.
pub fn assemble(frame: &Frame, parameters: &Parameters) -> Result<Assembly> {
    let map = frame.map()?;
    let folder = tempfile::Builder::new().prefix("trodden-loops-").tempdir().context("cannot make a temporary folder")?;
    let (bitcode, named) = (folder.path().join("unit.bc"), folder.path().join("named.ll"));
    fs::write(&bitcode, frame.bitcode().with_context(|| format!("no code to show of {}", map.source))?)?;
    run(Command::new(opt()?).args(["-passes=function(instnamer)", "-S"]).arg(&bitcode).arg("-o").arg(&named))?;
    let text = fs::read_to_string(&named)?;
    let plain = compile(&map, &named, &folder.path().join("plain.s"), None)?;
    let words = scheme_words(&map.scheme).with_context(|| format!("unit of {}", map.source))?;
    let words = parameters_over(&words, &parameters.words());
    let counted = compile(&map, &named, &folder.path().join("counted.s"), Some((&words, folder.path())))?;
    Ok(Assembly { labels: labels(&text), plain: machine::read(&plain), counted: machine::read(&counted) })
}

/// Words of a scheme that the plugin takes as they are: none of them names a file, since maps may come from anywhere.
const PLAIN_KEYS: &[&str] = &[
    "max-paths",
    "chords",
    "rounds",
    "early",
    "usual",
    "reach",
    "tier",
    "tails",
    "markers",
    "counters",
    "events",
    "table-slots",
    "array-paths",
    "threads",
    "order",
    "versions",
    "hits",
    "time-limit",
];
/// Words that are left out: of files a map has the identity only, so they have to be given again (`--weights`).
const FILE_KEYS: &[&str] = &["weights", KNOWN_KEY, WATCHED_KEY, INTERESTING_KEY, "known-cap"];

/// A stored scheme in the plugin's words.
fn scheme_words(scheme: &str) -> Result<String> {
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let mut words = Vec::new();
    for word in scheme.split_whitespace().filter(|w| *w != RESIDUAL_WORD) {
        match word.split_once('=') {
            None if is_name(word) => words.push(format!("scheme={word}")),
            Some((key, value)) if PLAIN_KEYS.contains(&key) && is_name(value) => words.push(word.to_owned()),
            Some((key, _)) if FILE_KEYS.contains(&key) => {}
            _ => bail!("its map says that it was instrumented by `{}`, which cannot be done again: build it again", word.escape_debug()),
        }
    }
    Ok(words.join(" "))
}

fn compile(map: &UnitMap, named: &Path, output: &Path, counting: Option<(&str, &Path)>) -> Result<String> {
    let codegen = codegen_of(map).with_context(|| format!("unit of {}", map.source))?;
    let mut command = Command::new(Tool::Clang.find()?);
    command.args(codegen.words()).args([
        "-Qunused-arguments",
        "-Wno-override-module",
        "-Xclang",
        "-disable-llvm-passes",
        "-fno-discard-value-names",
        // Code that several blocks share would belong to none of them.
        "-mllvm",
        "-enable-tail-merge=false",
    ]);
    if let Some((words, folder)) = counting {
        let mut plugin = OsString::from("-fpass-plugin=");
        plugin.push(assets::plugin()?);
        // The unit with names is another unit, which nobody wants in the store.
        command.arg(plugin).env(STORE_VARIABLE, folder.join("store")).env(PARAMETERS_VARIABLE, format!("{words} keep=map"));
        command.env(CODEGEN_VARIABLE, codegen.words().join(CODEGEN_SEPARATOR));
    }
    run(command.args(["-x", "ir", "-S"]).arg(named).arg("-o").arg(output)).with_context(|| format!("unit of {}", map.source))?;
    Ok(String::from_utf8_lossy(&fs::read(output)?).into_owned())
}

fn run(command: &mut Command) -> Result<()> {
    let made = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !made.status.success() {
        bail!("{} fails: {}", command.get_program().display(), String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}

/// LLVM's optimiser as a command, beside clang.
fn opt() -> Result<PathBuf> {
    let clang = fs::canonicalize(Tool::Clang.find()?)?;
    let opt = clang.with_file_name("opt");
    if !is_program(&opt) {
        bail!("{} is not there: run `apt-get install llvm-{LLVM_MAJOR}`", opt.display());
    }
    Ok(opt)
}

/// Names of blocks in the text of a module.
fn labels(text: &str) -> Labels {
    let mut all = Labels::new();
    let mut current: Option<&mut Vec<String>> = None;
    for line in text.lines() {
        if line.starts_with("define ") {
            current = function_name(line).map(|name| all.entry(name.to_owned()).or_default());
        } else if line.starts_with('}') {
            current = None;
        } else if let (Some(labels), false) = (&mut current, line.starts_with([' ', '\t', ';'])) {
            let name = match line.strip_prefix('"') {
                Some(quoted) => quoted.split_once("\":").map(|(name, _)| name),
                None => line.split_once(':').map(|(name, _)| name),
            };
            labels.extend(name.map(str::to_owned));
        }
    }
    all
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.split_once('@')?.1;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().map(|name| name.strip_prefix("\\01").unwrap_or(name)),
        None => rest.split('(').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_names_of_their_function() {
        let text = "define dso_local i32 @f(i32 %0) #0 !dbg !2 {\nbb:\n  br label %bb1\n\nbb1:            ; preds = %bb\n  ret i32 \
            0\n\n\"x y\": ; preds\n}\n\
            declare void @h()\ndefine void @\"\\01g h\"() {\nbb:\n  ret void\n}\n";
        let found = labels(text);
        assert_eq!(found["f"], ["bb", "bb1", "x y"]);
        assert_eq!(found["g h"], ["bb"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_stored_scheme_is_what_the_plugin_reads() {
        let read = |scheme| scheme_words(scheme).map_err(|e| e.to_string());
        assert_eq!(read("ball-larus max-paths=64 chords=on weights=00ff").unwrap(), "scheme=ball-larus max-paths=64 chords=on");
    }

    #[test]
    fn a_stored_scheme_names_no_file() {
        for word in ["facts=/etc/passwd", "apply=x", "parts=x", "tier=../x", "origin=00", "keep=/x", "a/b"] {
            let error = scheme_words(&format!("ball-larus {word}")).unwrap_err().to_string();
            assert!(error.contains(&format!("`{word}`")), "{error}");
        }
    }
}
