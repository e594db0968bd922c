//! Links the runtime's object into all kinds of executables and libraries, with three linkers, in C, C++ and Rust, and without any library.

use crate::laboratory::{Laboratory, build_object, object};
use std::fs;
use std::process::Command;

const COUNT_FIVE: &str = r#"
    #include "subject.h"
    int main(void) { for (int i = 0; i < 5; i++) { ENTER; COUNT(1); } return 0; }
"#;

fn run_tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).arg(object()).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn object_is_small_and_has_no_dependencies() {
    assert!(build_object::sources().iter().all(|source| source.exists()));
    let code: u64 = run_tool("size", &["-A"])
        .lines()
        .filter(|line| line.starts_with(".text"))
        .map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
        .sum();
    println!("{code} bytes of code");
    assert!((1..40 * 1024).contains(&code), "{code} bytes of code");
    for line in run_tool("nm", &[]).lines() {
        let (kind, name) = line[17..].split_once(' ').unwrap();
        match kind {
            "w" => assert!(build_object::MAY_BE_UNDEFINED.contains(&name), "{line}"),
            "T" => {
                let counting = ["__trodden_enter", "__trodden_enter_shared", "__trodden_count", "__trodden_event_now"];
                let streams = ["__trodden_stream_next", "__trodden_stream_enter"];
                assert!(counting.contains(&name) || streams.contains(&name), "{line}");
            }
            // `trodden info` recognises functions of the runtime by this part of their names.
            "t" => assert!(name.contains("trodden"), "{line}"),
            "B" => assert_eq!(name, "__trodden_bias"),
            _ => assert!(kind.chars().all(char::is_lowercase), "{line}"),
        }
    }
    let symbols = run_tool("readelf", &["-sW"]);
    for name in ["__trodden_enter", "__trodden_event_now", "__trodden_bias", "__start_trodden_units", "__stop_trodden_counters"] {
        let line = symbols.lines().find(|line| line.ends_with(name) && !line.contains("SECTION")).unwrap();
        assert!(line.contains("HIDDEN"), "{line}");
    }
    assert!(symbols.lines().any(|line| line.contains("TLS") && line.ends_with("__trodden_bias")));
    let sections = run_tool("readelf", &["-SW"]);
    assert!(sections.contains(".note.GNU-stack") && !sections.contains(".debug"), "{sections}");
}

