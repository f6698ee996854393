"""Runs the journal's work: flushes on one thread, maintenance on another, or a flush right here.

The journal is the state of one thread, its owner's. Two more threads only run `Work`: one the flushes, one
checkpoints, allocations and the reading of segments, so that nothing slow stands before a flush.

    owner:    append ... pump ----------------------------------> collect ... pump
    flushes:              \\-- write, sync -- finished, notify --/
    upkeep:                \\-- allocate ------------ finished, notify --> collect

Invariant: all work that the journal has handed out comes back to it once, on the owner's thread, by `finish` or
`abort`. No error ends a thread: a storage error stops the journal (`Journal.failure`), any other stops it too
and is raised where the owner takes the work back.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from types import TracebackType
from typing import NamedTuple, Self

from holdfast.errors import StorageError, StorageFailed, UsageError
from holdfast.journal.journal import Journal
from holdfast.journal.storage import Storage
from holdfast.journal.work import Flush, Work

# Up to this size a group is written on the owner's thread: handing it over and back costs more than gathering the
# next group meanwhile gains. Measured on two cores (`python -m bench journal`, sides `inline` and `thread`): the
# thread mostly takes 15 to 30% longer for groups of 64 KiB to 1 MiB, and is level or ahead from some 6 MiB on.
INLINE_BYTES_MAX = 1024 * 1024
# Unless the disk took longer than this the last time: the owner has other clients, who should not wait for it.
INLINE_FLUSH_S_MAX = 0.002


class _Outcome(NamedTuple):
    """How some work ended. Without work: what `notify` raised."""

    work: Work | None
    error: BaseException | None = None
    duration_s: float = 0.0


def _run(work: Work, storage: Storage) -> _Outcome:
    start_s = perf_counter()
    error = None
    try:
        work.run(storage)
    except BaseException as raised:  # noqa: BLE001 (carried to the owner, who judges it)
        error = raised
    return _Outcome(work, error, perf_counter() - start_s)


class _Worker:
    """A thread that runs work in the order in which it comes."""

    def __init__(
        self, name: str, storage: Storage, finished: SimpleQueue[_Outcome], notify: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._finished = finished
        self._notify = notify
        self._wanted: SimpleQueue[Work | None] = SimpleQueue()
        # An owner that dies without closing must not be kept alive by a thread that waits for work.
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Work) -> None:
        self._wanted.put(work)

    def stop(self) -> None:
        """End the thread after what it was given before."""
        self._wanted.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        # A function of its own, so that a checkpoint is not kept in memory until the next work comes.
        work = self._wanted.get()
        if work is None:
            return False
        self._finished.put(_run(work, self._storage))
        try:
            self._notify()
        except BaseException as error:  # noqa: BLE001 (`collect` raises it)
            self._finished.put(_Outcome(None, error))
        return True


class JournalWriter:
    """The disk side of one open journal. Every method belongs to the thread that owns the journal.

    Call `pump` after appending and after each `collect`; when it or `collect` returns true, look at the
    journal again: more may be durable, or it may have failed. `notify` is called on a worker's thread when
    there is something to collect, and should only wake the owner.
    """

    def __init__(
        self,
        journal: Journal,
        storage: Storage,
        *,
        notify: Callable[[], None],
        inline_bytes_max: int = INLINE_BYTES_MAX,
    ) -> None:
        self._journal = journal
        self._storage = storage
        self._inline_bytes_max = inline_bytes_max
        self._finished: SimpleQueue[_Outcome] = SimpleQueue()
        self._flushes = _Worker("journal-flushes", storage, self._finished, notify)
        self._upkeep = _Worker("journal-upkeep", storage, self._finished, notify)
        self._is_flushing = False
        self._is_maintaining = False
        self._last_flush_s = 0.0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_busy(self) -> bool:
        """Whether some work is under way, or waits to be collected."""
        return self._is_flushing or self._is_maintaining

    # -- starting work -----------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Start what the journal wants. True if a flush ended right here.

        Raises what a flush on this thread raised, and `LimitExceeded` for a state too large to checkpoint.
        """
        self._require_open()
        has_ended = self._start_flush(self._journal.begin_flush())
        self._start_maintenance()
        return has_ended

    def attest(self) -> bool:
        """For the owner's timer when nothing is appended: as `pump`, for the marker of an idle log."""
        self._require_open()
        return self._start_flush(self._journal.begin_attestation())

    def retry(self) -> None:
        """For the owner's timer: a disk that refused an allocation is asked once more."""
        self._require_open()
        self._journal.retry_allocation()
        self._start_maintenance()

    def flush_inline(self) -> bool:
        """Write what is gathered on this thread. False if there is nothing, or a group is being written."""
        self._require_open()
        flush = self._journal.begin_flush()
        if flush is None:
            return False
        self._conclude(_run(flush, self._storage))
        return True

    def _start_flush(self, flush: Flush | None) -> bool:
        if flush is None:
            return False
        if self._is_quick(flush):
            self._conclude(_run(flush, self._storage))
            return True
        self._is_flushing = True
        self._flushes.start(flush)
        return False

    def _is_quick(self, flush: Flush) -> bool:
        """Whether the owner may wait for this flush itself: it is small, and nothing else slows the disk."""
        return (
            flush.total_bytes <= self._inline_bytes_max
            and not self._is_maintaining
            and self._last_flush_s <= INLINE_FLUSH_S_MAX
        )

    def _start_maintenance(self) -> None:
        # One at a time: they share a thread, and a checkpoint that waited there would grow old.
        if self._is_maintaining:
            return
        work = self._next_maintenance()
        if work is not None:
            self._is_maintaining = True
            self._upkeep.start(work)

    def _next_maintenance(self) -> Work | None:
        """First what returns space, then what adds some, then what must be bought by writing."""
        journal = self._journal
        if journal.wants_checkpoint():
            return journal.begin_checkpoint()
        return journal.begin_allocation() or journal.begin_move()

    # -- taking it back ----------------------------------------------------------------------------------

    def collect(self) -> bool:
        """Give finished work back to the journal. True if there was some.

        Raises what the work or `notify` raised, unless it was a `StorageError`: the journal keeps those. What
        else is finished stays for the next call.
        """
        has_ended = False
        while True:
            try:
                outcome = self._finished.get_nowait()
            except Empty:
                return has_ended
            self._conclude(outcome)
            has_ended = True

    def _conclude(self, outcome: _Outcome) -> None:
        work, error, duration_s = outcome
        if isinstance(work, Flush):
            self._is_flushing = False
            self._last_flush_s = duration_s
        elif work is not None:
            self._is_maintaining = False
        if work is not None:
            self._return(work, error)
        if error is not None and not isinstance(error, StorageError):
            raise error

    def _return(self, work: Work, error: BaseException | None) -> None:
        if error is None:
            self._journal.finish(work)
        elif isinstance(error, StorageError):
            self._journal.abort(work, error)
        else:
            # Nobody knows how far it came: to the journal that is the same as a failed disk.
            self._journal.abort(work, StorageFailed(f"{type(work).__name__} was broken off: {error!r}"))

    # -- the end -----------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait until all that was appended is durable, or the journal has failed, and no work is under way.

        Starts no maintenance. Raises as `collect` does.
        """
        while self.flush_inline() or self.is_busy:
            if self.is_busy:
                self._conclude(self._finished.get())

    def close(self) -> None:
        """Drain, then end the threads. Closing twice is harmless. The journal itself stays open.

        The threads end even where draining raises; what they then left can still be collected.
        """
        if self._is_closed:
            return
        try:
            self.drain()
        finally:
            self._is_closed = True
            self._flushes.stop()
            self._upkeep.stop()

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError("the journal's writer is closed")
