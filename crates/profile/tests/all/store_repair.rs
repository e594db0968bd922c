//! Tests that the run store is repaired if its index or its profiles are lost, corrupt, or changed by the user.

use crate::common::profile;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trodden_profile::store::FOLDER;
use trodden_profile::{ProcessEnding, ProfileError, RunEntry, RunStore};

/// Creates a store of three runs. The first was recorded in a suite, the second was moved to a suite later, and the third has the name of a
/// test.
fn create_store_of_three_runs() -> (TempDir, Vec<RunEntry>) {
    let project = tempfile::tempdir().unwrap();
    let store = RunStore::create(project.path()).unwrap();
    for seed in 0..3 {
        let mut profile = profile(0, seed);
        profile.run.suite = (seed == 0).then(|| "nightly".to_string());
        profile.run.test = (seed == 2).then(|| "parser::empty".to_string());
        profile.run.ending = Some(if seed == 1 { ProcessEnding::Signal(9) } else { ProcessEnding::Exit(3) });
        store.add_run(&profile).unwrap();
    }
    store.set_suite(2, Some("smoke")).unwrap();
    let runs = store.list().unwrap();
    assert_eq!(runs.iter().map(|r| r.run.suite.as_deref()).collect::<Vec<_>>(), [Some("nightly"), Some("smoke"), None]);
    (project, runs)
}

fn path_in_store(project: &TempDir, name: &str) -> PathBuf {
    project.path().join(FOLDER).join(name)
}

fn read_profile_files(project: &TempDir) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(path_in_store(project, "profiles")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

/// Opens the store. Also returns the message about the repair of its index.
fn open_store(project: &TempDir) -> (RunStore, Option<String>) {
    let store = RunStore::find(project.path()).unwrap();
    let said = store.index_repair().map(ToString::to_string);
    (store, said)
}

fn remove_index(project: &TempDir) {
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        let _ = fs::remove_file(path_in_store(project, name));
    }
}

#[test]
fn lost_index_is_rebuilt_and_no_profile_is_overwritten() {
    for keep_log in [false, true] {
        let (project, runs) = create_store_of_three_runs();
        let before = read_profile_files(&project);
        match keep_log {
            true => {
                fs::remove_file(path_in_store(&project, "runs.db")).unwrap();
                fs::write(path_in_store(&project, "runs.db-wal"), "left").unwrap();
                fs::write(path_in_store(&project, "runs.db-journal"), "left").unwrap();
            }
            false => remove_index(&project),
        }
        let recorder = RunStore::create(project.path()).unwrap();
        let said = recorder.index_repair().expect("a repair is reported").to_string();
        assert!(said.contains("the index runs.db was missing, and was rebuilt from the profiles (3 runs)"), "{said}");
        assert!(!said.contains('\n'));
        assert_eq!(recorder.list().unwrap(), runs);
        assert_eq!(recorder.add_run(&profile(1, 7)).unwrap().number, 4);
        assert_eq!(read_profile_files(&project)[..3], before);
        let (store, said) = open_store(&project);
        assert_eq!((store.list().unwrap().len(), said), (4, None));
    }
}

#[test]
fn corrupt_index_is_rebuilt() {
    let (project, runs) = create_store_of_three_runs();
    let database = path_in_store(&project, "runs.db");
    drop(rusqlite::Connection::open(&database).unwrap().pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())));
    let intact = fs::read(&database).unwrap();
    let page = 4096;
    assert!(intact.len() > 5 * page);
    let mut corrupted: Vec<(String, Vec<u8>)> = vec![("text".into(), vec![b'x'; 9000])];
    for length in [0, 1, 99, 100, page - 1, page, 2 * page, intact.len() / 2, intact.len() - page, intact.len() - 1] {
        corrupted.push((format!("cut to {length}"), intact[..length].to_vec()));
    }
    for lost in 0..intact.len() / page {
        for byte in [0, 0xff] {
            let mut bytes = intact.clone();
            bytes[lost * page..][..page].fill(byte);
            corrupted.push((format!("page {lost} is {byte}"), bytes));
        }
    }
    let mut rebuilt = 0;
    for (what, bytes) in corrupted {
        remove_index(&project);
        fs::write(&database, bytes).unwrap();
        let (store, said) = open_store(&project);
        assert_eq!(store.list().unwrap(), runs, "{what}: {said:?}");
        assert_eq!(store.suites().unwrap(), [("nightly".to_string(), 1), ("smoke".to_string(), 1)], "{what}");
        rebuilt += usize::from(said.is_some_and(|s| s.contains("rebuilt from the profiles (3 runs)")));
        drop(store);
        assert_eq!(open_store(&project).1, None, "{what}");
    }
    assert!(rebuilt > 20, "{rebuilt}");
}

