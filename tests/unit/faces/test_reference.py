"""The pages about this face say what its tables say."""

from pathlib import Path

import pytest

from tenure.faces.http import reference

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize(
    ("name", "page"),
    [("http.md", reference.http_page()), ("problems.md", reference.problems_page())],
)
def test_the_reference_is_as_the_tables_are(name, page):
    told = (DOCS / name).read_text(encoding="utf-8")
    assert told == page, "python -m tenure.faces.http.reference docs/reference writes it anew"


def test_the_pages_are_written_where_they_are_wanted(tmp_path):
    reference.main(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["http.md", "problems.md"]
