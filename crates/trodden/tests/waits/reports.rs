//! Forms of reports: an HTML page in a browser, export to a Chrome trace and back, and reports on scheduler events from other tools.

use super::threads::LOCKS_PROGRAM;
use super::webdriver::Browser;
use super::{Place, check_consistency, must};
use serde_json::Value;

fn run_report(place: &Place, trace: &str, options: &[&str]) -> Value {
    let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", trace, "--json"]).args(options).output().unwrap();
    serde_json::from_slice(&must(output).stdout).unwrap()
}

#[test]
fn readers_click_a_page_and_an_exported_chrome_trace_can_be_read() {
    let place = Place::new();
    place.build("gcc", "locks.c", LOCKS_PROGRAM, &["-O2", "-pthread"]);
    place.record(&["./app"]);
    let own = run_report(&place, "app.waits", &[]);
    for arguments in ["report app.waits --html page.html", "export chrome app.waits --output trace.json"] {
        must(place.command(env!("CARGO_BIN_EXE_trodden")).args(arguments.split(' ')).output().unwrap());
    }
    let text = must(place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", "app.waits", "--top", "0"]).output().unwrap());
    click_waits(&place, &own, &String::from_utf8(text.stdout).unwrap());
    let back = run_report(&place, "trace.json", &[]);
    check_consistency(&back);
    // A Chrome trace has times in microseconds, and need not contain short slices, so only similar results are expected.
    let (wait, again) = (own["wait_ns"].as_f64().unwrap(), back["wait_ns"].as_f64().unwrap());
    assert!((wait - again).abs() < 0.05 * wait, "{wait} {again}");
    // A Chrome trace has no call stacks, so its report names the innermost function instead of the caller that makes this function slow.
    let classes = own["waits"].as_array().unwrap().iter().flat_map(|w| w["classes"].as_array().unwrap());
    let steps = classes.flat_map(|c| c["plus"].as_array().unwrap());
    let longest = steps.max_by_key(|step| step["ns"].as_u64()).unwrap();
    assert_eq!(back["causes"][0]["function"], longest["function"]);
}

/// Returns figure 4 of the Carnival paper as a Chrome trace. Each process computes, waits and computes again; times are in milliseconds.
fn generate_figure_4() -> String {
    let slices =
        [(0, "A1", 0, 10), (0, "A2", 10, 3), (0, "A3", 13, 4), (1, "B1", 0, 4), (1, "B2", 4, 6), (1, "B3", 10, 5), (2, "C1", 0, 6)];
    let slices = slices.into_iter().chain([(2, "C2", 6, 9), (2, "C3", 15, 2)]);
    let slices = slices.map(|(process, name, from, time)| {
        serde_json::json!({"ph": "X", "name": name, "pid": process, "tid": 0, "ts": from * 1000, "dur": time * 1000})
    });
    let flows = [(1, 0, 1, 10), (2, 1, 2, 15), (3, 2, 0, 17)].into_iter().flat_map(|(id, from, to, at)| {
        let event = |phase, process| {
            serde_json::json!({"ph": phase, "bp": "e", "id": id, "cat": "r", "name": "r", "pid": process, "tid": 0, "ts": at * 1000})
        };
        [event("s", from), event("f", to)]
    });
    serde_json::json!({"traceEvents": slices.chain(flows).collect::<Vec<_>>()}).to_string()
}

#[test]
fn waits_are_printed_as_in_the_paper() {
    let place = Place::new();
    std::fs::write(place.path("fig4.json"), generate_figure_4()).unwrap();
    let explained = |file: &str, form: &[&str]| {
        let mut command = place.command(env!("CARGO_BIN_EXE_trodden"));
        command.env("TRODDEN_LABORATORY", "--explain").args(["report", file]).args(form).output().unwrap()
    };
    let text = String::from_utf8(must(explained("fig4.json", &[])).stdout).unwrap();
    let at = |line: &str| text.lines().position(|other| other.trim() == line).unwrap_or_else(|| panic!("no {line:?} in {text}"));
    let lines = ["A1 - B1", "(B1 + B2 + B3) - C1", "= (A1 + B3) - C1", "(C1 + C2 + C3) - (A1 + A2)", "= (A1 + B3 + C3) - (A1 + A2)"];
    assert!(lines.map(at).is_sorted(), "{text}");
    assert_eq!(at("= (A1 + B3 + C3) - (A1 + A2)") + 1, at("= (B3 + C3) - A2, without the steps that both paths have in common"));
    let value: Value = serde_json::from_slice(&must(explained("fig4.json", &["--json"])).stdout).unwrap();
    assert_eq!(value["expressions"][2]["expanded"], "(A1 + B3 + C3) - (A1 + A2)");
    // By default, JSON contains only the first wait of each class.
    let classes = run_report(&place, "fig4.json", &[]);
    let first = |site: &Value| site["classes"][0]["representative"]["expression"].clone();
    let expressions: Vec<Value> = classes["waits"].as_array().unwrap().iter().map(first).collect();
    assert_eq!(expressions, ["(A1 + B3) - C1", "A1 - B1", "(B3 + C3) - A2"]);
    assert!(classes.get("expressions").is_none());
    let refused = explained("fig4.json", &["--html", "page.html"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("Omit --explain or --html"));
}

/// Returns the lines of some sections of a text report, without times and percentages.
fn extract_facts<'t>(report: &'t str, sections: &[&str]) -> Vec<&'t str> {
    let mut section = report.lines().next().unwrap();
    let lines = report.lines().filter(|line| {
        let is_fact = line.starts_with("  ");
        if !is_fact && !line.is_empty() {
            section = line;
        }
        is_fact && sections.iter().any(|wanted| section.starts_with(wanted))
    });
    lines.map(|line| line.rsplit("  ").next().unwrap().trim()).collect()
}

