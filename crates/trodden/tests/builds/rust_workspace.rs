//! `cargo trodden` in a workspace: crates are instrumented one by one, and the tests of all packages are recorded as one run.

use crate::place::{Place, cargo_trodden, executions, must, trodden};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use trodden_profile::{FunctionPaths, Profile, RunStore};
use trodden_report::DemangledName;

const WORKSPACE_MANIFEST: &str = "[workspace]\nresolver = \"2\"\nmembers = [\"core\", \"mac\", \"app\"]\n\
    [profile.whole]\ninherits = \"dev\"\nlto = \"fat\"\n";
const CORE_LIBRARY: &str = r#"/// Adds, but never above 10.
/// ```
/// assert_eq!(wcore::add(9, 9), 10);
/// ```
pub fn add(a: u32, b: u32) -> u32 {
    let s = a + b;
    if s > 10 {
        return 10;
    }
    s
}
pub fn sum<T: Copy + Into<u32>>(all: &[T]) -> u32 {
    let mut sum = 0;
    for one in all {
        sum = add(sum, (*one).into());
    }
    sum
}
pub fn untested() {}
#[cfg(coverage)]
pub fn chosen() -> u32 { 2 }
#[cfg(not(coverage))]
pub fn chosen() -> u32 { 1 }
pub fn must(a: Option<u32>) -> u32 {
    match a {
        Some(a) => a,
        None => panic!("nothing"),
    }
}
#[cfg(test)]
mod tests {
    #[test]
    fn small() { assert_eq!(super::add(1, 2), 3); }
    #[test]
    #[should_panic]
    fn nothing() { super::must(None); }
}
"#;
const APP_PROGRAM: &str = "fn main() {\n    let n = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(0u32);\n    \
    if n == 99 {\n        std::process::abort();\n    }\n    \
    println!(\"{}\", wcore::add(wcore::sum(&[n, 1]), wmac::seven!()));\n}\n";
const CLI_TEST: &str = "use std::process::Command;\nconst APP: &str = env!(\"CARGO_BIN_EXE_wapp\");\n\
    #[test]\nfn runs() {\n    assert_eq!(Command::new(APP).arg(\"1\").output().unwrap().stdout, b\"9\\n\");\n}\n\
    #[test]\nfn aborts() {\n    assert!(!Command::new(APP).arg(\"99\").status().unwrap().success());\n}\n\
    #[test]\nfn sees_no_wrapper() {\n    assert!(std::env::var_os(\"RUSTC_WORKSPACE_WRAPPER\").is_none());\n    \
    assert_eq!(wcore::chosen(), 2);\n}\n";

fn format_manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{rest}[lints.rust]\nunexpected_cfgs = \"allow\"\n")
}

fn create_workspace() -> Place {
    Place::with(&[
        ("Cargo.toml", WORKSPACE_MANIFEST),
        ("core/Cargo.toml", &format_manifest("wcore", "[dependencies]\nouter.path = \"../outer\"\n")),
        ("core/src/lib.rs", CORE_LIBRARY),
        (
            "core/tests/it.rs",
            "#[test]\nfn it() { assert_eq!(wcore::add(outer::four(), 4), 8); }\n\
            #[test]\n#[should_panic]\nfn nothing() { wcore::must(None); }\n",
        ),
        ("mac/Cargo.toml", &format_manifest("wmac", "[lib]\nproc-macro = true\n")),
        (
            "mac/src/lib.rs",
            "#[proc_macro]\npub fn seven(_: proc_macro::TokenStream) -> proc_macro::TokenStream { \"7u32\".parse().unwrap() }\n",
        ),
        (
            "app/Cargo.toml",
            &format_manifest("wapp", "default-run = \"wapp\"\n[dependencies]\nwcore.path = \"../core\"\nwmac.path = \"../mac\"\n"),
        ),
        ("app/src/main.rs", APP_PROGRAM),
        // No test runs this program.
        ("app/src/bin/idle.rs", "fn main() {\n    println!(\"idle\");\n}\n"),
        ("app/tests/cli.rs", CLI_TEST),
    ])
}

/// Creates a cargo command in a folder, without the variables of the cargo that runs this test.
fn cargo_command(place: &Place, folder: &str, arguments: &str) -> Command {
    let mut command = place.command(cargo_trodden());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "OUT_DIR", "LD_LIBRARY_PATH"].iter().for_each(|n| _ = command.env_remove(n));
    command.current_dir(place.path(folder)).arg("trodden").args(arguments.split_whitespace());
    command
}

