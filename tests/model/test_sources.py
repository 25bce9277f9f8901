"""Where models come from: an environment's name comes first, then a file's."""

from pathlib import Path

import pytest

import cmdpkit as ck
from cmdpkit import envs


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_load_takes_an_environment_with_parameters_or_a_file(tmp_path: Path) -> None:
    assert ck.load("paper/lower-bound:p=0.25", H=4) == envs.build("paper/lower-bound", p=0.25, H=4)
    ck.write_model(ck.load("queue"), tmp_path / "model.json")
    assert ck.load(tmp_path / "model.json") == ck.load("queue")
    with pytest.raises(ValueError, match="is a file: it takes no parameters, got horizon"):
        ck.load("model.json", horizon=3)
    with pytest.raises(ValueError, match="parameter 'S' is given twice, also in 'random:S=3'"):
        ck.load("random:S=3", S=4)


def test_an_environment_comes_before_a_file_of_the_same_name() -> None:
    Path("queue").mkdir()
    assert ck.load("queue") == envs.build("queue")
    with pytest.raises(ValueError, match="suffix"):
        ck.load("./queue")
