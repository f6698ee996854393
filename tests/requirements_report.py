"""Which requirements hold: a pytest plugin that joins `docs/requirements.toml` to the tests.

A test names what it proves with `@pytest.mark.spec("E4", "D")`. A test that breaks something on purpose, to
show that such a proof would notice, names it with `@pytest.mark.control("E4")`. `pytest --requirements` then
prints every requirement with its tests, their outcomes, and a verdict:

| verdict          | meaning                                                                             |
|------------------|-------------------------------------------------------------------------------------|
| `proven`         | a spec test passed, a control passed, and none of either failed                     |
| `no control`     | there is a spec test, and nothing shows that it could fail: the run fails           |
| `failing`        | a spec test or a control failed                                                     |
| `not proven yet` | no spec test ran to its end                                                         |

A proof without a control is no proof: a checker that never says no would pass as well.

Under pytest-xdist the tests are collected by the workers alone. The markers therefore travel to the
controller inside each test report, as user properties, and only the controller judges.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, assert_never

import pytest

REQUIREMENTS_FILE = Path("docs/requirements.toml")
# The markers, which are the names of the user properties too; in the order in which the table shows them.
ROLES = ("spec", "control")
FAULT_TITLE = "markers that docs/requirements.toml does not allow"
LINE_COLUMNS_MINIMUM = 60  # a narrower terminal wraps: below this, a shortened text says nothing

Outcome = Literal["passed", "failed", "skipped", "xfailed", "xpassed", "not run"]


class Verdict(StrEnum):
    PROVEN = "proven"
    NO_CONTROL = "no control"
    FAILING = "failing"
    NOT_PROVEN_YET = "not proven yet"


@dataclass(frozen=True)
class Requirements:
    """`docs/requirements.toml`: the text of every id, and the title of every group of ids."""

    texts: dict[str, str]
    groups: dict[str, str]

    def grouped(self) -> Iterator[tuple[str, list[str]]]:
        for group, title in self.groups.items():
            yield title, [name for name in self.texts if name.rstrip("0123456789") == group]


@dataclass
class MarkedTest:
    """One test, as its reports told of it."""

    node: str
    names: dict[str, frozenset[str]]
    outcome: Outcome = "not run"

    def observe(self, report: pytest.TestReport) -> None:
        """A failure in any phase stays; only the call itself can pass."""
        if report.failed or self.outcome == "failed":
            self.outcome = "failed"
        elif hasattr(report, "wasxfail"):
            # An expected failure proves nothing, and neither does a pass that nobody expected.
            self.outcome = "xpassed" if report.passed else "xfailed"
        elif report.skipped:
            self.outcome = "skipped"
        elif report.when == "call":
            self.outcome = "passed"


@dataclass(frozen=True)
class Standing:
    """Where one requirement stands after the run."""

    name: str
    tests: dict[str, list[MarkedTest]]

    @property
    def verdict(self) -> Verdict:
        specs = {test.outcome for test in self.tests["spec"]}
        controls = {test.outcome for test in self.tests["control"]}
        if "failed" in specs | controls:
            return Verdict.FAILING
        if specs and not controls:
            return Verdict.NO_CONTROL
        if "passed" in specs:
            return Verdict.PROVEN if "passed" in controls else Verdict.NO_CONTROL
        return Verdict.NOT_PROVEN_YET


@dataclass
class RequirementsReport:
    """Gathers the reports of the run, on the controller, and judges at its end."""

    requirements: Requirements
    tests: dict[str, MarkedTest] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = {role: frozenset(str(v) for k, v in report.user_properties if k == role) for role in ROLES}
        # A test that took its process with it has a last report without properties: its set-up named them.
        if report.nodeid in self.tests or any(names.values()):
            self.tests.setdefault(report.nodeid, MarkedTest(report.nodeid, names)).observe(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.uncontrolled():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        columns = max(terminalreporter.config.get_terminal_writer().fullwidth - 1, LINE_COLUMNS_MINIMUM)
        terminalreporter.section("requirements")
        for title, names in self.requirements.grouped():
            terminalreporter.write_line(f"{title}:", bold=True)
            for standing in map(self.standing, names):
                headline = _headline(standing, self.requirements.texts[standing.name], columns=columns)
                terminalreporter.write_line(headline, **_markup(standing.verdict))
                for line in _test_lines(standing):
                    terminalreporter.write_line(line)
        for standing in self.uncontrolled():
            terminalreporter.write_line(
                f"{standing.name}: a proof without a control is no proof. Add a test, or mend the one, "
                f'marked @pytest.mark.control("{standing.name}").',
                red=True,
            )
        terminalreporter.write_line(self.summary(), bold=True)

    def standing(self, name: str) -> Standing:
        tests = self.tests.values()
        return Standing(name, {role: [test for test in tests if name in test.names[role]] for role in ROLES})

    def uncontrolled(self) -> list[Standing]:
        standings = map(self.standing, self.requirements.texts)
        return [standing for standing in standings if standing.verdict is Verdict.NO_CONTROL]

    def summary(self) -> str:
        counts = Counter(self.standing(name).verdict for name in self.requirements.texts)
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
        return f"{len(self.requirements.texts)} requirements: {verdicts}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("requirements")
    group.addoption(
        "--requirements",
        action="store_true",
        help=f"after the run, print which requirements of {REQUIREMENTS_FILE} are proven, and by which tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    requirements = load_requirements(config.rootpath / REQUIREMENTS_FILE)
    config.pluginmanager.register(MarkerCheck(requirements), "requirements-marker-check")
    is_xdist_worker = hasattr(config, "workerinput")
    if config.getoption("--requirements") and not is_xdist_worker:
        config.pluginmanager.register(RequirementsReport(requirements), "requirements-report")


class MarkerCheck:
    """Refuses a marker with an id that no requirement has, and notes the others on their tests.

    It speaks through the report of the collection: a worker of pytest-xdist that raises just disappears.
    """

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.refused = False

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        items = [node for node in report.result or () if isinstance(node, pytest.Item)]
        faults = [fault for item in items for fault in self.faults(item)]
        if faults:
            report.outcome = "failed"
            report.longrepr = "\n".join([f"{FAULT_TITLE}:", *faults])
            report.result = []
        for item in items:
            item.user_properties.extend((role, name) for role in ROLES for name in _marked(item, role))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.refused = self.refused or str(report.longrepr or "").startswith(FAULT_TITLE)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def faults(self, item: pytest.Item) -> Iterator[str]:
        for role in ROLES:
            if any(not mark.args or mark.kwargs for mark in item.iter_markers(role)):
                yield f'{item.nodeid}: @pytest.mark.{role} takes ids, such as @pytest.mark.{role}("E4")'
            for name in _marked(item, role):
                if name not in self.requirements.texts:
                    yield f"{item.nodeid}: @pytest.mark.{role}({name!r}) names no requirement"


def load_requirements(path: Path) -> Requirements:
    """Read the file; what is wrong with it is a usage error that says so."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        groups: dict[str, str] = document.pop("groups")
        texts = {name: str(table["text"]) for name, table in document.items()}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise pytest.UsageError(f"{path} does not say what the requirements are: {error!r}") from error
    requirements = Requirements(texts, groups)
    grouped = {name for _, names in requirements.grouped() for name in names}
    if ungrouped := sorted(texts.keys() - grouped):
        raise pytest.UsageError(f"{path}: no group for {', '.join(ungrouped)}")
    return requirements