/// Checks that the page contains the same facts as the text report.
fn compare_with_text(browser: &Browser, report: &str) {
    let headline = report.lines().next().unwrap();
    assert_eq!(browser.eval("return document.getElementById('headline').textContent"), headline);
    let whole = browser.eval("return document.body.innerText.replace(/\\s+/g, ' ')");
    let whole = whole.as_str().unwrap();
    let sections = [headline, "Not caused by code", "Critical path", "Imbalance", "Notes"];
    for section in &sections[..4] {
        assert!(!extract_facts(report, &[section]).is_empty(), "the text has no {section}: {report}");
    }
    for fact in extract_facts(report, &sections) {
        assert!(whole.contains(fact), "the page lacks {fact:?}: {whole}");
    }
    let thresholds = report.lines().find(|line| line.contains(" at threshold ") && line.ends_with(')')).unwrap();
    assert!(whole.contains(thresholds), "the page lacks {thresholds:?}: {whole}");
}

fn click_waits(place: &Place, own: &Value, report: &str) {
    let browser = Browser::start(&place.path("browser"));
    browser.open(&place.path("page.html"));
    let text =
        |selector: &str| browser.eval(&format!("return document.querySelector({selector:?}).textContent")).as_str().unwrap().to_owned();
    assert!(text("#title").contains("app.waits"));
    assert!(text("#causes tr").contains(own["causes"][0]["function"].as_str().unwrap()));
    compare_with_text(&browser, report);
    let times = browser.eval("return [10250, 10350, 10750, 1250000, 2062500000, 999].map(time)");
    let rounded = [10.25, 10.35, 10.75].map(|us: f64| format!("{us:.1} us"));
    assert_eq!(times, serde_json::json!([rounded[0], rounded[1], rounded[2], "1.2 ms", "2.062 s", "999 ns"]));
    assert_eq!(browser.eval("return [percent(1, 16), percent(45, 160), percent(2, 3)]"), serde_json::json!(["6.2 %", "28.1 %", "66.7 %"]));
    assert_eq!(browser.eval("return document.getElementById('detail').hidden"), true);
    browser.click("button[data-family=contention]");
    assert!(text(".site").contains("lock contention"), "{}", text(".site"));
    browser.click(".site");
    assert_eq!(browser.eval("return document.getElementById('detail').hidden"), false);
    assert!(text(".paths").contains("executed") && text(".paths").contains("instead of"));
    let steps = report.lines().filter(|line| line.trim_start().starts_with("executed"));
    let steps: Vec<&str> = steps.map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert!(steps.iter().any(|step| text(".paths").contains(step)), "none of {steps:?} is in {}", text(".paths"));
    let shown = own["waits"].as_array().unwrap().iter().find(|site| site["family"] == "contention").unwrap();
    let expression = shown["classes"][0]["representative"]["expression"].as_str().unwrap();
    assert!(text(".expression").contains(expression), "{} lacks {expression}", text(".expression"));
    assert!(text("#at").contains("waits"), "{}", text("#at"));
    let zoomed = browser.eval("return [view[0], view[1], data.run_ns]");
    assert!(zoomed[1].as_f64().unwrap() - zoomed[0].as_f64().unwrap() < zoomed[2].as_f64().unwrap());
    browser.click("#whole");
    assert_eq!(browser.eval("return view[1] - view[0] === data.run_ns"), true);
    let press =
        |key: &str| browser.eval(&format!("canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }})); return view[0]"));
    assert!(press("+").as_f64().unwrap() > 0.0);
    assert!(press("ArrowRight").as_f64() > press("ArrowLeft").as_f64());
    browser.click("#whole");
    let heated = browser.eval("return document.querySelectorAll('.row.hot').length").as_u64().unwrap();
    assert!(heated > 0, "no source line with its share");
    let drawn = "const c = document.getElementById('timeline'); return c.getContext('2d').getImageData(0, 0, c.width, \
        c.height).data.some((v) => v > 0)";
    assert_eq!(browser.eval(drawn), true);
    if let Some(folder) = std::env::var_os("TRODDEN_SCREENSHOTS") {
        std::fs::write(std::path::Path::new(&folder).join("waits.base64"), browser.screenshot()).unwrap();
    }
    browser.check_widths_and_schemes();
    assert_eq!(browser.console(), Vec::<String>::new());
    assert_eq!(browser.eval("return performance.getEntriesByType('resource').length"), 0);
}

