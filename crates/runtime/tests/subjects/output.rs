//! Tests `TRODDEN_OUTPUT` and its syntax. Neither its value nor the files that it names may make the program fail or change another user's
//! file.

use crate::laboratory::{Laboratory, Mount, assert_one_message, assert_silent_success, is_root};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use trodden_wire::file_header::{FileHeader, FileKind};
use trodden_wire::{LostReason, RAW_VERSION};

/// A program that increments counter 0, changes its folder, increments the counter in another thread, and prints `done`.
const COUNTS_IN_TWO_THREADS: &str = r#"
    #include "subject.h"
    #include <pthread.h>
    #include <stdio.h>
    #include <unistd.h>
    static void *work(void *unused) { ENTER; COUNT(0); return unused; }
    int main(void) {
        pthread_t t;
        work(0);
        if (chdir("/")) return 1;
        pthread_create(&t, 0, work, 0);
        pthread_join(t, 0);
        puts("done");
        return 0;
    }
"#;

fn build_simple(name: &str) -> (Laboratory, PathBuf) {
    let lab = Laboratory::new(name);
    let program = lab.program("program", COUNTS_IN_TWO_THREADS, &[]);
    (lab, program)
}

#[test]
fn patterns_are_expanded_and_folders_created() {
    let (lab, program) = build_simple("patterns");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let identity = {
        lab.run(&program, "first/");
        lab.raw_file("first").name
    };
    assert_eq!(identity.len(), 32 + ".raw".len());
    let long = "x".repeat(250);
    let absolute = lab.path("absolute").join("%m.raw").to_str().unwrap().to_owned();
    for (pattern, folder, name) in [
        ("a/b/c/%m.raw", "a/b/c", identity.clone()),
        ("%h/%%-%m.raw", &*host, format!("%-{identity}")),
        ("d//.//e/x%m%%m.raw", "d/e", format!("x{}%m.raw", &identity[..32])),
        ("plain.raw", ".", "plain.raw".into()),
        (&format!("{long}/{long}/{long}.raw"), &format!("{long}/{long}"), format!("{long}.raw")),
        (&absolute, "absolute", identity.clone()),
    ] {
        lab.run(&program, pattern);
        let raw = lab.raw_file(folder);
        assert_eq!((raw.name.as_str(), raw.count(0)), (name.as_str(), 2), "{pattern}");
    }
    let output = lab.command(&program, "pid/%p.raw").output().unwrap();
    assert_silent_success(&output);
    assert!(lab.raw_file("pid").name.trim_end_matches(".raw").parse::<u32>().is_ok());
}

#[test]
fn percent_signs_in_the_current_folder_are_literal() {
    let lab = Laboratory::new("100%p");
    let program = lab.program("program", COUNTS_IN_TWO_THREADS, &[]);
    lab.run(&program, "out/%m.raw");
    assert_eq!(lab.raw_file("out").count(0), 2);
}

#[test]
fn bad_patterns_are_explained() {
    let (lab, program) = build_simple("bad-patterns");
    for (pattern, parts) in [
        ("out/%q.raw", &["TRODDEN_OUTPUT", "%p, %h, %m or %%"][..]),
        ("out/%", &["unknown % sequence"]),
        (&"y/".repeat(3000), &["too long", "4095"]),
        (&"y".repeat(5000), &["too long"]),
        (&"%m".repeat(1000), &["too long"]),
        (&"z".repeat(300), &["zzz", "name too long"]),
        ("/proc/nothing/%m.raw", &["/proc/nothing/", "folder cannot be opened"]),
        ("program/%m.raw", &["program/", "not a folder"]),
        ("/proc/%m.raw", &["/proc/", "no such file or folder"]),
    ] {
        let output = lab.command(&program, pattern).output().unwrap();
        assert_one_message(&output, parts);
        assert_eq!(output.stdout, b"done\n");
    }
    let entries: Vec<_> = fs::read_dir(&lab.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries.len(), 3, "{entries:?}");
}

#[test]
fn unset_or_empty_variable_writes_nothing() {
    let (lab, program) = build_simple("unset");
    lab.run(&program, "");
    for name in ["XTRODDEN_OUTPUT", "TRODDEN_OUTPUTX", "TRODDEN_OUTPU"] {
        assert_silent_success(
            &Command::new(&program).current_dir(&lab.folder).env_remove("TRODDEN_OUTPUT").env(name, "here.raw").output().unwrap(),
        );
    }
    assert_eq!(fs::read_dir(&lab.folder).unwrap().count(), 3);
}

