"""A whole server that kills itself with -9 at a chosen operation on its disk.

Usage: server_process DIRECTORY PORT [POINT NTH], where POINT is `operation:file:moment`. It prints one line when it
listens.
"""

from __future__ import annotations

import sys
from functools import partial

from holdfast.journal.config import KIB, MIB, JournalConfig
from holdfast.server import Configuration, ListenConfiguration, NodeConfiguration, open_node, run_server
from tests.crash.killing_storage import KillingStorage

JOURNAL = JournalConfig(
    segment_bytes=256 * KIB,
    segments_max=60,
    segments_ahead=2,
    record_bytes_max=64 * KIB,
    group_bytes_max=512 * KIB,
    group_reserve_bytes=64 * KIB,
    held_records_max=20_000,
    reserve_acknowledgements=5_000,
    reserve_system_events=8,
    state_bytes_max=2 * MIB,
    checkpoint_interval_bytes=96 * KIB,
    boot_bytes=8 * KIB,
)


def main() -> None:
    directory, port, *point = sys.argv[1:]
    if point:
        operation, file, moment = point[0].split(":")
        killing = partial(KillingStorage, operation=operation, file=file, moment=moment, nth=int(point[1]))
        vars(open_node)["FileStorage"] = killing
    configuration = Configuration(
        node=NodeConfiguration(data=directory, name="crash"),
        listen=ListenConfiguration(port=int(port)),
        journal=JOURNAL,
    )
    sys.exit(run_server(configuration, ready=lambda ready: print(ready.port, flush=True)))


if __name__ == "__main__":
    main()
