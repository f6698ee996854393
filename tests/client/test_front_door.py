"""What `import holdfast` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from holdfast import aio, errors
from holdfast.client import aio as client_aio


def test_every_name_that_is_promised_is_there() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    for name in aio.__all__:
        assert getattr(aio, name) is getattr(client_aio, name)
    assert holdfast.aio is aio
    assert holdfast.OutcomeUnknown is errors.OutcomeUnknown


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="conect"):
        holdfast.conect  # noqa: B018


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(run.stdout.split())


def test_importing_it_loads_nothing_else() -> None:
    assert not loaded_after("import holdfast") & {"asyncio", "msgspec", "pyarrow", "holdfast.client.sync"}


def test_the_client_does_without_the_node() -> None:
    loaded = loaded_after("import holdfast; holdfast.connect; holdfast.aio.connect; holdfast.Message")

    assert not loaded & {
        "pyarrow",
        "typer",
        "rich",
        "holdfast.journal",
        "holdfast.node",
        "holdfast.message.arrow",
    }
