//! Malicious files. Each command must either read such a file or reject it with an error that names it, within limits on memory and stack.

use crate::place::{Place, must, program_of, trodden};
use std::fs;
use std::path::Path;
use std::process::Output;
use trodden_trace::block_file::{BlockFileWriter, DIFFERENCE_LAYOUT, TraceBlockKind, encode_differences};
use trodden_trace::{TRACE_FORMAT, TraceBlock, TraceDescription, TraceEndRecord, TraceFunction, TracedBlockInfo, TracedFunctionInfo};

/// Runs trodden with its address space limited to `megabytes`. It may succeed or reject its input, but must neither panic nor be killed.
fn run_with_memory_limit(place: &Place, megabytes: u64, arguments: &str) -> Output {
    let script = format!("ulimit -v {}; exec \"$0\" {arguments}", megabytes * 1024);
    let output = place.command("sh").args(["-c", &script]).arg(program_of(arguments.split(' ').next().unwrap())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(1), Some(2)].contains(&output.status.code()), "{arguments}: {}: {said}", output.status);
    assert!(!said.contains("panicked"), "{arguments}: {said}");
    output
}

fn read_error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn format_chrome_trace(events: impl Iterator<Item = String>) -> String {
    format!("[{}]", events.collect::<Vec<_>>().join(",\n"))
}

