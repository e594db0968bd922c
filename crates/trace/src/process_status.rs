//! Queries of `/proc/PID/status`, and of the permissions that follow from it.

use crate::ptrace::Tid;

/// Reads `/proc/PID/status`. The text is empty if the process does not exist.
pub fn read_process_status(process: Tid) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

pub fn find_status_field(status: &str, name: &str) -> Option<String> {
    Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().to_owned())
}

pub fn find_status_number(status: &str, name: &str) -> Option<Tid> {
    find_status_field(status, name)?.split_whitespace().next()?.parse().ok()
}

pub fn read_own_status() -> String {
    read_process_status(std::process::id() as Tid)
}

/// Returns true if this process may trace processes of other users, and programs with more privileges than its own.
pub fn may_trace_all_processes() -> bool {
    may_trace_others(&read_own_status())
}

pub fn may_raise_resource_limits() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    parse_capability_set(&read_own_status(), "CapEff") >> CAP_SYS_RESOURCE & 1 == 1
}

/// Returns the reason why Yama lets this process trace no process, not even its own children; `None` if there is no such reason. With
/// setting 1, the permission depends on the traced process, so the answer is `None` as well.
pub fn explain_yama_restriction() -> Option<String> {
    const YAMA_SETTING_PATH: &str = "/proc/sys/kernel/yama/ptrace_scope";
    match std::fs::read_to_string(YAMA_SETTING_PATH).ok()?.trim() {
        "2" if !may_trace_all_processes() => Some(format!("{YAMA_SETTING_PATH} is 2. Run as root, or set it to 1")),
        "3" => Some(format!("{YAMA_SETTING_PATH} is 3, which forbids tracing until the machine is rebooted with a lower value")),
        _ => None,
    }
}

/// Returns true if a process with this status may trace processes of other users.
pub fn may_trace_others(status: &str) -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    parse_capability_set(status, "CapEff") >> CAP_SYS_PTRACE & 1 == 1
}

/// Returns a capability set from a status text, or 0 if the text lacks it.
pub fn parse_capability_set(status: &str, name: &str) -> u64 {
    find_status_field(status, name).and_then(|set| u64::from_str_radix(&set, 16).ok()).unwrap_or(0)
}
