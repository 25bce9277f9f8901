"""Files appear whole or not at all, and never over somebody's work unless asked to."""

import os
import stat
import threading

import pytest

from cmdpkit.io import atomic


def test_a_failure_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    path = atomic.write_text(tmp_path / "data", "old")

    def interrupted() -> None:
        with atomic.writing(path, overwrite=True) as file:
            file.write(b"half of the n")
            file.flush()
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        interrupted()
    assert path.read_bytes() == b"old"
    assert [x.name for x in tmp_path.iterdir()] == ["data"]


def test_of_many_writers_that_must_not_overwrite_one_wins(tmp_path, monkeypatch):
    def attempt(i: int) -> None:
        barrier.wait()
        try:
            atomic.write_text(tmp_path / "data", f"{i}")
            winners.append(i)
        except ValueError as error:
            losers.append(str(error))

    def refused(*_: object) -> None:
        raise OSError("no hard links here")

    for trial in range(10):
        if trial == 5:
            monkeypatch.setattr(os, "link", refused)
        winners: list[int] = []
        losers: list[str] = []
        barrier = threading.Barrier(6)
        threads = [threading.Thread(target=attempt, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert len(losers) == 5 and all("exists already" in message for message in losers)
        assert (tmp_path / "data").read_bytes() == b"%d" % winners[0]
        assert [x.name for x in tmp_path.iterdir()] == ["data"]
        (tmp_path / "data").unlink()


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_new_files_have_the_usual_permissions_and_links_are_followed(tmp_path):
    umask = os.umask(0o022)
    try:
        target = atomic.write_text(tmp_path / "data", "old")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(ValueError, match="link exists already"):
        atomic.write_text(link, "new")
    atomic.write_text(link, "new", overwrite=True)
    assert link.is_symlink() and target.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such/folder/data", "cannot write .*data: No such file or directory"),
        ("file/data", "cannot write .*data: Not a directory"),
        ("x" * 300, "cannot write .*: File name too long"),
    ],
)
def test_what_the_disk_refuses_is_said_with_the_name_of_the_file(name, message, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=message):
            atomic.write_text(tmp_path / name, "new", overwrite=overwrite)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"cannot write .*folder: "):
        atomic.write_text(tmp_path / "folder", "new", overwrite=True)
