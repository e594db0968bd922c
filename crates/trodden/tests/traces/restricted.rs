//! `trodden trace` on programs that are restricted or restrict themselves: address space limits, system call filters, other users. The
//! programs must behave as without a trace, or be rejected before they start, with an error that names the reason.

use crate::traced::{Folder, errors, must};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const IN_ONE_RUN: [&[&str]; 3] = [&["--runs", "1"], &["--runs", "1", "--collector", "ptrace"], &["--collector", "single-step"]];

/// A program that prints the limit of its address space and how much it can map below this limit, then sets another limit and executes a
/// program that does the same.
const LIMITED_PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static void say(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    int pieces = 0;
    char *all[4096];
    while (pieces < 4096 && (all[pieces] = mmap(0, 16 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) != MAP_FAILED)
        pieces++;
    for (int i = 0; i < pieces; i++) munmap(all[i], 16 << 20);
    printf("%ld %ld %d\n", (long)limit.rlim_cur, (long)limit.rlim_max, pieces);
    fflush(stdout);
}
int main(int count, char **arguments) {
    say();
    if (count > 1) return 0;
    static const struct rlimit less = { 1000l << 20, 3000l << 20 };
    if (setrlimit(RLIMIT_AS, &less)) return 1;
    say();
    pid_t child = vfork();
    if (!child) { execl("./app", "app", "again", (char *)0); _exit(1); }
    int status;
    waitpid(child, &status, 0);
    execl("./app", "app", "again", (char *)0);
    return 1;
}
"#;

fn run_limited(folder: &Folder, script: &str, user: Option<&str>) -> Output {
    let mut command = Command::new(if user.is_some() { "setpriv" } else { "sh" });
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--", "sh"]);
    }
    command.current_dir(folder.path("")).stdin(Stdio::null()).env_remove("TRODDEN_QUIET").env("TMPDIR", ".");
    command.args(["-c", script, env!("CARGO_BIN_EXE_trodden")]).output().unwrap()
}

#[test]
fn limited_address_spaces_are_as_large_as_without_a_trace() {
    let folder = Folder::new();
    folder.compile("cc", "limited.c", LIMITED_PROGRAM);
    // A trace disables the randomisation of addresses, which changes the gaps between mappings. The run without a trace disables it, too.
    let said = must(run_limited(&folder, "ulimit -S -v 8000000; setarch -R ./app", None));
    assert_eq!(said.lines().count(), 4);
    for options in IN_ONE_RUN {
        let script = format!("ulimit -S -v 8000000; exec \"$0\" trace record {} --output one.trace -- ./app", options.join(" "));
        let output = run_limited(&folder, &script, None);
        assert!(!errors(&output).contains("do not work on this machine"), "{options:?}: {}", errors(&output));
        assert_eq!(must(output), said, "{options:?}");
    }
}

fn is_root() -> bool {
    let is_root = std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t"));
    let has_all = is_root && ["/usr/bin/setpriv", "/usr/sbin/setcap"].iter().all(|program| Path::new(program).exists());
    if !has_all {
        eprintln!("skipped: only root can become another user, by setpriv and setcap");
    }
    has_all
}

const OTHER_USER_ID: &str = "65534";

