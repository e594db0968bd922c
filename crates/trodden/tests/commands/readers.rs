//! Data from other tools. A reader must use what it understands and name what it rejects, and must not report success for a file in which
//! it recognises nothing.

use crate::place::{Place, must, program_of, trodden};
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use trodden_oracle::step;
use trodden_profile::Profile;

fn run_trodden(place: &Place, arguments: &str) -> Output {
    place.command(program_of(arguments)).args(arguments.split_whitespace()).output().unwrap()
}

fn read_messages(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[test]
fn unrecognised_files_are_rejected_and_empty_ones_reported() {
    let place = Place::with(&[("p.c", "int main(void) { return 0; }\n")]);
    place.cc("--trodden=addresses -O1 p.c -o p");
    fs::create_dir(place.path("folder")).unwrap();
    let bolt = "B 401150 401130 5000 3\n";
    let mapping = "4/4 1.0: PERF_RECORD_MMAP2 4/4: [0x400000(0x1000) @ 0 fe:00 1 1]: r-xp /nowhere/q\n";
    let outside = format!("{mapping}4/4 2.0: 0x400010/0x400020/P/-/-/1 0x400024/0x400008/P/-/-/1\n");
    // Each case has a command, the text of the file, the exit status, and the expected message.
    let cases = [
        ("report F", "[]", 0, "no slices"),
        ("report F", "{\"traceEvents\": []}", 0, "no slices"),
        ("report F", "[{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1}]", 0, "no slices"),
        ("report F", "{}", 2, "traceEvents"),
        ("report F", "{\"traceEvents\": 1}", 2, "cannot parse the trace"),
        ("report F", "[1, 2]", 2, "no phase"),
        ("report F", "[{\"name\":\"w\"", 2, "not valid JSON"),
        ("report F", "[{\"ph\":\"M\"} {}]", 2, "not followed by"),
        ("report F", "[{\"ph\":\"M\"}] x", 2, "cannot parse the trace"),
        ("report F", "nothing of the kind", 2, "cannot recognise the format"),
        ("report F", "", 2, "the file is empty"),
        ("report F", "sched_switch: nonsense", 2, "F"),
        ("report folder", "", 2, "folder"),
        ("simulate --from F", bolt, 2, "pre-aggregated"),
        ("import --no-store -o o F --program p", bolt, 2, "pre-aggregated"),
        ("simulate --from F", "some words\n", 2, "neither a branch stack"),
        ("simulate --from F", "4/4 1.0: 401136\n", 2, "no branch stacks"),
        ("import --no-store -o o F --program p", "4/4 1.0: 401136\n", 2, "no branch stacks"),
        ("simulate --format perf-script --from F", "\n\n", 2, "no output of `perf script`"),
        ("simulate --from F", outside.as_str(), 2, "/nowhere/q"),
        ("simulate --from F --program p", outside.as_str(), 2, "--program"),
        ("simulate --from F", mapping, 0, "no branches"),
        ("simulate --from F", "", 2, "is empty"),
        ("convert --format champsim F -o o", "", 2, "is empty"),
        ("convert --format cbp2025 F -o o", "", 2, "is empty"),
        ("convert --format champsim F -o o", "short", 2, "F"),
        ("simulate --format recorded --from F", "some words\n", 2, "F"),
        ("convert --format bt9 F -o o", "some words\n", 2, "F"),
        ("simulate --from F", "BT9_SPA_TRACE_FORMAT\nBT9_EDGE_SEQUENCE\nEOF\n", 2, "trodden-lab convert"),
        ("sweep F", "some words\n", 2, "F"),
        ("show F", "some words\n", 2, "cannot recognise the format"),
        ("report F", "some words\n", 2, "F"),
        ("merge F -o o", "some words\n", 2, "F"),
        ("show F", "some words\n", 2, "F"),
    ];
    for (command, text, status, words) in cases {
        check_answer(&place, command, text, status, words);
    }
}

/// Header that `perf script --header` prints for a recording without events.
const PERF_HEADER: &str = "# ========\n# captured on    : Sat Nov 28 13:56:33 2026\n# header version : 1\n# nrcpus online : 2\n\
    # event : name = sched:sched_switch, , id = { 5, 6 }, type = 2, size = 128, config = 0x174\n\
    # sample duration :      0.000 ms\n# ========\n#\n";

/// Returns the metadata of a trace (Common Trace Format 1.8) that has one kind of event.
fn describe_trace(event: &str) -> String {
    format!(
        "/* CTF 1.8 */\ntypealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;\n\
        trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ uint32_t magic; uint32_t stream_id; }}; }};\n\
        clock {{ name = monotonic; freq = 1000000000; }};\n\
        typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := stamp_t;\n\
        stream {{ id = 0; packet.context := struct {{ uint32_t cpu_id; }}; event.header := struct {{ uint32_t id; stamp_t t; }}; }};\n\
        event {{ name = {event}; id = 0; stream_id = 0; fields := struct {{ uint32_t value; }}; }};\n"
    )
}

#[test]
fn perf_text_without_scheduler_events_is_reported() {
    let place = Place::new();
    let cases = [
        (PERF_HEADER, 0, "no events"),
        ("# a comment\n", 2, "cannot recognise the format"),
        ("a 1 [000] 1.0: PERF_RECORD_COMM: a:1/1\n", 2, "cannot recognise the format"),
        ("a 1 [000] 1.0: 1 cpu-clock:\n", 2, "cannot recognise the format"),
    ];
    for (text, status, words) in cases {
        check_answer(&place, "report F", text, status, words);
    }
}

#[test]
fn trace_folders_without_events_are_reported() {
    let place = Place::new();
    // Each case has the trace's metadata, its stream, the exit status, and the expected message. The last metadata come from a recording by
    // perf 6.1 without events.
    let packet = [0xC1FC_1FC1_u32, 0, 0].map(u32::to_le_bytes).concat();
    let with_event = [&packet[..], &[0; 12], &7_u32.to_le_bytes()[..]].concat();
    let (other, unknown) = (describe_trace("other"), describe_trace("other").replace("byte_order = le", "byte_order = unknown"));
    let cases = [
        (other.as_str(), Some(&packet), 0, "no events"),
        (other.as_str(), Some(&with_event), 2, "no sched_switch"),
        (other.as_str(), None, 0, "no events"),
        (unknown.as_str(), None, 0, "no events"),
        (unknown.as_str(), Some(&packet), 2, "babeltrace2 cannot read trace"),
        ("some words", None, 2, "babeltrace2 cannot read trace"),
        ("", None, 2, "babeltrace2 cannot read trace"),
    ];
    for (number, (description, stream, status, words)) in cases.into_iter().enumerate() {
        let _ = fs::remove_dir_all(place.path("trace"));
        fs::create_dir(place.path("trace")).unwrap();
        fs::write(place.path("trace/metadata"), description).unwrap();
        if let Some(stream) = stream {
            fs::write(place.path("trace/stream"), stream).unwrap();
        }
        let output = run_trodden(&place, "report trace");
        let said = read_messages(&output);
        assert!(output.status.code() == Some(status) && said.contains(words), "case {number}: {}: {said}", output.status);
    }
}

/// An OTF2 archive that has one location and no events, as libotf2 3.0 writes it: the anchor, the definitions, and the two files of the
/// location.
const ARCHIVE: [(&str, &str); 4] = [
    (
        "a.otf2",
        "03424f54463200030203000200001000000000000000400000000000010101000000000000000900000000000000000000000000002c807312456831ad\
         0000000000000000020100",
    ),
    (
        "a.def",
        "03420100000000000000000000000000000005090400ca9a3b00010a000a0200000a04010150000a04010254000a04010366000f0d0001030003000000\
         01030101000c060001010101ff0d060001010100ff0e060001020100000201",
    ),
    ("a/0.def", "0342010000000000000000000000000000000201"),
    ("a/0.evt", "0342010000000000000000000000000000000201"),
];

#[test]
fn otf2_archive_without_events_is_reported() {
    let place = Place::new();
    fs::create_dir(place.path("a")).unwrap();
    for (name, digits) in ARCHIVE {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        fs::write(place.path(name), digits.as_bytes().chunks(2).map(byte).collect::<Vec<u8>>()).unwrap();
    }
    let is_reader_there = place.command("otf2-print").arg("--version").output().is_ok();
    // If `otf2-print` is not installed, the message must name its package.
    let (status, words) = if is_reader_there { (0, "no events") } else { (2, "otf2-tools") };
    let output = run_trodden(&place, "report a.otf2");
    assert!(output.status.code() == Some(status) && read_messages(&output).contains(words), "{output:?}");
}

/// Runs a command on a file with this text. Checks the exit status and the message.
fn check_answer(place: &Place, command: &str, text: &str, status: i32, words: &str) {
    place.write("F", text);
    let output = run_trodden(place, command);
    let said = read_messages(&output);
    assert!(output.status.code() == Some(status) && said.contains(words), "{command} of {text:?}: {}: {said}", output.status);
    assert!(!said.contains("panicked"), "{command} of {text:?}: {said}");
}

fn run_report(place: &Place, file: &str) -> Value {
    serde_json::from_slice(&must(place.command(trodden()).args(["report", "--json", file])).stdout).unwrap()
}

/// Returns a trace with a hundred barriers of two threads, with times in fractions of nanoseconds. `slow` arrives about half a millisecond
/// late at each barrier.
fn generate_barriers() -> String {
    let (mut events, mut now, mut state) = (Vec::new(), 0.0f64, 1u64);
    let slice = |events: &mut Vec<Value>, process: u32, name: &str, from: f64, until: f64| {
        events.push(serde_json::json!({ "ph": "X", "name": name, "pid": process, "tid": 0, "ts": from, "dur": until - from }));
    };
    for number in 0..100 {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let (early, late) = (now + 1000.0 + random(), now + 1500.0 + random());
        slice(&mut events, 0, "fast", now, early);
        slice(&mut events, 0, "barrier", early, late);
        slice(&mut events, 1, "slow", now, late);
        events.push(serde_json::json!({ "ph": "s", "id": number, "cat": "r", "name": "r", "pid": 1, "tid": 0, "ts": late }));
        events.push(serde_json::json!({ "ph": "f", "bp": "e", "id": number, "cat": "r", "name": "r", "pid": 0, "tid": 0, "ts": late }));
        now = late;
    }
    serde_json::json!({ "traceEvents": events }).to_string()
}

#[test]
fn chrome_traces_may_be_fractional_compressed_unfinished_or_begun_before() {
    let place = Place::with(&[
        ("barriers.json", &generate_barriers()),
        ("open.json", r#"[{"name":"w","ph":"X","ts":1,"dur":5,"pid":1,"tid":1},{"name":"v","ph":"X","ts":2,"dur":3,"pid":1,"tid":2}"#),
        (
            "unmatched.json",
            r#"{"traceEvents": [{"ph": "E", "pid": 1, "tid": 1, "ts": 5},
                {"ph": "X", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "name": "a"}]}"#,
        ),
    ]);
    let plain = run_report(&place, "barriers.json");
    assert_eq!(plain["wait_occurrences"], 100, "{plain:#}");
    assert_eq!(plain["causes"][0]["function"], "slow");
    must(place.command("gzip").arg("barriers.json"));
    assert_eq!(run_report(&place, "barriers.json.gz"), plain);
    let open = run_report(&place, "open.json");
    assert!(open["run_ns"] == 5000 && open["notes"].to_string().contains("not closed"), "{open:#}");
    let unmatched = run_report(&place, "unmatched.json");
    assert!(unmatched["run_ns"] == 5000 && unmatched["notes"].to_string().contains("1 slice that began before"), "{unmatched:#}");
}

