//! Recording of streams, the path and call sequences of programs built with `--stream`. Where logs are stored: [`trodden_stored::place`].

pub mod record;
pub mod recorder;
