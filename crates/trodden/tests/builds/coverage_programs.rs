//! Coverage of several programs, and of sources that were compiled several times: with different folder names or macros, in a static
//! library, in several build folders. Each function must have the counts of its own programs, and each file must have all its paths.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::collections::BTreeMap;

/// `work` takes some paths only if `n` is 1 or more.
const PART_CODE: &str = "__attribute__((noinline)) int work(int n) {\n  int sum = 0;\n  for (int i = 0; i < n; i++)\n    if (i % 3)\n      \
    sum += i;\n#ifdef EXTRA\n  if (sum > 5)\n    sum--;\n#endif\n  return sum;\n}\n";
const MAIN_SOURCE: &str = "int work(int);\nint main(int n, char **v) {\n  (void)v;\n  return work(5 * (n - 1)) < 0;\n}\n";

/// Compiles, links and records programs.
struct Programs {
    place: Place,
    counters: &'static str,
}

impl Programs {
    fn new(counters: &'static str) -> Programs {
        let place = Place::with(&[("src/part.c", PART_CODE), ("src/main.c", MAIN_SOURCE)]);
        Programs { place, counters }
    }

    fn folder_path(&self) -> String {
        self.place.path("").to_str().unwrap().trim_end_matches('/').to_owned()
    }

    /// Compiles a source file. `HERE` in the options stands for the test folder.
    fn compile(&self, source: &str, options: &str, object: &str) {
        let here = self.folder_path();
        let options = options.replace("HERE", &here);
        self.place.trodden(&format!("cc {} -O1 -g {options} -c {here}/src/{source} -o {object}", self.counters));
    }

    fn build(&self, options: &str, program: &str) {
        self.compile("part.c", options, "part.o");
        self.compile("main.c", options, "main.o");
        self.link("main.o part.o", program);
    }

    fn link(&self, objects: &str, program: &str) {
        self.place.trodden(&format!("cc {} {objects} -o {program}", self.counters));
    }

    fn record(&self, script: &str) {
        must(self.place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "sh", "-c", script]));
    }

    fn read_json(&self, arguments: &str) -> Value {
        serde_json::from_slice(&self.place.trodden(arguments).stdout).unwrap()
    }

    /// Returns the number of executed paths and the number of possible paths for each file or function. Several rows may have the same
    /// name.
    fn count_paths(&self, options: &str) -> Vec<(String, Option<(u64, u64)>)> {
        let report = self.read_json(&format!("coverage report run.trodden --json {options}"));
        let rows = report["rows"].as_array().unwrap().iter().chain([&report["total"]]);
        let numbers = |row: &Value| {
            let paths = row["paths"].as_object()?;
            Some((paths["taken"].as_u64()?, paths["possible"].as_str()?.parse().ok()?))
        };
        let mut all: Vec<_> = rows.map(|row| (row["name"].as_str().unwrap().to_owned(), numbers(row))).collect();
        all.sort();
        all
    }

    /// Returns line counts by file name, without folders, and line.
    fn count_lines(&self, options: &str) -> BTreeMap<(String, u64), u64> {
        let text = self.place.trodden(&format!("export lcov run.trodden {options}")).stdout;
        let (mut file, mut lines) = (String::new(), BTreeMap::new());
        for line in String::from_utf8(text).unwrap().lines() {
            if let Some(name) = line.strip_prefix("SF:") {
                file = name.strip_prefix(&format!("{}/", self.folder_path())).unwrap_or(name).to_owned();
            } else if let Some((number, count)) = line.strip_prefix("DA:").and_then(|data| data.split_once(',')) {
                assert!(lines.insert((file.clone(), number.parse().unwrap()), count.parse().unwrap()).is_none(), "{file}:{number}");
            }
        }
        lines
    }
}

fn assert_rows(found: &[(String, Option<(u64, u64)>)], expected: &[(&str, u64, u64)], what: &str) {
    let expected: Vec<_> = expected.iter().map(|(name, taken, possible)| ((*name).to_owned(), Some((*taken, *possible)))).collect();
    assert_eq!(found, expected, "{what}");
}

/// `main` has the same hash in both programs, so LLVM would add their counts.
#[test]
fn functions_with_the_same_name_have_the_counts_of_their_program() {
    const LEAVES_PROGRAM: &str = "#include <stdlib.h>\n#include <stdio.h>\nstatic void (*volatile leave)(int) = exit;\nint main(void) {\n  \
        puts(\"a\");\n  leave(0);\n  puts(\"b\");\n}\n";
    const RETURNS_PROGRAM: &str = "#include <stdio.h>\nint main(void) {\n  puts(\"c\");\n  puts(\"d\");\n}\n";
    for level in ["-O0", "-O2"] {
        let programs = Programs::new("--trodden=coverage");
        programs.place.write("a.c", LEAVES_PROGRAM);
        programs.place.write("b.c", RETURNS_PROGRAM);
        for name in ["a", "b"] {
            programs.place.cc(&format!("--trodden=coverage {level} {}/{name}.c -o {name}", programs.folder_path()));
        }
        programs.record("./a; ./b; ./b; ./b");
        let lines = programs.count_lines("");
        let of = |file: &str, line| lines[&(file.to_owned(), line)];
        assert_eq!([4, 5, 6, 7].map(|line| of("a.c", line)), [1, 1, 1, 0], "{level}");
        assert_eq!([2, 3, 4, 5].map(|line| of("b.c", line)), [3, 3, 3, 3], "{level}");
        let like = programs.count_lines("--like llvm-cov");
        assert_eq!((like[&("a.c".to_owned(), 5)], like[&("b.c".to_owned(), 3)]), (4, 4), "{level}");
        let found = programs.count_paths("--functions");
        let taken: Vec<_> = found.iter().map(|(name, paths)| (name.as_str(), paths.unwrap().0)).collect();
        assert_eq!(taken, [("main", 0), ("main", 1), ("total", 1)], "{level}");
    }
}

