"""The checker finds each broken promise, and accepts what keeps them."""

from __future__ import annotations

from holdfast.simulation.history import History


def sent(*tokens: str, confirmed: bool = True) -> History:
    history = History()
    for token in tokens:
        history.send(token, session="s", destination="q", body=token.encode())
        if confirmed:
            history.confirm(token)
    return history


def receive(history: History, token: str, position: int, body: bytes | None = None) -> None:
    history.receive(
        token,
        recipient="r",
        destination="q",
        position=position,
        body=token.encode() if body is None else body,
    )


def promises(history: History) -> list[str]:
    return [violation.promise for violation in history.violations]


def test_a_history_that_keeps_every_promise_is_accepted() -> None:
    history = sent("a", "b", "c")
    receive(history, "a", 1)
    receive(history, "b", 2)
    receive(history, "b", 2)
    history.acknowledging("a", recipient="r")
    history.acknowledged("a", recipient="r")
    receive(history, "c", 3)
    history.check_delivered(recipient="r", destination="q")
    history.check_session_order()
    assert not history.violations


def test_a_confirmed_message_that_never_came_is_lost() -> None:
    history = sent("a", "b")
    receive(history, "a", 1)
    history.check_delivered(recipient="r", destination="q")
    assert [(violation.promise, violation.token) for violation in history.violations] == [
        ("nothing is lost", "b")
    ]


def test_an_unconfirmed_message_may_be_there_or_not() -> None:
    history = sent("a", confirmed=False)
    history.check_delivered(recipient="r", destination="q")
    receive(history, "a", 1)
    assert not history.violations


def test_a_message_that_was_never_sent_is_invented() -> None:
    history = sent("a")
    receive(history, "z", 1)
    receive(history, "a", 1, body=b"other")
    assert promises(history) == ["nothing is invented", "nothing is invented"]


def test_a_message_that_comes_again_after_its_acknowledgement_is_doubled() -> None:
    history = sent("a")
    receive(history, "a", 1)
    history.acknowledged("a", recipient="r")
    receive(history, "a", 1)
    assert promises(history) == ["nothing is doubled"]


def test_a_message_at_two_positions_is_doubled() -> None:
    history = sent("a")
    receive(history, "a", 1)
    receive(history, "a", 2)
    assert promises(history) == ["nothing is doubled"]


def test_two_messages_at_one_position_are_found() -> None:
    history = sent("a", "b")
    receive(history, "a", 1)
    receive(history, "b", 1)
    assert promises(history) == ["nothing is doubled"]


def test_new_messages_out_of_order_are_found() -> None:
    history = sent("a", "b")
    receive(history, "b", 2)
    receive(history, "a", 1)
    assert promises(history) == ["order"]


def test_positions_against_the_order_of_sending_are_found() -> None:
    history = sent("a", "b")
    history.receive("b", recipient="r1", destination="q", position=1, body=b"b")
    history.receive("a", recipient="r2", destination="q", position=2, body=b"a")
    history.check_session_order()
    assert promises(history) == ["order"]


def test_a_message_whose_outcome_is_unknown_may_be_placed_anew() -> None:
    history = sent("a", confirmed=False)
    receive(history, "a", 1)
    history.forget_unconfirmed("a")
    receive(history, "a", 2)
    assert not history.violations
