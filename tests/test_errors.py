"""The tree of errors: one registry of codes, and a drawing at the top of the module that stays true.

Each rule is a function that yields what breaks it, so that a broken tree can show that the rule would notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.errors import CODES, HoldfastError

Tree = dict[str, str | None]  # the name of a class, and the name of its parent

BRANCH = re.compile(r"^    (?P<trunk>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:  |$)")
TRUNK_COLUMNS = 4


def descendants(root: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield root
    for child in root.__subclasses__():
        yield from descendants(child)


def holdfast_errors() -> list[type[HoldfastError]]:
    """All that are imported by now. Tests may derive errors of their own; these are not part of the tree."""
    return [error for error in descendants(HoldfastError) if error.__module__.startswith("holdfast.")]


def drawn_tree(docstring: str) -> Tree:
    """The drawing, read back: the parent is the last name before it that stands one step to its left."""
    tree: Tree = {}
    ancestors: list[str] = []
    for line in docstring.splitlines():
        if branch := BRANCH.match(line):
            depth = len(branch["trunk"]) // TRUNK_COLUMNS
            del ancestors[depth:]
            tree[branch["name"]] = ancestors[-1] if ancestors else None
            ancestors.append(branch["name"])
    return tree


def real_tree(classes: list[type[HoldfastError]]) -> Tree:
    return {
        error.__name__: None if error is HoldfastError else error.__bases__[0].__name__ for error in classes
    }


def shared_codes(classes: list[type[HoldfastError]]) -> list[str]:
    """A class without a code of its own has its parent's, so it is found here too."""
    return [code for code, count in Counter(error.code for error in classes).items() if count > 1]


def undocumented(classes: list[type[HoldfastError]]) -> list[str]:
    """A docstring that is inherited says nothing about this error."""
    return [error.__name__ for error in classes if not (error.__dict__.get("__doc__") or "").strip()]


def unregistered(classes: list[type[HoldfastError]], codes: dict[str, type[HoldfastError]]) -> list[str]:
    return [error.__name__ for error in classes if codes.get(error.code) is not error]


def misplaced(classes: list[type[HoldfastError]]) -> list[str]:
    return [error.__name__ for error in classes if error.__module__ != errors.__name__]


def test_no_two_errors_share_a_code() -> None:
    assert shared_codes(holdfast_errors()) == []


def test_the_registry_covers_the_tree_and_nothing_else() -> None:
    assert unregistered(holdfast_errors(), CODES) == []
    assert set(CODES.values()) == set(holdfast_errors())


def test_every_error_lives_in_the_one_module() -> None:
    assert misplaced(holdfast_errors()) == []


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    assert drawn_tree(errors.__doc__ or "") == real_tree(holdfast_errors())


def test_every_error_says_when_it_is_raised() -> None:
    assert undocumented(holdfast_errors()) == []


def test_a_code_is_made_of_small_words() -> None:
    assert [code for code in CODES if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", code)] == []


def test_a_limit_says_its_name_and_its_numbers() -> None:
    error = errors.LimitExceeded("body_bytes", value=9, maximum=8)

    assert str(error) == "body_bytes: 9 is above the maximum of 8"
    assert (error.limit, error.value, error.maximum) == ("body_bytes", 9, 8)


def test_corruption_says_where_and_what_to_do() -> None:
    error = errors.JournalCorrupt("the checksum is wrong", name="segment-7", offset=4096, lsn=12)

    assert "the checksum is wrong (file segment-7, byte 4096, lsn 12). Nothing was changed." in str(error)
    assert (error.what, error.name, error.offset, error.lsn) == (
        "the checksum is wrong",
        "segment-7",
        4096,
        12,
    )


class TestTheRulesCanFail:
    """A broken class, for each rule."""

    @pytest.fixture
    def stray(self) -> type[HoldfastError]:
        class Stray(errors.StorageError):
            pass

        return Stray

    def test_a_shared_code_is_found(self, stray: type[HoldfastError]) -> None:
        assert shared_codes([*holdfast_errors(), stray]) == ["storage"]

    def test_an_unregistered_error_is_found(self, stray: type[HoldfastError]) -> None:
        assert unregistered([*holdfast_errors(), stray], CODES) == ["Stray"]

    def test_an_error_of_another_module_is_found(self, stray: type[HoldfastError]) -> None:
        assert misplaced([*holdfast_errors(), stray]) == ["Stray"]

    def test_a_missing_docstring_is_found(self, stray: type[HoldfastError]) -> None:
        assert undocumented([*holdfast_errors(), stray]) == ["Stray"]

    @pytest.mark.parametrize(
        ("line", "changed"),
        [("    │   ├── StorageFull   ", ""), ("    │   ├── StorageFull   ", "    ├── StorageFull   ")],
        ids=["missing", "under another parent"],
    )
    def test_a_wrong_drawing_is_found(self, line: str, changed: str) -> None:
        docstring = errors.__doc__ or ""
        assert line in docstring

        assert drawn_tree(docstring.replace(line, changed)) != real_tree(holdfast_errors())
