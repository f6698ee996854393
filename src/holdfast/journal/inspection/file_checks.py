"""Checks of the files around the log: the node's state, the checkpoint slots, the boot section."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from holdfast.errors import JournalCorrupt, StorageMissing
from holdfast.journal.boot import BOOT_EVENT_BYTES_MAX, BOOT_NAME, BootSection
from holdfast.journal.checkpoint import CHECKPOINT_NAMES, read_checkpoint
from holdfast.journal.config import CHECKPOINT_HEADER_BYTES
from holdfast.journal.format import aligned
from holdfast.journal.inspection.findings import RESTORE, Finding, error, warning
from holdfast.journal.inspection.read_only import OneCopy, ReadOnlyView
from holdfast.journal.inspection.rehearsal import Rehearsal
from holdfast.journal.node_state import NODE_STATE_NAME, NodeState, read_node_state
from holdfast.journal.storage import Storage

# As the byte tables of `node_state` and `boot` have it.
NODE_STATE_OFFSETS = (0, 4096)
NODE_STATE_BYTES = 8192
BOOT_ENTRIES_OFFSET = 512
_BOOT_ENTRY = Struct("<IIQ")


def node_state_copies(storage: Storage) -> list[NodeState | None]:
    """Both copies, each None if it is not whole."""
    copies: list[NodeState | None] = []
    for offset in NODE_STATE_OFFSETS:
        try:
            copies.append(read_node_state(OneCopy(storage, offset)))
        except JournalCorrupt:
            copies.append(None)
    return copies


def check_node_state(storage: Storage) -> Iterator[Finding]:
    size_bytes = storage.size(NODE_STATE_NAME)
    if size_bytes < NODE_STATE_BYTES:
        yield error(
            NODE_STATE_NAME,
            size_bytes,
            f"The file ends at byte {size_bytes} instead of {NODE_STATE_BYTES}: the node cannot note its next "
            f"start in it, and will not start.",
        )
    copies = node_state_copies(storage)
    if not any(copies):
        yield error(
            NODE_STATE_NAME,
            0,
            "Both copies of the node's state are damaged. Without the salt in it no other file can be checked "
            "or read; the log itself may be whole.",
        )
        return
    for offset, copy in zip(NODE_STATE_OFFSETS, copies, strict=True):
        if copy is None and _was_written(storage, offset):
            yield warning(
                NODE_STATE_NAME,
                offset,
                "One of the two copies of the node's state is damaged, or was being written at a crash. The "
                "other one is whole and counts.",
                advice="The next start writes both. If this comes again, look at the disk.",
            )


def _was_written(storage: Storage, offset: int) -> bool:
    """A journal that is just being made has only its first copy; the place of the second is zeros."""
    is_made = any(copy is not None and copy.is_made for copy in node_state_copies(storage))
    length = min(storage.size(NODE_STATE_NAME) - offset, 512)
    return length > 0 and (is_made or any(storage.read(NODE_STATE_NAME, offset, length)))


def is_empty_slot(storage: Storage, name: str) -> bool:
    """Whether no checkpoint was ever written into this slot."""
    try:
        return not any(storage.read(name, 0, CHECKPOINT_HEADER_BYTES))
    except StorageMissing:
        return False


def check_checkpoints(view: ReadOnlyView, rehearsal: Rehearsal) -> Iterator[Finding]:
    salt = rehearsal.node_state.salt
    names = view.names()
    found = {
        name: read_checkpoint(view, name, salt=salt) if name in names else None for name in CHECKPOINT_NAMES
    }
    whole = [name for name, checkpoint in found.items() if checkpoint is not None]
    # The second slot stays empty until the first checkpoint of a running node.
    is_first = rehearsal.checkpoint is not None and rehearsal.checkpoint.number == 0
    for name in CHECKPOINT_NAMES:
        if name not in names:
            yield error(
                name, 0, "A checkpoint slot is missing: the node has no place for its next checkpoint."
            )
        elif name in whole:
            continue
        elif not whole:
            yield error(
                name,
                0,
                "This slot holds no whole checkpoint, nor does the other: it is not known where recovery "
                "starts, nor what is held. The segments are checked all the same.",
            )
        elif rehearsal.problem is not None or rehearsal.is_log_lost:
            yield _needed_checkpoint(name, whole[0], rehearsal)
        elif not (is_empty_slot(view, name) and is_first):
            yield warning(
                name,
                0,
                f"This slot holds no whole checkpoint: it is damaged, or was being written at a crash. The one "
                f"in {whole[0]} is whole, and the log after it is complete: nothing is lost.",
                advice="The next checkpoint goes into this slot. If this comes again, look at the disk.",
            )


def _needed_checkpoint(name: str, whole_name: str, rehearsal: Rehearsal) -> Finding:
    lost = " The node would start with an empty journal." if rehearsal.is_log_lost else ""
    return error(
        name,
        0,
        f"This slot holds no whole checkpoint, and recovery cannot do with the one in {whole_name}. If the "
        f"newest checkpoint was here, segments before it have been reused, and the log after the older one is "
        f"no longer complete.{lost}",
        advice=f"Do not start the node. {RESTORE}",
    )


def check_boot(view: ReadOnlyView, salt: int) -> Iterator[Finding]:
    if BOOT_NAME not in view.names():
        yield error(
            BOOT_NAME, 0, "The boot section is missing: the node cannot record events while it boots."
        )
        return
    size_bytes = view.size(BOOT_NAME)
    if size_bytes < BOOT_ENTRIES_OFFSET:
        yield error(BOOT_NAME, size_bytes, f"The boot section ends at byte {size_bytes}, within its header.")
        return
    try:
        boot = BootSection(view, salt=salt)
    except JournalCorrupt as corrupt:
        yield error(
            BOOT_NAME,
            corrupt.offset,
            f"In the boot section: {corrupt.what}. Events that the node recorded while it booted, and had not "
            f"yet moved to the log, cannot be read. The log is not concerned.",
        )
        return
    yield from _check_last_event(view, boot)


def _check_last_event(view: ReadOnlyView, boot: BootSection) -> Iterator[Finding]:
    """Behind the whole entries: what a crash, or damage to the last one, has left."""
    data = view.read(BOOT_NAME, 0, view.size(BOOT_NAME))
    end = BOOT_ENTRIES_OFFSET + sum(aligned(_BOOT_ENTRY.size + len(payload)) for _, payload in boot.entries)
    if end + _BOOT_ENTRY.size > len(data):
        return
    _, payload_bytes, sequence = _BOOT_ENTRY.unpack_from(data, end)
    if sequence == boot.next_sequence and payload_bytes <= BOOT_EVENT_BYTES_MAX:
        yield warning(
            BOOT_NAME,
            end,
            f"The last event of the boot section ({sequence}) is not whole: it was being written at a crash, or "
            f"is damaged. The node goes on without it.",
        )
