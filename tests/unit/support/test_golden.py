"""Committed texts: a difference is shown, a missing file is an error, both can be written."""

import pytest

from tests.support.golden import compare


def test_written_and_compared(tmp_path):
    file = tmp_path / "goldens" / "a.txt"
    with pytest.raises(pytest.fail.Exception, match="does not exist"):
        compare(file, "one\ntwo", update=False)
    compare(file, "one\ntwo", update=True)
    assert file.read_bytes() == b"one\ntwo\n"
    compare(file, "one\ntwo\n", update=False)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)-two\n\+three\n.*--update-golden"):
        compare(file, "one\nthree", update=False)
    compare(file, "one\nthree", update=True)
    compare(file, "one\nthree", update=False)


def test_a_long_difference_is_cut(tmp_path):
    file = tmp_path / "a.txt"
    compare(file, "", update=True)
    with pytest.raises(pytest.fail.Exception, match="more lines") as failed:
        compare(file, "\n".join(map(str, range(500))), update=False)
    assert len(str(failed.value).splitlines()) < 70
