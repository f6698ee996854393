"""The requirements report, run for real: small suites in a directory of their own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Hypothesis would be imported anew for each of these runs, and takes longer than all the rest.
LEAN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

REQUIREMENTS = """
[groups]
E = "Event delivery"
D = "Durability"

[E1]
text = "Standard message format, with a text much longer than a terminal of eighty columns would show."

[E2]
text = "Producers: any number."

[D]
text = "Durable means on disk."
"""

PROOF = """
import pytest

@pytest.mark.spec("E2", "D")
def test_proof():
    pass
"""

CONTROL = """
@pytest.mark.control("E2", "D")
def test_control():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """An empty project with three requirements and the plugin."""
    # The path is set inside, because workers of pytest-xdist start from the path of the outermost pytest.
    pytester.makeconftest(
        f'import sys\nsys.path.insert(0, {str(TESTS)!r})\npytest_plugins = ["requirements_report"]\n'
    )
    pytester.makeini(
        """
        [pytest]
        addopts = --strict-markers
        markers =
            spec(*ids): proves
            control(*ids): shows that the proof can fail
        """
    )
    pytester.mkdir("docs").joinpath("requirements.toml").write_text(REQUIREMENTS, encoding="utf-8")
    return pytester


def run(suite: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    suite.makepyfile(test_it=source)
    return suite.runpytest_inprocess(*LEAN, "--requirements", *arguments)


def test_a_proof_and_a_control_that_pass_make_it_proven(suite: pytest.Pytester) -> None:
    result = run(suite, PROOF + CONTROL)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "Event delivery:",
            "  E1  not proven yet  Standard message format*…",
            "  E2  proven          Producers: any number.",
            "        spec     passed   test_it.py::test_proof",
            "        control  passed   test_it.py::test_control",
            "Durability:",
            "  D   proven          Durable means on disk.",
            "        spec     passed   test_it.py::test_proof",
            "3 requirements: 2 proven, 0 no control, 0 failing, 1 not proven yet",
        ]
    )


def test_the_text_is_shortened_to_the_terminal(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    result = run(suite, PROOF + CONTROL)

    headline = next(line for line in result.outlines if line.startswith("  E1 "))
    assert headline.endswith("…")
    assert len(headline) < 80


def test_a_proof_without_a_control_fails_the_run(suite: pytest.Pytester) -> None:
    result = run(suite, PROOF)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "  E2  no control      *",
            "E2: a proof without a control is no proof.*",
            "D: a proof without a control is no proof.*",
            "3 requirements: 0 proven, 2 no control, 0 failing, 1 not proven yet",
        ]
    )


def test_without_the_option_nothing_is_judged(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=PROOF)

    result = suite.runpytest_inprocess(*LEAN)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*no proof*")


@pytest.mark.parametrize("body", ["pytest.skip('not here')", "pytest.xfail('known to fail')"])
def test_a_control_that_did_not_pass_is_none(suite: pytest.Pytester, body: str) -> None:
    result = run(suite, PROOF + CONTROL.replace("pass", body))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  E2  no control      *", "  D   no control      *"])


def test_a_skipped_proof_with_its_control_proves_nothing_yet(suite: pytest.Pytester) -> None:
    result = run(suite, PROOF.replace("pass", "pytest.skip('not here')") + CONTROL)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["  E2  not proven yet  *", "        spec     skipped  *"])


def test_a_skipped_proof_without_a_control_fails_the_run(suite: pytest.Pytester) -> None:
    result = run(suite, PROOF.replace("pass", "pytest.skip('not here')"))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  E2  no control      *"])


def test_a_control_alone_proves_nothing(suite: pytest.Pytester) -> None:
    result = run(suite, "import pytest\n" + CONTROL)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["  E2  not proven yet  *", "        control  passed   *"])


@pytest.mark.parametrize(
    "source",
    [
        PROOF.replace("pass", "assert False") + CONTROL,
        PROOF + CONTROL.replace("pass", "assert False"),
        PROOF.replace("pass", "assert False"),
    ],
    ids=["proof", "control", "proof without a control"],
)
def test_a_failure_makes_it_failing(suite: pytest.Pytester, source: str) -> None:
    result = run(suite, source)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["  E2  failing         *", "3 requirements: 0 proven, 0 no control, 2 failing, 1 not proven yet"]
    )


