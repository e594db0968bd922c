//! What the kernel says of a process in `/proc/PID/status`.

use crate::ptrace::Tid;

/// `/proc/PID/status`; empty if there is no such process.
pub fn status(process: Tid) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

/// A field of `/proc/PID/status`.
pub fn field(status: &str, name: &str) -> Option<String> {
    Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().to_owned())
}

/// A field of `/proc/PID/status` that begins with a number.
pub fn number(status: &str, name: &str) -> Option<Tid> {
    field(status, name)?.split_whitespace().next()?.parse().ok()
}

/// The same of this process.
pub fn own_status() -> String {
    status(std::process::id() as Tid)
}

/// Whether this process may trace those of other users, and programs that get more rights than it has.
pub fn may_trace_all() -> bool {
    may_trace_others(&own_status())
}

/// Whether this process may raise limits of resources of others.
pub fn may_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    capabilities(&own_status(), "CapEff") >> CAP_SYS_RESOURCE & 1 == 1
}

/// Why Yama lets this process trace no other, not even one that it starts. Where it depends on what the other has allowed (1), that is
/// tried.
pub fn forbidden_by_yama() -> Option<String> {
    const SETTING: &str = "/proc/sys/kernel/yama/ptrace_scope";
    match std::fs::read_to_string(SETTING).ok()?.trim() {
        "2" if !may_trace_all() => Some(format!("{SETTING} is 2: run as root, or set it to 1")),
        "3" => Some(format!("{SETTING} is 3, so that no process can be traced until the machine is started again with a lower value")),
        _ => None,
    }
}

/// Whether a process with this status may trace those of other users.
pub fn may_trace_others(status: &str) -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    capabilities(status, "CapEff") >> CAP_SYS_PTRACE & 1 == 1
}

/// A set of capabilities in `/proc/PID/status`.
pub fn capabilities(status: &str, name: &str) -> u64 {
    field(status, name).and_then(|set| u64::from_str_radix(&set, 16).ok()).unwrap_or(0)
}