#[test]
fn start_object_needs_only_the_bias() {
    let lab = Laboratory::new("start");
    let start = lab.path("trodden_start.o");
    build_object::build_start(&start).unwrap();
    let read = |name: &str, option: &str| {
        let output = Command::new(name).arg(option).arg(&start).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = read("nm", "-g");
    let mut symbols: Vec<_> = symbols.lines().map(|line| line[17..].to_owned()).collect();
    symbols.sort();
    assert_eq!(symbols, ["T __trodden_start", "U __trodden_bias", "w _DYNAMIC", "w __ehdr_start", "w _start"]);
    assert!(read("readelf", "-SW").contains(".note.GNU-stack"));
}

#[test]
fn every_linker_links_every_kind_of_executable() {
    let lab = Laboratory::new("links");
    for linker in ["bfd", "gold", "lld"] {
        // gold cannot link static PIEs.
        let kinds = ["-no-pie", "-pie", "-static", "-static-pie"].into_iter().filter(|&kind| (linker, kind) != ("gold", "-static-pie"));
        for kind in kinds {
            for collect in ["-Wl,--gc-sections", "-Wl,--no-gc-sections"] {
                let name = format!("program-{linker}{kind}{}", &collect[4..]);
                let use_linker = format!("-fuse-ld={linker}");
                let pie = if kind.ends_with("pie") && kind != "-no-pie" { "-fPIE" } else { "-fno-pie" };
                let program = lab.program(&name, COUNT_FIVE, &[pie, kind, collect, &use_linker, "-B/usr/lib/llvm-22/bin"]);
                lab.run(&program, &format!("out-{name}/%m.raw"));
                let raw = lab.raw_file(&format!("out-{name}"));
                assert_eq!(raw.regions, [[0, 5, 0, 0, 0, 0, 0, 0]], "{name}");
                assert_eq!(raw.image_path, program.to_str().unwrap());
                assert_eq!(raw.units, [[1; 16]]);
                assert_eq!(lab.command(&program, "").output().unwrap().status.code(), Some(0), "{name} without an output");
            }
        }
    }
}

#[test]
fn program_and_libraries_have_separate_files() {
    let lab = Laboratory::new("libraries");
    for (library, unit, count) in [("one", 11, 3), ("two", 12, 4)] {
        let source = format!(
            "#define UNIT {unit}\n#include \"subject.h\"\nvoid {library}(void) {{ for (int i = 0; i < {count}; i++) {{ ENTER; COUNT(0); \
                }} }}\n"
        );
        lab.source(&format!("{library}.c"), &source);
        lab.compile(
            "gcc",
            &["-O1", "-fPIC", "-shared", "-o", &format!("lib{library}.so"), &format!("{library}.c"), object().to_str().unwrap()],
        );
    }
    let main = "#include \"subject.h\"\nvoid one(void); void two(void);\nint main(void) { ENTER; COUNT(0); one(); two(); return 0; }\n";
    let program = lab.program("program", main, &["-L.", "-lone", "-ltwo", "-Wl,-rpath,$ORIGIN"]);
    lab.run(&program, "out/%m.raw");
    let mut counts: Vec<_> = lab.raw_files("out").iter().map(|raw| (raw.units[0][0], raw.count(0), raw.image_path.clone())).collect();
    counts.sort();
    let path = |name: &str| lab.path(name).to_str().unwrap().to_owned();
    assert_eq!(counts, [(1, 1, path("program")), (11, 3, path("libone.so")), (12, 4, path("libtwo.so"))]);
}

#[test]
fn strict_linkers_and_address_sanitizer_accept_the_object() {
    let lab = Laboratory::new("strict");
    fs::write(lab.path("version.map"), "V1 { global: counted; local: *; };\n").unwrap();
    lab.source("library.c", "#include \"subject.h\"\nvoid counted(void) { ENTER; COUNT(0); }\n");
    let main = "void counted(void);\nint main(void) { counted(); return 0; }\n";
    for linker in ["bfd", "gold", "lld"] {
        let (name, use_linker) = (format!("lib{linker}.so"), format!("-fuse-ld={linker}"));
        let strict = [
            "-Wl,-z,defs,-z,now,-z,noexecstack,--fatal-warnings,--version-script=version.map",
            "-Wl,--gc-sections",
            "-B/usr/lib/llvm-22/bin",
        ];
        let whole = ["-fPIC", "-shared", "-o", &name, "library.c", object().to_str().unwrap(), &use_linker];
        lab.compile("gcc", &[&whole[..], &strict].concat());
        fs::write(lab.path(&format!("{linker}.c")), main).unwrap();
        lab.compile("gcc", &["-o", linker, &format!("{linker}.c"), &name, "-Wl,-rpath,$ORIGIN"]);
        lab.run(&lab.path(linker), &format!("{linker}.d/%m.raw"));
        assert_eq!(lab.raw_file(&format!("{linker}.d")).count(0), 1, "{linker}");
    }
    let program = lab.program("address", COUNT_FIVE, &["-fsanitize=address"]);
    lab.run(&program, "address.d/%m.raw");
    assert_eq!(lab.raw_file("address.d").count(1), 5);
}

#[test]
fn several_units_count_and_uninstrumented_images_write_nothing() {
    let lab = Laboratory::new("units");
    lab.source("other.c", "#define UNIT 2\n#define COUNTERS 3\n#include \"subject.h\"\nvoid other(void) { ENTER; COUNT(2); }\n");
    let program = lab.program(
        "program",
        "#include \"subject.h\"\nvoid other(void);\nint main(void) { ENTER; COUNT(7); other(); return 0; }\n",
        &["other.c"],
    );
    lab.run(&program, "out/%m.raw");
    let raw = lab.raw_file("out");
    let mut units = raw.units.clone();
    units.sort();
    assert_eq!(units, [[1; 16], [2; 16]]);
    assert_eq!((raw.regions[0].len(), raw.regions[0].iter().sum::<u64>()), (11, 2));
    let bare = lab.program("bare", "int main(void) { return 0; }\n", &[]);
    lab.run(&bare, "bare.d/%m.raw");
    assert!(!lab.path("bare.d").exists());
}

#[test]
fn cplusplus_subject_counts() {
    let lab = Laboratory::new("cplusplus");
    lab.source(
        "program.cc",
        "#include <vector>\n#include <stdexcept>\nextern \"C\" {\n#include \"subject.h\"\n}\nint main() { ENTER; \
        try { std::vector<int>(3).at(5); } catch (std::out_of_range &) { COUNT(4); } }\n",
    );
    lab.compile("g++", &["-O1", "-o", "program", "program.cc", object().to_str().unwrap()]);
    lab.run(&lab.path("program"), "out/%m.raw");
    assert_eq!(lab.raw_file("out").count(4), 1);
}

#[test]
fn rust_subject_counts() {
    let lab = Laboratory::new("rust");
    lab.source("counted.c", "#include \"subject.h\"\nvoid counted(void) { ENTER; COUNT(0); }\n");
    lab.compile("gcc", &["-O1", "-fPIC", "-c", "counted.c"]);
    let main = "unsafe extern \"C\" { fn counted(); }\nfn main() { std::thread::scope(|s| for _ in 0..3 { s.spawn(|| unsafe { counted() \
        }); }); assert!(std::panic::catch_unwind(|| panic!()).is_err()) }\n";
    lab.source("program.rs", main);
    let runtime = format!("link-arg={}", object().display());
    for (name, more) in [("unwind", ""), ("abort", "-Cpanic=abort"), ("optimised", "-O")] {
        let mut arguments = vec!["--edition=2024", "program.rs", "-o", name, "-C", "link-arg=counted.o", "-C", &runtime];
        arguments.extend((!more.is_empty()).then_some(more));
        lab.compile("rustc", &arguments);
        lab.command(&lab.path(name), &format!("{name}.d/%m.raw")).output().unwrap();
        assert_eq!(lab.raw_file(&format!("{name}.d")).count(0), 3, "{name}");
    }
}

#[test]
fn program_without_libc_counts() {
    let lab = Laboratory::new("nostdlib");
    let start = r#"
        #include "subject.h"
        static long tls[8];
        struct entry { long tag; unsigned long value; };
        struct relocation { unsigned long offset, info; long addend; };
        extern char __ehdr_start[] __attribute__((visibility("hidden")));
        extern struct entry _DYNAMIC[] __attribute__((visibility("hidden")));
        /* What a static PIE without start-up code must do for itself. */
        static void relocate(void) {
            unsigned long table = 0, size = 0;
            for (struct entry *e = _DYNAMIC; e->tag; e++) { if (e->tag == 7) table = e->value; if (e->tag == 8) size = e->value; }
            for (struct relocation *r = (void *)(__ehdr_start + table); size; r++,
                size -= sizeof *r) *(unsigned long *)(__ehdr_start + r->offset) = (unsigned long)__ehdr_start + r->addend;
        }
        static long call(long n, long a, long b) { long r; __asm__ volatile("syscall" : "=a"(r) : "0"(n), "D"(a), "S"(b) : "rcx", "r11",
            "memory"); return r; }
        __attribute__((force_align_arg_pointer)) void _start(void) {
            if (RELOCATE) relocate();
            tls[4] = (long)&tls[4];
            if (OWN_TLS) call(158, 0x1002, (long)&tls[4]);
            for (int i = 0; i < 6; i++) { ENTER; COUNT(3); }
            call(231, 0, 0);
        }
    "#;
    for (name, flags) in [
        ("static", &["-static", "-no-pie", "-fno-pie", "-DOWN_TLS=1", "-DRELOCATE=0", "-D_DYNAMIC=absent", "-Wl,--defsym=absent=0"][..]),
        ("static-pie", &["-static-pie", "-fPIE", "-DOWN_TLS=1", "-DRELOCATE=1"]),
        ("dynamic", &["-pie", "-fPIE", "-DOWN_TLS=0", "-DRELOCATE=0"]),
    ] {
        let program = lab.program(name, start, &[flags, &["-nostdlib", "-fno-stack-protector"]].concat());
        lab.run(&program, &format!("{name}.d/%m.raw"));
        assert_eq!(lab.raw_file(&format!("{name}.d")).count(3), 6, "{name}");
    }
}
