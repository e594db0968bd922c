//! Programs built with LLVM 19 and with LLVM 22. Both versions must give equal counts, tools of each version must read the files of the
//! other, and bitcode must be passed only to an LLVM version that can read it.
//!
//! `cargo xtask test` also runs complete test files with LLVM 19, including the comparisons with LLVM's own counters.

use crate::place;
use crate::place::{Place, executions, must, trodden};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use trodden_oracle::random::{self, RandomLanguage};
use trodden_profile::{FunctionPaths, Profile};

const LLVM_VERSIONS: [u32; 2] = [19, 22];

/// Returns true if clang 19 is installed. Otherwise, prints that the test is skipped.
fn has_both_versions() -> bool {
    let has = |major: u32| Command::new(format!("clang-{major}")).arg("--version").output().is_ok_and(|out| out.status.success());
    let all = LLVM_VERSIONS.into_iter().all(has);
    if !all {
        eprintln!("skipped: clang 19 is not installed (`cargo xtask test` installs it)");
    }
    all
}

fn trodden_with_clang(place: &Place, major: u32, arguments: &str) -> Command {
    let mut command = place.command(trodden());
    command.env("TRODDEN_CLANG", format!("clang-{major}")).args(arguments.split_whitespace());
    command
}

fn trodden_with_default_clang(place: &Place, arguments: &str) -> Command {
    let mut command = place.command(trodden());
    command.env_remove("TRODDEN_CLANG").env_remove("CC").args(arguments.split_whitespace());
    command
}