fn read_output(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn tests_of_all_packages_are_one_run() {
    let place = create_workspace();
    // Adds a dependency outside the workspace.
    let place = wrap_in_outer_workspace(place);
    let output = must(&mut cargo_command(&place, "app", "test --coverage --workspace --offline"));
    let said = read_output(&output);
    assert!(said.contains("core/src/lib.rs") && said.contains("app/src/main.rs"), "{said}");
    assert!(!said.contains("outer/src/lib.rs"), "{said}");
    assert!(place.path(".trodden").is_dir() && !place.path("app/.trodden").exists() && !place.path("core/.trodden").exists());
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let runs = store.select("test").unwrap();
    assert_eq!(runs.len(), 1);
    let profile = store.load(&runs[0]).unwrap();
    // One call each from the unit test, the integration test and the documentation test, and three from the two runs of the application.
    assert_eq!(count_calls(&profile, "wcore::add"), 1 + 1 + 1 + 3);
    // Two runs of the application, and the generated `main` of its unit tests.
    assert_eq!(count_calls(&profile, "wapp::main"), 2 + 1);
    assert_eq!(count_calls(&profile, "outer::four"), 0);
    let tracefile = String::from_utf8(place.trodden("export lcov last").stdout).unwrap();
    let lines = |file: &str| tracefile.split("end_of_record").find(|part| part.contains(file)).unwrap_or_else(|| panic!("{tracefile}"));
    for line in ["DA:6,6\n", "DA:8,1\n", "DA:10,5\n", "DA:19,0\n", "DA:21,1\n"] {
        assert!(lines("core/src/lib.rs").contains(line), "{line}: {tracefile}");
    }
    assert!(lines("app/src/main.rs").contains("DA:4,1\n"), "{tracefile}");
    let report = String::from_utf8(place.trodden("coverage report").stdout).unwrap();
    let names: Vec<&str> =
        report.lines().skip(1).filter(|line| !line.starts_with("    ")).map(|l| l.split("  ").find(|w| !w.is_empty()).unwrap()).collect();
    let files = ["wapp", "app/src/bin/idle.rs", "app/src/main.rs", "app/tests/cli.rs", "wcore", "core/src/lib.rs", "core/tests/it.rs"];
    assert_eq!(names, [&files[..], &["total"]].concat(), "{report}");
    // The binaries of the unit test and of the integration test each contain the function that panics, but the report must list it once.
    assert_eq!(report.lines().filter(|line| line.contains("wcore::must")).count(), 1, "{report}");
    let listed = String::from_utf8(place.trodden("runs").stdout).unwrap();
    assert!(listed.contains("  cargo trodden test --coverage --workspace --offline\n"), "{listed}");
    check_recorded_run(&place);
    check_dependencies(&place);
}

/// Checks that a program that cargo runs in a package's folder is recorded in the workspace's run store.
fn check_recorded_run(place: &Place) {
    must(&mut cargo_command(place, "app", "run --offline -- 3"));
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let profile = store.load(&store.select("last").unwrap()[0]).unwrap();
    assert_eq!((count_calls(&profile, "wapp::main"), count_calls(&profile, "wcore::add")), (1, 3));
    assert!(!place.path("app/.trodden").exists());
}

/// Checks that dependencies are counted if requested, and that builds share them otherwise.
fn check_dependencies(place: &Place) {
    let built = |end: &str| find_newest(&place.path("target/trodden/x86_64-unknown-linux-gnu/debug/deps"), "libouter", end);
    let before = built("rlib");
    must(&mut cargo_command(place, "", "build --workspace --offline"));
    assert_eq!(built("rlib"), before);
    let output = must(&mut cargo_command(place, "", "test -p wcore --test it --dependencies --offline"));
    assert!(!read_output(&output).contains("--dependencies adds"), "{output:?}");
    let profile = RunStore::open(&place.path(".trodden")).unwrap();
    let profile = profile.load(&profile.select("last").unwrap()[0]).unwrap();
    assert_eq!((count_calls(&profile, "outer::four"), count_calls(&profile, "wcore::add")), (1, 1));
}

const BUILD_SCRIPT: &str = r#"
use std::{env, process::Command};
fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let cc = env::var(format!("CC_{}", env::var("TARGET").unwrap().replace('-', "_"))).unwrap_or("cc".into());
    let mut compile = Command::new(cc);
    compile.args(["-O0", "-g", "-fPIC", "-c", "native/pick.c", "-o"]).arg(format!("{out}/pick.o"));
    assert!(compile.status().unwrap().success());
    assert!(Command::new("ar").arg("rcs").arg(format!("{out}/libpick.a")).arg(format!("{out}/pick.o")).status().unwrap().success());
    println!("cargo::rerun-if-changed=native/pick.c");
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-lib=static=pick");
}
"#;

