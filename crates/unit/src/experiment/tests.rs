//! Tests of each kind of observation alone, of all conflicts between settings, and of the textual form of settings.

use super::exclusions::{SELECTIVE_SCHEME_FEATURE, SHARED_COUNTERS_FEATURE, TABLES_FEATURE};
use super::*;
use crate::observe::{EveryPath, FeatureAdmission, KINDS, ObservationKind, requested_kinds};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn parse_settings(text: &str) -> Settings {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

const STORED_FILE: &str = "id:000102030405060708090a0b0c0d0e0f";

/// Returns settings that request only this kind of observation. For the default kind, they are empty.
fn settings_for(kind: &ObservationKind) -> String {
    let texts = [
        "events=tsc".to_owned(),
        "observe=edge-profile".to_owned(),
        "observe=coverage".to_owned(),
        "observe=stream".to_owned(),
        "observe=addresses".to_owned(),
        "observe=trace".to_owned(),
        "when=bursts".to_owned(),
        format!("segments={STORED_FILE}"),
        format!("iterations={STORED_FILE}"),
        format!("interesting={STORED_FILE}"),
        format!("known={STORED_FILE}"),
        format!("watched={STORED_FILE}"),
        format!("part={STORED_FILE} origin={}", &STORED_FILE[3..]),
        String::new(),
    ];
    let requests_kind = |text: &&String| match requested_kinds(&parse_settings(text)).collect::<Vec<_>>().as_slice() {
        [] => kind.option.contains("observe=counts"),
        [only] => only.is_same_kind(kind),
        several => panic!("{text} requests {several:?}"),
    };
    texts.iter().find(requests_kind).unwrap_or_else(|| panic!("no settings request {kind:?}")).clone()
}

/// Path numberings of which some kinds of observation support none or only some.
const TESTED_SCHEMES: [&str; 4] = ["scheme=ppp", "scheme=pspp", "scheme=known-table", "scheme=spp"];

fn expect_conflict(text: &str) -> SettingsConflict {
    match Experiment::new(&parse_settings(text)) {
        Err(ExperimentError::Excluded(conflict)) => conflict,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_kind_can_be_observed_alone() {
    for kind in KINDS {
        let text = settings_for(kind);
        let experiment = Experiment::new(&parse_settings(&text)).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(experiment.observation().observation_properties().kind().is_same_kind(kind), "{text}: {experiment:?}");
    }
}

#[test]
fn two_kinds_conflict_unless_one_restricts_the_other() {
    let mut restricted = Vec::new();
    for (at, one) in KINDS.iter().enumerate() {
        for other in &KINDS[at + 1..] {
            let both = parse_settings(&settings_for(one)).or(parse_settings(&settings_for(other)));
            // These kinds are different values of one setting, so they cannot be requested together.
            if requested_kinds(&both).count() < 2 {
                continue;
            }
            match Experiment::new(&both) {
                Ok(experiment) => restricted.push((experiment.observation().observation_properties().kind().option, both.to_string())),
                Err(ExperimentError::Excluded(conflict)) => {
                    assert_eq!((conflict.one, conflict.relation, conflict.other), (one.option, FeatureRelation::Excludes, other.option));
                    assert!(conflict.reason.contains(one.observes) && conflict.reason.contains(other.observes), "{conflict}");
                    assert!(!conflict.remedy.is_empty());
                }
                Err(other) => panic!("{both}: {other}"),
            }
        }
    }
    let kinds: Vec<&str> = restricted.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["--events", "--stream (observe=stream)", "a copy's part (part=FILE)"], "{restricted:?}");
}

#[test]
fn each_kind_rejects_numberings_tables_and_shared_counters_that_it_does_not_support() {
    for kind in KINDS {
        let text = settings_for(kind);
        for (choice, admission, more) in
            [(TABLES_FEATURE, kind.tables, "table-slots=8"), (SHARED_COUNTERS_FEATURE, kind.shared_counters, "threads=atomic")]
        {
            let both = format!("{text} {more}");
            match admission {
                FeatureAdmission::Admitted => assert!(Experiment::new(&parse_settings(&both)).is_ok(), "{both}"),
                FeatureAdmission::Rejected { reason, remedy } => {
                    let conflict = expect_conflict(&both);
                    assert_eq!((conflict.one, conflict.other, &*conflict.reason), (kind.option, choice.spelling, reason), "{both}");
                    assert!(conflict.to_string().ends_with(remedy) && !remedy.is_empty(), "{conflict}");
                }
            }
        }
        for scheme in TESTED_SCHEMES {
            let both = format!("{text} {scheme}");
            let is_supported =
                matches!(parse_settings(scheme).scheme, Some(ExperimentScheme::Interesting(s)) if kind.numberings.contains(&s));
            assert_eq!(Experiment::new(&parse_settings(&both)).is_ok(), is_supported, "{both}");
            if !is_supported {
                let (one, other) = (expect_conflict(&both).one, expect_conflict(&both).other);
                assert!([one, other].contains(&SELECTIVE_SCHEME_FEATURE.spelling), "{both}: {one}, {other}");
            }
        }
    }
    // A stream numbers all paths of the selected functions, whatever scheme is requested. A copy of a program counts some of all paths, or
    // some of the unknown ones.
    assert_eq!(expect_conflict(&format!("observe=stream interesting={STORED_FILE} scheme=ppp")).other, "--stream (observe=stream)");
    let part = format!("part={STORED_FILE} origin={} known={STORED_FILE}", &STORED_FILE[3..]);
    assert!(Experiment::new(&parse_settings(&part)).is_ok());
    assert_eq!(expect_conflict(&format!("{part} threads=atomic")).one, "--residual (known=FILE)");
}

#[test]
fn violation_of_each_rule_is_reported_with_reason_and_remedy() {
    let part = format!("part={STORED_FILE} origin={}", &STORED_FILE[3..]);
    let cases = [
        ("recorder=/tmp/%p".to_owned(), "recorder=/tmp/%p observe=stream".to_owned()),
        ("tail-merging=off".to_owned(), "tail-merging=off observe=addresses".to_owned()),
        (
            format!("time-limit=3 interesting={STORED_FILE} scheme=ppp"),
            format!("time-limit=3 interesting={STORED_FILE} scheme=ppp-optimal"),
        ),
        (format!("part={STORED_FILE}"), part.clone()),
        (format!("origin={}", &STORED_FILE[3..]), part.clone()),
        ("count-hits=on".to_owned(), format!("count-hits=on {part}")),
        (format!("count-hits=on {part} known={STORED_FILE}"), format!("{part} known={STORED_FILE}")),
        ("array-paths=3".to_owned(), "array-paths=3 table-slots=8".to_owned()),
    ];
    assert_eq!(cases.len(), exclusions::rules().count());
    for (rule, (broken, kept)) in exclusions::rules().zip(&cases) {
        let conflict = expect_conflict(broken);
        assert_eq!((conflict.one, conflict.relation, conflict.other), (rule.one.spelling, rule.relation, rule.other.spelling), "{broken}");
        let message = conflict.to_string();
        assert!(message.contains(rule.reason) && message.ends_with(rule.remedy), "{message}");
        assert!(Experiment::new(&parse_settings(kept)).is_ok(), "{kept}: {:?}", Experiment::new(&parse_settings(kept)));
    }
}

#[test]
fn experiment_contains_all_requested_settings() {
    let part = format!("part={STORED_FILE} origin={}", &STORED_FILE[3..]);
    let more = ["", "table-slots=8", "array-paths=3 table-slots=8", "threads=atomic", "scheme=ppp", "scheme=pspp", "scheme=ball-larus"];
    let kinds = KINDS.iter().map(|kind| settings_for(kind)).chain([
        format!("observe=stream interesting={STORED_FILE}"),
        format!("events=tsc interesting={STORED_FILE}"),
        format!("{part} known={STORED_FILE}"),
        format!("{part} count-hits=on"),
        "observe=mcdc".to_owned(),
        "tail-merging=off observe=addresses".to_owned(),
        format!("time-limit=3 scheme=ppp-optimal interesting={STORED_FILE}"),
    ]);
    let mut built = 0;
    for text in kinds.flat_map(|kind| more.map(|more| format!("{kind} {more}"))) {
        let requested = parse_settings(&format!("weights={STORED_FILE} {text}"));
        let Ok(experiment) = Experiment::new(&requested) else { continue };
        built += 1;
        let result = Settings::from(&experiment);
        assert_eq!(requested.clone().or(result.clone()), result, "{requested} becomes {result}");
        assert_eq!(Experiment::new(&result).as_ref(), Ok(&experiment), "{result}");
        assert_eq!(result.to_string().parse(), Ok(result.clone()));
        let bytes = postcard::to_allocvec(&experiment).unwrap();
        assert_eq!(postcard::from_bytes::<Experiment>(&bytes), Ok(experiment));
    }
    assert!(built > 2 * KINDS.len(), "{built}");
}

#[test]
fn conflicting_settings_cannot_be_deserialised_as_an_experiment() {
    let bytes = postcard::to_allocvec(&parse_settings("when=bursts table-slots=8")).unwrap();
    assert!(postcard::from_bytes::<Experiment>(&bytes).is_err());
    let bytes = postcard::to_allocvec(&parse_settings("weights=/etc/passwd")).unwrap();
    assert!(postcard::from_bytes::<Experiment>(&bytes).is_err());
}

#[test]
fn settings_that_are_not_given_have_defaults() {
    let default = Experiment::default();
    assert_eq!((default.observation(), default.is_sampled()), (Observation::EveryPath(EveryPath), false));
    assert_eq!(
        (default.destination(), default.threads(), default.placement().max_paths),
        (OutputDestination::Array, ThreadCounters::Own, 4096)
    );
    assert_eq!(default.to_string(), "scheme=ball-larus max-paths=4096 chords=on trip-counts=tight early=on reach=may-not-return");
    let known_table = Some(trodden_flow::NumberingScheme::KnownTable);
    let interesting = Experiment::new(&parse_settings(&format!("interesting={STORED_FILE}"))).unwrap();
    assert!(interesting.interesting().is_some_and(|paths| paths.numbering == known_table), "{interesting}");
    let all = Experiment::new(&parse_settings(&format!("interesting={STORED_FILE} scheme=ball-larus"))).unwrap();
    assert!(all.interesting().is_some_and(|paths| paths.numbering.is_none()), "{all}");
    assert_eq!(Experiment::new(&Settings::from(&all)), Ok(all));
}

#[test]
fn unknown_settings_and_values_are_named_in_the_error() {
    for wrong in
        ["chords", "chords=", "chords=maybe", "max-paths=0", "max-paths=16777217", "events=ticks", "rounds=on", "origin=0", "known="]
    {
        let error = format!("chords=on {wrong}").parse::<Settings>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{wrong}`")), "{error}");
        // The error lists the values of the setting or, for an unknown setting, all settings.
        let key = wrong.split('=').next().filter(|key| wrong.contains('=') && *key != "rounds");
        let known = key.map_or_else(|| "trip-counts=on|tight|off".into(), |key| format!("Values of {key}: "));
        assert!(error.contains(&known), "{error}");
    }
    let bytes = OsStr::from_bytes(b"weights=\xff");
    assert_eq!(Settings::from_variable(bytes), Err(SpellingError::NotText));
}

#[test]
fn file_names_may_contain_any_bytes() {
    let name = Path::new(OsStr::from_bytes(b"a b\"c'd=%20\t\xff\n\xc3\xa9"));
    let with_files =
        Settings { weights: Some(SettingsFile::File(name.into())), known: Some(SettingsFile::File("id:x".into())), ..Settings::default() };
    let text = Settings { known: None, ..with_files.clone() }.to_string();
    assert_eq!(text, "weights=a%20b%22c%27d=%2520%09%FF%0A%C3%A9");
    assert_eq!(text.parse(), Ok(Settings { known: None, ..with_files.clone() }));
    let mut set = Settings::default();
    set.set("weights", name.as_os_str()).unwrap();
    assert_eq!(set, Settings { known: None, ..with_files });
}

#[test]
fn given_settings_take_precedence_one_by_one() {
    let over = parse_settings("scheme=ball-larus max-paths=9").or(parse_settings("max-paths=100 keep=map"));
    assert_eq!(over, parse_settings("scheme=ball-larus max-paths=9 keep=map"));
}

#[test]
fn request_stores_its_files_by_content() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = InputFolder::new(temporary.path().join("a b").join("inputs"));
    let file = temporary.path().join(OsStr::from_bytes(b"known \"paths\" \xff"));
    let paths = crate::KnownPaths::default().to_bytes();
    std::fs::write(&file, &paths).unwrap();
    let requested = Settings { known: Some(SettingsFile::File(file.clone())), keep: Some(Keep::Map), ..Settings::default() };
    let request = requested.clone().request(&folder).unwrap();
    std::fs::remove_file(&file).unwrap();
    let (read, inputs) = PluginRequest::read(&request.write(&folder).unwrap()).unwrap();
    assert_eq!((&read, read.keep), (&request, Keep::Map));
    let known = read.experiment.known().unwrap();
    assert_eq!(inputs.get(InputPurpose::Known, known).unwrap(), paths);
    assert_eq!(read.experiment.inputs(), [(InputPurpose::Known, known)]);
    assert_eq!(Settings::from(&read.experiment).or(read.settings()).keep, Some(Keep::Map));
    let missing = requested.request(&folder).unwrap_err().to_string();
    assert!(missing.contains("known") && missing.contains("Pass a readable file"), "{missing}");
}

#[test]
fn files_of_conflicting_settings_are_not_stored() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, file) = (InputFolder::new(temporary.path().join("inputs")), temporary.path().join("known"));
    std::fs::write(&file, crate::KnownPaths::default().to_bytes()).unwrap();
    let requested =
        Settings { known: Some(SettingsFile::File(file.clone())), events: Some(crate::EventSource::Tsc), ..Settings::default() };
    assert!(requested.request(&folder).unwrap_err().to_string().contains("--events cannot be combined with --residual"));
    assert!(!temporary.path().join("inputs").exists());
    let requested = Settings { weights: Some(SettingsFile::File(file)), ..Settings::default() };
    assert!(requested.request(&folder).unwrap_err().to_string().contains("weights"));
}

#[test]
fn builds_that_count_nothing_need_no_runtime() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = InputFolder::new(temporary.path());
    for (text, counts) in [("observe=trace", false), ("observe=addresses", false), ("observe=stream", true), ("", true)] {
        assert_eq!(parse_settings(text).request(&folder).unwrap().has_no_counters(), !counts, "{text}");
    }
}

#[test]
fn corrupt_and_missing_files_are_reported_with_advice() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = InputFolder::new(temporary.path());
    let identity = folder.put(b"content").unwrap();
    std::fs::write(folder.path(identity), b"changed").unwrap();
    assert!(matches!(folder.get(InputPurpose::Weights, identity), Err(InputError::Corrupt { .. })));
    let missing = folder.get(InputPurpose::Weights, crate::Identity([7; 16])).unwrap_err().to_string();
    assert!(missing.contains("--weights") && missing.contains("TRODDEN_CACHE"), "{missing}");
    let request = PluginRequest::default().write(&folder).unwrap();
    std::fs::write(&request, b"TRODEXP\x00").unwrap();
    assert!(PluginRequest::read(&request).unwrap_err().to_string().contains("an earlier version of trodden wrote it"));
}