fn expect_error(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read_versions(place: &Place, image: &str) -> Vec<u32> {
    place.image(image).frames.iter().map(|frame| frame.map().unwrap().llvm).collect()
}

/// Returns the line counts of the main source file.
fn count_lines(place: &Place, profile: &str) -> BTreeMap<u32, u64> {
    let trace = must(trodden_with_default_clang(place, &format!("export lcov {profile}")).arg("--include=*/prog.*")).stdout;
    let counts = String::from_utf8(trace).unwrap();
    let counts = counts.lines().filter_map(|line| line.strip_prefix("DA:")?.split_once(','));
    counts.map(|(line, count)| (line.parse().unwrap(), count.parse().unwrap())).collect()
}

/// Returns the counts of each function's paths. Keys are comparable between profiles if the function has the same graph in both.
fn count_paths(profile: &Profile) -> BTreeMap<(String, u64), BTreeMap<u64, u64>> {
    let of = |(_, unit, map): (_, &trodden_profile::UnitProfile, &trodden_unit::FunctionMap)| {
        let decoded = FunctionPaths::decode(map, unit.counts_of(map)).unwrap();
        let counts = decoded.complete.iter().map(|path| (path.id, path.count)).collect();
        ((map.plain_name().to_owned(), map.shape), counts)
    };
    profile.functions().map(of).collect()
}

#[test]
fn both_versions_count_the_same() {
    if !has_both_versions() {
        return;
    }
    let (mut same_graphs, mut same_lines) = (0, 0);
    for seed in 0..6 {
        let program = random::program(seed);
        let (name, language) = if program.language == RandomLanguage::C { ("prog.c", "cc") } else { ("prog.cc", "c++") };
        for level in ["-O0", "-O2"] {
            let place = Place::with(&[(name, &program.text)]);
            let [old, new] = LLVM_VERSIONS.map(|major| {
                must(&mut trodden_with_clang(&place, major, &format!("{language} {level} -g -w -pthread {name} -o prog-{major}")));
                assert_eq!(read_versions(&place, &format!("prog-{major}")), [major]);
                // Some of these programs are ended by a signal, but it must be the same signal in all builds.
                let mut record = trodden_with_default_clang(&place, &format!("record --no-store -o {major}.trodden -- ./prog-{major}"));
                let output = record.output().unwrap();
                (output.status.code(), output.stdout, Profile::read(&place.path(&format!("{major}.trodden"))).unwrap())
            });
            assert_eq!((old.0, old.1), (new.0, new.1), "seed {seed} {level}");
            let (old, new) = (count_paths(&old.2), count_paths(&new.2));
            for (function, counts) in &old {
                let Some(others) = new.get(function) else { continue };
                assert_eq!(counts, others, "seed {seed} {level}: {function:?}");
                same_graphs += 1;
            }
            let (old, new) = (count_lines(&place, "19.trodden"), count_lines(&place, "22.trodden"));
            let common: BTreeSet<u32> = old.keys().filter(|line| new.contains_key(line)).copied().collect();
            let differences: Vec<_> = common.iter().filter(|l| old[l] != new[l]).map(|l| (l, old[l], new[l])).collect();
            assert!(differences.is_empty(), "seed {seed} {level}: {differences:?}");
            same_lines += common.len();
        }
    }
    assert!(same_graphs > 100 && same_lines > 2000, "{same_graphs} functions with the same graph, {same_lines} lines");
}

#[test]
fn profiles_of_both_versions_are_compared() {
    if !has_both_versions() {
        return;
    }
    let source = "\
#include <stdio.h>
__attribute__((noinline)) int pick(int n) {
  if (n % 3 == 0)
    return n / 3;
  return n + 1;
}
int main(void) {
  int sum = 0;
  for (int i = 0; i < 30; i++)
    sum += pick(i);
  printf(\"%d\\n\", sum);
}
";
    let place = Place::with(&[("prog.c", source)]);
    for major in LLVM_VERSIONS {
        must(&mut trodden_with_clang(&place, major, &format!("cc -O0 -g prog.c -o prog-{major}")));
        must(&mut trodden_with_default_clang(&place, &format!("record --no-store -o {major}.trodden -- ./prog-{major}")));
    }
    let diff = must(&mut trodden_with_default_clang(&place, "diff --across-builds --fail --json 19.trodden 22.trodden"));
    let found: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
    assert_eq!((&found["compared"], &found["functions"]), (&2.into(), &serde_json::json!([])), "{found}");
    assert_eq!(count_lines(&place, "19.trodden"), count_lines(&place, "22.trodden"));
    must(&mut trodden_with_default_clang(&place, "report 19.trodden"));
}

#[test]
fn functions_whose_graphs_differ_are_compared_by_lines() {
    if !has_both_versions() {
        return;
    }
    let source = "\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct entry { char word[24]; unsigned count; struct entry *next; };
static struct entry *table[64];
static unsigned hash(const char *word) {
  unsigned sum = 7;
  while (*word)
    sum = sum * 31 + (unsigned char)*word++;
  return sum % 64;
}
static struct entry *find(const char *word, int add) {
  unsigned slot = hash(word);
  for (struct entry *at = table[slot]; at; at = at->next)
    if (strcmp(at->word, word) == 0)
      return at;
  if (!add)
    return NULL;
  struct entry *made = calloc(1, sizeof *made);
  strcpy(made->word, word);
  made->next = table[slot];
  table[slot] = made;
  return made;
}
int main(int argc, char **argv) {
  unsigned seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1, missing = 0;
  for (int i = 0; i < 3000; i++) {
    char word[24];
    seed = seed * 1664525u + 1013904223u;
    snprintf(word, sizeof word, \"w%u\", (seed >> 16) % 500);
    struct entry *found = find(word, i < 1000);
    if (found)
      found->count++;
    else
      missing++;
  }
  switch (missing % 5) {
  case 0: puts(\"none\"); break;
  case 1: puts(\"one\"); break;
  case 2: puts(\"two\"); break;
  default: printf(\"%u\\n\", missing);
  }
}
";
    let place = Place::with(&[("prog.c", source)]);
    let record = |name: &str, major: u32, argument: &str| {
        must(&mut trodden_with_default_clang(&place, &format!("record --no-store -o {name}.trodden -- ./prog-{major} {argument}")));
    };
    // With these optimisation levels, both versions produce equal graphs for this program.
    for (major, level) in [(19, "-O1"), (22, "-O2")] {
        must(&mut trodden_with_clang(&place, major, &format!("cc {level} -g prog.c -o prog-{major}")));
        record(&major.to_string(), major, "1");
    }
    record("other", 22, "5");
    let compare = |after: &str| -> serde_json::Value {
        let diff =
            trodden_with_default_clang(&place, &format!("diff --across-builds --fail --json 19.trodden {after}.trodden")).output().unwrap();
        let found: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
        let is_different = [&found["functions"], &found["by_lines"]["functions"]].iter().any(|list| *list != &serde_json::json!([]));
        assert_eq!(diff.status.code(), Some(i32::from(is_different)), "{found}");
        found
    };
    let same = compare("22");
    assert_eq!((&same["compared"], &same["by_lines"]["compared"]), (&0.into(), &3.into()), "{same}");
    assert_eq!((&same["functions"], &same["by_lines"]["functions"]), (&serde_json::json!([]), &serde_json::json!([])), "{same}");
    assert_eq!((&same["only_before"], &same["only_after"]), (&serde_json::json!([]), &serde_json::json!([])), "{same}");
    let other = compare("other");
    let lines = other["by_lines"]["functions"].as_array().unwrap().iter().flat_map(|function| function["lines"].as_array().unwrap());
    let changed: Vec<u64> = lines.map(|line| line["lines"][1].as_u64().unwrap()).collect();
    // The changed lines are the comparison in the bucket and the code for a word that is not found.
    assert!(changed.contains(&15) && changed.iter().any(|line| (17..=23).contains(line)), "{other}");
}

#[test]
fn units_are_recompiled_by_their_own_llvm_version_or_a_newer_one() {
    if !has_both_versions() {
        return;
    }
    let place = Place::with(&[("prog.c", "int main(int argc, char **argv) { return argc > 3 ? argc : 0; }\n")]);
    for major in LLVM_VERSIONS {
        must(&mut trodden_with_clang(&place, major, &format!("cc -O1 -g prog.c -o prog-{major}")));
        must(&mut trodden_with_default_clang(&place, &format!("instrument prog-{major} -o again-{major} --sample")));
        assert_eq!(read_versions(&place, &format!("again-{major}")), [major]);
    }
    must(&mut trodden_with_clang(&place, 22, "instrument prog-19 -o newer"));
    assert_eq!(read_versions(&place, "newer"), [22]);
    assert_eq!(executions(&place.record("newer").1, "main"), Some(1));
    let said = expect_error(&mut trodden_with_clang(&place, 19, "instrument prog-22 -o older"));
    assert!(said.contains("prog.c was compiled by LLVM 22, whose bitcode clang 19 cannot read") && said.contains("clang-22"), "{said}");
}

#[test]
fn bitcode_of_a_newer_version_is_not_linked() {
    if !has_both_versions() {
        return;
    }
    let place = Place::with(&[
        ("part.c", "int part(int n) { return n ? n : 3; }\n"),
        ("main.c", "int part(int); int main(void) { return part(0) - 3; }\n"),
    ]);
    must(&mut trodden_with_clang(&place, 22, "cc --trodden=lto -O1 -c part.c -o part.o"));
    place.tool("ar", "rcs libpart.a part.o");
    for input in ["part.o", "libpart.a"] {
        let said = expect_error(&mut trodden_with_clang(&place, 19, &format!("cc --trodden=lto -O1 main.c {input} -o prog")));
        assert!(said.contains("part.o") && said.contains("contains bitcode of LLVM 22, which clang 19 cannot read"), "{said}");
    }
    must(&mut trodden_with_clang(&place, 19, "cc --trodden=lto -O1 -c part.c -o part.o"));
    must(&mut trodden_with_clang(&place, 22, "cc --trodden=lto -O1 main.c part.o -o prog"));
    assert_eq!((read_versions(&place, "prog"), place.output("prog")), (vec![22], String::new()));
}

#[test]
fn build_calls_the_clang_that_it_names() {
    if !has_both_versions() {
        return;
    }
    let makefile = "prog: prog.c\n\t$(CC) -O1 -g prog.c -o prog\n";
    let place = Place::with(&[("prog.c", "int main(int argc, char **argv) { return argc > 3; }\n"), ("Makefile", makefile)]);
    let built = |command: &mut Command| {
        must(command);
        read_versions(&place, "prog")
    };
    let build = |arguments: &str| trodden_with_default_clang(&place, &format!("build -- make -B {arguments}"));
    assert_eq!(built(&mut build("")), [22]);
    assert_eq!(built(&mut build("CC=clang-19")), [19]);
    assert_eq!(built(build("").env("CC", "clang-19")), [19]);
    assert_eq!(built(build("").env("CC", "clang-19").env("TRODDEN_CLANG", "clang-22")), [22]);
    assert_eq!(built(build("").env("CC", "gcc")), [22]);
}

fn create_fake_clang(place: &Place, major: u32) -> String {
    use std::os::unix::fs::PermissionsExt;
    let name = format!("clang-{major}");
    place.write(&name, &format!("#!/bin/sh\necho 'clang version {major}.1.0'\n[ \"$1\" = --version ]\n"));
    std::fs::set_permissions(place.path(&name), std::fs::Permissions::from_mode(0o755)).unwrap();
    place.path(&name).to_str().unwrap().to_owned()
}

#[test]
fn unsupported_clang_is_rejected_before_anything_is_compiled() {
    let place = Place::with(&[("prog.c", "int main(void) { return 0; }\n")]);
    for major in [14, 18, 23] {
        let clang = create_fake_clang(&place, major);
        for (variable, arguments) in [("TRODDEN_CLANG", "cc prog.c -o prog"), ("CC", "build -- touch built")] {
            let said = expect_error(trodden_with_default_clang(&place, arguments).env(variable, &clang));
            assert!(said.contains(&format!("which is clang {major}")) && said.contains("needs clang 19 to 22"), "{said}");
            assert!(said.contains("apt-get install clang-22"), "{said}");
        }
    }
    assert!(!place.path("built").exists() && !place.path("prog").exists());
    let output = trodden_with_default_clang(&place, "doctor --json").env("TRODDEN_CLANG", create_fake_clang(&place, 18)).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let clang = found["checks"].as_array().unwrap().iter().find(|check| check["what"] == "clang").unwrap();
    assert!(clang["ok"] == false && clang["detail"].as_str().unwrap().contains("clang 18"), "{clang}");
}

/// Creates a clang of a supported version that is linked statically, so that its calls to LLVM have no slots which the plugin could
/// redirect.
fn create_static_clang(place: &Place) -> String {
    let source = r#"
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--version"))
    return puts("clang version 20.1.8") < 0;
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], "-fpass-plugin=", 14))
      return fprintf(stderr, "error: unable to load plugin '%s': undefined symbol: LLVMGetVersion\n", argv[i] + 14), 1;
  return fclose(fopen("compiled", "w"));
}
"#;
    place.write("static.c", source);
    place.tool("gcc", "-static static.c -o clang-20");
    place.path("clang-20").to_str().unwrap().to_owned()
}

#[test]
fn clang_that_does_not_load_the_plugin_is_rejected_before_anything_is_compiled() {
    let place = Place::with(&[("prog.c", "int main(void) { return 0; }\n")]);
    for clang in [create_static_clang(&place), create_fake_clang(&place, 21)] {
        for arguments in ["build -- touch built", "cc prog.c -o prog", "cc -c prog.c -o prog.o", "cc --trodden=lto -c prog.c -o prog.o"] {
            let said = expect_error(trodden_with_default_clang(&place, arguments).env("TRODDEN_CLANG", &clang));
            assert!(
                said.contains("clang-2") && said.contains("cannot load the compiler plugin") && said.contains("libtrodden_instrument.so"),
                "{said}"
            );
            assert!(said.contains("apt-get install clang-22") && said.contains("TRODDEN_CLANG"), "{said}");
        }
    }
    for file in ["built", "prog", "prog.o", "compiled"] {
        assert!(!place.path(file).exists(), "{file}");
    }
}

#[test]
fn accepted_clang_is_tried_again_only_if_it_changed() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with(&[("prog.c", "int main(void) { return 0; }\n")]);
    let compiled = |script: &str| {
        place.write("clang-22", script);
        std::fs::set_permissions(place.path("clang-22"), std::fs::Permissions::from_mode(0o755)).unwrap();
        trodden_with_default_clang(&place, "cc -c prog.c -o prog.o")
            .env("TRODDEN_CLANG", place.path("clang-22"))
            .output()
            .unwrap()
            .status
            .success()
    };
    let calls = || std::fs::read_to_string(place.path("calls")).unwrap().lines().count();
    let real = "#!/bin/sh\necho >> calls\nexec /usr/lib/llvm-22/bin/clang \"$@\"\n";
    assert!(compiled(real) && calls() == 2);
    let again = trodden_with_default_clang(&place, "cc -c prog.c -o prog.o").env("TRODDEN_CLANG", place.path("clang-22")).status().unwrap();
    assert!(again.success() && calls() == 3);
    assert!(!compiled("#!/bin/sh\nexit 1\n"));
    assert!(compiled(&format!("{real}# changed\n")) && calls() == 5);
    std::fs::copy(trodden().with_file_name("libtrodden_instrument.so"), place.path("plugin.so")).unwrap();
    let mut with_other_plugin = trodden_with_default_clang(&place, "cc -c prog.c -o prog.o");
    with_other_plugin.env("TRODDEN_CLANG", place.path("clang-22")).env("TRODDEN_PLUGIN", place.path("plugin.so"));
    assert!(with_other_plugin.status().unwrap().success() && calls() == 7);
}

/// Simulates a clang that loads libLLVM but is not linked with it, so that its calls to LLVM have no slots which the plugin could redirect.
#[test]
fn clang_without_slots_is_rejected_by_name() {
    if !has_both_versions() {
        return;
    }
    let host = r#"
#include <dlfcn.h>
#include <stdio.h>
struct info { unsigned api; const char *name, *version; void (*enter)(void *); };
int main(int argc, char **argv) {
  void *llvm = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), *plugin = dlopen(argv[2], RTLD_NOW);
  if (!llvm || !plugin) return puts(dlerror()), 3;
  struct info info = ((struct info (*)(void))dlsym(plugin, "llvmGetPassPluginInfo"))();
  void *builder[64] = {0};
  printf("%u %s\n", info.api, info.name);
  fflush(stdout);
  info.enter(builder);
  return 0;
}
"#;
    let place = Place::with(&[("host.c", host)]);
    place.tool("gcc", "host.c -o host -ldl");
    let plugin = trodden().with_file_name("libtrodden_instrument.so");
    let output = place.command(place.path("host")).arg("/usr/lib/llvm-19/lib/libLLVM.so.1").arg(plugin).output().unwrap();
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*out), (Some(1), "1 trodden\n"), "{said}");
    assert!(
        said.contains("is not dynamically linked against libLLVM") && said.contains("PassManager") && said.contains("LLVM 19."),
        "{said}"
    );
}

#[test]
fn rustc_newer_than_clang_is_rejected_before_anything_is_built() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with(&[
        ("Cargo.toml", "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
        ("src/main.rs", "fn main() {}\n"),
        ("rustc", "#!/bin/sh\nprintf 'rustc 1.99.0\\nrelease: 1.99.0\\nLLVM version: 23.1.0\\n'\n"),
    ]);
    std::fs::set_permissions(place.path("rustc"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let cargo = || {
        let mut command = place.command(place::cargo_trodden());
        command.args(["trodden", "build"]).env_remove("TRODDEN_CLANG").env_remove("CC");
        command
    };
    let said = expect_error(cargo().env("RUSTC", place.path("rustc")));
    assert!(said.contains("rustc 1.99.0 is based on LLVM 23, but the newest clang found is 22"), "{said}");
    if has_both_versions() {
        let said = expect_error(cargo().env("TRODDEN_CLANG", "clang-19"));
        assert!(said.contains("is based on LLVM 22, whose bitcode clang 19 cannot read"), "{said}");
    }
    assert!(!place.path("target").exists());
}
