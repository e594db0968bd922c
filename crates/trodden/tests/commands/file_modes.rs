//! Permissions of the files that trodden writes. Only their owner may read files with command lines, counts or recordings, unless the
//! folder of the run store is shared. Programs that change their user must be counted nevertheless.

use crate::place::{Place, must, trodden};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::RunStore;

const PROGRAM: &str = "
    #include <stdio.h>
    __attribute__((noinline)) int half(int n) { if (n % 2) return 3 * n; return n / 2; }
    int main(void) { int i, s = 0; for (i = 0; i < 5; i++) s += half(i); printf(\"%d\\n\", s); return 0; }
";

/// A program that changes its user and then counts in `main`, in a child of `fork`, and in a thread.
const USER_CHANGING_PROGRAM: &str = "
    #include <pthread.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    __attribute__((noinline)) int before(void) { return getpid(); }
    __attribute__((noinline)) int after(void) { return getpid(); }
    __attribute__((noinline)) int child(void) { return getpid(); }
    __attribute__((noinline)) void *thread(void *a) { return a; }
    int main(void) {
        int status; pthread_t t;
        before();
        if (setgid(65534) || setuid(65534)) return 1;
        after();
        if (!fork()) { child(); _exit(0); }
        if (wait(&status) < 0 || status) return 2;
        if (pthread_create(&t, 0, thread, 0) || pthread_join(t, 0)) return 3;
        return 0;
    }
";

fn read_mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

/// Returns all files and folders below a folder, except links.
fn list_files_and_folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if found[at].is_dir() && !found[at].is_symlink() {
            found.extend(fs::read_dir(&found[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found.retain(|path| !path.is_symlink());
    found
}

fn compile_program(source: &str, options: &[&str]) -> Place {
    let place = Place::new();
    place.write("prog.c", source);
    must(place.command(trodden()).arg("build").args(options).args("-- cc -O1 -pthread prog.c -o prog".split(' ')));
    must(place.command("cc").args(["-O1", "-pthread", "prog.c", "-o", "plain"]));
    place
}

/// Creates a command with a umask that would let everybody read new files.
fn command_with_open_umask(place: &Place, command_line: &str) -> Command {
    let mut command = place.command("sh");
    command.args(["-c", &format!("umask 0022; exec {command_line}")]);
    command
}

#[test]
fn only_the_owner_can_read_stores_profiles_and_raw_files() {
    let place = compile_program(PROGRAM, &[]);
    let trodden = trodden();
    let trodden = trodden.display();
    place.write("old.trodden", "something that all may read");
    fs::set_permissions(place.path("old.trodden"), fs::Permissions::from_mode(0o644)).unwrap();
    must(&mut command_with_open_umask(&place, &format!("{trodden} record -- ./prog --password=secret")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} record --suite tests --output old.trodden -- ./prog")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} record --no-store --output new.trodden -- ./prog")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} merge --output sum.trodden new.trodden old.trodden")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} runs suite nightly 1")));
    must(command_with_open_umask(&place, "./prog").env("TRODDEN_OUTPUT", place.path("counts/%p.raw")));
    for path in list_files_and_folders(&place.path(".trodden")).into_iter().chain(list_files_and_folders(&place.path("counts"))) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(read_mode(&path), expected, "{}", path.display());
    }
    assert!(
        list_files_and_folders(&place.path("counts")).len() == 2 && list_files_and_folders(&place.path(".trodden/profiles")).len() == 3
    );
    for name in ["old.trodden", "new.trodden", "sum.trodden"] {
        assert_eq!(read_mode(&place.path(name)), 0o600, "{name}");
    }
    // The permissions of exported files follow the umask.
    must(&mut command_with_open_umask(&place, &format!("{trodden} report 1 --html page.html")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} export lcov 1 -o lines.info")));
    for name in ["page.html", "lines.info"] {
        assert_eq!(read_mode(&place.path(name)), 0o644, "{name}");
    }
}

#[test]
fn only_the_owner_can_read_streams() {
    let place = compile_program(PROGRAM, &["--stream"]);
    let trodden = trodden();
    let trodden = trodden.display();
    must(&mut command_with_open_umask(&place, &format!("{trodden} record --whole-program -- ./prog")));
    must(&mut command_with_open_umask(&place, &format!("{trodden} record --last 50 -- ./prog")));
    let files = list_files_and_folders(&place.path(".trodden"));
    for extension in ["log", "stream"] {
        assert!(files.iter().any(|path| path.extension().is_some_and(|e| e == extension)), "{files:?}");
    }
    for path in files {
        assert_eq!(read_mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn store_is_shared_if_its_folder_is() {
    let place = compile_program(PROGRAM, &["--stream"]);
    fs::create_dir(place.path(".trodden")).unwrap();
    fs::set_permissions(place.path(".trodden"), fs::Permissions::from_mode(0o770)).unwrap();
    let trodden = trodden();
    must(&mut command_with_open_umask(&place, &format!("{} record --whole-program -- ./prog", trodden.display())));
    for path in list_files_and_folders(&place.path(".trodden")) {
        assert_eq!(read_mode(&path), if path.is_dir() { 0o770 } else { 0o660 }, "{}", path.display());
    }
}

/// Looks at the temporary files that exist while a command runs.
#[test]
fn only_the_owner_can_read_temporary_files() {
    let place = compile_program(PROGRAM, &[]);
    fs::create_dir(place.path("tmp")).unwrap();
    let trodden = trodden();
    // The traced program itself lists the temporary files.
    let command = "trace record --collector ptrace -o t.trace -- ./look";
    place.write(
        "look.c",
        "#include <dirent.h>
        #include <stdio.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main(void) {
            struct stat s; struct dirent *e; DIR *d = opendir(\"tmp\");
            if (!d || chdir(\"tmp\")) return 1;
            while ((e = readdir(d))) if (e->d_name[0] != '.' && !stat(e->d_name, &s)) printf(\"%o\\n\", s.st_mode & 07777);
            return 0;
        }",
    );
    must(place.command("cc").args(["look.c", "-o", "look"]));
    let output = must(command_with_open_umask(&place, &format!("{} {command}", trodden.display())).env("TMPDIR", place.path("tmp")));
    let output = String::from_utf8(output.stdout).unwrap();
    let modes: Vec<&str> = output.lines().collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| ["700", "600"].contains(mode)), "{output}");
    assert_eq!(read_mode(&place.path("t.trace")), 0o600);
}

/// Neither traces nor profiles contain the environment.
#[test]
fn environment_is_not_stored() {
    let place = compile_program(PROGRAM, &[]);
    let secret = "correct-horse-battery-staple";
    for arguments in ["record --output run.trodden -- ./prog", "trace record -o t.trace -- ./plain"] {
        must(place.command(trodden()).args(arguments.split(' ')).env("TOKEN", secret));
    }
    let files: Vec<PathBuf> = list_files_and_folders(&place.path("")).into_iter().filter(|path| path.is_file()).collect();
    assert!(files.len() > 5);
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{}", file.display());
    }
    // Blocks of a trace file are compressed, so searching its bytes is not enough: the decoded description is checked as well.
    let about = format!("{:?}", trodden_trace::TraceFile::open(&place.path("t.trace")).unwrap().description());
    assert!(about.contains("./plain") && !about.contains(secret), "{about}");
}

#[test]
fn programs_that_change_their_user_are_counted() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped, needs root: a program that becomes another user");
        return;
    }
    let place = compile_program(USER_CHANGING_PROGRAM, &[]);
    must(place.command(trodden()).args(["record", "--", "./prog"]));
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let profile = store.load(&store.get("last").unwrap()).unwrap();
    let mut counts = BTreeMap::new();
    for (_, unit, function) in profile.functions() {
        let executed: u64 = unit.counts_of(function).map(|count| count.1).sum();
        counts.insert(function.name.clone(), executed);
    }
    for function in ["before", "after", "child", "thread"] {
        assert_eq!(counts.get(function), Some(&1), "{function}: {counts:?}");
    }
}
