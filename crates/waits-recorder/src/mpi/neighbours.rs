//! Neighbourhood collective operations (MPI 3.1, section 7.6). Each process sends to its neighbours in the topology of a communicator, and
//! receives from the processes whose neighbour it is. An operation is recorded as a *meeting*: one record of the call, and one record for
//! each message that it sends or receives, in the order of the topology.

use super::call::MpiCall;
use super::communicator;
use super::implementation::{Implementation, implementation};
use crate::memory::{map_private, unmap_elements};
use crate::real::{RealFunction, real};
use crate::thread::{add_record, finish_record};
use trodden_wire::waits::{CallRecord, kind};

/// Records a blocking neighbourhood operation. `comm` is the position of the communicator.
#[inline]
pub fn record_neighbours(call: MpiCall, comm: usize) -> i32 {
    record_meeting(call, kind::MEETING, comm, None)
}

/// Records a non-blocking neighbourhood operation. A request argument follows the communicator.
#[inline]
pub fn record_neighbours_nonblocking(call: MpiCall, comm: usize) -> i32 {
    record_meeting(call, kind::MEETING, comm, Some(comm + 1))
}

/// Records the creation of a persistent neighbourhood operation. An info argument and a request argument follow the communicator.
#[inline]
pub fn record_neighbours_persistent(call: MpiCall, comm: usize) -> i32 {
    record_meeting(call, kind::MEETING_INIT, comm, Some(comm + 2))
}

fn record_meeting(call: MpiCall, kind: u16, comm: usize, request: Option<usize>) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    let handle = call.handle(comm);
    open.record().object = communicator::communicator_number_of_handle(handle);
    let result = call.run();
    if let Some(position) = request {
        open.record().request = call.read_handle(position) as u64;
    }
    finish_record(thread, open);
    let first = open.completion_template();
    visit_neighbours(handle, &mut |peer, kind| {
        // At the border of a grid, MPI returns the null process for a missing neighbour.
        if peer >= 0 {
            add_record(thread, CallRecord { kind, peer, tag: 0, request: 0, ..first });
        }
    });
    result
}

/// Called for each message of a neighbourhood operation, with the rank of the neighbour and the kind of record.
type VisitNeighbourMessage<'a> = &'a mut dyn FnMut(i32, u16);

/// Calls `visit` for each message that this process sends or receives in a neighbourhood operation on the communicator.
fn visit_neighbours(handle: usize, visit: VisitNeighbourMessage) {
    static TOPOLOGY: RealFunction = RealFunction::new(c"PMPI_Topo_test");
    let mut topology = 0i32;
    real!(TOPOLOGY, fn(usize, *mut i32) -> i32, handle, &raw mut topology);
    // MPI_CART is 1 and MPI_GRAPH is 2 in Open MPI, and the reverse in MPICH. MPI_DIST_GRAPH is 3 in both.
    match (implementation(), topology) {
        (Implementation::OpenMpi, 1) | (Implementation::Mpich, 2) => visit_grid(handle, visit),
        (_, 1 | 2) => visit_graph(handle, visit),
        (_, 3) => visit_distributed_graph(handle, visit),
        _ => {}
    }
}

fn visit_grid(handle: usize, visit: VisitNeighbourMessage) {
    static COUNT: RealFunction = RealFunction::new(c"PMPI_Cartdim_get");
    static SHIFT: RealFunction = RealFunction::new(c"PMPI_Cart_shift");
    let mut count = 0i32;
    real!(COUNT, fn(usize, *mut i32) -> i32, handle, &raw mut count);
    for dimension in 0..count {
        let (mut before, mut after) = (-1i32, -1i32);
        real!(SHIFT, fn(usize, i32, i32, *mut i32, *mut i32) -> i32, handle, dimension, 1, &raw mut before, &raw mut after);
        for peer in [before, after] {
            visit(peer, kind::MEETING_SEND);
            visit(peer, kind::MEETING_RECV);
        }
    }
}

fn visit_graph(handle: usize, visit: VisitNeighbourMessage) {
    static RANK: RealFunction = RealFunction::new(c"PMPI_Comm_rank");
    static COUNT: RealFunction = RealFunction::new(c"PMPI_Graph_neighbors_count");
    static GET: RealFunction = RealFunction::new(c"PMPI_Graph_neighbors");
    let (mut rank, mut count) = (0i32, 0i32);
    real!(RANK, fn(usize, *mut i32) -> i32, handle, &raw mut rank);
    real!(COUNT, fn(usize, i32, *mut i32) -> i32, handle, rank, &raw mut count);
    with_rank_buffer(count, |ranks| {
        real!(GET, fn(usize, i32, i32, *mut i32) -> i32, handle, rank, count, ranks.as_mut_ptr());
        for peer in ranks {
            visit(*peer, kind::MEETING_SEND);
            visit(*peer, kind::MEETING_RECV);
        }
    });
}

fn visit_distributed_graph(handle: usize, visit: VisitNeighbourMessage) {
    static COUNT: RealFunction = RealFunction::new(c"PMPI_Dist_graph_neighbors_count");
    static GET: RealFunction = RealFunction::new(c"PMPI_Dist_graph_neighbors");
    let (mut inward, mut outward, mut is_weighted) = (0i32, 0i32, 0i32);
    real!(COUNT, fn(usize, *mut i32, *mut i32, *mut i32) -> i32, handle, &raw mut inward, &raw mut outward, &raw mut is_weighted);
    // The memory holds the ranks of the sources and the targets, followed by the weights of both.
    let (inward, outward) = (inward.max(0) as usize, outward.max(0) as usize);
    with_rank_buffer(2 * (inward + outward) as i32, |ranks| {
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
        targets.iter().for_each(|peer| visit(*peer, kind::MEETING_SEND));
        sources.iter().for_each(|peer| visit(*peer, kind::MEETING_RECV));
    });
}

fn with_rank_buffer(count: i32, call: impl FnOnce(&mut [i32])) {
    let count = count.max(0) as usize;
    let Some(place) = map_private::<i32>(count.max(1)) else { return };
    // SAFETY: the memory was just mapped for `count` ranks, and zeros are valid ranks.
    call(unsafe { core::slice::from_raw_parts_mut(place, count) });
    unmap_elements(place, count.max(1));
}
