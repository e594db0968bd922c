//! Records streams: path and call sequences of programs built with `--stream`. [`trodden_stored::place`] says where logs are stored.

pub mod record;
pub mod recorder;
