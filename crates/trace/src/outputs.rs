//! Reads the output of traced programs from pipes.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;

/// An output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Passes the output of a run to `take`, until the pipe has no writer left or the run is `over`. In the latter case, all output of the run
/// is in the pipe already, and a daemon left behind may hold the pipe open forever.
pub fn drain(mut pipe: io::PipeReader, over: &io::PipeReader, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    // Once the run is over: the number of bytes that may still be in the pipe.
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