/// Two programs are built from one source, with different names for the folder of the source.
#[test]
fn programs_with_renamed_folders_have_their_paths() {
    for option in ["-fdebug-prefix-map=HERE=/NAME", "-fcoverage-prefix-map=HERE=/NAME", "-ffile-prefix-map=HERE=/NAME"] {
        let programs = Programs::new("--trodden=coverage");
        programs.build(&option.replace("NAME", "one"), "one");
        programs.build(&option.replace("NAME", "two"), "two");
        programs.build("", "own");
        // Only the second program executes paths for numbers other than 0.
        programs.record("./one; ./two more; ./own");
        let lines = programs.count_lines("");
        if option.contains("debug") {
            assert_rows(&programs.count_paths(""), &[("main.c", 1, 1), ("part.c", 5, 9), ("total", 6, 10)], option);
            assert_rows(&programs.count_paths("--functions"), &[("main", 1, 1), ("total", 6, 10), ("work", 5, 9)], option);
            assert_eq!([2, 3].map(|line| lines[&("src/part.c".to_owned(), line)]), [3, 3 + 5], "{option}");
            continue;
        }
        let rows = programs.count_paths("");
        let of = |end: &str| rows.iter().find(|(name, _)| name.ends_with(end)).unwrap().1;
        assert_eq!(rows.len(), 7, "{option}");
        let parts = ["one/src/part.c", "two/src/part.c", "total"].map(of);
        assert_eq!(parts, [Some((1, 9)), Some((4, 9)), Some((1 + 4 + 1 + 3, 30))], "{option}");
        for (file, count) in [("/one/src/part.c", 1), ("/two/src/part.c", 1 + 5), ("src/part.c", 1)] {
            assert_eq!(lines[&(file.to_owned(), 3)], count, "{option} {file}");
        }
        let functions = programs.count_paths("--functions");
        let work: Vec<u64> = functions.iter().filter(|(name, _)| name == "work").map(|(_, paths)| paths.unwrap().0).collect();
        assert_eq!(work, [1, 1, 4], "{option}");
    }
}

#[test]
fn programs_for_edge_profiles_have_their_paths() {
    let programs = Programs::new("--trodden=pgo");
    programs.build("-fdebug-prefix-map=HERE=/one", "one");
    programs.build("-DEXTRA -fdebug-prefix-map=HERE=/two", "two");
    programs.record("./one; ./two more; ./two more");
    let report = programs.read_json("report run.trodden --json");
    let functions = report["functions"].as_array().unwrap().iter();
    let number = |function: &Value, what: &str| function[what].as_u64().unwrap();
    let mut found: Vec<_> = functions.map(|f| (f["name"].as_str().unwrap(), f["file"].as_str().unwrap(), number(f, "calls"))).collect();
    found.sort_unstable();
    let expected =
        [("main", "/one/src/main.c", 1), ("main", "/two/src/main.c", 2), ("work", "/one/src/part.c", 1), ("work", "/two/src/part.c", 2)];
    assert_eq!(found, expected);
    let edges = programs.place.trodden("export profdata run.trodden -o edges.profdata");
    assert!(!String::from_utf8_lossy(&edges.stderr).contains("compiled without LLVM's counters"));
}