/// The coverage report must include C code that a build script compiles.
#[test]
fn c_code_of_build_scripts_is_covered() {
    let library = "unsafe extern \"C\" { fn pick(n: i32) -> i32; }\npub fn weigh(n: i32) -> i32 {\n    if n % 2 == 0 {\n        \
        unsafe { pick(n) }\n    } else {\n        n\n    }\n}\n#[test]\nfn even() {\n    assert_eq!(weigh(4), 8);\n}\n";
    let place = Place::with(&[
        ("Cargo.toml", &format_manifest("mixed", "")),
        ("build.rs", BUILD_SCRIPT),
        ("native/pick.c", "int pick(int n) {\n  if (n > 2)\n    return 2 * n;\n  return n;\n}\n"),
        ("src/lib.rs", library),
    ]);
    // The coverage build must not reuse this build, which has no coverage.
    must(&mut cargo_command(&place, "", "test --offline"));
    let output = must(&mut cargo_command(&place, "", "test --coverage --offline"));
    let said = read_output(&output);
    assert!(said.contains("native/pick.c") && said.contains("src/lib.rs"), "{said}");
    let tracefile = String::from_utf8(place.trodden("export lcov last").stdout).unwrap();
    let lines = |file: &str| tracefile.split("end_of_record").find(|part| part.contains(file)).unwrap_or_else(|| panic!("{tracefile}"));
    for (file, line) in
        [("native/pick.c", "DA:3,1\n"), ("native/pick.c", "DA:4,0\n"), ("src/lib.rs", "DA:4,1\n"), ("src/lib.rs", "DA:6,0\n")]
    {
        assert!(lines(file).contains(line), "{file} {line}: {tracefile}");
    }
}

/// After a change, only the affected units of a crate may be compiled again. Paths must not depend on how rustc divides the crate into
/// units.
#[test]
fn only_changed_units_are_recompiled() {
    let part = |name: &str| {
        format!("pub mod {name} {{\n    #[inline(never)]\n    pub fn value() -> u32 {{\n        crate::base::value() | 4\n    }}\n}}\n")
    };
    let parts: Vec<String> = ('a'..='h').map(|letter| part(&format!("part_{letter}"))).collect();
    let sum: Vec<String> = ('a'..='h').map(|letter| format!("part_{letter}::value()")).collect();
    let main = |base: &str| {
        format!(
            "mod base {{\n    pub fn value() -> u32 {{\n        {base}\n    }}\n}}\n{}fn main() {{\n    println!(\"{{}}\", {});\n}}\n",
            parts.concat(),
            sum.join(" | ")
        )
    };
    let place = Place::with(&[("Cargo.toml", &format_manifest("subject", "")), ("src/main.rs", &main("1"))]);
    let program = "target/trodden/x86_64-unknown-linux-gnu/debug/subject";
    let objects = || list_files_below(&place.path("store/crates")).into_iter().filter(|file| file.ends_with(".o")).count();
    let build = |base: &str, incremental: &str| {
        place.write("src/main.rs", &main(base));
        let before = objects();
        must(cargo_command(&place, "", "build --offline").env("CARGO_INCREMENTAL", incremental));
        let (printed, profile) = place.record(program);
        (objects() - before, printed, count_main_paths(&profile))
    };
    let (all, printed, paths) = build("1", "1");
    assert!(all > 4 && printed == "5\n", "{all} {printed}");
    let (changed, printed, same) = build("2", "1");
    assert!(changed > 0 && changed <= 2 && printed == "6\n", "{changed} {printed}");
    assert_eq!(same, paths);
    let (one, printed, whole) = build("2", "0");
    assert_eq!((one <= 2, printed.as_str()), (true, "6\n"));
    assert_eq!(whole, paths);
}

