//! Tests of the run store, with one process and with several processes at the same time.

use crate::common::profile;
use trodden_profile::store::FOLDER;
use trodden_profile::{ProcessEnding, ProfileError, RunStore};

fn select_numbers(store: &RunStore, wanted: &str) -> Vec<u64> {
    store.select(wanted).unwrap().iter().map(|r| r.number).collect()
}

#[test]
fn unwritable_store_can_be_read() {
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join(FOLDER);
    let store = RunStore::create(project.path()).unwrap();
    let first = store.add_run(&profile(0, 1)).unwrap();
    // This run is still in SQLite's write-ahead log, and not yet in the database file.
    store.add_run(&profile(0, 2)).unwrap();
    let unwritable = || {
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join(FOLDER)).unwrap();
        for name in ["runs.db", "runs.db-wal"] {
            std::fs::copy(folder.join(name), copy.path().join(FOLDER).join(name)).unwrap();
        }
        std::fs::create_dir(copy.path().join(FOLDER).join("profiles")).unwrap();
        for name in ["profiles/000001.trodden", "profiles/000002.trodden"] {
            std::fs::copy(folder.join(name), copy.path().join(FOLDER).join(name)).unwrap();
        }
        // SQLite cannot open the database if there is a folder in place of its shared-memory file.
        std::fs::create_dir(copy.path().join(FOLDER).join("runs.db-shm")).unwrap();
        copy
    };
    let copy = unwritable();
    let copied = RunStore::find(copy.path()).unwrap();
    assert_eq!((select_numbers(&copied, "last"), copied.index_repair()), (vec![2], None));
    assert_eq!(copied.get("1").unwrap().run, first.run);
    for error in [copied.set_suite(1, Some("smoke")).unwrap_err(), RunStore::create(unwritable().path()).unwrap_err()] {
        assert!(matches!(error, ProfileError::StoreUnwritable { .. }), "{error}");
        assert!(error.to_string().contains("--no-store"), "{error}");
    }
}

#[test]
fn runs_are_numbered_listed_selected_and_removed() {
    let project = tempfile::tempdir().unwrap();
    let store = RunStore::create(project.path()).unwrap();
    assert!(store.list().unwrap().is_empty());
    let error = store.select("last").unwrap_err().to_string();
    assert!(error.contains("the store is empty"), "{error}");
    for seed in 0..4 {
        let mut profile = profile(0, seed);
        profile.run.ending = Some(if seed == 2 { ProcessEnding::Signal(9) } else { ProcessEnding::Exit(3) });
        profile.run.suite = (seed > 1).then(|| "nightly".to_string());
        let entry = store.add_run(&profile).unwrap();
        assert_eq!((entry.number, &entry.run), (seed + 1, &profile.run));
        assert_eq!(entry.bytes, entry.profile.metadata().unwrap().len());
        assert_eq!(entry.images.len(), 2);
        assert_eq!(entry.images[0].identity, profile.images[0].identity);
        assert_eq!(entry.images[0].build_id.as_deref(), Some("abcdef"));
        assert_eq!(store.load(&entry).unwrap(), profile);
    }
    assert!(project.path().join(FOLDER).join("profiles/000001.trodden").is_file());
    assert_eq!(select_numbers(&store, "last"), [4]);
    assert_eq!(select_numbers(&store, "last~2"), [2]);
    assert_eq!(select_numbers(&store, "#3"), [3]);
    assert_eq!(select_numbers(&store, "nightly"), [3, 4]);
    assert_eq!(store.get("nightly").unwrap().number, 4);
    assert_eq!(store.suites().unwrap(), [("nightly".to_string(), 2)]);
    store.set_suite(1, Some("smoke")).unwrap();
    store.set_suite(3, None).unwrap();
    assert_eq!(store.load(&store.get("1").unwrap()).unwrap().run.suite.as_deref(), Some("smoke"));
    assert_eq!(select_numbers(&store, "nightly"), [4]);
    store.remove(4).unwrap();
    assert!(!project.path().join(FOLDER).join("profiles/000004.trodden").exists());
    let error = store.select("nightly").unwrap_err().to_string();
    assert!(error.contains("no run or suite `nightly`; there are 3 runs, 1 to 3, and suites smoke"), "{error}");
    assert_eq!(store.add_run(&profile(1, 1)).unwrap().number, 5, "numbers are not reused");
    for bad in ["last", "last~3", "12", "#12", " ", "a\nb"] {
        assert!(matches!(store.set_suite(1, Some(bad)), Err(ProfileError::SuiteName(_))), "{bad}");
    }
    assert!(matches!(store.remove(77), Err(ProfileError::NoRun { .. })));
}