/// The executed paths of a library function must include those that only one of the programs executed.
#[test]
fn static_library_has_the_paths_of_both_programs() {
    for counters in ["--trodden=coverage", "--trodden=pgo"] {
        let programs = Programs::new(counters);
        programs.compile("part.c", "", "part.o");
        programs.compile("main.c", "", "main.o");
        programs.place.write("src/other.c", "int work(int);\nint main(void) { return work(0); }\n");
        programs.compile("other.c", "", "other.o");
        programs.place.tool("ar", "rc libpart.a part.o");
        programs.link("main.o libpart.a", "one");
        programs.link("other.o libpart.a", "two");
        programs.record("./one more; ./two");
        if counters == "--trodden=pgo" {
            let report = programs.read_json("report run.trodden --json");
            let work = report["functions"].as_array().unwrap().iter().filter(|f| f["name"] == "work");
            assert_eq!(work.map(|f| f["calls"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1]);
            continue;
        }
        assert_rows(&programs.count_paths(""), &[("main.c", 1, 1), ("other.c", 1, 1), ("part.c", 5, 9), ("total", 7, 11)], counters);
        assert_rows(&programs.count_paths("--functions"), &[("main", 1, 1), ("main", 1, 1), ("total", 7, 11), ("work", 5, 9)], counters);
        let lines = programs.count_lines("");
        let counts = [("src/part.c", 3), ("src/main.c", 4), ("src/other.c", 2)].map(|(file, line)| lines[&(file.to_owned(), line)]);
        assert_eq!(counts, [2 + 5, 1, 1]);
    }
}

/// LLVM's tools show only the first build that they find.
#[test]
fn source_compiled_in_two_ways_has_the_counts_and_paths_of_both() {
    let programs = Programs::new("--trodden=coverage");
    programs.build("", "plain");
    programs.build("-DEXTRA", "extra");
    programs.record("./plain; ./extra more");
    let lines = programs.count_lines("");
    assert_eq!([2, 3, 4, 7, 10].map(|line| lines[&("src/part.c".to_owned(), line)]), [2, 2 + 5, 5, 1, 2]);
    let rows = programs.count_paths("");
    let part = rows.iter().find(|(name, _)| name == "part.c").unwrap();
    let (taken, possible) = part.1.unwrap();
    assert!(taken > 4 && possible > 9, "{part:?}");
    let report = String::from_utf8(programs.place.trodden("coverage report run.trodden --functions").stdout).unwrap();
    assert!(report.contains("compiled in several ways; the first row with this name counts the paths of all of them"), "{report}");
    let total = |rows: &[(String, Option<(u64, u64)>)]| rows.iter().find(|(name, _)| name == "total").unwrap().1;
    assert_eq!(total(&programs.count_paths("--functions")), total(&rows));
}

/// A program contains two static functions with the same name and source file. The linker keeps the regions of only one of them, so a
/// message must name the other.
#[test]
fn local_functions_of_a_source_compiled_twice_are_named() {
    const LOCAL_FUNCTION_SOURCE: &str = "__attribute__((noinline)) static int local(int n) {\n#ifdef TWICE\n  if \
        (n)\n    n++;\n#endif\n  return n;\n}\n\
        int ENTRY(int n) { return local(n); }\n";
    let programs = Programs::new("--trodden=coverage");
    programs.place.write("src/local.c", LOCAL_FUNCTION_SOURCE);
    programs.place.write("src/both.c", "int one(int), two(int);\nint main(void) { return (one(0) + two(1) + two(2)) < 0; }\n");
    programs.compile("local.c", "-DENTRY=one", "one.o");
    programs.compile("local.c", "-DENTRY=two", "same.o");
    programs.compile("local.c", "-DENTRY=two -DTWICE", "two.o");
    programs.compile("both.c", "", "both.o");
    for (other, count, is_named) in [("two.o", 1, true), ("same.o", 3, false)] {
        programs.link(&format!("both.o one.o {other}"), "both");
        programs.record("./both");
        assert_eq!(programs.count_lines("")[&("src/local.c".to_owned(), 6)], count, "{other}");
        for command in ["coverage report", "coverage show", "export lcov", "export llvm-json"] {
            let said = programs.place.trodden(&format!("{command} run.trodden")).stderr;
            let is_said = String::from_utf8(said).unwrap().contains("local: not exact: compiled in several ways within one program");
            assert_eq!(is_said, is_named, "{other} {command}");
        }
        assert_eq!(
            programs.read_json("export llvm-json run.trodden")["not_exact"].as_array().unwrap().len(),
            usize::from(is_named),
            "{other}"
        );
    }
}

/// A compiler cache may place an object in a build folder other than the one in which it was compiled.
#[test]
fn objects_from_another_build_folder_have_their_paths() {
    for counters in ["--trodden=coverage", "--trodden=pgo"] {
        let programs = Programs::new(counters);
        let place = &programs.place;
        for folder in ["a", "b"] {
            place.write(&format!("{folder}/part.c"), PART_CODE);
            place.write(&format!("{folder}/main.c"), MAIN_SOURCE);
        }
        place.shell(&format!(
            "cd a && for s in part main; do {0} cc {counters} -O1 -g -c $s.c -o $s.o; done && cp part.o ../b && \
            cd ../b && {0} cc {counters} -O1 -g -c main.c -o main.o && {0} cc {counters} main.o part.o -o prog && rm ../a/*.o",
            trodden().display()
        ));
        programs.record("b/prog more");
        let report = programs.read_json("report run.trodden --json");
        let functions = report["functions"].as_array().unwrap().iter();
        let mut calls: Vec<_> = functions.map(|f| (f["name"].as_str().unwrap(), f["calls"].as_u64().unwrap())).collect();
        calls.sort_unstable();
        assert_eq!(calls, [("main", 1), ("work", 1)], "{counters}");
        if counters == "--trodden=coverage" {
            assert_rows(&programs.count_paths(""), &[("a/part.c", 4, 9), ("b/main.c", 1, 1), ("total", 5, 10)], counters);
        }
    }
}
