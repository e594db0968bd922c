//! Programs, profiles and maps from strangers. Whatever they contain, no command may load, run or write anything that they name.

use crate::place::{Place, must, program_of, trodden};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use trodden_profile::Profile;

const PROGRAM: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) int twice(volatile int *p, int c) { int a = *p; if (c & 1) *p = 0; return a + *p; }\n\
    int main(void) { volatile int v = 1; int s = 0; for (int i = 0; i < 1000; i++) s += twice(&v, i); printf(\"%d\\n\", s); return 0; }\n";

/// Runs `trodden`. Returns its exit status, and what it writes to standard output and standard error.
fn run_trodden(place: &Place, arguments: &str) -> (Option<i32>, String) {
    let output = place.command(program_of(arguments.split(' ').next().unwrap())).args(arguments.split_whitespace()).output().unwrap();
    (output.status.code(), [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
}

/// Rewrites the recorded profile with options in its maps that no build would put there.
fn write_crafted_profile(place: &Place, options: &[&str]) {
    let mut profile = Profile::read(&place.path("run.trodden")).unwrap();
    for unit in profile.images.iter_mut().flat_map(|image| &mut image.units) {
        Arc::make_mut(&mut unit.map).codegen.extend(options.iter().map(|o| (*o).to_owned()));
    }
    profile.write(&place.path("crafted.trodden")).unwrap();
}

#[test]
fn options_in_a_profile_do_not_reach_the_compiler() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O2 -g a.c -o prog");
    place.record("prog");
    write_crafted_profile(&place, &[]);
    let (status, text) = run_trodden(&place, "advise --json crafted.trodden");
    assert!(status == Some(0) && !text.contains("did not search for redundant computations"), "{text}");
    for option in ["-ftime-trace=trace.json", "-fplugin=evil.so", "-fpass-plugin=evil.so", "-B.", "-mllvm|-info-output-file=trace.json"] {
        let arguments: Vec<&str> = option.split('|').collect();
        write_crafted_profile(&place, &arguments);
        let (status, text) = run_trodden(&place, "advise --json crafted.trodden");
        assert_eq!(status, Some(0), "the rest of the profile is of use: {text}");
        assert!(text.contains(&format!("`{}`", arguments.join(" "))) && text.contains("a.c"), "{option} is refused by its name: {text}");
        assert!(!place.path("trace.json").exists(), "{option} wrote a file");
    }
}

#[test]
fn options_in_a_program_do_not_reach_the_compiler() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O2 -g -mllvm -info-output-file=info.txt a.c -o prog");
    place.trodden("record -- ./prog");
    let _ = fs::remove_file(place.path("info.txt"));
    for command in ["loops ./prog", "instrument ./prog -o other --sample", "record --copies 2 -- ./prog"] {
        let (status, text) = run_trodden(&place, command);
        assert_eq!(status, Some(2), "{command}: {text}");
        assert!(text.contains("`-mllvm -info-output-file=info.txt`") && text.contains("a.c"), "{command}: {text}");
        assert!(!place.path("info.txt").exists(), "{command} wrote a file");
    }
}

#[test]
fn the_loader_named_by_a_program_is_not_run() {
    let place = Place::with(&[("a.c", PROGRAM), ("loader", "#!/bin/sh\n: > ran\n")]);
    fs::set_permissions(place.path("loader"), fs::Permissions::from_mode(0o755)).unwrap();
    must(place.command(trodden()).args(["cc", "a.c", "-Wl,--dynamic-linker=./loader", "-o", "prog"]));
    let (status, text) = run_trodden(&place, "info prog");
    assert!(!place.path("ran").exists(), "the loader ran");
    assert!(status == Some(0) && text.contains("`./loader`"), "{text}");
}
