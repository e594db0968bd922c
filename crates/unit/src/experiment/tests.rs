//! Every choice alone, every exclusion, and spellings there and back.

use super::exclusions::{EXCLUSIONS, ExperimentChoice, Relation};
use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn settings(text: &str) -> Settings {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

const FILE: &str = "id:000102030405060708090a0b0c0d0e0f";

/// A text that makes a choice, and others only where it cannot be made without.
fn text_of(choice: ExperimentChoice) -> String {
    match choice {
        ExperimentChoice::Selective => format!("scheme=spp interesting={FILE}"),
        ExperimentChoice::Optimal => format!("scheme=ppp-optimal interesting={FILE}"),
        ExperimentChoice::TimeLimit => format!("time-limit=3 scheme=ppp-optimal interesting={FILE}"),
        ExperimentChoice::Weights => format!("weights={FILE}"),
        ExperimentChoice::Interesting => format!("interesting={FILE}"),
        ExperimentChoice::Segments => format!("segments={FILE}"),
        ExperimentChoice::Unknown => format!("known={FILE}"),
        ExperimentChoice::Watched => format!("watched={FILE}"),
        ExperimentChoice::Part | ExperimentChoice::Origin => format!("part={FILE} origin={}", &FILE[3..]),
        ExperimentChoice::Hits => format!("count-hits=on part={FILE} origin={}", &FILE[3..]),
        ExperimentChoice::Events => "events=tsc".into(),
        ExperimentChoice::EdgeProfile => "observe=edge-profile".into(),
        ExperimentChoice::Coverage => "observe=coverage".into(),
        ExperimentChoice::Stream => "observe=stream".into(),
        ExperimentChoice::Recorder => "recorder=/tmp/%p observe=stream".into(),
        ExperimentChoice::Addresses => "observe=addresses".into(),
        ExperimentChoice::TailMerging => "tail-merging=off observe=addresses".into(),
        ExperimentChoice::Trace => "observe=trace".into(),
        ExperimentChoice::Bursts => "when=bursts".into(),
        ExperimentChoice::Tables => "table-slots=8".into(),
        ExperimentChoice::ArrayPaths => "array-paths=3 table-slots=8".into(),
        ExperimentChoice::Atomic => "threads=atomic".into(),
    }
}

/// A setting alone, without what it needs.
fn bare(choice: ExperimentChoice) -> String {
    text_of(choice).split(' ').next().unwrap().to_owned()
}

#[test]
fn every_choice_can_be_made_by_itself() {
    for entry in EXCLUSIONS {
        let text = text_of(entry.one);
        assert!(entry.one.is_made(&settings(&text)), "{text}");
        assert!(Experiment::new(&settings(&text)).is_ok(), "{text}: {:?}", Experiment::new(&settings(&text)));
    }
}

#[test]
fn every_exclusion_refuses_what_it_is_about_and_says_why() {
    for entry in EXCLUSIONS {
        let text = match entry.other {
            Relation::Needs(ExperimentChoice::Part) if entry.one == ExperimentChoice::Origin => format!("origin={}", &FILE[3..]),
            Relation::Needs(_) => bare(entry.one),
            // What the choices need besides may be excluded, too: only they themselves are made.
            Relation::Excludes(other) => {
                let (one, two) = (settings(&bare(entry.one)), settings(&bare(other)));
                one.over(two).to_string()
            }
        };
        let made = settings(&text);
        let holds = |e: &exclusions::Exclusion| match e.other {
            Relation::Excludes(other) => e.one.is_made(&made) && other.is_made(&made),
            Relation::Needs(other) => e.one.is_made(&made) && !other.is_made(&made),
        };
        assert!(holds(entry), "{text} does not break {entry:?}");
        let Err(ExperimentError::Excluded(Excluded(found))) = Experiment::new(&made) else { panic!("{text} is built: {entry:?}") };
        assert!(holds(found), "{text}: {found:?}");
        let said = Excluded(entry).to_string();
        assert!(said.contains(entry.one.spelling()) && said.contains(entry.reason) && said.contains(entry.remedy), "{said}");
    }
}

/// What is on no entry of the list is an experiment that says all that was asked for.
#[test]
fn all_pairs_are_excluded_or_come_back() {
    let choices: Vec<ExperimentChoice> = EXCLUSIONS.iter().map(|e| e.one).chain([ExperimentChoice::Weights]).collect();
    let mut built = 0;
    for one in &choices {
        for other in &choices {
            let asked = settings(&text_of(*one)).over(settings(&text_of(*other)));
            let Ok(experiment) = Experiment::new(&asked) else { continue };
            built += 1;
            let said = Settings::from(&experiment);
            // Where a flight recorder writes is asked of the plugin, and no part of what is observed.
            for choice in [one, other].into_iter().filter(|choice| **choice != ExperimentChoice::Recorder) {
                assert_eq!(choice.is_made(&said), choice.is_made(&asked), "{choice:?}: {asked} becomes {said}");
            }
            assert_eq!(Experiment::new(&said).as_ref(), Ok(&experiment), "{said}");
            assert_eq!(said.to_string().parse(), Ok(said.clone()));
            let bytes = postcard::to_allocvec(&experiment).unwrap();
            assert_eq!(postcard::from_bytes::<Experiment>(&bytes), Ok(experiment));
        }
    }
    assert!(built > choices.len(), "{built}");
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
    assert_eq!((default.paths(), default.observation(), default.is_sampled()), (Paths::All, Observation::Counts, false));
    assert_eq!((default.destination(), default.threads(), default.placement().max_paths), (OutputDestination::Array, Threads::Own, 4096));
    assert_eq!(default.to_string(), "scheme=ball-larus max-paths=4096 chords=on trip-counts=tight early=on reach=may-not-return");
    let known_table = Some(trodden_flow::NumberingScheme::KnownTable);
    let interesting = Experiment::new(&settings(&format!("interesting={FILE}"))).unwrap();
    assert!(matches!(interesting.paths(), Paths::Interesting { numbering, .. } if numbering == known_table), "{interesting}");
    let all = Experiment::new(&settings(&format!("interesting={FILE} scheme=ball-larus"))).unwrap();
    assert!(matches!(all.paths(), Paths::Interesting { numbering: None, .. }), "{all}");
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
