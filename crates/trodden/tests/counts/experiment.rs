//! Settings of a build must reach the plugin, the unit map and every reader of the map, whether they come from the command line, the
//! environment or another program's map. The files that they name may have any name.

use crate::place::{Place, laboratory, must, trodden, with_choices};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use trodden_unit::Experiment;
use trodden_unit::experiment::{InputFolder, PluginRequest};

/// In `mix`, the loop has two paths, or four paths and calls to `rare` if an argument is given. It iterates 1,000 times, or 2,000 times
/// with two arguments.
const PROGRAM: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) unsigned mix(volatile unsigned *p, int n, int often) {\n\
      for (int i = 0; i < n; i++) { if (*p & 1) *p = *p * 3 + 1; else *p = *p / 2 + i; if (i % 8 < often) *p ^= 5; }\n\
      return *p; }\n\
    __attribute__((noinline)) int rare(int n) { return n > 2 ? puts(\"many\") : puts(\"one\"); }\n\
    int main(int argc, char **argv) { volatile unsigned v = 9; printf(\"%u\\n\", mix(&v, argc > 2 ? 2000 : 1000, argc > 1)); \
    return argc > 1 ? !rare(argc) \
    : 0; }\n";

fn build_and_record() -> Place {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O2 -g -fno-unroll-loops a.c -o prog");
    place.trodden("record -o run.trodden -- ./prog");
    place
}

/// Returns the number of instructions per loop iteration in `mix` that `trodden-lab loops` computes, first without and then with counting.
fn compute_loop_costs(place: &Place, arguments: &str) -> (f64, f64) {
    let found: Value = serde_json::from_slice(&place.laboratory(&format!("loops --json --function mix {arguments}")).stdout).unwrap();
    let [only] = &found["loops"].as_array().unwrap()[..] else { panic!("{found}") };
    (only["plain"].as_f64().unwrap(), only["counted"].as_f64().unwrap())
}

/// Measures the instructions per iteration by single-stepping, as the difference between runs with 2,000 and with 1,000 iterations.
fn step_loop(place: &Place, program: &str) -> f64 {
    let steps = |arguments: &[&str]| -> f64 {
        let mut command = place.command(trodden());
        command.args(["trace", "record", "--collector", "single-step", "--output", "steps.trace", "--"]);
        let output = must(command.arg(format!("./{program}")).args(arguments));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let number = said.split("reconstructed from ").nth(1).and_then(|rest| rest.split(' ').next());
        let number = number.and_then(|word| word.replace(',', "").parse().ok());
        number.unwrap_or_else(|| panic!("no number of steps: {said}"))
    };
    (steps(&["x", "y"]) - steps(&["x"])) / 1000.0
}

fn read_experiment(place: &Place, program: &str) -> Experiment {
    place.image(program).frames[0].map().unwrap().experiment
}

fn expect_error(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn computed_loop_costs_equal_single_stepped_costs() {
    let place = build_and_record();
    let record = |program: &str| {
        let (file, program) = (format!("{program}.trodden"), format!("./{program}"));
        must(place.command(trodden()).args(["record", "--no-store", "-o", &file, "--", &program, "x"]));
    };
    record("prog");
    place.tool("clang-22", "-O2 -g -fno-unroll-loops a.c -o plain");
    let (plain, full) = compute_loop_costs(&place, "./prog prog.trodden");
    assert!((plain - step_loop(&place, "plain")).abs() < 0.5, "{plain}");
    // The tolerance is larger here, because code generation merges equal ends of blocks, which the computation ignores.
    let all = step_loop(&place, "prog");
    assert!((full - all).abs() < 1.5, "{full}, stepped {all}");
    place.trodden("export known run.trodden -o known");
    for (made, options) in [("residual", "--residual known"), ("interesting", "--interesting top:1:run.trodden")] {
        place.trodden(&format!("instrument prog -o {made} {options}"));
        record(made);
        assert_eq!(read_experiment(&place, made).inputs().len(), 1, "{made}");
        if made == "residual" {
            // Seven of eight iterations take tested paths, for which the profile has no counts.
            let refused = place.command(laboratory()).args(["loops", "./residual", "residual.trodden"]).output().unwrap();
            assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("Build it without --residual"));
            continue;
        }
        let (plain, counted) = compute_loop_costs(&place, &format!("./{made} {made}.trodden"));
        assert!(plain > 0.0 && counted > 0.0 && counted != full, "{made}: {plain} to {counted}; all paths: {full}");
        let real = step_loop(&place, made);
        assert!((counted - real).abs() < 1.0, "{counted}, stepped {real}");
    }
}

#[test]
fn missing_set_of_paths_is_named_with_advice() {
    let place = build_and_record();
    place.trodden("instrument prog -o interesting --interesting top:1:run.trodden");
    place.trodden("record --no-store -o interesting.trodden -- ./interesting");
    let set = read_experiment(&place, "interesting").interesting().expect("interesting paths").set;
    std::fs::remove_file(InputFolder::new(place.path("store/inputs")).path(set)).unwrap();
    let error = expect_error(place.command(laboratory()).args(["loops", "./interesting", "interesting.trodden"]));
    assert!(error.contains(&set.to_string()) && error.contains("--interesting") && error.contains("TRODDEN_CACHE"), "{error}");
}

#[test]
fn file_names_may_contain_blanks_quotes_and_any_bytes() {
    let place = build_and_record();
    let name = |text: &[u8]| -> OsString { place.path("").join(OsStr::from_bytes(text)).into_os_string() };
    let (weights, known, store) = (name(b"of 'a run' \"x\" \xff=%20"), name(b"known, \"all\" \xfe"), name(b"a store 'y' \xfd"));
    must(place.command(trodden()).args(["export", "weights", "run.trodden", "-o"]).arg(&weights));
    must(place.command(trodden()).args(["export", "known", "run.trodden", "-o"]).arg(&known));
    let build = |output: &str| {
        let mut command = place.command(trodden());
        command.env("TRODDEN_CACHE", &store).args(["build", "--residual"]).arg(&known).arg("--weights").arg(&weights);
        must(command.args(["--", "cc", "-O2", "a.c", "-o", output]));
    };
    build("by-option");
    let encoded = |file: &OsString| -> String { file.clone().into_vec().iter().map(|byte| format!("%{byte:02X}")).collect() };
    let mut driver = place.command(trodden());
    driver.env("TRODDEN_CACHE", &store).env("TRODDEN_INSTRUMENT", format!("weights={} known={}", encoded(&weights), encoded(&known)));
    must(driver.args(["cc", "-O2", "a.c", "-o", "by-variable"]));
    let (one, other) = (read_experiment(&place, "by-option"), read_experiment(&place, "by-variable"));
    assert!(one.known().is_some() && one.placement().weights.is_some(), "{one}");
    assert_eq!(one, other);
    let mut record = place.command(trodden());
    must(record.env("TRODDEN_CACHE", &store).args(["record", "--no-store", "-o", "rare.trodden", "--", "./by-option", "x"]));
    let profile = trodden_profile::Profile::read(&place.path("rare.trodden")).unwrap();
    let (_, unit, mix) = profile.functions().find(|(_, _, f)| f.name == "mix").unwrap();
    // One of eight iterations takes a path that the first run did not take.
    let counted: u64 = unit.counts_of(mix).map(|(_, count)| count).sum();
    assert!((100..300).contains(&counted), "{counted}");
}

#[test]
fn contradictory_settings_are_rejected_before_files_are_read_or_written() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    let cases = [
        (vec!["build", "--events", "tsc", "--residual", "nothing", "--", "true"], "--events cannot be combined with --residual"),
        (vec!["build", "--sample", "--table-slots", "8", "--", "true"], "--sample (when=bursts) cannot be combined with --table-slots"),
        (vec!["build", "--tail-merging", "off", "--", "true"], "--tail-merging requires --addresses"),
        (vec!["instrument", "nothing", "-o", "x", "--watch", "f", "--events", "tsc"], "--events cannot be combined with --watch"),
    ];
    for (arguments, reason) in cases {
        let error = expect_error(with_choices(&mut place.command(trodden()), arguments.iter().copied()));
        assert!(error.contains(reason), "{arguments:?}: {error}");
        assert!(!place.path("store").exists(), "{arguments:?}");
    }
    let error = expect_error(place.command(trodden()).args(["build", "--", "true"]).env("TRODDEN_LABORATORY", "--scheme ppp"));
    assert!(error.contains("trodden instrument --interesting"), "{error}");
    for (arguments, choices, reason) in [
        (["report", "x.trodden"], "p3", "unexpected argument 'p3'"),
        (["report", "x.trodden"], "--strategy p4", "p4"),
        (["report", "x.trodden"], "--scheme ball-larus", "--scheme, which does not apply to `trodden report`"),
        (["build", "true"], "--collector uprobes", "--collector, which does not apply to `trodden build`"),
    ] {
        let error = expect_error(place.command(trodden()).args(arguments).env("TRODDEN_LABORATORY", choices));
        assert!(error.contains("TRODDEN_LABORATORY") && error.contains(reason), "{arguments:?}: {error}");
    }
    let error = expect_error(place.command(trodden()).args(["cc", "-c", "a.c"]).env("TRODDEN_INSTRUMENT", "chords=maybe"));
    assert!(error.contains("`chords=maybe`") && error.contains("Values of chords: on|off"), "{error}");
    let error = expect_error(place.command(trodden()).args(["build", "--residual", "nothing", "--", "true"]));
    assert!(error.contains("nothing") && !place.path("store/inputs").exists(), "{error}");
}

#[test]
fn options_override_the_environment_which_overrides_the_build() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    let script = "cc -O2 a.c -o one && TRODDEN_INSTRUMENT='max-paths=9 keep=map' cc -O2 a.c -o two && cc --trodden=sample -O2 a.c -o three";
    let mut build = place.command(trodden());
    let arguments = ["build", "--max-paths", "64", "--chords", "on", "--", "sh", "-ec", script];
    with_choices(build.env("TRODDEN_INSTRUMENT", "reach=all chords=off"), arguments);
    must(&mut build);
    let text = |program| read_experiment(&place, program).to_string();
    assert_eq!(text("one"), "scheme=ball-larus max-paths=64 chords=on trip-counts=tight early=on reach=all");
    assert_eq!(text("two"), text("one").replace("max-paths=64", "max-paths=9"));
    assert_eq!(text("three"), format!("{} when=bursts", text("one")));
    assert!(place.image("one").frames[0].has_bitcode() && !place.image("two").frames[0].has_bitcode());
}