fn count_main_paths(profile: &Profile) -> Vec<(u64, u64)> {
    let (_, unit, map) = profile.functions().find(|(_, _, f)| f.plain_name().contains("7subject4main")).unwrap();
    unit.counts_of(map).collect()
}

/// Returns the files below a folder that may not exist yet.
fn list_files_below(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => files.extend(list_files_below(&path)),
            path => files.push(path.display().to_string()),
        }
    }
    files
}

/// Reports merge the runs of a suite by source lines even if the runs had different features.
#[test]
fn runs_with_different_features_are_added_up() {
    let library = "pub fn one() -> u32 {\n    1\n}\n#[cfg(feature = \"more\")]\npub fn two() -> u32 {\n    2\n}\n";
    let main = "fn main() {\n    let sum = subject::one();\n    #[cfg(feature = \"more\")]\n    let sum = sum + subject::two();\n    \
        println!(\"{sum}\");\n}\n";
    let test =
        "#[test]\nfn runs() {\n    assert!(std::process::Command::new(env!(\"CARGO_BIN_EXE_subject\")).status().unwrap().success());\n}\n";
    let place = Place::with(&[
        ("Cargo.toml", &format_manifest("subject", "[features]\nmore = []\n")),
        ("src/lib.rs", library),
        ("src/main.rs", main),
        ("tests/runs.rs", test),
    ]);
    for options in ["", "--features more"] {
        must(&mut cargo_command(&place, "", &format!("test --coverage --offline {options}")));
    }
    let counts = |runs: &str, texts: &[&str]| -> Vec<String> {
        let shown = String::from_utf8(place.trodden(&format!("coverage show {runs}")).stdout).unwrap();
        let line = |text: &&str| {
            let line = shown.lines().find(|line| line.ends_with(*text)).unwrap_or_else(|| panic!("{text}: {shown}"));
            line.split('|').nth(1).unwrap().trim().to_owned()
        };
        texts.iter().map(line).collect()
    };
    assert_eq!(counts("test", &["|    1", "|    2"]), ["2", "1"]);
    // This build, without coverage, replaces the program. The report must use the copy of the earlier program that cargo keeps.
    must(&mut cargo_command(&place, "", "build --offline"));
    assert_eq!(counts("test", &["|    1", "|    2"]), ["2", "1"]);
    assert_eq!(counts("1", &["|    1"]), ["1"]);
}

/// The standard library is distributed as compiled code, but must be counted if requested.
#[test]
fn standard_library_is_counted_on_request() {
    // The last line of the program uses the crate gimli.
    let main = "fn main() {\n    let text = String::from_utf8_lossy(std::hint::black_box(b\"a\\xffb\"));\n    \
        println!(\"{}\", text.len());\n    \
        assert!(std::backtrace::Backtrace::force_capture().to_string().contains(\"subject::main\"));\n}\n\
        #[test]\nfn passes() {}\n";
    let place = Place::with(&[("Cargo.toml", &format_manifest("subject", "")), ("src/main.rs", main)]);
    let program = "target/trodden/x86_64-unknown-linux-gnu/debug/subject";
    must(&mut cargo_command(&place, "", "build --offline"));
    let (printed, without) = place.record(program);
    must(&mut cargo_command(&place, "", "build --offline --std"));
    let (again, with) = place.record(program);
    assert_eq!((&*printed, &*again), ("5\n", "5\n"));
    let print = "std::io::stdio::_print";
    assert_eq!((count_calls(&without, print), count_calls(&with, print)), (0, 1));
    assert_eq!((count_calls(&without, "subject::main"), count_calls(&with, "subject::main")), (1, 1));
    let of_crate = |profile: &Profile, name: &str| {
        let own = profile.functions().filter(|(_, _, f)| DemangledName::from_linkage(f.plain_name()).short.contains(name));
        own.filter(|(_, unit, map)| unit.counts_of(map).next().is_some()).count()
    };
    assert!(of_crate(&without, "gimli::") == 0 && of_crate(&with, "gimli::") > 0);
    must(&mut cargo_command(&place, "", "test --offline --std"));
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let tested = store.load(&store.select("last").unwrap()[0]).unwrap();
    assert!(of_crate(&tested, "test::run_test") > 0);
}

