//! Forms of reports, and traces of other tools: a page clicked in a browser, Chrome traces there and back, the scheduler's events.

use super::webdriver::Browser;
use super::{LOCKS, Place, check, must};
use serde_json::Value;

fn report(place: &Place, trace: &str, options: &[&str]) -> Value {
    let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["waits", "report", trace, "--json"]).args(options).output().unwrap();
    serde_json::from_slice(&must(output).stdout).unwrap()
}

#[test]
fn a_page_is_clicked_and_a_chrome_trace_is_read_back() {
    let place = Place::new();
    place.build("gcc", "locks.c", LOCKS, &["-O2", "-pthread"]);
    place.record(&["./app"]);
    let own = report(&place, "app.waits", &["--html", "page.html", "--chrome", "trace.json"]);
    click(&place, &own);
    let back = report(&place, "trace.json", &[]);
    check(&back);
    // Times are in microseconds there, and short slices may be left out.
    let (wait, again) = (own["wait_ns"].as_f64().unwrap(), back["wait_ns"].as_f64().unwrap());
    assert!((wait - again).abs() < 0.05 * wait, "{wait} {again}");
    // A Chrome trace has no stacks: what is named there is the innermost function, not the caller that makes it slow.
    let classes = own["waits"].as_array().unwrap().iter().flat_map(|w| w["classes"].as_array().unwrap());
    let steps = classes.flat_map(|c| c["plus"].as_array().unwrap());
    let longest = steps.max_by_key(|step| step["ns"].as_u64()).unwrap();
    assert_eq!(back["causes"][0]["function"], longest["function"]);
}

fn click(place: &Place, own: &Value) {
    let browser = Browser::start(&place.path("browser"));
    browser.open(&place.path("page.html"));
    let text =
        |selector: &str| browser.eval(&format!("return document.querySelector({selector:?}).textContent")).as_str().unwrap().to_owned();
    assert!(text("#title").contains("app.waits"));
    assert!(text("#causes tr").contains(own["causes"][0]["function"].as_str().unwrap()));
    assert_eq!(browser.eval("return document.getElementById('detail').hidden"), true);
    browser.click("button[data-family=contention]");
    assert!(text(".site").contains("lock contention"), "{}", text(".site"));
    browser.click(".site");
    assert_eq!(browser.eval("return document.getElementById('detail').hidden"), false);
    assert!(text(".paths").contains("executed") && text(".paths").contains("instead of"));
    assert!(text("#at").contains("waits"), "{}", text("#at"));
    let zoomed = browser.eval("return [view[0], view[1], data.run_ns]");
    assert!(zoomed[1].as_f64().unwrap() - zoomed[0].as_f64().unwrap() < zoomed[2].as_f64().unwrap());
    browser.click("#whole");
    assert_eq!(browser.eval("return view[1] - view[0] === data.run_ns"), true);
    let heated = browser.eval("return document.querySelectorAll('.row.hot').length").as_u64().unwrap();
    assert!(heated > 0, "no source line with its share");
    let drawn = "const c = document.getElementById('timeline'); return c.getContext('2d').getImageData(0, 0, c.width, \
        c.height).data.some((v) => v > 0)";
    assert_eq!(browser.eval(drawn), true);
    assert_eq!(browser.console(), Vec::<String>::new());
    assert_eq!(browser.eval("return performance.getEntriesByType('resource').length"), 0);
}

/// `worker` sleeps from 1 us to 11 us, when `main` wakes it; `timer` is woken by an interrupt in the idle thread.
const SCHEDULER: &str = "\
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
fn the_schedulers_events_say_who_woke_whom() {
    let place = Place::new();
    std::fs::write(place.path("app.txt"), SCHEDULER).unwrap();
    let found = report(&place, "app.txt", &[]);
    check(&found);
    assert_eq!((found["wait_ns"].as_u64(), found["wait_occurrences"].as_u64()), (Some(10_000), Some(1)));
    assert_eq!(found["causes"][0]["function"], "main");
    assert_eq!(found["causes"][0]["ns"], 10_000);
}

#[test]
fn damaged_traces_are_errors_with_their_line() {
    let place = Place::new();
    let run_back = SCHEDULER.replace("5.000022000", "4.000022000");
    let cases = [
        ("a.txt", run_back.as_str(), "a.txt:8"),
        ("b.txt", &SCHEDULER.replace("prev_pid=11", "prev_pid=x"), "not the number of a thread"),
        ("c.txt", "nothing", "neither a recording"),
        ("d.json", "{\"traceEvents\": [{\"ph\": \"X\"}]}", "event 0"),
        ("e.json", "{\"traceEvents\": [", "not JSON"),
        ("f.json", "{\"traceEvents\": [{\"ph\": \"E\", \"ts\": 1}]}", "did not begin"),
        ("g.otf2", "junk", "g.otf2"),
    ];
    for (name, text, expected) in cases {
        std::fs::write(place.path(name), text).unwrap();
        let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["waits", "report", name]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
    }
}
