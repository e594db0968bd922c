//! Every kind alone, every refusal, and spellings there and back.

use super::exclusions::{SELECTIVE, SHARED_COUNTERS, TABLES};
use super::*;
use crate::observe::{Admission, EveryPath, KINDS, Kind, asked};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn settings(text: &str) -> Settings {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

const FILE: &str = "id:000102030405060708090a0b0c0d0e0f";

/// Settings that ask for a kind, and nothing else; none for the kind that is observed by default.
fn text_of(kind: &Kind) -> String {
    let texts = [
        "events=tsc".to_owned(),
        "observe=edge-profile".to_owned(),
        "observe=coverage".to_owned(),
        "observe=stream".to_owned(),
        "observe=addresses".to_owned(),
        "observe=trace".to_owned(),
        "when=bursts".to_owned(),
        format!("segments={FILE}"),
        format!("interesting={FILE}"),
        format!("known={FILE}"),
        format!("watched={FILE}"),
        format!("part={FILE} origin={}", &FILE[3..]),
        String::new(),
    ];
    let asks_for = |text: &&String| match asked(&settings(text)).collect::<Vec<_>>().as_slice() {
        [] => kind.option.contains("observe=counts"),
        [only] => only.is(kind),
        several => panic!("{text} asks for {several:?}"),
    };
    texts.iter().find(asks_for).unwrap_or_else(|| panic!("no settings ask for {kind:?}")).clone()
}

/// One more setting for each choice that kinds may refuse.
const SCHEMES: [&str; 4] = ["scheme=ppp", "scheme=pspp", "scheme=known-table", "scheme=spp"];

fn refusal(text: &str) -> Excluded {
    match Experiment::new(&settings(text)) {
        Err(ExperimentError::Excluded(refusal)) => refusal,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_kind_can_be_observed_alone_and_comes_back() {
    for kind in KINDS {
        let text = text_of(kind);
        let experiment = Experiment::new(&settings(&text)).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(experiment.observation().observed().kind().is(kind), "{text}: {experiment:?}");
    }
}

/// Pairs are refused with both names, unless one kind restricts the other.
#[test]
fn two_kinds_are_one_that_is_restricted_or_refused() {
    let mut restricted = Vec::new();
    for (at, one) in KINDS.iter().enumerate() {
        for other in &KINDS[at + 1..] {
            let both = settings(&text_of(one)).over(settings(&text_of(other)));
            // Two values of one setting cannot be said at once.
            if asked(&both).count() < 2 {
                continue;
            }
            match Experiment::new(&both) {
                Ok(experiment) => restricted.push((experiment.observation().observed().kind().option, both.to_string())),
                Err(ExperimentError::Excluded(refusal)) => {
                    assert_eq!((refusal.one, refusal.relation, refusal.other), (one.option, Relation::Excludes, other.option));
                    assert!(refusal.reason.contains(one.observes) && refusal.reason.contains(other.observes), "{refusal}");
                    assert!(!refusal.remedy.is_empty());
                }
                Err(other) => panic!("{both}: {other}"),
            }
        }
    }
    let kinds: Vec<&str> = restricted.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["--events", "--stream (observe=stream)", "a copy's part (part=FILE)"], "{restricted:?}");
}

#[test]
fn numberings_tables_and_shared_counters_are_as_each_kind_says() {
    for kind in KINDS {
        let text = text_of(kind);
        for (choice, admission, more) in [(TABLES, kind.tables, "table-slots=8"), (SHARED_COUNTERS, kind.shared_counters, "threads=atomic")]
        {
            let both = format!("{text} {more}");
            match admission {
                Admission::Admitted => assert!(Experiment::new(&settings(&both)).is_ok(), "{both}"),
                Admission::Refused { reason, remedy } => {
                    let refusal = refusal(&both);
                    assert_eq!((refusal.one, refusal.other, &*refusal.reason), (kind.option, choice.spelling, reason), "{both}");
                    assert!(refusal.to_string().ends_with(remedy) && !remedy.is_empty(), "{refusal}");
                }
            }
        }
        for scheme in SCHEMES {
            let both = format!("{text} {scheme}");
            let is_taken = matches!(settings(scheme).scheme, Some(ExperimentScheme::Interesting(s)) if kind.numberings.contains(&s));
            assert_eq!(Experiment::new(&settings(&both)).is_ok(), is_taken, "{both}");
            if !is_taken {
                let (one, other) = (refusal(&both).one, refusal(&both).other);
                assert!([one, other].contains(&SELECTIVE.spelling), "{both}: {one}, {other}");
            }
        }
    }
    // A stream of the functions that a set names has numbers of all paths, and a part is of all paths, or of unknown ones.
    assert_eq!(refusal(&format!("observe=stream interesting={FILE} scheme=ppp")).other, "--stream (observe=stream)");
    let part = format!("part={FILE} origin={} known={FILE}", &FILE[3..]);
    assert!(Experiment::new(&settings(&part)).is_ok());
    assert_eq!(refusal(&format!("{part} threads=atomic")).one, "--residual (known=FILE)");
}

/// A setting alone, without what it needs, and with what it excludes; and a text that says all it needs.
#[test]
fn every_rule_refuses_what_it_is_about_and_says_why() {
    let part = format!("part={FILE} origin={}", &FILE[3..]);
    let cases = [
        ("recorder=/tmp/%p".to_owned(), "recorder=/tmp/%p observe=stream".to_owned()),
        ("tail-merging=off".to_owned(), "tail-merging=off observe=addresses".to_owned()),
        (format!("time-limit=3 interesting={FILE} scheme=ppp"), format!("time-limit=3 interesting={FILE} scheme=ppp-optimal")),
        (format!("part={FILE}"), part.clone()),
        (format!("origin={}", &FILE[3..]), part.clone()),
        ("count-hits=on".to_owned(), format!("count-hits=on {part}")),
        (format!("count-hits=on {part} known={FILE}"), format!("{part} known={FILE}")),
        ("array-paths=3".to_owned(), "array-paths=3 table-slots=8".to_owned()),
    ];
    assert_eq!(cases.len(), exclusions::rules().count());
    for (rule, (broken, kept)) in exclusions::rules().zip(&cases) {
        let refusal = refusal(broken);
        assert_eq!((refusal.one, refusal.relation, refusal.other), (rule.one.spelling, rule.relation, rule.other.spelling), "{broken}");
        let said = refusal.to_string();
        assert!(said.contains(rule.reason) && said.ends_with(rule.remedy), "{said}");
        assert!(Experiment::new(&settings(kept)).is_ok(), "{kept}: {:?}", Experiment::new(&settings(kept)));
    }
}

/// What is refused by nothing is an experiment that says all that was asked for.
#[test]
fn what_is_built_says_what_was_asked_for() {
    let part = format!("part={FILE} origin={}", &FILE[3..]);
    let more = ["", "table-slots=8", "array-paths=3 table-slots=8", "threads=atomic", "scheme=ppp", "scheme=pspp", "scheme=ball-larus"];
    let kinds = KINDS.iter().map(|kind| text_of(kind)).chain([
        format!("observe=stream interesting={FILE}"),
        format!("events=tsc interesting={FILE}"),
        format!("{part} known={FILE}"),
        format!("{part} count-hits=on"),
        "observe=mcdc".to_owned(),
        "tail-merging=off observe=addresses".to_owned(),
        format!("time-limit=3 scheme=ppp-optimal interesting={FILE}"),
    ]);
    let mut built = 0;
    for text in kinds.flat_map(|kind| more.map(|more| format!("{kind} {more}"))) {
        let asked = settings(&format!("weights={FILE} {text}"));
        let Ok(experiment) = Experiment::new(&asked) else { continue };
        built += 1;
        let said = Settings::from(&experiment);
        // What was asked for over what is said changes nothing.
        assert_eq!(asked.clone().over(said.clone()), said, "{asked} becomes {said}");
        assert_eq!(Experiment::new(&said).as_ref(), Ok(&experiment), "{said}");
        assert_eq!(said.to_string().parse(), Ok(said.clone()));
        let bytes = postcard::to_allocvec(&experiment).unwrap();
        assert_eq!(postcard::from_bytes::<Experiment>(&bytes), Ok(experiment));
    }
    assert!(built > 2 * KINDS.len(), "{built}");
}

#[test]
fn bytes_of_what_makes_no_sense_are_no_experiment() {
    let bytes = postcard::to_allocvec(&settings("when=bursts table-slots=8")).unwrap();
    assert!(postcard::from_bytes::<Experiment>(&bytes).is_err());
    let bytes = postcard::to_allocvec(&settings("weights=/etc/passwd")).unwrap();
    assert!(postcard::from_bytes::<Experiment>(&bytes).is_err());
}

#[test]
fn what_is_not_said_is_as_by_default() {
    let default = Experiment::default();
    assert_eq!((default.observation(), default.is_sampled()), (Observation::EveryPath(EveryPath), false));
    assert_eq!((default.destination(), default.threads(), default.placement().max_paths), (OutputDestination::Array, Threads::Own, 4096));
    assert_eq!(default.to_string(), "scheme=ball-larus max-paths=4096 chords=on trip-counts=tight early=on reach=may-not-return");
    let known_table = Some(trodden_flow::NumberingScheme::KnownTable);
    let interesting = Experiment::new(&settings(&format!("interesting={FILE}"))).unwrap();
    assert!(interesting.interesting().is_some_and(|paths| paths.numbering == known_table), "{interesting}");
    let all = Experiment::new(&settings(&format!("interesting={FILE} scheme=ball-larus"))).unwrap();
    assert!(all.interesting().is_some_and(|paths| paths.numbering.is_none()), "{all}");
    assert_eq!(Experiment::new(&Settings::from(&all)), Ok(all));
}

#[test]
fn spellings_that_mean_nothing_are_named() {
    for wrong in
        ["chords", "chords=", "chords=maybe", "max-paths=0", "max-paths=16777217", "events=ticks", "rounds=on", "origin=0", "known="]
    {
        let error = format!("chords=on {wrong}").parse::<Settings>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{wrong}`")), "{error}");
        // A wrong value: those of the setting; a wrong setting: all of them.
        let key = wrong.split('=').next().filter(|key| wrong.contains('=') && *key != "rounds");
        let known = key.map_or_else(|| "trip-counts=on|tight|off".into(), |key| format!("{key} takes "));
        assert!(error.contains(&known), "{error}");
    }
    let bytes = OsStr::from_bytes(b"weights=\xff");
    assert_eq!(Settings::from_variable(bytes), Err(SpellingError::NotText));
}

#[test]
fn names_of_files_may_hold_any_bytes() {
    let name = Path::new(OsStr::from_bytes(b"a b\"c'd=%20\t\xff\n\xc3\xa9"));
    let said =
        Settings { weights: Some(SettingsFile::File(name.into())), known: Some(SettingsFile::File("id:x".into())), ..Settings::default() };
    let text = Settings { known: None, ..said.clone() }.to_string();
    assert_eq!(text, "weights=a%20b%22c%27d=%2520%09%FF%0A%C3%A9");
    assert_eq!(text.parse(), Ok(Settings { known: None, ..said.clone() }));
    let mut set = Settings::default();
    set.set("weights", name.as_os_str()).unwrap();
    assert_eq!(set, Settings { known: None, ..said });
}

#[test]
fn settings_win_over_others_one_by_one() {
    let over = settings("scheme=ball-larus max-paths=9").over(settings("max-paths=100 keep=map"));
    assert_eq!(over, settings("scheme=ball-larus max-paths=9 keep=map"));
}

#[test]
fn a_request_travels_with_its_files_by_their_content() {
    let place = tempfile::tempdir().unwrap();
    let folder = InputFolder::at(place.path().join("a b").join("inputs"));
    let file = place.path().join(OsStr::from_bytes(b"known \"paths\" \xff"));
    let paths = crate::KnownPaths::default().to_bytes();
    std::fs::write(&file, &paths).unwrap();
    let asked = Settings { known: Some(SettingsFile::File(file.clone())), keep: Some(Keep::Map), ..Settings::default() };
    let request = asked.clone().request(&folder).unwrap();
    std::fs::remove_file(&file).unwrap();
    let (read, beside) = PluginRequest::read(&request.write(&folder).unwrap()).unwrap();
    assert_eq!((&read, read.keep), (&request, Keep::Map));
    let known = read.experiment.known().unwrap();
    assert_eq!(beside.get(InputKind::Known, known).unwrap(), paths);
    assert_eq!(read.experiment.inputs(), [(InputKind::Known, known)]);
    assert_eq!(Settings::from(&read.experiment).over(read.settings()).keep, Some(Keep::Map));
    let missing = asked.request(&folder).unwrap_err().to_string();
    assert!(missing.contains("known") && missing.contains("give one that can"), "{missing}");
}

#[test]
fn nothing_is_stored_for_what_makes_no_sense() {
    let place = tempfile::tempdir().unwrap();
    let (folder, file) = (InputFolder::at(place.path().join("inputs")), place.path().join("known"));
    std::fs::write(&file, crate::KnownPaths::default().to_bytes()).unwrap();
    let asked = Settings { known: Some(SettingsFile::File(file.clone())), events: Some(crate::EventSource::Tsc), ..Settings::default() };
    assert!(asked.request(&folder).unwrap_err().to_string().contains("--events does not go together with --residual"));
    assert!(!place.path().join("inputs").exists());
    let asked = Settings { weights: Some(SettingsFile::File(file)), ..Settings::default() };
    assert!(asked.request(&folder).unwrap_err().to_string().contains("weights"));
}

#[test]
fn what_counts_nothing_needs_no_runtime() {
    let place = tempfile::tempdir().unwrap();
    let folder = InputFolder::at(place.path());
    for (text, counts) in [("observe=trace", false), ("observe=addresses", false), ("observe=stream", true), ("", true)] {
        assert_eq!(settings(text).request(&folder).unwrap().counts_nothing(), !counts, "{text}");
    }
}

#[test]
fn damaged_and_missing_files_are_named_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let folder = InputFolder::at(place.path());
    let identity = folder.put(b"content").unwrap();
    std::fs::write(folder.path(identity), b"changed").unwrap();
    assert!(matches!(folder.get(InputKind::Weights, identity), Err(InputError::Damaged { .. })));
    let missing = folder.get(InputKind::Weights, crate::Identity([7; 16])).unwrap_err().to_string();
    assert!(missing.contains("--weights") && missing.contains("TRODDEN_CACHE"), "{missing}");
    let request = PluginRequest::default().write(&folder).unwrap();
    std::fs::write(&request, b"TRODEXP\x00").unwrap();
    assert!(PluginRequest::read(&request).unwrap_err().to_string().contains("an earlier version of trodden wrote it"));
}