#[test]
fn memory_for_deeply_nested_slices_is_proportional() {
    let place = Place::new();
    let begin = |n: u32| format!(r#"{{"name":"f{n}","ph":"B","ts":{n},"pid":1,"tid":1}}"#);
    place.write("open.json", &format_chrome_trace((0..20_000).map(begin)));
    let end = |n: u32| format!(r#"{{"ph":"E","ts":{},"pid":1,"tid":1}}"#, 20_000 + n);
    place.write("closed.json", &format_chrome_trace((0..20_000).map(begin).chain((0..20_000).map(end))));
    // Each slice starts inside the previous slice and ends after it.
    let overlap = |n: u32| format!(r#"{{"name":"g{n}","ph":"X","ts":{n},"dur":100000,"pid":1,"tid":1}}"#);
    place.write("overlap.json", &format_chrome_trace((0..20_000).map(overlap)));
    for trace in ["open.json", "closed.json", "overlap.json"] {
        let output = run_with_memory_limit(&place, 2_000, &format!("report {trace}"));
        assert_eq!(output.status.code(), Some(0), "{trace}: {}", read_error(&output));
        let said = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&said).contains("nested deeper than 128"), "{trace}");
    }
}

/// Returns the description of a trace with two blocks, as the recorder would write it.
fn describe_trace() -> TraceDescription {
    let block = |address: u64| TracedBlockInfo { address, size: 4, function: TraceFunction(0), lines: vec![(0, 1)] };
    TraceDescription {
        command: vec!["./app".into()],
        image: "app".into(),
        runs: 1,
        functions: vec![TracedFunctionInfo { name: "main".into(), address: 0x1000 }],
        blocks: vec![block(0x1000), block(0x1004)],
        edges: vec![(TraceBlock(0), TraceBlock(1))],
        files: vec!["app.c".into()],
        ..TraceDescription::default()
    }
}

/// Writes a trace with one block of symbols. The tuple has the thread, the claimed number of symbols, the block's index, and the symbols.
fn write_trace(path: &Path, about: &TraceDescription, (thread, count, index, symbols): (u32, u32, &[u8], &[u64])) {
    let mut writer = BlockFileWriter::create(path, TRACE_FORMAT).unwrap();
    writer.append_value(TraceBlockKind::Description, about).unwrap();
    writer.append(TraceBlockKind::Symbols, DIFFERENCE_LAYOUT, (thread, count), index, &encode_differences(symbols)).unwrap();
    writer.append_value(TraceBlockKind::End, &TraceEndRecord::default()).unwrap();
}

/// Encoded symbols of a trace: 2 to 5 are calls, and symbols from 8 on are blocks.
const TRACE_SYMBOLS: [u64; 3] = [3, 8, 9];
/// Index of a symbol block: the number of its first block, no stack frames, one function.
const SYMBOL_BLOCK_INDEX: [u8; 4] = [0, 0, 1, 0];

const COMMANDS: [&str; 7] =
    ["report t", "show --count 0 t", "export addresses t", "find main t", "diff --fail t t", "export html t", "export folded t"];

#[test]
fn crafted_traces_are_rejected() {
    let place = Place::new();
    let trace = place.path("t");
    write_trace(&trace, &describe_trace(), (0, 3, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS));
    for command in COMMANDS {
        let output = run_with_memory_limit(&place, 2_000, command);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", read_error(&output));
    }
    type CraftedSymbolBlock<'a> = (u32, u32, &'a [u8], &'a [u64]);
    let pieces: [(&str, CraftedSymbolBlock); 9] = [
        ("no such block", (0, 4, &SYMBOL_BLOCK_INDEX, &[3, 8, 9, 8 + (1 << 20)])),
        ("a block's number of 33 bits", (0, 4, &SYMBOL_BLOCK_INDEX, &[3, 8, 9, 8 + (1 << 32)])),
        ("the largest number", (0, 4, &SYMBOL_BLOCK_INDEX, &[3, 8, 9, u64::MAX])),
        ("a kind of event that is none", (0, 4, &SYMBOL_BLOCK_INDEX, &[3, 8, 9, 7])),
        ("more symbols announced than there are", (0, u32::MAX, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS)),
        ("as many as the size allows", (0, 100_000, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS)),
        ("the largest thread", (u32::MAX, 3, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS)),
        ("a frame of no function", (0, 3, &[0, 1, 5, 1, 0], &TRACE_SYMBOLS)),
        ("an index of no function", (0, 3, &[0, 0, 1, 5], &TRACE_SYMBOLS)),
    ];
    for (what, piece) in pieces {
        write_trace(&trace, &describe_trace(), piece);
        check_rejection(&place, what);
    }
    type DescriptionChange = fn(&mut TraceDescription);
    let changes: [(&str, DescriptionChange); 5] = [
        ("a block of no function", |about| about.blocks[1].function = TraceFunction(7)),
        ("a line of no file", |about| about.blocks[0].lines[0].0 = 3),
        ("an edge of no block", |about| about.edges[0].1 = TraceBlock(2)),
        ("a block of no library", |about| about.blocks[0].address = 5 << 48),
        ("a function of no library", |about| about.functions[0].address = 5 << 48),
    ];
    for (what, change) in changes {
        let mut about = describe_trace();
        change(&mut about);
        write_trace(&trace, &about, (0, 3, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS));
        check_rejection(&place, what);
    }
}

fn check_rejection(place: &Place, what: &str) {
    for command in COMMANDS {
        let output = run_with_memory_limit(place, 2_000, command);
        assert!(
            output.status.code() == Some(2) && read_error(&output).contains("is corrupt"),
            "{what}: {command}: {}",
            read_error(&output)
        );
    }
}

/// The trace compresses by a factor of a thousand, so reading all of it at once would fill the memory.
#[test]
fn small_trace_does_not_fill_the_memory() {
    let place = Place::new();
    let about = TraceDescription { files: vec![String::new(); 200_000_000 / 8], ..describe_trace() };
    write_trace(&place.path("t"), &about, (0, 3, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS));
    drop(about);
    assert!(fs::metadata(place.path("t")).unwrap().len() < 1 << 16);
    check_rejection(&place, "a bomb");
}

#[test]
fn deep_recursion_is_shown_within_depth_limits() {
    let place = Place::with(&[(
        "deep.c",
        "#include <stdio.h>\n__attribute__((noinline)) int down(int n) { return n ? down(n - 1) + 1 : 0; }\n\
         int main(void) { printf(\"%d\\n\", down(30000)); return 0; }\n",
    )]);
    must(place.command("cc").args(["-O1", "-fno-optimize-sibling-calls", "-g", "deep.c", "-o", "deep"]));
    must(place.command(trodden()).args(["trace", "record", "--output", "t", "--", "./deep"]));
    let output = run_with_memory_limit(&place, 4_000, "show --depth 1000000 t");
    assert!(output.status.code() == Some(2) && read_error(&output).contains("--depth"), "{}", read_error(&output));
    let output = run_with_memory_limit(&place, 4_000, "show --calls --depth 400 t");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("down")).count(),
        398,
        "all but `_start` and `main`"
    );
    for command in COMMANDS.into_iter().chain(["show --calls --json --depth 400 t", "show --count 0 --depth 400 t"]) {
        let output = run_with_memory_limit(&place, 4_000, command);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", read_error(&output));
    }
}

