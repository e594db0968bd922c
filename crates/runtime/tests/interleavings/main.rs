//! Model checking of the runtime's lock and chunks. In thousands of runs, a scheduler (shuttle) chooses which thread goes on before each
//! atomic operation, each wait, and each word that a reader reads.
//!
//! `lock.rs` and `chunks.rs` are compiled unchanged. `model.rs` replaces the parts of the runtime that they use: atomics that let the
//! scheduler switch threads, a futex, thread IDs, and regions in memory. Operations are sequentially consistent here; the weaker orders in
//! `chunks.rs` correspond to x86-64, which does not reorder stores.

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