#[test]
fn large_environments_are_read() {
    let (lab, program) = build_simple("environment");
    let mut command = lab.command(&program, "out/%m.raw");
    command.envs((0..300).map(|index| (format!("A{index}_TRODDEN_OUTPUT"), "TRODDEN_OUTPUT=no".repeat(20))));
    assert_silent_success(&command.output().unwrap());
    assert_eq!(lab.raw_file("out").count(0), 2);
}

#[test]
fn foreign_files_are_not_changed() {
    let (lab, program) = build_simple("foreign");
    let keep = lab.path("keep.txt");
    fs::write(&keep, "precious").unwrap();
    let header = |newer: u32| FileHeader::new(FileKind::RAW_COUNTS, RAW_VERSION + newer).to_bytes();
    let set_up = |name: &str| match name {
        "text" => fs::write(lab.path(name), "some text\n").unwrap(),
        "zeros" => fs::write(lab.path(name), [0; 8192]).unwrap(),
        "earlier" => fs::write(lab.path(name), [&b"TRODRAW\0\x03\0\0\0YDER"[..], &[0; 8192]].concat()).unwrap(),
        "newer" => fs::write(lab.path(name), [&header(1)[..], &[0; 8192]].concat()).unwrap(),
        "corrupt" => fs::write(lab.path(name), [&header(0)[..31], &[0x55; 8192]].concat()).unwrap(),
        "other" => fs::write(lab.path(name), FileHeader::new(FileKind::PROFILE, RAW_VERSION).to_bytes()).unwrap(),
        "short" => fs::write(lab.path(name), header(0)).unwrap(),
        "link" => symlink(&keep, lab.path(name)).unwrap(),
        "dangling" => symlink(lab.path("made"), lab.path(name)).unwrap(),
        "folder" => fs::create_dir(lab.path(name)).unwrap(),
        "hard" => {
            fs::write(lab.path("empty"), "").unwrap();
            fs::hard_link(lab.path("empty"), lab.path(name)).unwrap();
        }
        "pipe" => lab.compile("mkfifo", &[name]),
        _ => symlink("/dev/full", lab.path(name)).unwrap(),
    };
    for (name, part) in [
        ("text", "not a raw profile"),
        ("zeros", "not a raw profile"),
        ("earlier", "a different version"),
        ("newer", "a different version"),
        ("corrupt", "header is corrupt"),
        ("other", "not a raw profile"),
        ("short", "a different image"),
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("folder", "it is a folder"),
        ("hard", "hard links"),
        ("pipe", "not a regular file"),
        ("device", "symbolic link"),
    ] {
        set_up(name);
        let before = fs::symlink_metadata(lab.path(name)).unwrap();
        let output = lab.command(&program, name).output().unwrap();
        assert_one_message(&output, &[&format!("/{name}: "), part, "TRODDEN_OUTPUT"]);
        let after = fs::symlink_metadata(lab.path(name)).unwrap();
        assert_eq!((before.ino(), before.size(), before.mtime_nsec()), (after.ino(), after.size(), after.mtime_nsec()), "{name}");
    }
    assert_eq!(fs::read_to_string(&keep).unwrap(), "precious");
    assert!(!lab.path("made").exists());
}

#[test]
fn file_of_a_different_image_is_rejected() {
    let (lab, program) = build_simple("two-images");
    let other = lab.program("other", &format!("#define COUNTERS 9\n{COUNTS_IN_TWO_THREADS}"), &[]);
    lab.run(&program, "same.raw");
    assert_one_message(&lab.command(&other, "same.raw").output().unwrap(), &["same.raw", "a different image", "%m"]);
    lab.run(&program, "same.raw");
    assert_eq!(lab.raw_file(".").count(0), 4);
}

#[test]
fn an_unfinished_header_is_completed() {
    let (lab, program) = build_simple("unfinished");
    lab.run(&program, "a.raw");
    let whole = fs::read(lab.path("a.raw")).unwrap();
    for length in [0, 104, 144, 4096] {
        let mut part = whole[..length].to_vec();
        // Erase the file header's checksum.
        part.iter_mut().skip(24).take(8).for_each(|byte| *byte = 0);
        fs::write(lab.path("a.raw"), part).unwrap();
        lab.run(&program, "a.raw");
        assert_eq!(lab.raw_file(".").count(0), 2);
    }
}

