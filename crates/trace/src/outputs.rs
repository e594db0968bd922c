//! What runs write to standard output and standard error: passed on, or dropped.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;

/// A stream that a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Hands on what a run writes, until it has no writer any more, or the run is over: then what the run has written is in the
/// pipe, and a daemon that it has left may hold the pipe open for ever.
pub fn drain(mut pipe: io::PipeReader, over: &io::PipeReader, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    // Bytes that may be of the run, once that is over.
    let mut left = None;
    while left != Some(0) {
        let is_ready = |of: &PollFd| of.any().unwrap_or(true);
        let mut both = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN), PollFd::new(over.as_fd(), PollFlags::POLLIN)];
        let waited = poll(&mut both, PollTimeout::NONE);
        let (has_output, is_over) = (is_ready(&both[0]), is_ready(&both[1]));
        match waited {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) if is_over && left.is_none() => {
                let capacity = nix::fcntl::fcntl(pipe.as_fd(), nix::fcntl::FcntlArg::F_GETPIPE_SZ);
                left = Some(capacity.map_or(buffer.len(), |bytes| bytes as usize));
                continue;
            }
            Ok(_) if !has_output => return,
            Ok(_) => {}
        }
        let room = left.map_or(buffer.len(), |left| left.min(buffer.len()));
        let Ok(read @ 1..) = pipe.read(&mut buffer[..room]) else { return };
        left = left.map(|left| left - read);
        take(&buffer[..read]);
    }
}