/// Returns ChampSim records of consecutive instructions with 4 bytes each. Registers are random, so that the records compress badly.
fn generate_champsim_trace(instructions: u64) -> Vec<u8> {
    let mut state = 7u64;
    let record = |number: u64| {
        let mut record = [0u8; 64];
        record[..8].copy_from_slice(&(0x40_0000 + 4 * number).to_le_bytes());
        for register in &mut record[12..16] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *register = (state >> 33) as u8 | 64;
        }
        record
    };
    (0..instructions).flat_map(record).collect()
}

#[test]
fn truncated_compressed_trace_is_an_error() {
    let place = Place::new();
    let plain = generate_champsim_trace(20_000);
    fs::write(place.path("t"), &plain).unwrap();
    for (tool, ending) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        let name = format!("t.{ending}");
        match tool {
            "zstd" => fs::write(place.path(&name), zstd::encode_all(plain.as_slice(), 1).unwrap()).unwrap(),
            _ => drop(must(place.command(tool).args(["-k", "t"]))),
        }
        let command = format!("convert --format champsim {name} -o t.trodrec");
        let output = run_with_memory_limit(&place, 2_000, &command);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", read_error(&output));
        let whole = fs::read(place.path(&name)).unwrap();
        for length in [whole.len() / 2, whole.len() - 1] {
            fs::write(place.path(&name), &whole[..length]).unwrap();
            let output = run_with_memory_limit(&place, 2_000, &command);
            assert!(
                output.status.code() == Some(2) && read_error(&output).contains("truncated"),
                "{name}, {length}: {}",
                read_error(&output)
            );
        }
    }
}

#[test]
fn many_configurations_are_simulated_within_bounded_memory() {
    let place = Place::new();
    fs::write(place.path("t.champsim"), generate_champsim_trace(2_000)).unwrap();
    // Each configuration has two tables with 2^20 entries each.
    place.write(
        "e.toml",
        "sources = [\"t.champsim\"]\nformat = \"champsim\"\n[factors]\nentries = [1048576]\nassociativity = [1, 2, 4]\n\
         index = [\"start\", \"xor\", \"fold\"]\nreplacement = [\"lfu\", \"lru\", \"rap\", \"decay\"]\n",
    );
    let output = run_with_memory_limit(&place, 3_200, "sweep e.toml");
    assert_eq!(output.status.code(), Some(0), "{}", read_error(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 36 + 1);
    assert!(
        read_error(&output).contains("36 configurations") && read_error(&output).contains("at least 2 times"),
        "{}",
        read_error(&output)
    );
}

/// A name with characters that change a terminal's colour, reverse the text direction or start a new line.
const HOSTILE_NAME: &str = "na\u{1b}[31mme\u{202e}x\u{9b}2J\nEVIL";

fn check_output_is_harmless(place: &Place, arguments: &[&str]) {
    let output = place.command(program_of(arguments[0])).args(arguments).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!said.contains(steers), "{arguments:?}: {said:?}");
    assert!(!said.lines().any(|line| line.starts_with("EVIL")), "{arguments:?}: {said:?}");
    assert!(!said.is_empty() && !said.contains("panicked"), "{arguments:?}: {said}");
}