#[test]
fn index_with_other_tables_is_rebuilt() {
    let (project, runs) = create_store_of_three_runs();
    for change in ["DROP TABLE run_builds", "ALTER TABLE runs DROP COLUMN test", "DROP TABLE unreadable", "DROP TABLE runs"] {
        let database = rusqlite::Connection::open(path_in_store(&project, "runs.db")).unwrap();
        database.pragma_update(None, "foreign_keys", false).unwrap();
        database.execute_batch(change).unwrap();
        drop(database);
        let (store, said) = open_store(&project);
        assert!(said.as_deref().is_some_and(|s| s.contains("was corrupt")), "{change}: {said:?}");
        assert_eq!(store.list().unwrap(), runs, "{change}");
    }
}

/// A recorder that is killed may leave a profile that is not in the index.
#[test]
fn profiles_of_killed_recorders_are_listed() {
    let (project, mut runs) = create_store_of_three_runs();
    let bytes = fs::read(&runs[0].profile).unwrap();
    fs::write(path_in_store(&project, "profiles/000004.trodden"), &bytes).unwrap();
    fs::write(path_in_store(&project, "profiles/000017.trodden"), &bytes).unwrap();
    // The store ignores files with these names.
    for name in ["saved.trodden", "5.trodden", "000000.trodden", "000006.json", "99999999999999999999.trodden"] {
        fs::write(path_in_store(&project, "profiles").join(name), &bytes).unwrap();
    }
    let (store, said) = open_store(&project);
    assert!(
        said.as_deref().is_some_and(|s| s.ends_with("the index runs.db differed from the profiles and was updated: 2 runs added")),
        "{said:?}"
    );
    for number in [4, 17] {
        runs.push(RunEntry { number, profile: path_in_store(&project, &format!("profiles/{number:06}.trodden")), ..runs[0].clone() });
    }
    assert_eq!(store.list().unwrap(), runs);
    assert_eq!(store.add_run(&profile(1, 7)).unwrap().number, 18);
    assert_eq!(open_store(&project).1, None);
}

#[test]
fn runs_whose_profiles_were_deleted_are_not_listed() {
    let (project, runs) = create_store_of_three_runs();
    fs::remove_file(&runs[2].profile).unwrap();
    fs::remove_file(&runs[0].profile).unwrap();
    let (store, said) = open_store(&project);
    assert!(said.as_deref().is_some_and(|s| s.contains("2 runs removed, because the profile no longer exists")), "{said:?}");
    assert_eq!(store.list().unwrap(), runs[1..2]);
    assert_eq!(store.suites().unwrap(), [("smoke".to_string(), 1)]);
    assert_eq!(store.add_run(&profile(1, 7)).unwrap().number, 4, "numbers are not reused");
}

#[test]
fn new_run_does_not_get_the_streams_of_a_lost_one() {
    let (project, _) = create_store_of_three_runs();
    fs::create_dir_all(path_in_store(&project, "streams/000009")).unwrap();
    remove_index(&project);
    assert_eq!(RunStore::create(project.path()).unwrap().add_run(&profile(1, 7)).unwrap().number, 10);
}

#[test]
fn truncated_profiles_are_reported_and_kept() {
    let (project, runs) = create_store_of_three_runs();
    let whole = fs::read(&runs[1].profile).unwrap();
    for length in [0, 10, 16, 60, whole.len() / 2, whole.len() - 1] {
        remove_index(&project);
        fs::write(&runs[1].profile, &whole[..length]).unwrap();
        let (store, said) = open_store(&project);
        assert!(
            said.as_deref().is_some_and(|s| s.contains("unreadable profiles: ")
                && ["000002.trodden: ", "000002.trodden is not a stored profile", "000002.trodden is corrupt"]
                    .iter()
                    .any(|text| s.contains(text))),
            "{length}: {said:?}"
        );
        assert_eq!(store.list().unwrap().iter().map(|r| r.number).collect::<Vec<_>>(), [1, 3]);
        let unreadable = store.unreadable_profiles().unwrap();
        assert_eq!(unreadable.iter().map(|u| &u.path).collect::<Vec<_>>(), [&runs[1].profile]);
        assert!(matches!(store.get("2"), Err(ProfileError::NoRun { .. })));
        let (store, said) = open_store(&project);
        assert_eq!(said, None, "it is reported once");
        let number = store.add_run(&profile(1, 7)).unwrap().number;
        assert_eq!(number, 4);
        store.remove(number).unwrap();
        assert_eq!(fs::read(&runs[1].profile).unwrap(), whole[..length]);
    }
    fs::write(&runs[1].profile, &whole).unwrap();
    let (store, said) = open_store(&project);
    assert!(said.as_deref().is_some_and(|s| s.contains("1 run added")), "{said:?}");
    assert_eq!(store.list().unwrap(), runs);
    assert!(store.unreadable_profiles().unwrap().is_empty());
}

#[test]
fn entries_that_are_not_files_are_reported_and_not_read() {
    let (project, runs) = create_store_of_three_runs();
    fs::create_dir(path_in_store(&project, "profiles/000004.trodden")).unwrap();
    let pipe = path_in_store(&project, "profiles/000005.trodden");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    std::os::unix::fs::symlink("/nowhere", path_in_store(&project, "profiles/000006.trodden")).unwrap();
    let (store, said) = open_store(&project);
    assert!(said.as_deref().is_some_and(|s| s.contains("not a regular file; and 2 more")), "{said:?}");
    assert_eq!(store.list().unwrap(), runs);
    assert_eq!(store.add_run(&profile(1, 7)).unwrap().number, 7);
    assert_eq!(open_store(&project).1, None);
}

