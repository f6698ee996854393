"""Suites that every implementation of a seam must pass, and the broken implementations that must not."""

import pytest

pytest.register_assert_rewrite("tests.contracts.storage_contract")
