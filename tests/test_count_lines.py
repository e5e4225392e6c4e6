"""The count of lines of code."""

from __future__ import annotations

import count_lines as lines

TEXT = '''"""A module.

Two paragraphs.
"""

# A comment.
TEXT = """one

three"""  # A comment beside code.


class Thing:
    """A class."""

    field: int = 0
    """A text beside a field counts."""

    def method(self) -> int:
        """A method."""
        return (
            # A comment in an expression.
            1
        )
'''


def test_docstrings_comments_and_blank_lines_do_not_count():
    # Lines of a text, of a class and its field, of a method, and of what it returns.
    assert lines.count_lines(TEXT) == 3 + 3 + 1 + 3


def test_a_folder_is_counted_by_subpackage(tmp_path, capsys):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "inner" / "more.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "notes.txt").write_text("x = 1\n")
    (tmp_path / "alone.py").write_text(TEXT)
    lines.main([str(tmp_path)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [["10", f"{tmp_path}/alone.py"], ["3", f"{tmp_path}/inner"], ["13", "all"]]