def test_a_failure_in_the_teardown_is_a_failure(suite: pytest.Pytester) -> None:
    fixture = "\n@pytest.fixture(autouse=True)\ndef broken():\n    yield\n    assert False\n"

    result = run(suite, PROOF + CONTROL + fixture)

    result.stdout.fnmatch_lines(["  E2  failing         *", "        spec     failed   *"])


def test_one_failed_parameter_is_a_failure_and_is_counted(suite: pytest.Pytester) -> None:
    proof = PROOF.replace("def test_proof():\n    pass", "def test_proof(n):\n    assert n < 2")
    proof = proof.replace("@pytest.mark.spec", "@pytest.mark.parametrize('n', range(3))\n@pytest.mark.spec")

    result = run(suite, proof + CONTROL)

    result.stdout.fnmatch_lines(
        ["  E2  failing         *", "        spec     1 failed, 2 passed*test_it.py::test_proof"]
    )


@pytest.mark.parametrize("role", ["spec", "control"])
@pytest.mark.parametrize(
    "arguments", [(), ("-n", "2"), ("-k", "test_proof")], ids=["plain", "xdist", "deselected"]
)
def test_an_unknown_id_stops_the_collection(
    suite: pytest.Pytester, role: str, arguments: tuple[str, ...]
) -> None:
    source = f'{PROOF}{CONTROL}\n@pytest.mark.{role}("E99")\ndef test_stray():\n    pass\n'

    result = run(suite, source, *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"test_it.py::test_stray: @pytest.mark.{role}('E99') names no requirement"])
    result.assert_outcomes(errors=1)


@pytest.mark.parametrize("marker", ["spec", "spec()", "spec(id='E2')"])
def test_a_marker_without_an_id_stops_the_collection(suite: pytest.Pytester, marker: str) -> None:
    result = run(suite, f"import pytest\n\n@pytest.mark.{marker}\ndef test_stray():\n    pass\n")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["test_it.py::test_stray: @pytest.mark.spec takes ids, such as *"])


def test_markers_of_a_class_count_for_its_tests(suite: pytest.Pytester) -> None:
    source = "\n@pytest.mark.spec('E1')\nclass TestFormat:\n    def test_it(self):\n        pass\n"

    result = run(suite, PROOF + CONTROL + source)

    result.stdout.fnmatch_lines(["  E1  no control      *", "        spec     passed   *TestFormat::test_it"])


def test_a_marker_selects_its_tests(suite: pytest.Pytester) -> None:
    result = run(suite, PROOF + CONTROL + "\ndef test_plain():\n    pass\n", "-m", "spec")

    result.assert_outcomes(passed=1, deselected=2)


@pytest.mark.parametrize(
    ("source", "status", "verdicts"),
    [
        (PROOF + CONTROL, pytest.ExitCode.OK, "2 proven, 0 no control, 0 failing, 1 not proven yet"),
        (PROOF, pytest.ExitCode.TESTS_FAILED, "0 proven, 2 no control, 0 failing, 1 not proven yet"),
        (
            PROOF.replace("pass", "import os; os._exit(1)") + CONTROL,
            pytest.ExitCode.TESTS_FAILED,
            "0 proven, 0 no control, 2 failing, 1 not proven yet",
        ),
    ],
    ids=["proven", "no control", "a worker that dies"],
)
def test_workers_tell_the_controller(
    suite: pytest.Pytester, source: str, status: pytest.ExitCode, verdicts: str
) -> None:
    result = run(suite, source, "-n", "2")

    assert result.ret == status
    result.stdout.fnmatch_lines([f"3 requirements: {verdicts}"])


@pytest.mark.parametrize("document", ["", "[groups]\n[E1]\ntext = 'no group'\n", "not toml"])
def test_requirements_that_cannot_be_read_are_a_usage_error(suite: pytest.Pytester, document: str) -> None:
    (suite.path / "docs" / "requirements.toml").write_text(document, encoding="utf-8")

    result = run(suite, PROOF + CONTROL)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *requirements.toml*"])


def test_the_requirements_of_holdfast_are_complete() -> None:
    document = tomllib.loads((TESTS.parent / "docs" / "requirements.toml").read_text(encoding="utf-8"))
    counts = {"E": 15, "S": 10, "C": 22, "P": 10}
    names = [f"{group}{number}" for group, count in counts.items() for number in range(1, count + 1)]

    assert list(document.pop("groups")) == [*counts, "D"]
    assert list(document) == [*names, "D"]
    assert all(table["text"].strip() and "\n" not in table["text"] for table in document.values())
