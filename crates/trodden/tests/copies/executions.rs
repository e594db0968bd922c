//! Copies of programs that behave differently in each run, write files, crash or are interrupted.

use super::{count_paths, record};
use crate::place::{Place, must, trodden, with_choices};

/// A program whose paths depend on its process ID.
const PID_DEPENDENT_PROGRAM: &str = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) int step(int n) { if (n & 1) \
    return 3 * n; \
    return n / 2; }\n\
    int main(void) { int s = 0; for (int i = 0; i < getpid() % 1000 + 10; i++) s += step(i); printf(\"%d\\n\", s); return 0; }\n";

#[test]
fn nondeterministic_programs_are_detected() {
    let place = Place::with(&[
        ("prog.c", PID_DEPENDENT_PROGRAM),
        ("same.c", "int main(int c, char **v) { return c > 1 ? 2 : 0; }\n"),
        ("input", ""),
    ]);
    place.cc("-O1 prog.c -o prog");
    place.cc("-O1 same.c -o same");
    let copies = record(&place, "./prog", "--copies 2 --no-first-run");
    let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
    assert_eq!(copies.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("did not execute the same paths") && reported.contains("copy 1 and copy 0 printed different output"),
        "{reported}"
    );
    // Stored and merged profiles must also report that the copies executed different paths.
    place.trodden("merge -o sum.trodden run.trodden run.trodden");
    for stored in ["run.trodden", "sum.trodden"] {
        let report = String::from_utf8(place.trodden(&format!("report {stored}")).stdout).unwrap();
        assert!(report.contains("not exact   the copies of the program did not execute the same paths"), "{report}");
    }
    let repeatable =
        |arguments: &[&str]| place.command(trodden()).args(["repeatable", "--runs", "3", "--"]).args(arguments).output().unwrap();
    let differs = repeatable(&["./prog"]);
    let reported = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert_eq!(differs.status.code(), Some(1), "{reported}");
    assert!(reported.contains("run 2: function `main`"), "{reported}");
    let same = repeatable(&["./same", "x"]);
    assert_eq!(same.status.code(), Some(0), "{}", String::from_utf8_lossy(&same.stdout));
}

/// A program whose path depends on the address of a memory block.
const ADDRESS_PROGRAM: &str = "#include <stdint.h>\n#include <stdlib.h>\nint main(void) { uintptr_t a = (uintptr_t)malloc(64); int s = 0;\n\
    for (int i = 12; i < 40; i++) { if (a >> i & 1) s += i; else s ^= i; }\n\
    if (a >> 13 & 1) s += 3; else s ^= 5;\n if (a >> 15 & 1) s *= 3; else s ^= 9;\n if (a >> 17 & 1) s += 7; else s ^= 17;\n\
    if (a >> 19 & 1) s *= 5; else s ^= 33;\n if (a >> 21 & 1) s += 11; else s ^= 65;\n if (a >> 23 & 1) s *= 7; else s ^= 129;\n return \
    s == 1; }\n";

#[test]
fn programs_whose_paths_depend_on_addresses_are_reported() {
    let place = Place::with(&[("prog.c", ADDRESS_PROGRAM)]);
    place.cc("-O0 prog.c -o prog");
    let repeatable = || place.command(trodden()).args(["repeatable", "--runs", "2", "--", "./prog"]).output().unwrap();
    // With a probability below one percent, a random address leads to the same path as the fixed address.
    let reported = [repeatable(), repeatable()].map(|output| {
        let reported = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(i32::from(reported.contains("differs"))), "{reported}");
        reported
    });
    assert!(reported.iter().any(|t| t.contains("with memory at other addresses: function `main`")), "{reported:?}");
}

/// A program that also reads and writes files next to its working folder.
const LEAVES_ITS_FOLDER_PROGRAM: &str = "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"out.txt\", \"r\"); if (f) return 1; f = \
    fopen(\"../../beside/data.txt\", \"r\"); if (!f) return 2;\n\
    int c = fgetc(f); fclose(f); f = fopen(\"out.txt\", \"w\"); fputc(c, f); fclose(f); f = fopen(\"../up.txt\", \"w\"); \
    fputs(\"up\\n\", f); fclose(f); return 0; }\n";

#[test]
fn files_written_by_copies_are_separate_and_copied_back() {
    let place = Place::with(&[("prog.c", LEAVES_ITS_FOLDER_PROGRAM), ("beside/data.txt", "D"), ("of/two/input", "")]);
    place.cc("-O1 prog.c -o of/two/prog");
    let mut command = place.command(trodden());
    command.current_dir(place.path("of/two")).stdin(std::process::Stdio::null());
    command.args("record --no-store -o run.trodden --copies 3 --own-folders -- ./prog".split(' '));
    let copies = command.output().unwrap();
    assert_eq!(copies.status.code(), Some(0), "{}", String::from_utf8_lossy(&copies.stderr));
    assert_eq!(std::fs::read_to_string(place.path("of/two/out.txt")).unwrap(), "D");
    assert_eq!(std::fs::read_to_string(place.path("of/up.txt")).unwrap(), "up\n");
}

#[test]
fn crash_of_all_copies_is_not_a_difference() {
    let source = "#include <stdlib.h>\n#include <signal.h>\nvolatile int sink;\n\
        int main(int c, char **v) { int n = atoi(v[1]), s = 0; for (int i = 0; i < 100; i++) { if (i % 3) s += i; else s ^= i; if (i % 7 \
        == 2) s -= 4; if (i == n) *(volatile int *)0 = s; sink = s; } return 0; }\n";
    let place = Place::with(&[("crash.c", source), ("input", "")]);
    place.cc("-O1 -g crash.c -o crash");
    let run = |arguments: &str| {
        let mut command = place.command(trodden());
        with_choices(command.args(["record", "--no-store", "-o", "run.trodden"]), arguments.split_whitespace())
            .args(["--", "./crash", "51"]);
        command.stdin(std::process::Stdio::null()).output().unwrap()
    };
    assert_eq!(run("").status.code(), Some(139));
    let truth = count_paths(&place);
    for arguments in ["--copies 2 --strategy p3 --no-first-run", "--copies 2 --divide edges --no-first-run --baseline"] {
        let copies = run(arguments);
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!(copies.status.code(), Some(139), "{arguments}: {reported}");
        assert!(!reported.contains("did not execute the same paths"), "{arguments}: {reported}");
        assert!(arguments.contains("edges") || count_paths(&place) == truth, "{arguments}");
    }
}

#[test]
fn heaps_and_mappings_of_copies_start_at_equal_addresses() {
    // The code and its counters take several pages. Only one of the copies has these counters, so the sizes of the copies differ by several
    // pages.
    let functions: String = (0..200)
        .map(|at| {
            format!(
                "__attribute__((noinline)) int f{at}(int n) {{ if (n & 1) n += {at}; if (n & 2) n ^= 5; if (n & 4) n -= 7; if \
            (n & 8) n *= 3; if (n & 16) n += 2; return n; }}\n"
            )
        })
        .collect();
    let calls: String = (0..200).map(|at| format!("s += f{at}(s);")).collect();
    let source = format!(
        "#include <stdio.h>\n#include <stdlib.h>\n{functions}int main(int c, char **v) {{ int s = c; {calls} printf(\"%p %p %d\\n\", \
            malloc(100), malloc(1 << 20), s); return 0; }}\n"
    );
    let place = Place::with(&[("prog.c", source.as_str()), ("input", "")]);
    place.cc("-O1 prog.c -o prog");
    let copies = record(&place, "./prog", "--copies 2 --strategy sbl --baseline");
    let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
    // The program prints addresses. Unless the system forbids fixed addresses, all copies must print the same ones.
    assert!(copies.status.code() == Some(0) || reported.contains("cannot turn off the randomisation of addresses"), "{reported}");
    let sizes = |name: &str| std::fs::metadata(place.path(name)).unwrap().len();
    record(&place, "./prog", "--copies 2 --strategy sbl --work copies");
    assert!(sizes("copies/copy-0000/prog") > sizes("copies/copy-0001/prog") + 4096);
}

#[test]
fn copies_find_the_same_libraries_as_the_program() {
    let place = Place::with(&[
        ("lib.c", "int twice(int n) { return n > 3 ? 2 * n : n + n; }\n"),
        ("prog.c", "int twice(int); int main(void) { return twice(2); }\n"),
        ("lib/empty", ""),
        ("input", ""),
    ]);
    place.cc("-O1 -shared -fPIC lib.c -o lib/libtwice.so");
    place.cc("-O1 prog.c -o prog -Llib -ltwice -Wl,-rpath,$ORIGIN/lib");
    let copies = record(&place, "./prog", "--copies 2 --no-first-run");
    assert_eq!(copies.status.code(), Some(4), "{}", String::from_utf8_lossy(&copies.stderr));
    // If a copy cannot start, the error must contain what the copy printed.
    std::fs::rename(place.path("lib/libtwice.so"), place.path("lib/gone.so")).unwrap();
    let copies = record(&place, "./prog", "--copies 2 --no-first-run");
    let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
    assert!(reported.contains("copy 0 of the program ended with status 127") && reported.contains("libtwice.so"), "{reported}");
}

fn list_leftover_folders(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(".")).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).filter(|name| name.starts_with("raw-")).collect()
}