fn create_open_folder() -> Folder {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

#[test]
fn limits_that_leave_no_room_are_rejected_before_the_program_starts() {
    if !is_root() {
        return;
    }
    let folder = create_open_folder();
    folder.compile("cc", "limited.c", LIMITED_PROGRAM);
    let script = "ulimit -v 2000000; exec \"$0\" trace record --runs 1 --collector trampolines --output one.trace -- ./app";
    let output = run_limited(&folder, script, Some(OTHER_USER_ID));
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{}", errors(&output));
    assert!(errors(&output).contains("ulimit -v"), "{}", errors(&output));
}

#[test]
fn programs_that_gain_privileges_are_rejected_before_they_start() {
    if !is_root() {
        return;
    }
    let folder = create_open_folder();
    folder.compile("cc", "who.c", "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d\\n\", geteuid()); return 0; }\n");
    let program = folder.path("app");
    let refused = |what: &str| {
        for command in ["trace record --runs 1 --output one.trace", "trace record --collector single-step --output one.trace"] {
            let output = run_limited(&folder, &format!("exec \"$0\" {command} -- ./app"), Some(OTHER_USER_ID));
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{what}: {}", errors(&output));
            assert!(errors(&output).contains(what) && errors(&output).contains("as root"), "{what}: {}", errors(&output));
        }
    };
    must(run_limited(&folder, "exec \"$0\" trace record --runs 1 --output one.trace -- ./app", Some(OTHER_USER_ID)));
    std::fs::remove_file(folder.path("one.trace")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    refused("setuid");
    // If root traces the program, it keeps the privileges that its file grants.
    assert_eq!(must(folder.record(&["--runs", "1"], "root.trace", &["./app"])), "0\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
    refused("setgid");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    match Command::new("setcap").arg("cap_net_raw+ep").arg(&program).output().unwrap().status.success() {
        true => refused("capabilities"),
        false => eprintln!("skipped: this file system has no capabilities"),
    }
}

/// Traced processes execute a program with privileges, as children and in the traced process itself.
#[test]
fn programs_with_privileges_keep_them_if_a_traced_program_executes_them() {
    if !is_root() {
        return;
    }
    let folder = create_open_folder();
    let source = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d %d\\n\", geteuid(), getegid()); return 3; }\n";
    folder.compile("cc", "who.c", source);
    let change_mode = |mode: u32| std::fs::set_permissions(folder.path("app"), std::fs::Permissions::from_mode(mode)).unwrap();
    let run =
        |command: &str, script: &str| run_limited(&folder, &format!("exec \"$0\" {command} -- sh -c '{script}'"), Some(OTHER_USER_ID));
    let (one, three) = ("exec ./app", "./app; ./app; exec ./app");
    for (mode, said, what) in [(0o4755, "0 65534\n", "the setuid bit"), (0o2755, "65534 0\n", "the setgid bit")] {
        change_mode(mode);
        for (options, script) in [
            ("trace record --output one.trace", three),
            ("trace record --output one.trace --collector ptrace", three),
            ("trace record --output one.trace --collector single-step", three),
            ("trace record --output one.trace --follow", three),
            // Merged runs cannot follow the `vfork` of a shell.
            ("trace record --output one.trace --runs 2", one),
            ("record --suite tests", three),
        ] {
            let (output, times) = (run(options, script), script.matches("app").count());
            assert_eq!(String::from_utf8_lossy(&output.stdout), said.repeat(times), "{options}: {}", errors(&output));
            assert_eq!(output.status.code(), Some(3), "{options}: {}", errors(&output));
            assert!(errors(&output).contains(what), "{options}: {}", errors(&output));
        }
    }
    // The tracer cannot let a 32-bit program execute its file again.
    if let Some(program) = folder.assemble_32_bit_program() {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let output = run("trace record --output one.trace --follow", "exec ./program32");
        assert_eq!((&output.stdout[..], output.status.code()), (&b"32\n"[..], Some(5)), "{}", errors(&output));
        assert!(errors(&output).contains("it is a 32-bit program"), "{}", errors(&output));
    }
    // A file that only its owner may read.
    change_mode(0o4711);
    let output = run("trace record --output one.trace", three);
    assert_eq!((&*String::from_utf8_lossy(&output.stdout), output.status.code()), (&*"65534 65534\n".repeat(3), Some(3)));
    assert!(errors(&output).contains("executes a file that cannot be read"), "{}", errors(&output));
}

#[test]
fn processes_of_other_users_are_rejected_by_name() {
    if !is_root() {
        return;
    }
    let folder = create_open_folder();
    let by_pid = |id: u32| run_limited(&folder, &format!("exec \"$0\" trace record --output p.trace --pid {id}"), Some(OTHER_USER_ID));
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let output = by_pid(sleeper.id());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("it belongs to user 0. Run as that user or as root"), "{}", errors(&output));
    // This process was started by the same user, but the set-user-ID bit of its file makes it run as another user.
    let program = folder.path("sleep");
    std::fs::copy("/usr/bin/sleep", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut sleeper = Command::new("setpriv");
    sleeper.args(["--reuid", OTHER_USER_ID, "--regid", OTHER_USER_ID, "--clear-groups", "--"]).arg(&program).arg("100");
    let mut sleeper = sleeper.spawn().unwrap();
    while std::fs::read_link(format!("/proc/{}/exe", sleeper.id())).is_ok_and(|path| !path.ends_with("sleep")) {
        std::thread::yield_now();
    }
    let output = by_pid(sleeper.id());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("setuid"), "{}", errors(&output));
}

/// In a separate mount namespace, the test can change the Yama setting without changing it for the machine.
#[test]
fn what_yama_forbids_is_rejected_by_name_before_the_program_starts() {
    if !is_root() {
        return;
    }
    let folder = create_open_folder();
    folder.compile("cc", "who.c", "int main(void) { return 0; }\n");
    let settings = "mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama";
    let Ok(status) = Command::new("unshare").args(["-m", "sh", "-c", settings]).status() else { return };
    if !status.success() {
        eprintln!("skipped: no file system can be mounted");
        return;
    }
    for (scope, user, remedy) in [("2", OTHER_USER_ID, "Run as root"), ("3", "0", "is rebooted")] {
        let as_user = format!("setpriv --reuid {user} --regid {user} --clear-groups{}", if user == "0" { "" } else { " --inh-caps=-all" });
        for traced in
            ["trace record --runs 1 --output y.trace -- ./app", "record --suite tests -- ./app", "trace record --output y.trace --pid 1"]
        {
            let script = format!("{settings} && echo {scope} > /proc/sys/kernel/yama/ptrace_scope && exec {as_user} -- \"$0\" {traced}");
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_trodden")]).current_dir(folder.path("")).env("TMPDIR", ".");
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{scope} {traced}: {}", errors(&output));
            // A process of another user is rejected with another message.
            let (named, said) = (!traced.contains("--pid") || user == "0", errors(&output));
            assert!(!named || said.contains("yama/ptrace_scope") && said.contains(remedy), "{scope} {traced}: {said}");
        }
    }
}

/// A program that computes, restricts itself to a few system calls, and computes again. Any other system call ends it.
const FILTERED_PROGRAM: &str = concat!(
    include_str!("../cases/filter.h"),
    r#"
__attribute__((noinline)) static int work(int x) { int sum = 0; for (int i = 0; i < 10; i++) sum += i & 1 ? x : 2; return sum; }
int main(int count, char **arguments) {
    char text[64];
    int sum = work(3);
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long set = count > 1 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    for (int i = 0; i < 5; i++) {
        sum += work(i);
        int length = snprintf(text, sizeof text, "%ld %d\n", set, sum);
        if (write(1, text, length) != length) syscall(SYS_exit, 1);
    }
    syscall(SYS_exit, 0);
}
"#
);

#[test]
fn programs_that_filter_their_system_calls_run_to_their_end() {
    let folder = Folder::new();
    folder.compile("cc", "filtered.c", FILTERED_PROGRAM);
    for way in [&["./app"][..], &["./app", "strict"]] {
        let said = must(Command::new(folder.path("app")).args(&way[1..]).output().unwrap());
        assert_eq!((said.lines().count(), said.starts_with("0 ")), (5, true), "{said}");
        let traces = IN_ONE_RUN.map(|options| {
            let output = folder.record(options, "one.trace", way);
            assert_eq!(must(output), said, "{way:?} {options:?}");
            folder.addresses("one.trace")
        });
        assert!(traces[0] == traces[1] && traces[1] == traces[2], "{way:?}");
        let merged = folder.record(&["--runs", "2"], "merged.trace", way);
        assert_eq!(must(merged), said, "{way:?}");
        assert!(traces[0] == folder.addresses("merged.trace"), "{way:?}");
    }
}
