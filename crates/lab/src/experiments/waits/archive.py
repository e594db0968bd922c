"""Writes an OTF2 archive of messages that travel around a ring, or counts the events of an archive.

archive.py write FOLDER RANKS ITERATIONS
archive.py count FILE
"""

import sys

import otf2
from otf2.enums import CommFlag, GroupType, Paradigm


def write(folder, ranks, iterations):
    with otf2.writer.open(folder, timer_resolution=1_000_000_000) as trace:
        definitions = trace.definitions
        work, send, receive = (definitions.region(name) for name in ("work", "MPI_Send", "MPI_Recv"))
        node = definitions.system_tree_node("node")
        groups = [definitions.location_group(f"MPI Rank {rank}", system_tree_parent=node) for rank in range(ranks)]
        locations = [definitions.location("thread", group=group) for group in groups]
        everyone = definitions.group(
            "locations", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=list(locations)
        )
        world = definitions.comm("world", group=everyone, flags=CommFlag.NONE)
        writers = [trace.event_writer_from_location(location) for location in locations]
        for iteration in range(iterations):
            start = 1_000_000 + iteration * 100_000
            for rank, writer in enumerate(writers):
                begin = start + 20_000 + (iteration * 7919 + rank * 104_729) % 20_000
                writer.enter(start, work)
                writer.leave(begin, work)
                writer.enter(begin + 100, send)
                writer.mpi_send(begin + 200, (rank + 1) % ranks, world, 0, 8)
                writer.leave(begin + 300, send)
                writer.enter(begin + 400, receive)
                writer.mpi_recv(start + 50_000, (rank - 1) % ranks, world, 0, 8)
                writer.leave(start + 50_100, receive)


def count(file):
    with otf2.reader.open(file) as trace:
        return sum(1 for _ in trace.events)


if sys.argv[1] == "write":
    write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    print(count(sys.argv[2]))
