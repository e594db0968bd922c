//! Tests of recording, of reading files, and of what all commands have in common.

mod advise;
mod command;
mod command_line;
mod file_modes;
mod file_size_limit;
mod hostile;
mod leftovers;
mod output_files;
#[path = "../place/mod.rs"]
mod place;
mod readers;
mod reading;
mod record;
mod record_restricted;
mod run_store;
mod untrusted;