#[test]
fn plugin_accepts_only_requests() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-c a.c -o first.o");
    let plugin = trodden().with_file_name("libtrodden_instrument.so");
    let clang = |variable: &str, value: &OsStr| {
        let mut command = place.command("clang-22");
        command.arg(format!("-fpass-plugin={}", plugin.display())).args(["-c", "a.c", "-o", "a.o"]).env(variable, value);
        command
    };
    let error = expect_error(&mut clang("TRODDEN_INSTRUMENT", OsStr::new("when=bursts")));
    assert!(error.contains("which only trodden's drivers read"), "{error}");
    let folder = InputFolder::new(place.path("in puts"));
    let request = PluginRequest::default().write(&folder).unwrap();
    must(&mut clang("TRODDEN_EXPERIMENT", request.as_os_str()));
    std::fs::write(&request, b"TRODEXP\x09").unwrap();
    let error = expect_error(&mut clang("TRODDEN_EXPERIMENT", request.as_os_str()));
    assert!(error.contains("an earlier version of trodden wrote it. Start the build again"), "{error}");
}

#[test]
fn laboratory_choices_reach_only_builds_and_drivers() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    let refuses = |arguments: &str| expect_error(place.command(laboratory()).args(arguments.split(' ')));
    let of_report = refuses("with --chords off -- report");
    assert!(of_report.contains("--chords does not apply to `trodden report`") && of_report.contains("`cargo trodden`"), "{of_report}");
    assert!(refuses("with --growth 9 -- build -- true").contains("only to `trodden instrument`"));
    assert!(refuses("with --witnesses -- build --stream -- true").contains("Omit one of them"));
    assert!(refuses("with -- build -- true").contains("no option is given. Add at least one of --scheme, --max-paths"));
    place.laboratory("with --max-paths 2 --chords off -- cc -O1 a.c -o driven");
    place.laboratory("with --max-paths 2 --chords off -- build -- cc -O1 a.c -o built");
    place.cc("-O1 a.c -o usual");
    place.laboratory("with --max-paths 2 --chords off -- instrument usual -o made");
    for program in ["driven", "built", "made"] {
        let settings = read_experiment(&place, program).to_string();
        assert!(settings.contains("max-paths=2") && settings.contains("chords=off"), "{program}: {settings}");
    }
    let mut both = place.command(laboratory());
    both.args("with --max-paths 3 -- cc -O1 a.c -o both".split(' ')).env("TRODDEN_INSTRUMENT", "reach=all max-paths=9");
    must(&mut both);
    let settings = read_experiment(&place, "both").to_string();
    assert!(settings.contains("max-paths=3") && settings.contains("reach=all"), "{settings}");
}
