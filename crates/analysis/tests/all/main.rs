//! All integration tests of this crate, in one program, which is built faster than one per file.

mod advise;
mod combinations;
mod expression;
mod joined;
#[path = "../../../profile/tests/common/profiles.rs"]
mod profiles;
mod suite;