/// `worker` sleeps from 1 µs until `main` wakes it at 11 µs. An interrupt in the idle thread wakes `timer`.
const SCHEDULER_TEXT: &str = "\
    main  10 [000]   5.000000000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=main \
    next_pid=10 next_prio=120
  worker  11 [001]   5.000001000: sched:sched_switch: prev_comm=worker prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 \
  next_pid=0 next_prio=120
   timer  12 [002]   5.000002000: sched:sched_switch: prev_comm=my timer prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/2 \
   next_pid=0 next_prio=120
    main  10 [000]   5.000011000: sched:sched_waking: comm=worker pid=11 prio=120 target_cpu=001
  worker  11 [001]   5.000012000: sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=worker \
  next_pid=11 next_prio=120
    main  10 [000]   5.000020000: sched:sched_switch: prev_comm=main prev_pid=10 prev_prio=120 prev_state=R ==> next_comm=swapper/0 \
    next_pid=0 next_prio=120
 swapper   0 [002]   5.000021000: sched:sched_waking: comm=my timer pid=12 prio=120 target_cpu=002
   timer  12 [002]   5.000022000: sched:sched_switch: prev_comm=swapper/2 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my timer \
   next_pid=12 next_prio=120
  worker  11 [001]   5.000030000: sched:sched_switch: prev_comm=worker prev_pid=11 prev_prio=120 prev_state=R ==> next_comm=swapper/1 \
  next_pid=0 next_prio=120
";

#[test]
fn scheduler_events_show_who_woke_whom() {
    let place = Place::new();
    std::fs::write(place.path("app.txt"), SCHEDULER_TEXT).unwrap();
    let found = run_report(&place, "app.txt", &[]);
    check_consistency(&found);
    assert_eq!((found["wait_ns"].as_u64(), found["wait_occurrences"].as_u64()), (Some(10_000), Some(1)));
    assert_eq!(found["causes"][0]["function"], "main");
    assert_eq!(found["causes"][0]["ns"], 10_000);
}

