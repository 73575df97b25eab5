"""The rules of language can fail: each is shown a name or a table that breaks it."""

import pytest

from tests.tidy import counts, words
from tests.tidy.sources import Source


def source(text: str, path: str = "src/tenure/core/one.py") -> Source:
    return Source(path, text)


@pytest.mark.parametrize("name", ["told", "kept", "_held", "Wanted", "asked", "skimmed", "begun"])
def test_a_bare_participle_is_recognised(name):
    assert words.is_participle(name)


@pytest.mark.parametrize("name", ["feed", "seed", "read", "thread", "kept_rows", "StoredPlan", "x"])
def test_a_noun_or_a_qualified_name_is_no_bare_participle(name):
    assert not words.is_participle(name)


def test_a_module_or_class_that_is_a_participle_is_refused():
    assert words.participle_modules(["src/tenure/core/told.py", "src/tenure/core/feed.py"]) == [
        "src/tenure/core/told.py:1: told is a participle; a module is named by a noun"
    ]
    found = words.participle_classes(source("class Wanted: ...\nclass _Held: ...\nclass Done: ..."))
    assert [line.partition(" class ")[0] for line in found] == ["src/tenure/core/one.py:1:"]


def test_a_class_name_that_occurs_twice_is_refused():
    one, other = source("class State: ..."), source("class State: ...", "src/tenure/core/two.py")
    assert words.duplicate_classes([one, other]) == [
        "src/tenure/core/two.py:1: class State is also defined at src/tenure/core/one.py:1"
    ]
    assert words.duplicate_classes([one]) == []


def test_a_cell_that_nobody_reads_to_its_end_is_refused():
    page = "| a | b |\n| - | - |\n| x | " + "y" * 301 + " |\n| x | " + "y" * 300 + " |\n"
    assert [line.partition(" a cell")[0] for line in words.wide_cells("p.md", page)] == ["p.md:3:"]


def test_the_counts_see_what_they_count():
    files = {
        "src/tenure/app/one.py": "class A: ...\ndef told(held): return str(row['a']), row['b']\n",
        "src/tenure/app/two.py": "class A: ...\nkept = 1\n",
        "docs/glossary.md": "| word | means |\n| ---- | ---- |\n| a · b | c |\n",
    }
    assert counts.string_subscripts(files) == 2
    assert counts.converted_subscripts(files) == 1
    assert counts.duplicate_class_names(files) == 1
    assert counts.participle_names(files) == 2
    assert counts.participle_variables(files) == 1
    assert counts.glossary_words(files) == 2