#[test]
fn store_is_found_from_subfolders() {
    let project = tempfile::tempdir().unwrap();
    let below = project.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    match RunStore::find(&below) {
        Err(error) => assert!(matches!(error, ProfileError::NoStore { .. }), "{error}"),
        Ok(store) => assert!(!store.folder().starts_with(project.path()), "the temporary folder is not in a store"),
    }
    let number = RunStore::create(project.path()).unwrap().add_run(&profile(0, 1)).unwrap().number;
    let store = RunStore::find(&below).unwrap();
    assert_eq!(store.folder(), project.path().join(FOLDER));
    assert_eq!(store.get("last").unwrap().number, number);
}

#[test]
fn several_processes_can_record_at_the_same_time() {
    let project = tempfile::tempdir().unwrap();
    let (threads, each) = (8, 12);
    let mut given: Vec<u64> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let project = project.path();
            // Each thread opens the store itself, as a process would. The first threads also create it.
            scope.spawn(move || {
                let add = |i| RunStore::create(project).unwrap().add_run(&profile(0, 100 * thread + i)).unwrap().number;
                (0..each).map(add).collect::<Vec<_>>()
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        handles.into_iter().flat_map(|h| h.join().unwrap()).collect()
    });
    given.sort();
    assert_eq!(given, (1..=threads * each).collect::<Vec<_>>());
    let store = RunStore::find(project.path()).unwrap();
    let runs = store.list().unwrap();
    assert_eq!(runs.len(), given.len());
    runs.iter().for_each(|run| drop(store.load(run).unwrap()));
}

#[test]
fn run_whose_profile_cannot_be_written_is_not_listed() {
    let project = tempfile::tempdir().unwrap();
    let store = RunStore::create(project.path()).unwrap();
    std::fs::remove_dir(store.folder().join("profiles")).unwrap();
    std::fs::write(store.folder().join("profiles"), "in the way").unwrap();
    let error = store.add_run(&profile(0, 1)).unwrap_err().to_string();
    assert!(error.starts_with("cannot write "), "{error}");
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn store_of_newer_version_is_rejected() {
    let project = tempfile::tempdir().unwrap();
    let folder = RunStore::create(project.path()).unwrap().folder().to_owned();
    let database = rusqlite::Connection::open(folder.join("runs.db")).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let error = RunStore::open(&folder).unwrap_err();
    assert!(matches!(error, ProfileError::Version { found: 99, known: 5, .. }), "{error}");
}

#[test]
fn removing_runs_keeps_files_outside_the_store() {
    let project = tempfile::tempdir().unwrap();
    let store = RunStore::create(project.path()).unwrap();
    let precious = project.path().join("precious");
    std::fs::write(&precious, "text").unwrap();
    for name in ["../precious", precious.to_str().unwrap(), "profiles/../../precious", "runs.db"] {
        let number = store.add_run(&profile(1, 1)).unwrap().number;
        let database = rusqlite::Connection::open(store.folder().join("runs.db")).unwrap();
        database.execute("UPDATE runs SET profile = ?1 WHERE number = ?2", rusqlite::params![name, number as i64]).unwrap();
        assert_eq!(store.load(&store.get(&number.to_string()).unwrap()).unwrap(), profile(1, 1));
        store.remove(number).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
    assert!(store.folder().join("runs.db").is_file());
}

#[test]
fn files_of_killed_recorders_are_found() {
    let project = tempfile::tempdir().unwrap();
    let store = RunStore::create(project.path()).unwrap();
    store.add_run(&profile(1, 1)).unwrap();
    let at = |name: &str| store.folder().join(name);
    std::fs::create_dir_all(at("raw-left/5")).unwrap();
    std::fs::write(at("raw-left/5/a.raw"), vec![1; 5000]).unwrap();
    std::fs::create_dir(at("raw-used")).unwrap();
    let used = std::fs::File::open(at("raw-used")).unwrap();
    used.lock().unwrap();
    std::fs::write(at("profiles/.profile-half"), "half").unwrap();
    std::os::unix::fs::symlink("/etc", at("raw-link")).unwrap();
    let left = store.find_leftover_files().unwrap();
    assert_eq!(left.iter().map(|l| l.path.clone()).collect::<Vec<_>>(), [at("profiles/.profile-half"), at("raw-left")]);
    assert!(left[1].bytes >= 5000, "{left:?}");
    drop(used);
    assert_eq!(store.find_leftover_files().unwrap().len(), 3);
}