def _marked(item: pytest.Item, role: str) -> Iterable[str]:
    """The ids of one role, each once; markers of the class and of the module count."""
    return dict.fromkeys(str(name) for mark in item.iter_markers(role) for name in mark.args)


def _headline(standing: Standing, text: str, *, columns: int) -> str:
    line = f"  {standing.name:<4}{standing.verdict:<16}{text}"
    return line if len(line) <= columns else line[: columns - 1].rstrip() + "…"


def _test_lines(standing: Standing) -> Iterator[str]:
    """One line for each test function; its parametrisations are counted, not listed."""
    for role in ROLES:
        functions: dict[str, Counter[Outcome]] = {}
        for test in standing.tests[role]:
            function = re.sub(r"\[.*\]$", "", test.node, flags=re.DOTALL)
            functions.setdefault(function, Counter())[test.outcome] += 1
        for function, outcomes in sorted(functions.items()):
            yield f"        {role:<9}{_outcomes_text(outcomes):<9}{function}"


def _outcomes_text(outcomes: Counter[Outcome]) -> str:
    if outcomes.total() == 1:
        return next(iter(outcomes))
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))


def _markup(verdict: Verdict) -> dict[str, bool]:
    match verdict:
        case Verdict.PROVEN:
            return {"green": True}
        case Verdict.NO_CONTROL | Verdict.FAILING:
            return {"red": True}
        case Verdict.NOT_PROVEN_YET:
            return {}
        case _:
            assert_never(verdict)
