"""The message value."""

from __future__ import annotations

import pickle

import pytest

import holdfast.message
from holdfast.message import Message, Severity
from tests.message.message_cases import EVERY_FIELD


def test_severities_are_ordered_so_that_a_threshold_is_a_comparison() -> None:
    assert list(Severity) == sorted(Severity)
    assert Severity.ERROR >= Severity.WARNING
    assert [int(severity) for severity in Severity] == list(range(1, 9))


def test_a_message_with_nothing_given_has_no_none_but_its_id() -> None:
    message = Message()
    given = {name: getattr(message, name) for name in Message.__struct_fields__}
    assert given.pop("id") is None
    assert None not in given.values()
    assert (message.body, message.priority, message.severity) == (b"", 4, Severity.INFO)


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EVERY_FIELD.body = b""  # type: ignore[misc]


def test_messages_do_not_share_their_properties() -> None:
    assert Message().properties is not Message().properties


def test_a_message_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(EVERY_FIELD)) == EVERY_FIELD


def test_every_public_name_exists() -> None:
    for name in holdfast.message.__all__:
        assert hasattr(holdfast.message, name)
    assert list(holdfast.message.__all__) == sorted(holdfast.message.__all__, key=_constants_first)


def _constants_first(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)
