//! Describes the third-party crates that are compiled into the packed programs, in two documents: a list with all licence texts, and a bill
//! of materials.
//!
//! The crates are the dependencies that `cargo metadata` reports for the packed packages. Procedural macros and build dependencies are left
//! out, because none of their code is part of a program.

use super::compile;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use trodden_corpus::steps;

const LICENCE_FILE_PREFIXES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ThirdPartyCrate {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

/// Returns a list of the third-party crates, followed by their licence texts. Each distinct text is given once, with the crates that
/// contain it.
pub fn render_notices() -> Result<String> {
    let mut text = String::from("Crates that are compiled into trodden, with their licences. Their licence texts follow.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ThirdPartyCrate { name, version, licence, folder } in list_crates()? {
        writeln!(text, "{name} {version}: {licence}")?;
        for file in find_licence_files(&folder)? {
            let content = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            texts.entry(content).or_default().push(format!("{name} {version}"));
        }
    }
    for (content, mut names) in texts {
        names.dedup();
        write!(text, "\n{}\n{}\n\n{content}", "-".repeat(78), names.join(", "))?;
    }
    Ok(text)
}

pub fn render_bill_of_materials(version: &str) -> Result<String> {
    let component = |third: ThirdPartyCrate| {
        let ThirdPartyCrate { name, version, licence, .. } = third;
        let package_url = format!("pkg:cargo/{name}@{version}");
        let mut component = json!({ "type": "library", "bom-ref": package_url, "name": name, "version": version, "purl": package_url });
        if !licence.is_empty() {
            // Some crates still write a choice of licences as `A/B`. SPDX requires `A OR B`.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        component
    };
    let components: Vec<Value> = list_crates()?.into_iter().map(component).collect();
    let subject = json!({ "type": "application", "name": "trodden", "version": version });
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": subject },
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn list_crates() -> Result<BTreeSet<ThirdPartyCrate>> {
    let mut cargo = steps::cargo_command();
    cargo.args(["metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]);
    let metadata: Value = serde_json::from_str(&steps::output(&mut cargo)?).context("cannot parse the output of `cargo metadata`")?;
    let of = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, &Value> = json_elements(&metadata["packages"]).iter().map(|p| (of(p, "id"), p)).collect();
    let nodes: BTreeMap<String, &Value> = json_elements(&metadata["resolve"]["nodes"]).iter().map(|n| (of(n, "id"), n)).collect();
    let is_packed = |p: &Value| compile::SHIPPED_CRATES.contains(&&*of(p, "name"));
    let mut open: Vec<String> = packages.iter().filter(|(_, p)| is_packed(p)).map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if packages.get(&id).is_some_and(|p| !is_macro(p)) && seen.insert(id.clone()) {
            let needed = nodes.get(&id).map(|node| json_elements(&node["deps"])).unwrap_or_default();
            open.extend(
                needed.iter().filter(|d| json_elements(&d["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())).map(|d| of(d, "pkg")),
            );
        }
    }
    let fetched = seen.iter().map(|id| packages[id]).filter(|p| !p["source"].is_null());
    let third_party = |p: &Value| {
        let folder = Path::new(&of(p, "manifest_path")).parent().unwrap_or(Path::new("")).to_owned();
        ThirdPartyCrate { name: of(p, "name"), version: of(p, "version"), licence: of(p, "license"), folder }
    };
    Ok(fetched.map(third_party).collect())
}

fn json_elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_macro(package: &Value) -> bool {
    json_elements(&package["targets"]).iter().any(|target| json_elements(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
}

/// Returns the licence files in a crate's folder and in its immediate subfolders, which may contain sources of other projects.
fn find_licence_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut all = entries(folder)?;
    for inner in all.clone().iter().filter(|path| path.is_dir()) {
        all.extend(entries(inner)?);
    }
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && !name.ends_with(".RS") && LICENCE_FILE_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
    };
    let mut found: Vec<PathBuf> = all.into_iter().filter(is_licence).collect();
    found.sort();
    Ok(found)
}