#[test]
fn output_files_are_checked_first_and_an_interrupted_run_leaves_no_files() {
    let place = Place::with(&[
        ("prog.c", "#include <unistd.h>\nint main(void) { for (int i = 0; i < 3000; i++) usleep(10000); return 0; }\n"),
        ("input", ""),
        ("file", ""),
    ]);
    place.cc("-O1 prog.c -o prog");
    for (arguments, said) in [
        ("--copies 2 --costs file/costs.json", "cannot write file/costs.json"),
        ("--copies 2 --costs .", "is a folder"),
        ("--copies 2 --engine template", "template:COMMAND"),
        ("--copies 2 --engine slurm", "--work FOLDER"),
        ("--copies 2 --divide iterations --baseline", "--baseline applies only if copies of the program divide paths or edges"),
    ] {
        let refused = record(&place, "./prog", arguments);
        let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && reported.contains(said) && !reported.contains("kept in"), "{arguments}: {reported}");
    }
    let mut command = place.command(trodden());
    let arguments = "record --no-store -o new/run.trodden --costs costs/of.json --copies 2 --no-first-run -- ./prog";
    with_choices(&mut command, arguments.split(' '));
    let mut running = command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = std::time::Instant::now();
    let runs = || std::fs::read_dir(place.path("new")).is_ok_and(|mut all| all.any(|e| e.unwrap().path().join("tasks-0-2").exists()));
    while !runs() {
        assert!(begun.elapsed().as_secs() < 60 && running.try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    must(std::process::Command::new("kill").arg("-INT").arg(running.id().to_string()));
    let ended = running.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(2) && reported.contains("interrupted") && !reported.contains("kept in"), "{reported}");
    assert_eq!(std::fs::read_dir(place.path("new")).unwrap().count(), 0, "{reported}");
    assert!(place.path("costs").is_dir() && list_leftover_folders(&place).is_empty());
}
