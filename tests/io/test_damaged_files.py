"""Model files that are not there, cut short or changed on the way: refused by name, or still the same model."""

import json
import os
from typing import Any

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.io.models import SUFFIXES, read_model, write_model
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import at_most
from mutants import mutants


def small() -> CMDP:
    """Few bytes in every format, yet with names beyond ASCII, a constraint, a start distribution and long numbers."""
    return CMDP(
        [[[1 / 3, 2 / 3]], [[0, 1]]],
        [[0.1], [12.5]],
        mu=[1 / 7, 6 / 7],
        horizon=12,
        constraints=[at_most("Müll", 1.25, [[10.25], [0]])],
        states=["é", 'a "b"'],
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_cannot_be_read_are_named(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    with pytest.raises(ValueError, match=rf"cannot read .*model\{suffix}: No such file or directory"):
        read_model(path)
    path.mkdir()
    with pytest.raises(ValueError, match=rf"cannot read .*model\{suffix}: Is a directory"):
        read_model(path)
    path.rmdir()
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=rf"model\{suffix}"):
        read_model(path)
    path.write_bytes(b"[model]\nhorizon = 3 # \xff\n")
    with pytest.raises(ValueError, match=rf"model\{suffix}(:2: byte 0xff is not UTF-8|: not a complete npz)"):
        read_model(path)


@pytest.mark.parametrize("name", ["model.yaml", "model", "model.npy", "model.toml.bak", ".json"])
def test_unknown_suffixes_are_refused_for_reading_and_writing(name, tmp_path):
    message = r"unknown suffix '.*', expected one of .toml, .json, .csv, .npz"
    with pytest.raises(ValueError, match=message):
        read_model(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        write_model(small(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_only_models_are_written(tmp_path):
    with pytest.raises(ValueError, match="write_model writes a CMDP, got ndarray"):
        write_model(np.zeros((2, 2)), tmp_path / "model.npz")  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_short_at_any_byte_is_refused_or_still_the_same_model(suffix, tmp_path):
    path = write_model(small(), tmp_path / f"model{suffix}")
    size = path.stat().st_size
    same = []
    for n in reversed(range(size)):
        os.truncate(path, n)
        try:
            read = read_model(path)
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017
        else:
            assert read == small(), f"cut at byte {n}, another model is accepted"
            same.append(n)
    assert same in ([], [size - 1])  # nothing but the very last line end may be missing


def test_an_npz_file_with_any_byte_changed_is_refused_or_still_the_same_model(tmp_path):
    path = write_model(small(), tmp_path / "model.npz")
    data = path.read_bytes()
    same = 0
    with open(path, "r+b", buffering=0) as file:
        for i, byte in enumerate(data):
            file.seek(i)
            file.write(bytes([byte ^ 0xFF]))
            try:
                assert read_model(path) == small(), f"byte {i}"
                same += 1
            except ValueError as error:
                assert path.name in str(error)  # noqa: PT017
            file.seek(i)
            file.write(bytes([byte]))
    assert same < 0.25 * len(data)  # dates and the like in the archive's records, never what is stored


@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv"])
def test_noise_in_a_text_file_never_raises_anything_but_a_value_error(suffix, tmp_path):
    # One byte replaced by another may well be another valid model; what must not happen is a traceback.
    data = write_model(small(), tmp_path / f"whole{suffix}").read_bytes()
    path = tmp_path / f"model{suffix}"
    rng = np.random.default_rng(4)
    refused = 0
    for _ in range(400):
        noisy = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            noisy[rng.integers(len(noisy))] = rng.choice(list(b'\x00\n\r\t "#,.0123456789=[]{}eE+-_\\x\xc3\xff'))
        path.write_bytes(noisy)
        try:
            read_model(path)
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017
            refused += 1
    assert refused > 200


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize(
    ("name", "read"),
    [
        *((f"model{suffix}", ck.read_model) for suffix in SUFFIXES),
        ("model.tra", lambda path: ck.read_explicit(path, reward="reward", horizon=3, rewards={"reward": path})),
        *((f"policy{suffix}", ck.read_policy) for suffix in (".json", ".csv", ".npz")),
        ("log.csv", lambda path: ck.from_log(path, horizon=3)),
    ],
)
def test_a_pipe_is_refused_before_anything_waits_for_its_other_end(name, read, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ck.CmdpkitError, match=rf"cannot read .*{name}: it is a pipe or a device"):
        read(tmp_path / name)


def varied() -> CMDP:
    """A model with every part that a file can have."""
    return CMDP.from_function(
        start={0: 0.5, 1: 0.5},
        horizon=2,
        actions=["go", "stay"],
        step=lambda s, a: {1 - s: 0.5, s: 0.5},
        reward=lambda s, a, s_next: float(s_next),
        constraints=[at_most("cost", 2, lambda s, a: float(s), per_step=True)],
        exact=["cost"],
        grid=Grid(1, 2, ((0, 0), (0, 1)), {1: "G"}, ("→", "↓")),
    )


def told_of(mutant: Any, write: Any, read: Any) -> int:
    """1 if a changed document is refused, 0 if it is read; any other error fails the test."""
    write(mutant)
    try:
        read()
    except ck.CmdpkitError:
        return 1
    return 0


@pytest.mark.parametrize("kind", ["model", "policy"])
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_file_with_anything_else_in_one_place_is_read_or_refused_as_a_fault_of_the_file(kind, suffix, tmp_path):
    path, cmdp = tmp_path / f"file{suffix}", varied()
    if kind == "model":
        write_model(cmdp, path)
        read = lambda: ck.read_model(path)  # noqa: E731
    else:
        ck.write_policy(ck.Policy.uniform(cmdp), path, model=cmdp)
        read = lambda: ck.read_policy(path, cmdp)  # noqa: E731
    if suffix == ".json":
        document = json.loads(path.read_text())
        write = lambda mutant: path.write_text(json.dumps(mutant))  # noqa: E731
    else:
        arrays = dict(np.load(path))
        document = json.loads(arrays["header"].tobytes())
        write = lambda mutant: np.savez(  # noqa: E731
            path, **arrays | {"header": np.frombuffer(json.dumps(mutant).encode(), dtype=np.uint8)}
        )
    found = [told_of(mutant, write, read) for mutant in mutants(document)]
    assert len(found) > 100 and sum(found) > 0.8 * len(found)
