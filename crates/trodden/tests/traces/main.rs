//! Tests of `trodden trace`.

mod attached;
mod awkward;
mod calls;
mod children;
mod compiled;
mod computed;
mod debug_files;
mod disturbed;
mod failures;
mod guard;
mod libraries;
mod oracle;
mod order;
mod own_code;
mod page;
#[path = "../place/mod.rs"]
mod place;
mod plan;
mod recording;
mod restricted;
mod self_reading;
#[path = "../traced/mod.rs"]
mod traced;
mod tracer;
mod undisturbed;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../../report/tests/support/webdriver.rs"]
mod webdriver;