/// If the index cannot be created in the store, it is created in a temporary folder, and the runs can still be read.
#[test]
fn unwritable_store_without_an_index_can_be_read() {
    let (project, runs) = create_store_of_three_runs();
    remove_index(&project);
    std::os::unix::fs::symlink("nowhere/runs.db", path_in_store(&project, "runs.db")).unwrap();
    let (store, said) = open_store(&project);
    assert!(said.as_deref().is_some_and(|s| s.contains("3 runs")), "{said:?}");
    assert_eq!(store.list().unwrap(), runs);
    assert!(matches!(store.remove(1), Err(ProfileError::StoreUnwritable { .. })));
    assert!(matches!(store.set_suite(1, None), Err(ProfileError::StoreUnwritable { .. })));
    assert_eq!(read_profile_files(&project).len(), 3);
}

/// In version 4 of the store, only the index contained suites, and runs were in the index before their profiles were written.
#[test]
fn upgrade_adds_suites_to_profiles() {
    let (project, runs) = create_store_of_three_runs();
    let database = rusqlite::Connection::open(path_in_store(&project, "runs.db")).unwrap();
    let older = "DROP TABLE unreadable; PRAGMA user_version = 4;
        INSERT INTO suites (name) VALUES ('late'); UPDATE runs SET suite = (SELECT id FROM suites WHERE name = 'late') WHERE number = 3;
        UPDATE runs SET suite = NULL WHERE number = 1;
        INSERT INTO runs (command, directory, host, started_ns, duration_ns, merged_runs, recorder) VALUES ('[]', '', '', 0, 0, 1, '');";
    database.execute_batch(older).unwrap();
    drop(database);
    let suites = |store: &RunStore| store.list().unwrap().into_iter().map(|r| (r.number, r.run.suite)).collect::<Vec<_>>();
    let expected = [(1, None), (2, Some("smoke".to_string())), (3, Some("late".to_string()))];
    let (store, said) = open_store(&project);
    assert_eq!((suites(&store), said), (expected.to_vec(), None));
    assert_eq!(store.load(&runs[2]).unwrap().run.suite.as_deref(), Some("late"));
    remove_index(&project);
    assert_eq!(suites(&open_store(&project).0), expected);
    assert_eq!(open_store(&project).0.add_run(&profile(1, 7)).unwrap().number, 4);
}

/// If the index is deleted while recorders use it, they choose the same run numbers, but do not overwrite each other's profiles.
#[test]
fn recorders_with_deleted_indexes_do_not_overwrite_profiles() {
    let project = tempfile::tempdir().unwrap();
    let mut stores = Vec::new();
    let mut given = Vec::new();
    for round in 0..4 {
        stores.push(RunStore::create(project.path()).unwrap());
        remove_index(&project);
        // Stores that were opened in earlier rounds still use their deleted indexes.
        for (at, store) in stores.iter().enumerate() {
            let seed = 10 * round + at as u64;
            given.push((store.add_run(&profile(0, seed)).unwrap().number, seed));
        }
    }
    drop(stores);
    let numbers: BTreeSet<u64> = given.iter().map(|g| g.0).collect();
    assert_eq!(numbers, (1..=10).collect());
    let (store, said) = open_store(&project);
    assert!(said.is_some_and(|s| s.contains("10 runs")));
    for (number, seed) in given {
        assert_eq!(store.load(&store.get(&number.to_string()).unwrap()).unwrap(), profile(0, seed));
    }
    assert!(store.find_leftover_files().unwrap().is_empty());
}

fn permission_bits(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn store_is_private_unless_its_folder_is_shared() {
    use std::os::unix::fs::PermissionsExt;
    for (own, folder, file) in
        [(None, 0o700, 0o600), (Some(0o2770), 0o2770, 0o660), (Some(0o755), 0o755, 0o644), (Some(0o500), 0o500, 0o600)]
    {
        let project = tempfile::tempdir().unwrap();
        if let Some(mode) = own {
            fs::create_dir(path_in_store(&project, "")).unwrap();
            fs::set_permissions(path_in_store(&project, ""), fs::Permissions::from_mode(mode)).unwrap();
        }
        let store = match RunStore::create(project.path()) {
            Err(_) if own == Some(0o500) && !rustix::process::geteuid().is_root() => continue,
            other => other.unwrap(),
        };
        let path = store.add_run(&profile(0, 1)).unwrap().profile;
        store.set_suite(1, Some("smoke")).unwrap();
        for (path, expected) in [(path_in_store(&project, ""), folder), (path_in_store(&project, "profiles"), folder), (path, file)] {
            assert_eq!(permission_bits(&path), expected, "{}", path.display());
        }
        for name in ["runs.db", "runs.db-wal", ".gitignore"] {
            assert_eq!(permission_bits(&path_in_store(&project, name)), file, "{name}");
        }
    }
}