#[test]
fn symbolic_links_after_a_sequence_are_not_followed() {
    let (lab, program) = build_simple("folder-links");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    fs::create_dir(lab.path("elsewhere")).unwrap();
    fs::create_dir(lab.path("out")).unwrap();
    symlink(lab.path("elsewhere"), lab.path("out").join(&host)).unwrap();
    assert_one_message(&lab.command(&program, "out/%h/%m.raw").output().unwrap(), &["folder cannot be opened"]);
    assert_one_message(&lab.command(&program, "out/%h/sub/%m.raw").output().unwrap(), &["folder cannot be opened"]);
    assert_eq!(fs::read_dir(lab.path("elsewhere")).unwrap().count(), 0);
    // Links in the part of the path that the user spelled out are followed.
    symlink(lab.path("elsewhere"), lab.path("chosen")).unwrap();
    lab.run(&program, "chosen/%m.raw");
    assert_eq!(lab.raw_file("elsewhere").count(0), 2);
}

#[test]
fn racing_symbolic_links_redirect_no_writes() {
    let (lab, program) = build_simple("races");
    let victim = lab.path("victim");
    fs::write(&victim, "").unwrap();
    fs::create_dir(lab.path("out")).unwrap();
    let (name, spare) = (lab.path("out").join("x.raw"), lab.path("out").join("spare"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                for target in [victim.clone(), lab.path("victim2")] {
                    let _ = fs::remove_file(&spare);
                    symlink(&target, &spare).unwrap();
                    let _ = fs::rename(&spare, &name);
                    let _ = fs::remove_file(&name);
                }
            }
        });
        for _ in 0..300 {
            let output = lab.command(&program, "out/x.raw").output().unwrap();
            assert!(output.status.success() && output.stdout == b"done\n");
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(fs::metadata(&victim).unwrap().len(), 0);
    assert!(!lab.path("victim2").exists());
}

