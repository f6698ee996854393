"""Looking at a journal without changing it: what is there (`inspect`), and whether it is whole (`verify`)."""

from holdfast.journal.inspection.findings import Finding, Severity
from holdfast.journal.inspection.overview import (
    BootContents,
    BootEvent,
    CheckpointSlot,
    Inspection,
    SegmentState,
    SegmentSummary,
    SlotState,
    inspect,
)
from holdfast.journal.inspection.segment_detail import GroupDetail, RecordDetail, inspect_segment
from holdfast.journal.inspection.verification import Progress, verify

__all__ = [
    "BootContents",
    "BootEvent",
    "CheckpointSlot",
    "Finding",
    "GroupDetail",
    "Inspection",
    "Progress",
    "RecordDetail",
    "SegmentState",
    "SegmentSummary",
    "Severity",
    "SlotState",
    "inspect",
    "inspect_segment",
    "verify",
]
