//! Compiles a unit's bitcode to assembly twice: unchanged, and with counting added by the plugin.
//!
//! First, `opt` names every block (`instnamer`). Names do not affect the generated code, and appear in the comments of the assembly.

use super::machine::{self, MachineFunctions};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use trodden_command::laboratory::driver_context;
use trodden_driver::assets;
use trodden_driver::compile_step::{CODEGEN_SEPARATOR, CODEGEN_VARIABLE};
use trodden_driver::experiment;
use trodden_driver::other_programs::run;
use trodden_driver::rebuild::{codegen_options, llvm_for};
use trodden_driver::toolchain::{LlvmTool, LlvmToolchain};
use trodden_launch::temporary::create_folder_in;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::Keep;
use trodden_unit::{Frame, Settings, UnitMap};

#[derive(Debug)]
pub struct Assembly {
    pub labels: AssemblyBlockNames,
    pub plain: MachineFunctions,
    pub counted: MachineFunctions,
}

/// For each function, the names of its blocks, in order.
pub type AssemblyBlockNames = HashMap<String, Vec<String>>;

/// Compiles a unit without and with counting. Counting is configured as in the program, except for `parameters`.
pub fn assemble(frame: &Frame, parameters: &Settings) -> Result<Assembly> {
    let map = frame.map()?;
    let folder = create_folder_in(&std::env::temp_dir(), "trodden-loops-")?;
    let (bitcode, named) = (folder.path().join("unit.bc"), folder.path().join("named.ll"));
    fs::write(&bitcode, frame.bitcode().with_context(|| format!("cannot show the code of {}", map.source))?)?;
    let llvm = llvm_for(driver_context(), [(&*map.source, map.llvm)])?;
    run(Command::new(llvm.tool(driver_context(), LlvmTool::Opt)?)
        .args(["-passes=function(instnamer)", "-S"])
        .arg(&bitcode)
        .arg("-o")
        .arg(&named))?;
    let text = fs::read_to_string(&named)?;
    let plain = compile(&llvm, &map, &named, &folder.path().join("plain.s"), None)?;
    // The unit with named blocks differs from the program's unit, so it must not be stored in the unit cache.
    let settings = Settings { keep: Some(Keep::Map), ..parameters.clone().or(Settings::from(&map.experiment)) };
    let request = experiment::resolve(driver_context(), settings).and_then(|request| experiment::write_request(driver_context(), &request));
    let request = request.with_context(|| format!("cannot use the compilation unit of {}", map.source))?;
    let counted = compile(&llvm, &map, &named, &folder.path().join("counted.s"), Some((&request, folder.path())))?;
    Ok(Assembly { labels: extract_block_names(&text), plain: machine::parse(&plain), counted: machine::parse(&counted) })
}

fn compile(llvm: &LlvmToolchain, map: &UnitMap, named: &Path, output: &Path, counting: Option<(&Path, &Path)>) -> Result<String> {
    let codegen = codegen_options(map).with_context(|| format!("cannot use the compilation unit of {}", map.source))?;
    let mut command = Command::new(llvm.clang());
    command.args(codegen.arguments()).args([
        "-Qunused-arguments",
        "-Wno-override-module",
        "-Xclang",
        "-disable-llvm-passes",
        "-fno-discard-value-names",
        // Tail merging is disabled, because merged tails belong to no single block.
        "-mllvm",
        "-enable-tail-merge=false",
    ]);
    if let Some((request, folder)) = counting {
        command.arg(assets::plugin_option(driver_context(), llvm)?).env(CACHE_VARIABLE, folder.join("store"));
        experiment::pass_request_to_command(&mut command, request);
        command.env(CODEGEN_VARIABLE, codegen.arguments().join(CODEGEN_SEPARATOR));
    }
    run(command.args(["-x", "ir", "-S"]).arg(named).arg("-o").arg(output))
        .with_context(|| format!("cannot use the compilation unit of {}", map.source))?;
    Ok(String::from_utf8_lossy(&fs::read(output)?).into_owned())
}

fn extract_block_names(text: &str) -> AssemblyBlockNames {
    let mut all = AssemblyBlockNames::new();
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
    fn block_names_are_extracted_by_function() {
        let text = "define dso_local i32 @f(i32 %0) #0 !dbg !2 {\nbb:\n  br label %bb1\n\nbb1:            ; preds = %bb\n  ret i32 \
            0\n\n\"x y\": ; preds\n}\n\
            declare void @h()\ndefine void @\"\\01g h\"() {\nbb:\n  ret void\n}\n";
        let found = extract_block_names(text);
        assert_eq!(found["f"], ["bb", "bb1", "x y"]);
        assert_eq!(found["g h"], ["bb"]);
        assert_eq!(found.len(), 2);
    }
}
