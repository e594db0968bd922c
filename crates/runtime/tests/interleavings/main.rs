//! The source of the runtime's lock and of its chunks, in thousands of interleavings: a scheduler (shuttle) chooses the thread that goes on
//! before each atomic operation, each wait, and each word that a reader reads.
//!
//! `lock.rs` and `chunks.rs` are compiled as they are. What they use of the rest of the runtime is in `model.rs`: atomics that yield, a
//! futex, thread ids, regions in memory. Operations are sequentially consistent here; the weaker orders of `chunks.rs` are those of
//! x86-64, which does not reorder stores.

mod chunk_protocol;
#[path = "../../src/chunks.rs"]
#[allow(dead_code, reason = "the model does not fork")]
mod chunks;
#[path = "../../src/lock.rs"]
#[allow(dead_code, reason = "the model does not fork")]
mod lock;
mod lock_protocol;
mod model;

use model::{atomic, image, state, stream, system};
use trodden_wire as wire;