#[test]
fn program_names_do_not_control_the_terminal() {
    let place = Place::new();
    let source = format!("{HOSTILE_NAME}.c");
    place.write(
        &source,
        "__attribute__((noinline)) int loop(volatile int *p) { int s = 0; for (int i = 0; i < 1000; i++) { s += *p;\n\
         __asm__ volatile (\"nop # \u{1b}[31mred \u{202e}\" ::: \"memory\"); } return s; }\n\
         int main(void) { volatile int v = 1; return loop(&v) & 1; }\n",
    );
    must(place.command(trodden()).args(["cc", "-O2", "-g", source.as_str(), "-o", HOSTILE_NAME]));
    place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(place.path(HOSTILE_NAME)).output().unwrap();
    fs::copy(place.path("run.trodden"), place.path(&format!("{HOSTILE_NAME}.trodden"))).unwrap();
    let profile = format!("{HOSTILE_NAME}.trodden");
    for arguments in [
        vec!["info", HOSTILE_NAME],
        vec!["info", "run.trodden"],
        vec!["info", &profile],
        vec!["info", "--json", HOSTILE_NAME],
        vec!["report", "run.trodden"],
        vec!["report", "--function", "loop", "run.trodden"],
        vec!["annotate", "run.trodden", "loop"],
        vec!["loops", HOSTILE_NAME, "run.trodden"],
        vec!["loops", "--json", HOSTILE_NAME, "run.trodden"],
        vec!["diff", "run.trodden", &profile],
        vec!["advise", "run.trodden"],
        vec!["info", "missing\u{1b}[2J\nEVIL"],
        vec!["report", HOSTILE_NAME],
        vec!["show", HOSTILE_NAME],
        vec!["simulate", "--from", HOSTILE_NAME],
        vec!["coverage", "show", &profile],
        vec!["coverage", "report", &profile],
    ] {
        check_output_is_harmless(&place, &arguments);
    }
}

#[test]
fn names_in_traces_do_not_control_the_terminal() {
    let place = Place::new();
    let mut about = describe_trace();
    about.functions[0].name = HOSTILE_NAME.into();
    about.files[0] = HOSTILE_NAME.into();
    about.image = HOSTILE_NAME.into();
    about.opaque = vec![(HOSTILE_NAME.into(), HOSTILE_NAME.into())];
    write_trace(&place.path("t"), &about, (0, 3, &SYMBOL_BLOCK_INDEX, &TRACE_SYMBOLS));
    // The second trace has the same blocks and a different path.
    write_trace(&place.path("u"), &about, (0, 4, &SYMBOL_BLOCK_INDEX, &[3, 8, 9, 9]));
    for command in COMMANDS.into_iter().chain(["report --json t", "diff t u", "diff --json t u", "export chrome t"]) {
        check_output_is_harmless(&place, &command.replace("main", "0x1004").split(' ').collect::<Vec<_>>());
    }
    let name = serde_json::to_string(HOSTILE_NAME).unwrap();
    let event = |rest: &str, tid: u32| format!(r#"{{"name":{name},"pid":1,"tid":{tid},{rest}}}"#);
    let thread = format!(r#"{{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{{"name":{name}}}}}"#);
    let slice = format!(r#""ph":"X","ts":0,"dur":10,"args":{{"file":{name},"line":3}}"#);
    let events = [
        thread,
        event(&slice, 1),
        event(r#""ph":"X","ts":0,"dur":9"#, 2),
        event(r#""ph":"s","id":1,"ts":9"#, 2),
        event(r#""ph":"f","id":1,"ts":9"#, 1),
    ];
    place.write("waits.json", &format_chrome_trace(events.into_iter()));
    for options in [&["--json"][..], &[]] {
        check_output_is_harmless(&place, &[&["report", "waits.json"], options].concat());
    }
}