/// The same run as `babeltrace2` prints an LTTng trace. The waking thread is the one that runs on the event's processor.
const COMMON_FORMAT_TEXT: &str = "\
[5.000000000] (+?.?????????) host sched_switch: { cpu_id = 0 }, { prev_comm = \"swapper/0\", prev_tid = 0, prev_prio = 20, prev_state = 0, \
next_comm = \"main\", next_tid = 10, next_prio = 20 }
[5.000001000] (+0.000001000) host sched_switch: { cpu_id = 1 }, { prev_comm = \"worker\", prev_tid = 11, prev_prio = 20, prev_state = 1, \
next_comm = \"swapper/1\", next_tid = 0, next_prio = 20 }
[5.000002000] (+0.000001000) host sched_switch: { cpu_id = 2 }, { prev_comm = \"my timer\", prev_tid = 12, prev_prio = 20, prev_state = 1, \
next_comm = \"swapper/2\", next_tid = 0, next_prio = 20 }
[5.000011000] (+0.000009000) host sched_waking: { cpu_id = 0 }, { comm = \"worker\", tid = 11, prio = 20, target_cpu = 1 }
[5.000012000] (+0.000001000) host sched_switch: { cpu_id = 1 }, { prev_comm = \"swapper/1\", prev_tid = 0, prev_prio = 20, prev_state = 0, \
next_comm = \"worker\", next_tid = 11, next_prio = 20 }
[5.000020000] (+0.000008000) host sched_switch: { cpu_id = 0 }, { prev_comm = \"main\", prev_tid = 10, prev_prio = 20, prev_state = 0, \
next_comm = \"swapper/0\", next_tid = 0, next_prio = 20 }
[5.000021000] (+0.000001000) host sched_waking: { cpu_id = 2 }, { comm = \"my timer\", tid = 12, prio = 20, target_cpu = 2 }
[5.000022000] (+0.000001000) host sched_switch: { cpu_id = 2 }, { prev_comm = \"swapper/2\", prev_tid = 0, prev_prio = 20, prev_state = 0, \
next_comm = \"my timer\", next_tid = 12, next_prio = 20 }
[5.000030000] (+0.000008000) host sched_switch: { cpu_id = 1 }, { prev_comm = \"worker\", prev_tid = 11, prev_prio = 20, prev_state = 256, \
next_comm = \"swapper/1\", next_tid = 0, next_prio = 20 }
";

#[test]
fn kernel_traces_in_the_common_trace_format_give_the_same_report() {
    let place = Place::new();
    std::fs::write(place.path("common.txt"), COMMON_FORMAT_TEXT).unwrap();
    std::fs::write(place.path("app.txt"), SCHEDULER_TEXT).unwrap();
    let (common, own) = (run_report(&place, "common.txt", &[]), run_report(&place, "app.txt", &[]));
    check_consistency(&common);
    for key in ["wait_ns", "wait_occurrences", "causes", "waits", "run_ns"] {
        assert_eq!(common[key], own[key], "{key}");
    }
}

/// Returns a trace in which one thread wakes another ten times, each time 10 ms after that one fell asleep.
fn generate_wake_ups(event: &str) -> String {
    let mut text = String::from(
        "swapper 0 [000] 10.000000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=maker \
            next_pid=10 next_prio=120\n\
            swapper 0 [001] 10.000001: sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=user \
            next_pid=11 next_prio=120\n",
    );
    for at in (1000..).step_by(12_000).take(10) {
        let (woken, runs) = (at + 10_000, at + 10_010);
        text += &format!(
            "user 11 [001] 10.{at:06}: sched:sched_switch: prev_comm=user prev_pid=11 prev_prio=120 prev_state=S ==> \
                next_comm=swapper/1 next_pid=0 next_prio=120\n"
        );
        if !event.is_empty() {
            text += &format!("maker 10 [000] 10.{woken:06}: sched:{event}: comm=user pid=11 prio=120 target_cpu=001\n");
        }
        text += &format!(
            "swapper 0 [001] 10.{runs:06}: sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> \
                next_comm=user next_pid=11 next_prio=120\n"
        );
    }
    text
}

#[test]
fn wake_ups_come_from_the_trace_or_are_reported_as_missing() {
    let place = Place::new();
    for (event, waits) in [("sched_waking", 10), ("sched_wakeup", 10), ("", 0)] {
        std::fs::write(place.path("app.txt"), generate_wake_ups(event)).unwrap();
        let found = run_report(&place, "app.txt", &[]);
        check_consistency(&found);
        assert_eq!(found["wait_occurrences"], waits, "{event}: {found:#}");
        assert_eq!(found["wait_ns"], waits * 10_000_000, "{event}");
        if waits > 0 {
            assert_eq!(found["causes"][0]["function"], "maker", "{event}");
        }
        let notes = found["notes"].to_string();
        assert_eq!(notes.contains("no events sched_waking"), event != "sched_waking", "{event}: {notes}");
        assert_eq!(notes.contains("which threads ended its 10 sleeps"), event.is_empty(), "{event}: {notes}");
    }
}

#[test]
fn perf_text_printed_by_plugins_gives_the_same_report() {
    let place = Place::new();
    let named = generate_wake_ups("sched_waking");
    let by_plugin = |line: &str| {
        let value = |name: &str| line.split_once(name).unwrap().1.split(' ').next().unwrap().to_owned();
        let head = line.split_once("sched:").unwrap().0;
        match line.contains("sched_switch") {
            true => format!(
                "{head}sched:sched_switch: {}:{} [120] {} ==> {}:{} [120]\n",
                value("prev_comm="),
                value("prev_pid="),
                value("prev_state="),
                value("next_comm="),
                value("next_pid=")
            ),
            false => format!("{head}sched:sched_waking: {}:{} [120] CPU:001\n", value("comm="), value(" pid=")),
        }
    };
    std::fs::write(place.path("named.txt"), &named).unwrap();
    std::fs::write(place.path("plugin.txt"), named.lines().map(by_plugin).collect::<String>()).unwrap();
    let (named, plugin) = (run_report(&place, "named.txt", &[]), run_report(&place, "plugin.txt", &[]));
    for key in ["wait_ns", "wait_occurrences", "causes", "waits", "run_ns"] {
        assert_eq!(plugin[key], named[key], "{key}");
    }
}

/// The text is that of a trace converted by `perf data convert --to-ctf`, in which each event names its own thread.
#[test]
fn perf_events_in_the_common_trace_format_need_no_processor_context() {
    let place = Place::new();
    let of_perf = |line: &str| {
        let waker = if line.contains("{ cpu_id = 0 }, { comm = \"worker\"") { 10 } else { 0 };
        line.replace("{ cpu_id = ", "{ perf_cpu = ").replace("}, {", &format!("}}, {{ perf_tid = {waker}, perf_pid = {waker},")) + "\n"
    };
    std::fs::write(place.path("perf.txt"), COMMON_FORMAT_TEXT.lines().map(of_perf).collect::<String>()).unwrap();
    std::fs::write(place.path("app.txt"), SCHEDULER_TEXT).unwrap();
    let (perf, own) = (run_report(&place, "perf.txt", &[]), run_report(&place, "app.txt", &[]));
    for key in ["wait_ns", "wait_occurrences", "causes", "waits", "run_ns"] {
        assert_eq!(perf[key], own[key], "{key}");
    }
}

/// perf 6.1 recorded two threads that take turns. The recording is read in two forms: converted by `perf data convert --to-ctf`, and
/// printed by `perf script --ns`.
#[test]
fn converted_perf_recordings_agree_with_their_text() {
    const RECORDED_STREAM: &[u8] = include_bytes!("perf.ctf/perf_stream_0");
    // Packets are padded with zeros to this length, in bytes.
    const PACKET_SIZE: usize = 32_768;
    let place = Place::new();
    std::fs::create_dir(place.path("perf.ctf")).unwrap();
    std::fs::write(place.path("perf.ctf/metadata"), include_bytes!("perf.ctf/metadata")).unwrap();
    std::fs::write(place.path("perf.ctf/perf_stream_0"), [RECORDED_STREAM, &vec![0; PACKET_SIZE - RECORDED_STREAM.len()]].concat())
        .unwrap();
    std::fs::write(place.path("perf.txt"), include_bytes!("perf.txt")).unwrap();
    let (converted, text) = (run_report(&place, "perf.ctf", &[]), run_report(&place, "perf.txt", &[]));
    assert!(text["wait_occurrences"].as_u64().unwrap() > 3, "{text:#}");
    assert_eq!(converted, text);
}

/// The metadata of a trace of scheduler events (Common Trace Format 1.8).
const TRACE_METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; uint32_t stream_id; }; };
clock { name = monotonic; freq = 1000000000; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp_t;
stream { id = 0; packet.context := struct { uint32_t cpu_id; }; event.header := struct { uint32_t id; stamp_t timestamp; }; };
event { name = sched_switch; id = 0; stream_id = 0;
  fields := struct { string prev_comm; int32_t prev_tid; int32_t prev_state; string next_comm; int32_t next_tid; }; };
event { name = sched_waking; id = 1; stream_id = 0; fields := struct { string comm; int32_t tid; }; };
";

/// Encodes the event in a line of [`COMMON_FORMAT_TEXT`] for the binary trace. Returns the event's processor and bytes.
fn encode_event(line: &str) -> (u32, Vec<u8>) {
    let value = |name: &str| {
        let rest = line.split_once(&format!(" {name} = ")).unwrap().1;
        rest.split([',', '}']).next().unwrap().trim().trim_matches('"').to_owned()
    };
    let number = |name: &str| value(name).parse::<i32>().unwrap();
    let text = |name: &str| [value(name).as_bytes(), &[0]].concat();
    let time = line[1..].split_once(']').unwrap().0.replace('.', "").parse::<u64>().unwrap();
    let is_switch = line.contains("sched_switch");
    let mut bytes = u32::from(!is_switch).to_le_bytes().to_vec();
    bytes.extend(time.to_le_bytes());
    if is_switch {
        bytes.extend(text("prev_comm"));
        bytes.extend([number("prev_tid").to_le_bytes(), number("prev_state").to_le_bytes()].concat());
        bytes.extend(text("next_comm"));
        bytes.extend(number("next_tid").to_le_bytes());
    } else {
        bytes.extend(text("comm"));
        bytes.extend(number("tid").to_le_bytes());
    }
    (number("cpu_id") as u32, bytes)
}

#[test]
fn binary_traces_in_the_common_trace_format_are_read() {
    let place = Place::new();
    let kernel = place.path("app.lttng").join("kernel");
    std::fs::create_dir_all(&kernel).unwrap();
    std::fs::write(kernel.join("metadata"), TRACE_METADATA).unwrap();
    for processor in 0..3u32 {
        let mut stream = [0xC1FC_1FC1u32, 0, processor].map(u32::to_le_bytes).concat();
        stream.extend(COMMON_FORMAT_TEXT.lines().map(encode_event).filter(|(cpu, _)| *cpu == processor).flat_map(|(_, bytes)| bytes));
        std::fs::write(kernel.join(format!("channel_{processor}")), stream).unwrap();
    }
    std::fs::write(place.path("app.txt"), SCHEDULER_TEXT).unwrap();
    let (common, own) = (run_report(&place, "app.lttng", &[]), run_report(&place, "app.txt", &[]));
    check_consistency(&common);
    assert_eq!((&common["waits"], &common["causes"]), (&own["waits"], &own["causes"]));
}

#[test]
fn corrupt_traces_are_errors_with_their_line() {
    let place = Place::new();
    let run_back = SCHEDULER_TEXT.replace("5.000022000", "4.000022000");
    let cases = [
        ("a.txt", run_back.as_str(), "a.txt:8"),
        ("b.txt", &SCHEDULER_TEXT.replace("prev_pid=11", "prev_pid=x"), "invalid thread ID"),
        ("perf.data", "PERFILE2", "perf script -i perf.data"),
        ("c.txt", "nothing", "cannot recognise the format"),
        ("d.json", "{\"traceEvents\": [{\"ph\": \"X\"}]}", "event 0"),
        ("e.json", "{\"traceEvents\": [", "cannot parse the trace"),
        ("g.otf2", "junk", "g.otf2"),
        ("i.txt", &COMMON_FORMAT_TEXT.replace("prev_tid = 11", "prev_tid = x"), "i.txt:2: no field prev_tid"),
    ];
    for (name, text, expected) in cases {
        std::fs::write(place.path(name), text).unwrap();
        let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", name]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
    }
}
