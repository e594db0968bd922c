//! Measures how many events per second the wait analysis processes, from calls in memory to finished classes of waits. Run it with `cargo
//! run --release -p trodden-waits --example throughput`.
//!
//! The workload is a halo exchange: the processes form a ring, and each exchanges messages with its neighbours. In every tenth iteration,
//! all processes meet at a barrier. Their speeds vary.

use std::time::Instant;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::call::{Collective, CommunicatorId, Message};
use trodden_waits::{Analysis, AnalysisOptions, Call, CodeId, CollectiveWaitRule, LocationId, LocationState, ProcessId};

fn main() {
    for (processes, iterations) in [(4u32, 200_000u64), (128, 6_000), (4096, 100)] {
        let (events, seconds, outcome) = run_workload(processes, iterations);
        println!(
            "{processes} processes: {:.2} M events/s, {} waits, at most {} nodes and {} steps live",
            events as f64 / seconds / 1e6,
            outcome.waits,
            outcome.max_live.0,
            outcome.max_live.1
        );
    }
}

fn run_workload(processes: u32, iterations: u64) -> (u64, f64, trodden_waits::WaitOutcome) {
    let mut analysis = Analysis::new(AnalysisOptions::default());
    (0..processes).for_each(|p| analysis.start(LocationId(p), ProcessId(p), 0, None, CodeId(0)));
    let mut now = vec![0u64; processes as usize];
    let (mut events, mut waited) = (0, std::time::Duration::ZERO);
    let mut pace = 88_172_645_463_325_252u64;
    for iteration in 0..iterations {
        let mut order: Vec<(u64, u32)> = (0..processes)
            .map(|p| {
                pace ^= pace << 13;
                pace ^= pace >> 7;
                pace ^= pace << 17;
                (now[p as usize] + 1000 + pace % 500, p)
            })
            .collect();
        order.sort_unstable();
        let last = order.last().map_or(0, |(time, _)| *time);
        let mut sent = vec![0; processes as usize];
        order.iter().for_each(|(time, p)| sent[*p as usize] = *time);
        let start = Instant::now();
        for (time, p) in &order {
            let blocks =
                [TimeBlock { code: CodeId(1 + (iteration % 8) as u32), state: LocationState::Computing, ns: time - now[*p as usize] }];
            let call = halo_call(iteration, *p, processes, true);
            analysis.enter(LocationId(*p), *time, &blocks, &call, CodeId(100));
            events += 1;
            if iteration % 10 != 0 {
                analysis.exit(LocationId(*p), *time, &call);
                analysis.enter(LocationId(*p), *time, &[], &self::halo_call(iteration, *p, processes, false), CodeId(101));
                events += 2;
            }
        }
        for (time, p) in &order {
            let from = (*p + processes - 1) % processes;
            let end = if iteration % 10 == 0 { last } else { sent[from as usize].max(*time) } + 1;
            analysis.exit(LocationId(*p), end, &halo_call(iteration, *p, processes, iteration % 10 == 0));
            now[*p as usize] = end;
            events += 1;
        }
        waited += start.elapsed();
    }
    (events, waited.as_secs_f64(), analysis.finish())
}

fn halo_call(iteration: u64, p: u32, processes: u32, is_send: bool) -> Call {
    if iteration.is_multiple_of(10) {
        let communicator = CommunicatorId(0);
        return Call::Collective(Collective {
            communicator,
            rule: CollectiveWaitRule::All,
            is_root: false,
            rank: p,
            size: processes,
            is_barrier: true,
            is_binding: true,
        });
    }
    let peer = if is_send { (p + 1) % processes } else { (p + processes - 1) % processes };
    let message = Message { communicator: CommunicatorId(0), peer: Some(ProcessId(peer)), tag: Some(0), is_buffered: true };
    if is_send { Call::Send(message, false) } else { Call::Receive(message, None) }
}
