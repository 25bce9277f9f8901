"""What was compiled for other modules or another version is deleted before Numba reads it."""

import shutil
import subprocess
import sys

import pytest

from cmdpkit.model.compiled import PACKAGE, forget_stale_code


@pytest.fixture
def package(tmp_path):
    """A package with compiled code in two folders."""
    for folder in (tmp_path, tmp_path / "deep" / "room"):
        cache = folder / "__pycache__"
        cache.mkdir(parents=True)
        for name in ("a.f-1.py311.nbi", "a.f-1.py311.1.nbc", "a.cpython-311.pyc"):
            (cache / name).write_bytes(b"old")
    return tmp_path


def compiled(package):
    return sorted(path.name for path in package.rglob("*.nb[ci]"))


def test_code_compiled_for_another_stamp_is_deleted_once_and_nothing_else(package):
    forget_stale_code(package, "first")
    assert compiled(package) == []
    assert len(list(package.rglob("*.pyc"))) == 2
    (package / "__pycache__" / "new.nbi").write_bytes(b"new")
    forget_stale_code(package, "first")
    assert compiled(package) == ["new.nbi"]
    forget_stale_code(package, "second")
    assert compiled(package) == []


def test_a_command_runs_although_code_was_compiled_when_a_module_had_another_name(tmp_path):
    """The index of a cached function names the modules of its arguments, and Numba fails when one of them is gone."""
    shutil.copytree(PACKAGE, tmp_path / "cmdpkit", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from cmdpkit.learners import _old; print(_old.total(_old.Pair(1, 2)))"
    old = tmp_path / "cmdpkit" / "learners" / "_old.py"
    text = (
        "from typing import NamedTuple\nfrom cmdpkit.model.compiled import compiled\n{imports}\n"
        "@compiled\ndef total(pair):\n    return pair.a + pair.b\n"
    )
    pair = "class Pair(NamedTuple):\n    a: int\n    b: int\n"
    (old.parent / "_pair.py").write_text("from typing import NamedTuple\n" + pair)
    old.write_text(text.format(imports="from cmdpkit.learners._pair import Pair"))

    def said():
        return subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
        ).stdout

    assert said() == "3\n"
    assert any(b"_pair" in path.read_bytes() for path in old.parent.glob("__pycache__/_old.total*.nbi"))
    (old.parent / "_pair.py").unlink()
    old.write_text(text.format(imports=pair))
    assert said() == "3\n"