const PROGRAM: &str = "\
volatile long sink;
__attribute__((noinline)) long collatz(long n) { long steps = 0; while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; steps++; } return steps; }
int main(void) { long s = 0; for (long i = 1; i < 40; i++) s += collatz(i); sink = s; return 0; }
";

/// Rewrites a branch trace as if `process` had executed it, with `file` mapped at the program's address.
fn convert_branches(trace: &str, process: u32, file: &str) -> String {
    let mapping =
        format!("{process}/{process} 0.5: PERF_RECORD_MMAP2 {process}/{process}: [0x400000(0x200000) @ 0 fe:00 1 1]: r-xp {file}\n");
    let line = |line: &str| line.split_once(' ').map(|(_, rest)| format!("{process}/{process} {rest}\n"));
    mapping + &trace.lines().filter(|line| line.contains(" => ")).filter_map(line).collect::<String>()
}

fn count_paths(profile: &Profile, function: &str) -> Vec<(u64, u64)> {
    let (_, unit, map) = profile.functions().find(|(_, _, f)| f.name == function).unwrap();
    unit.counts_of(map).collect()
}

#[test]
fn different_file_at_the_same_address_in_another_process_is_not_the_program() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=addresses -O1 -static prog.c -o marked");
    let mut trace = Vec::new();
    step::record(&place.path("marked"), &[], Stdio::null(), &place.path(""), &mut trace).unwrap();
    let trace = String::from_utf8(trace).unwrap();
    let (own, other) = (convert_branches(&trace, 4711, "/old/place/marked"), convert_branches(&trace, 2004, "/usr/lib/other.so"));
    place.write("one.txt", &own);
    place.write("other.txt", &other);
    place.write("both.txt", &(own + &other));
    for name in ["one", "both"] {
        place.trodden(&format!("import {name}.txt --program marked --no-store -o {name}.trodden"));
    }
    let [one, both] = ["one", "both"].map(|name| Profile::read(&place.path(&format!("{name}.trodden"))).unwrap());
    for function in ["main", "collatz"] {
        assert!(!count_paths(&one, function).is_empty());
        assert_eq!(count_paths(&both, function), count_paths(&one, function), "{function}");
    }
    let output = run_trodden(&place, "import other.txt --program marked --no-store -o other.trodden");
    assert!(output.status.code() == Some(2) && read_messages(&output).contains("none of the"), "{}", read_messages(&output));
    // The trace names the program by an old path, which must not matter.
    let simulated = |file: &str| -> Value {
        serde_json::from_slice(&place.trodden(&format!("simulate --json --from {file} --program marked --top 50")).stdout).unwrap()
    };
    let (one, both) = (simulated("one.txt"), simulated("both.txt"));
    assert_eq!(both["branches"], one["branches"], "{both:#}");
    assert!(one.to_string().contains("collatz"), "{one:#}");
    let output = run_trodden(&place, "simulate --from other.txt --program marked");
    assert!(output.status.code() == Some(2) && read_messages(&output).contains("--program"), "{}", read_messages(&output));
}
