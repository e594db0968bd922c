//! Neighbourhood collective operations (MPI 3.1, section 7.6): each process sends to its neighbours in the communicator's topology, and
//! receives from the processes whose neighbour it is. An operation is recorded as a meeting, followed by one record for each send and
//! receive, in topology order.

use super::call::MpiCall;
use super::communicator;
use super::implementation::{Implementation, implementation};
use crate::memory::{map_private, release};
use crate::real::{Real, real};
use crate::thread::{add, finish};
use trodden_wire::waits::{CallRecord, kind};

/// Blocking operation: position of the communicator.
#[inline]
pub fn neighbours(call: MpiCall, comm: usize) -> i32 {
    meeting(call, kind::MEETING, comm, None)
}

/// Non-blocking operation: a request follows the communicator.
#[inline]
pub fn neighbours_nonblocking(call: MpiCall, comm: usize) -> i32 {
    meeting(call, kind::MEETING, comm, Some(comm + 1))
}

/// Creation of a persistent operation: an info and a request follow the communicator.
#[inline]
pub fn neighbours_persistent(call: MpiCall, comm: usize) -> i32 {
    meeting(call, kind::MEETING_INIT, comm, Some(comm + 2))
}

fn meeting(call: MpiCall, kind: u16, comm: usize, request: Option<usize>) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    let handle = call.handle(comm);
    open.record().object = communicator::number(handle);
    let result = call.run();
    if let Some(position) = request {
        open.record().request = call.handle_at(position) as u64;
    }
    finish(thread, open);
    let first = open.copy();
    visit_neighbours(handle, &mut |peer, kind| {
        // At the border of a grid, the missing neighbour is the null process.
        if peer >= 0 {
            add(thread, CallRecord { kind, peer, tag: 0, request: 0, ..first });
        }
    });
    result
}

/// Receives a neighbour's rank in the communicator, and the kind of record.
type VisitPeer<'a> = &'a mut dyn FnMut(i32, u16);

/// Visits the neighbours of this process in the topology of a communicator.
fn visit_neighbours(handle: usize, see: VisitPeer) {
    static TOPOLOGY: Real = Real::new(c"PMPI_Topo_test");
    let mut topology = 0i32;
    real!(TOPOLOGY, fn(usize, *mut i32) -> i32, handle, &raw mut topology);
    // MPI_CART is 1 and MPI_GRAPH is 2 in Open MPI, and the reverse in MPICH; MPI_DIST_GRAPH is 3 in both.
    match (implementation(), topology) {
        (Implementation::OpenMpi, 1) | (Implementation::Mpich, 2) => grid(handle, see),
        (_, 1 | 2) => graph(handle, see),
        (_, 3) => distributed(handle, see),
        _ => {}
    }
}

fn grid(handle: usize, see: VisitPeer) {
    static COUNT: Real = Real::new(c"PMPI_Cartdim_get");
    static SHIFT: Real = Real::new(c"PMPI_Cart_shift");
    let mut count = 0i32;
    real!(COUNT, fn(usize, *mut i32) -> i32, handle, &raw mut count);
    for dimension in 0..count {
        let (mut before, mut after) = (-1i32, -1i32);
        real!(SHIFT, fn(usize, i32, i32, *mut i32, *mut i32) -> i32, handle, dimension, 1, &raw mut before, &raw mut after);
        for peer in [before, after] {
            see(peer, kind::MEETING_SEND);
            see(peer, kind::MEETING_RECV);
        }
    }
}

fn graph(handle: usize, see: VisitPeer) {
    static RANK: Real = Real::new(c"PMPI_Comm_rank");
    static COUNT: Real = Real::new(c"PMPI_Graph_neighbors_count");
    static GET: Real = Real::new(c"PMPI_Graph_neighbors");
    let (mut rank, mut count) = (0i32, 0i32);
    real!(RANK, fn(usize, *mut i32) -> i32, handle, &raw mut rank);
    real!(COUNT, fn(usize, i32, *mut i32) -> i32, handle, rank, &raw mut count);
    with_ranks(count, |ranks| {
        real!(GET, fn(usize, i32, i32, *mut i32) -> i32, handle, rank, count, ranks.as_mut_ptr());
        for peer in ranks {
            see(*peer, kind::MEETING_SEND);
            see(*peer, kind::MEETING_RECV);
        }
    });
}

fn distributed(handle: usize, see: VisitPeer) {
    static COUNT: Real = Real::new(c"PMPI_Dist_graph_neighbors_count");
    static GET: Real = Real::new(c"PMPI_Dist_graph_neighbors");
    let (mut inward, mut outward, mut is_weighted) = (0i32, 0i32, 0i32);
    real!(COUNT, fn(usize, *mut i32, *mut i32, *mut i32) -> i32, handle, &raw mut inward, &raw mut outward, &raw mut is_weighted);
    // The ranks of both sides, followed by their weights.
    let (inward, outward) = (inward.max(0) as usize, outward.max(0) as usize);
    with_ranks(2 * (inward + outward) as i32, |ranks| {
        let (sources, rest) = ranks.split_at_mut(inward);
        let (targets, rest) = rest.split_at_mut(outward);
        let (source_weights, target_weights) = rest.split_at_mut(inward);
        real!(
            GET,
            fn(usize, i32, *mut i32, *mut i32, i32, *mut i32, *mut i32) -> i32,
            handle,
            inward as i32,
            sources.as_mut_ptr(),
            source_weights.as_mut_ptr(),
            outward as i32,
            targets.as_mut_ptr(),
            target_weights.as_mut_ptr()
        );
        targets.iter().for_each(|peer| see(*peer, kind::MEETING_SEND));
        sources.iter().for_each(|peer| see(*peer, kind::MEETING_RECV));
    });
}

fn with_ranks(count: i32, call: impl FnOnce(&mut [i32])) {
    let count = count.max(0) as usize;
    let Some(place) = map_private::<i32>(count.max(1)) else { return };
    // SAFETY: fresh zeroed memory of this size.
    call(unsafe { core::slice::from_raw_parts_mut(place, count) });
    release(place, count.max(1));
}