#[test]
fn privileged_programs_ignore_the_variable() {
    if !is_root("set-user-id programs") {
        return;
    }
    // The folder must be accessible to every user.
    let lab = Laboratory::in_folder(std::env::temp_dir().join(format!("trodden-runtime-{}", std::process::id())));
    fs::set_permissions(&lab.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let program = lab.program(
        "program",
        &format!("#include <unistd.h>\n{}", COUNTS_IN_TWO_THREADS.replace("puts(\"done\")", "printf(\"%d\\n\", geteuid())")),
        &[],
    );
    fs::create_dir(lab.path("out")).unwrap();
    fs::set_permissions(lab.path("out"), fs::Permissions::from_mode(0o777)).unwrap();
    let run = || {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .env("TRODDEN_OUTPUT", lab.path("out/%m.raw"))
            .output()
            .unwrap();
        assert_silent_success(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    for mode in [0o4755, 0o2755] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let user = run();
        if mode == 0o4755 && user != "0\n" {
            eprintln!("skipped, set-user-id has no effect on this file system");
        } else {
            assert_eq!(lab.raw_files("out").len(), 0, "mode {mode:o}");
        }
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(), "65534\n");
    assert_eq!(lab.raw_file("out").count(0), 2);
    // A file of another user is rejected, even though root could write to it.
    let output = lab.command(&program, lab.path("out/%m.raw").to_str().unwrap()).output().unwrap();
    assert_one_message(&output, &["belongs to a different user"]);
    fs::remove_dir_all(&lab.folder).unwrap();
}

#[test]
fn a_full_disk_is_reported_and_survived() {
    let lab = Laboratory::new("full");
    let Some(disk) = Mount::new(lab.path("disk"), &["-t", "tmpfs", "-o", "size=64k", "none"]) else { return };
    let big = COUNTS_IN_TWO_THREADS.replace("COUNT(0)", "for (int i = 0; i < COUNTERS; i++) COUNT(i)");
    for (name, counters) in [("fits", 4000), ("large", 20_000), ("huge", 2_000_000)] {
        let program = lab.program(name, &format!("#define COUNTERS {counters}\n{big}"), &[]);
        let output = lab.command(&program, &format!("disk/{name}.raw")).output().unwrap();
        match name {
            // The disk has space for the region of the first thread, but not for that of the second.
            "fits" => {
                assert_one_message(&lab.command(&program, "disk/fits.raw").arg("again").output().unwrap(), &["no space"]);
                assert_one_message(&output, &["no space", "fits.raw"]);
                let raw = lab.raw_file("disk");
                assert!(raw.regions[0].iter().all(|&count| count == 2));
                // In each of the two runs, one thread loses its counts.
                assert_eq!((raw.lost.threads(), raw.lost.has_reason(LostReason::NoSpace)), (2, true));
            }
            _ => {
                assert_one_message(&output, &["no space"]);
                assert_eq!(lab.raw_file("disk").lost.threads(), 2, "{name}: both threads");
            }
        }
        assert_eq!(output.stdout, b"done\n");
        let _ = fs::remove_file(lab.path(&format!("disk/{name}.raw")));
    }
    fs::write(lab.path("disk/filler"), vec![1; 80 * 1024]).unwrap_err();
    let program = lab.program("simple", COUNTS_IN_TWO_THREADS, &[]);
    assert_one_message(&lab.command(&program, "disk/a.raw").output().unwrap(), &["no space"]);
    assert_eq!(fs::read(lab.path("disk/a.raw")).unwrap(), [0], "it records that there was no space");
    fs::remove_file(lab.path("disk/filler")).unwrap();
    lab.run(&program, "disk/a.raw");
    let raw = lab.raw_file("disk");
    assert_eq!((raw.count(0), raw.lost.threads()), (2, 1));
    drop(disk);
}

/// A program that counts once in its region, then fills the disk, and then increments many counters.
const FILLS_THE_DISK: &str = r#"
    #include "subject.h"
    #include <fcntl.h>
    #include <stdio.h>
    #include <unistd.h>
    int main(void) {
        ENTER;
        COUNT(0);
        static char page[4096] = { 1 };
        int filler = open("disk/filler", O_WRONLY | O_CREAT, 0600);
        long pages = 0;
        while (write(filler, page, sizeof page) == sizeof page) pages++;
        if (pages < 16) return 1;
        for (long i = 0; i < COUNTERS; i += 64) COUNT(i);
        return 0;
    }
"#;

#[test]
fn space_for_regions_is_reserved_at_creation() {
    let lab = Laboratory::new("reserved");
    let Some(disk) = Mount::new(lab.path("disk"), &["-t", "tmpfs", "-o", "size=12m", "none"]) else { return };
    // The regions of these programs have 1 MiB and 8 MiB.
    for (name, counters) in [("small", 1 << 17), ("large", 1 << 20)] {
        let program = lab.program(name, &format!("#define COUNTERS {counters}\n{FILLS_THE_DISK}"), &[]);
        lab.run(&program, &format!("disk/{name}/%m.raw"));
        let raw = lab.raw_file(&format!("disk/{name}"));
        assert_eq!((raw.count(0), raw.count(counters - 64), raw.lost.threads()), (2, 1, 0), "{name}");
        fs::remove_file(lab.path("disk/filler")).unwrap();
        fs::remove_dir_all(lab.path(&format!("disk/{name}"))).unwrap();
    }
    drop(disk);
}

/// A program that counts in a thread after lowering the file size limit, and in a child that needs a new region.
const LOSES_OUTPUT_LATE: &str = r#"
    #define _GNU_SOURCE
    #include "subject.h"
    #include <pthread.h>
    #include <signal.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *work(void *unused) { ENTER; COUNT(0); return unused; }
    int main(int argc, char **argv) {
        work(0);
        struct rlimit limit = { 0, 0 };
        pthread_t t;
        if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
        if (argc > 1) closefrom(3);
        pthread_create(&t, 0, work, 0);
        pthread_join(t, 0);
        if (!fork()) { work(0); _exit(0); }
        wait(0);
        (void)argv;
        kill(getpid(), SIGKILL);
    }
"#;

#[test]
fn lost_counts_are_recorded_in_the_file() {
    let lab = Laboratory::new("lost");
    let program = lab.program("program", LOSES_OUTPUT_LATE, &[]);
    for words in [&[][..], &["close"]] {
        let output = lab.command(&program, "out/%m.raw").args(words).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("ulimit -f"), "{}", String::from_utf8_lossy(&output.stderr));
        let raw = lab.raw_file("out");
        let lost = raw.lost;
        assert_eq!((raw.count(0), lost.threads(), lost.has_reason(LostReason::SizeLimit)), (1, 2, true), "{words:?}");
        fs::remove_dir_all(lab.path("out")).unwrap();
    }
}

#[test]
fn file_limits_do_not_kill_the_subject() {
    let (lab, program) = build_simple("limits");
    for (limit, part) in [("ulimit -f 1", "ulimit -f"), ("ulimit -n 3", "too many open files")] {
        let output = Command::new("sh")
            .current_dir(&lab.folder)
            .env("TRODDEN_OUTPUT", "out.raw")
            .arg("-c")
            .arg(format!("{limit}; exec {}", program.display()))
            .output()
            .unwrap();
        // The dynamic linker needs descriptors as well. If it fails, the runtime never ran.
        if output.status.success() {
            assert_eq!(output.stdout, b"done\n");
            if !output.stderr.is_empty() {
                assert_one_message(&output, &[part]);
            }
        }
    }
    let _ = fs::remove_file(lab.path("out.raw"));
    let output = Command::new("sh")
        .current_dir(&lab.folder)
        .env("TRODDEN_OUTPUT", "out.raw")
        .arg("-c")
        .arg(format!("ulimit -f 1; exec {}", program.display()))
        .output()
        .unwrap();
    assert_one_message(&output, &["ulimit -f"]);
}

#[test]
fn messages_go_to_standard_error_only() {
    let lab = Laboratory::new("stderr");
    // Acquiring the second region fails, while descriptor 2 is a file of the program's own, closed, or a full pipe.
    let source = r#"
        #define _GNU_SOURCE
        #include "subject.h"
        #include <fcntl.h>
        #include <pthread.h>
        #include <unistd.h>
        static void *work(void *unused) { ENTER; COUNT(0); return unused; }
        int main(int argc, char **argv) {
            pthread_t t;
            work(0);
            unlink("out.raw");
            if (mkdir_("out.raw")) return 1;
            if (argc == 2) { close(2); if (open("data", O_RDWR | O_CREAT | O_TRUNC, 0600) != 2) return 2; }
            if (argc == 3) close(2);
            if (argc == 4) { fcntl(2, F_SETFL, O_NONBLOCK); char page[4096] = { 0 }; while (write(2, page, sizeof page) > 0); fcntl(2,
                F_SETFL, 0); }
            pthread_create(&t, 0, work, 0);
            pthread_join(t, 0);
            (void)argv;
            return 0;
        }
    "#;
    let source = source.replace(
        "static void *work",
        "#include <sys/stat.h>\nstatic int mkdir_(const char *name) { return mkdir(name, 0700); }\nstatic void *work",
    );
    let program = lab.program("program", &source, &[]);
    for arguments in [&[][..], &["file"], &["closed", "-"], &["full", "-", "-"]] {
        let _ = fs::remove_dir(lab.path("out.raw"));
        let mut command = lab.command(&program, "out.raw");
        command.args(arguments);
        // In the last case, the pipe is not read until the program has ended.
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(if arguments.len() == 3 { 500 } else { 0 }));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {:?}", output.status);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.contains("it is a folder"), arguments.is_empty(), "{arguments:?}: {text}");
    }
    assert_eq!(fs::read(lab.path("data")).unwrap(), b"");
}

#[test]
fn a_stopped_process_does_not_stop_others() {
    let lab = Laboratory::new("stopped");
    let program = lab.program("program", COUNTS_IN_TWO_THREADS, &[]);
    let source = format!(
        "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <unistd.h>\n#include <stdio.h>\nint main(void) {{ int f = open(\"out.raw\", \
            O_RDWR | O_CREAT, 0600);\n\
         struct flock l = {{ F_WRLCK, SEEK_SET, {}L, 1, 0 }}; if (f < 0 || fcntl(f, F_OFD_SETLK, &l)) return 1; close(1); pause(); }}\n",
        trodden_wire::HEADER_LOCK_BYTE
    );
    lab.source("holder.c", &source);
    lab.compile("gcc", &["-o", "holder", "holder.c"]);
    let mut holder = Command::new(lab.path("holder")).current_dir(&lab.folder).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Read::read_to_end(holder.stdout.as_mut().unwrap(), &mut vec![]).unwrap();
    let output = lab.command(&program, "out.raw").output().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_one_message(&output, &["cannot be locked"]);
    lab.run(&program, "out.raw");
    assert_eq!(lab.raw_file(".").count(0), 2);
}
