//! `trodden record` for programs that are restricted or restrict themselves: by limits, filters of system calls, or files that grant
//! privileges. The programs must behave as if they were not counted, and lost counts must be reported.

use crate::place::{Place, executions, trodden};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trodden_profile::Profile;

const RESTRICTED_PROGRAM: &str = include_str!("../cases/restricted.c");

/// Number of calls to `step`: by `main` before and after the restriction, by a thread, and by a child.
const STEP_CALLS: u64 = 10 + 100 + 5 + 1000;

fn create_place() -> Place {
    let place = Place::with(&[("restricted.c", RESTRICTED_PROGRAM)]);
    place.tool("cc", "-O1 restricted.c -o plain -pthread");
    place.cc("-O1 -g restricted.c -o counted -pthread");
    place
}

fn record_restricted(place: &Place, words: &[&str]) -> Output {
    let _ = fs::remove_file(place.path("run.trodden"));
    let mut command = place.command(trodden());
    command.args(["record", "--no-store", "-o", "run.trodden", "--", "./counted"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

fn read_errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn limits_that_a_program_sets_apply_unchanged_when_it_is_counted() {
    let place = create_place();
    for words in [&[][..], &["nofile"], &["fsize"], &["as"], &["as", "nofile", "fsize"]] {
        let plain = place.command(place.path("plain")).args(words).output().unwrap();
        assert_eq!((plain.status.code(), plain.stdout.is_empty()), (Some(3), false), "{words:?}");
        let counted = record_restricted(&place, words);
        assert_eq!((counted.status.code(), &counted.stdout), (Some(3), &plain.stdout), "{words:?}: {}", read_errors(&counted));
        let profile = Profile::read(&place.path("run.trodden")).unwrap();
        let steps = executions(&profile, "step").unwrap();
        match steps {
            STEP_CALLS => assert!(!read_errors(&counted).contains("lost"), "{words:?}: {}", read_errors(&counted)),
            _ => assert!(read_errors(&counted).contains("are lost"), "{words:?}: {steps}, {}", read_errors(&counted)),
        }
        match words {
            // Without limits, or with a limit on open files only, all steps must be counted, because counting opens no further files.
            [] | ["nofile"] => assert_eq!(steps, STEP_CALLS),
            ["as"] => {
                assert!(steps >= 1010 && read_errors(&counted).contains("(ulimit -v)"), "{words:?}: {steps}, {}", read_errors(&counted))
            }
            _ => assert!(steps >= 1010),
        }
    }
}

#[test]
fn program_without_room_for_counts_runs_unchanged() {
    let place = create_place();
    let plain = place.command(place.path("plain")).output().unwrap();
    for (limit, remedy) in [("ulimit -f 0", "ulimit -f"), ("ulimit -n 4", "ulimit -n")] {
        let script = format!("{limit}; exec ./counted");
        let mut command = place.command(trodden());
        command.args(["record", "--no-store", "-o", "run.trodden", "--", "sh", "-c", &script]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{limit}: {}", read_errors(&output));
        assert!(read_errors(&output).contains(remedy) && !place.path("run.trodden").exists(), "{limit}: {}", read_errors(&output));
        assert_eq!(output.stdout, plain.stdout, "{limit}");
    }
}

/// A control group with a memory limit, removed on drop. `create` returns `None` if this process has no right to create one.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn create(bytes: u64) -> Option<MemoryGroup> {
        let name = format!("trodden-test-{}", std::process::id());
        for (root, limit) in [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")] {
            let group = Path::new(root).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = MemoryGroup(group);
            if group.0.join(limit).exists() && fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                // On machines without swap space, these files are missing.
                let _ = fs::write(group.0.join("memory.swap.max"), "0");
                let _ = fs::write(group.0.join("memory.memsw.limit_in_bytes"), bytes.to_string());
                return Some(group);
            }
        }
        eprintln!("skipped: no control group with a limit of memory can be made");
        None
    }

    fn process_list_file(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn control_group_limits_apply_as_without_counting_and_tracing() {
    let place = create_place();
    let Some(group) = MemoryGroup::create(16 << 20) else { return };
    let processes = group.process_list_file();
    for (megabytes, status) in [("8", 3), ("64", 137)] {
        let script = "./plain \"$@\"; exit $?";
        let plain = place.command("sh").args(["-c", script, "sh", &processes, megabytes]).output().unwrap();
        assert_eq!(plain.status.code(), Some(status), "{megabytes}");
        let counted = record_restricted(&place, &[&processes, megabytes]);
        assert_eq!((counted.status.code(), &counted.stdout), (Some(status), &plain.stdout), "{megabytes}: {}", read_errors(&counted));
        let steps = executions(&Profile::read(&place.path("run.trodden")).unwrap(), "step").unwrap();
        assert_eq!(steps, if status == 3 { STEP_CALLS } else { STEP_CALLS - 1000 }, "{megabytes}");
        for collector in ["trampolines", "ptrace"] {
            let mut command = place.command(trodden());
            command.args(["trace", "record", "--runs", "1", "--collector", collector, "-o", "one.trace", "--", "./plain"]);
            let traced = command.args([&processes, megabytes]).stdin(Stdio::null()).output().unwrap();
            assert_eq!(
                (traced.status.code(), &traced.stdout),
                (Some(status), &plain.stdout),
                "{collector} {megabytes}: {}",
                read_errors(&traced)
            );
        }
    }
}

/// A program that allows itself only three system calls. All other system calls end it.
const FILTERED_PROGRAM: &str = concat!(
    include_str!("../cases/filter.h"),
    r#"
__attribute__((noinline)) static int step(int n) { return n & 1 ? n * 3 : n / 2; }
int main(int count, char **words) {
    char text[64];
    int sum = step(3);
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 9;
    if (count > 1 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
    for (int i = 0; i < 50; i++) sum += step(i);
    if (write(1, text, snprintf(text, sizeof text, "%d\n", sum)) < 0) syscall(SYS_exit, 8);
    syscall(SYS_exit, 3);
}
"#
);

#[test]
fn programs_that_filter_system_calls_are_counted_to_their_end() {
    let place = Place::with(&[("filtered.c", FILTERED_PROGRAM)]);
    place.cc("-O1 -g filtered.c -o counted");
    for words in [&[][..], &["strict"]] {
        let output = record_restricted(&place, words);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"2184\n"[..]), "{words:?}: {}", read_errors(&output));
        let profile = Profile::read(&place.path("run.trodden")).unwrap();
        assert_eq!(executions(&profile, "step"), Some(51), "{words:?}: {}", read_errors(&output));
    }
}

#[test]
fn programs_that_gain_privileges_run_uncounted_and_the_warning_says_why() {
    let has = |program: &str| Path::new(program).exists();
    if !nix::unistd::geteuid().is_root() || !has("/usr/bin/setpriv") || !has("/usr/sbin/setcap") {
        eprintln!("skipped: only root can become another user, by setpriv and setcap");
        return;
    }
    let place =
        Place::with(&[("who.c", "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d\\n\", geteuid()); return 4; }\n")]);
    place.cc("-O1 who.c -o who");
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let recorded = |options: &str| {
        let mut command = place.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--"]).arg(trodden());
        command.arg("record").args(options.split_whitespace()).args(["--", "./who"]).env("TMPDIR", place.path("")).output().unwrap()
    };
    let changed = |mode: u32| fs::set_permissions(place.path("who"), fs::Permissions::from_mode(mode)).unwrap();
    for (mode, what, said) in
        [(0o755, "", "65534\n"), (0o4755, "the setuid bit", "0\n"), (0o2755, "the setgid bit", "65534\n"), (0, "capabilities", "65534\n")]
    {
        match mode {
            0 => {
                changed(0o755);
                if !Command::new("setcap").arg("cap_net_raw+ep").arg(place.path("who")).status().unwrap().success() {
                    eprintln!("skipped: this file system has no capabilities");
                    continue;
                }
            }
            mode => changed(mode),
        }
        let output = recorded("--no-store -o run.trodden");
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(4), said), "{what}: {}", read_errors(&output));
        assert_eq!(read_errors(&output).contains("nothing was counted"), !what.is_empty(), "{}", read_errors(&output));
        assert!(read_errors(&output).contains(what), "{what}: {}", read_errors(&output));
        // To record a suite, the recorder must trace the program's processes, and the kernel grants no privileges to traced programs, so
        // programs that need them are rejected.
        let output = recorded("--suite tests");
        match what {
            "" => assert_eq!(output.status.code(), Some(4), "{}", read_errors(&output)),
            _ => assert!(
                output.status.code() == Some(2) && output.stdout.is_empty() && read_errors(&output).contains(what),
                "{}",
                read_errors(&output)
            ),
        }
    }
}