/// Adds a package to the place that is not a workspace member.
fn wrap_in_outer_workspace(place: Place) -> Place {
    place.write("outer/Cargo.toml", &format_manifest("outer", "[workspace]\n"));
    place.write("outer/src/lib.rs", "pub fn four() -> u32 { 4 }\n");
    place.write("Cargo.toml", &WORKSPACE_MANIFEST.replace("members", "exclude = [\"outer\"]\nmembers"));
    place
}

fn find_newest(folder: &Path, begin: &str, end: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_of = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end)
    };
    let mut files: Vec<PathBuf> = files.filter(is_of).collect();
    files.sort();
    files
}

/// Returns the number of calls to a function, summed over all units.
fn count_calls(profile: &Profile, name: &str) -> u64 {
    let own = profile.functions().filter(|(_, _, f)| DemangledName::from_linkage(f.plain_name()).matches(name));
    own.map(|(_, unit, map)| FunctionPaths::decode(map, unit.counts_of(map)).unwrap().call_count()).sum()
}

fn remove_hash(name: &str) -> &str {
    name.rfind("17h").map_or(name, |at| &name[..at])
}

/// Returns the counts of all paths in the workspace's functions, by function name.
fn count_paths(profile: &Profile) -> BTreeMap<String, Vec<Vec<(u64, u64)>>> {
    let mut all = BTreeMap::<String, Vec<_>>::new();
    for (_, unit, map) in profile.functions().filter(|(_, _, f)| f.plain_name().contains("5wcore") || f.plain_name().contains("4wapp")) {
        let counts: Vec<(u64, u64)> = unit.counts_of(map).collect();
        all.entry(remove_hash(map.plain_name()).to_owned()).or_default().push(counts);
    }
    all.values_mut().for_each(|counts| counts.sort());
    all
}

#[test]
fn crate_by_crate_counts_equal_whole_program_counts() {
    let place = wrap_in_outer_workspace(create_workspace());
    let mut found = Vec::new();
    for (profile, folder) in [("dev", "debug"), ("whole", "whole")] {
        must(&mut cargo_command(&place, "", &format!("build --workspace --offline --profile {profile}")));
        let program = place.path(&format!("target/trodden/x86_64-unknown-linux-gnu/{folder}/wapp"));
        let file = format!("{profile}.trodden");
        must(place.command(trodden()).args(["record", "--no-store", "-o", &file, "--"]).arg(program).arg("3"));
        found.push(Profile::read(&place.path(&file)).unwrap());
    }
    let (by_crate, whole) = (count_paths(&found[0]), count_paths(&found[1]));
    assert!(by_crate.contains_key("_ZN5wcore3add") && by_crate.len() > 3, "{by_crate:?}");
    // Builds by crate also contain functions that the program does not call, so only the functions of the whole program are compared.
    for (name, counts) in &whole {
        assert_eq!(by_crate.get(name), Some(counts), "{name}");
    }
    // Only the whole program contains the standard library.
    assert!(found[1].functions().count() > 2 * found[0].functions().count());
    assert_eq!(executions(&found[0], "main"), executions(&found[1], "main"));
}

/// A static library contains the runtime, for programs that other compilers link.
#[test]
fn static_libraries_contain_the_runtime() {
    let place = Place::with(&[
        ("Cargo.toml", &format_manifest("part", "[lib]\ncrate-type = [\"staticlib\", \"rlib\"]\n[profile.release]\npanic = \"abort\"\n")),
        ("src/lib.rs", "#[unsafe(no_mangle)]\npub extern \"C\" fn grade(n: i32) -> i32 { if n > 9 { 9 } else { n } }\n"),
        ("use.c", "int grade(int);\nint main(int n, char **v) { return v ? grade(10 + n) + grade(n) - 10 : 1; }\n"),
    ]);
    for (options, folder) in [("", "debug"), ("--release", "release")] {
        must(&mut cargo_command(&place, "", &format!("build --offline {options}")));
        let library = format!("target/trodden/x86_64-unknown-linux-gnu/{folder}/libpart.a");
        place.tool("cc", &format!("use.c {library} -o use -lpthread -ldl -lm"));
        let (_, profile) = place.record("use");
        assert_eq!(executions(&profile, "grade"), Some(2), "{folder}");
    }
}
