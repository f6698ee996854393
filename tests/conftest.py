"""What every test can rely on: the requirements report, and pytest's own means to test it."""

from __future__ import annotations

# pytest imports this file as `conftest` or as `tests.conftest`; its neighbour goes by the same rule.
pytest_plugins = ["pytester", __name__.replace("conftest", "requirements_report")]
