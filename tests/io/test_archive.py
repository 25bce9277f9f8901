"""npz files that claim or inflate to far more than they are: refused before the memory is taken."""
# ruff: noqa: E501 - a table of cases reads best with a case per line

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.io.formats.npz import ALWAYS_ALLOWED_BYTES, MAX_INFLATION, read_arrays
from refusals import MEGABYTE, refused

BOMB = 64 * MEGABYTE  # more than any small file may inflate to, and quickly made


def header_of(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """The header of an array, as NumPy writes it."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def saved(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zeros(size: int, shape: tuple[int, ...] | None = None) -> bytes:
    """An array of zeros that takes ``size`` bytes."""
    return header_of(shape or (size // 8,)) + bytes(size)


def arrays(**changes: Any) -> dict[str, bytes]:
    """The members of a valid model of two states and two actions, some of them changed, with changes of the header."""
    cmdp = ck.CMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3)
    c = cmdp.compact
    header = {"format": "cmdpkit model", "version": 1, "horizon": 3, "states": 2, "actions": 2, "constraint": []}
    header |= changes.pop("says", {})
    members = {
        "header": saved(np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)),
        "indptr": saved(cmdp.kernel.indptr),
        "successors": saved(cmdp.kernel.successors),
        "prob": saved(cmdp.kernel.prob),
        "r": saved(c.r),
        "signals": saved(c.g),
        "actions": saved(c.allowed),
        "mu": saved(c.mu),
    }
    return members | changes


def packed(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def test_the_valid_members_are_a_model(tmp_path):
    assert ck.read_model(packed(tmp_path / "model.npz", arrays())).S == 2


def test_a_bomb_of_200_megabytes_is_refused_before_it_is_inflated(tmp_path):
    path = packed(tmp_path / "model.npz", arrays(prob=zeros(200 * MEGABYTE)))
    assert path.stat().st_size < MEGABYTE
    refused(path, r"would inflate to 209,\d\d\d,\d\d\d, more than 50 times")


LONG_HEADER = b"\x93NUMPY\x02\x00" + struct.pack("<I", MEGABYTE) + b" " * MEGABYTE
BOMBS = {
    "a known array": (lambda: arrays(mu=zeros(BOMB)), r"would inflate to"),
    "the header": (lambda: arrays(header=header_of((BOMB,), "|u1") + b" " * BOMB), r"would inflate to"),
    # All of it fits together here, but nobody has such a model in so small a file.
    "a model that says it is large": (
        lambda: arrays(r=zeros(BOMB, (BOMB // 32, 2, 2)), says={"horizon": BOMB // 32}),
        r"would inflate to",
    ),
    # Below the limit of every file, and still more than this model declares.
    "an array larger than the model": (lambda: arrays(mu=zeros(ALWAYS_ALLOWED_BYTES // 2)), r"mu has shape .*, expected \(2,\)"),
    "more transitions than the model has": (lambda: arrays(prob=zeros(ALWAYS_ALLOWED_BYTES // 2)), r"kernel: successors is int32 of shape \(8,\), expected int32 of shape"),
    "an unknown array of some size": (lambda: arrays(extra=zeros(ALWAYS_ALLOWED_BYTES // 2)), r"unknown array 'extra'"),
    "a shape of a terabyte": (lambda: arrays(mu=header_of((1 << 37,)) + bytes(16)), r"does not have the size it claims"),
    "a shape that overflows": (lambda: arrays(mu=header_of((1 << 62, 1 << 62)) + bytes(16)), r"does not have the size it cl"),
    "a shape below zero": (lambda: arrays(mu=header_of((-1, -2)) + bytes(16)), r"not a complete npz file"),
    "objects": (lambda: arrays(mu=header_of((2,), "|O") + bytes(16)), r"Object arrays cannot be loaded"),
    "a long header of an array": (lambda: arrays(mu=LONG_HEADER), r"not a complete npz file"),
    "no array at all": (lambda: arrays(mu=b"hello"), r"not a complete npz file"),
}  # fmt: skip


@pytest.mark.parametrize(("members", "message"), BOMBS.values(), ids=BOMBS)
def test_what_cannot_belong_to_the_model_is_refused_unread(members, message, tmp_path):
    refused(packed(tmp_path / "model.npz", members()), message)


def test_members_that_are_no_arrays_or_stand_there_twice_are_refused(tmp_path):
    path = packed(tmp_path / "model.npz", arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hello")
    refused(path, r"not a complete npz file of plain arrays")
    path = packed(tmp_path / "twice.npz", arrays())
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("mu.npy", saved(np.array([0.0, 1.0])))
    refused(path, r"an array is there twice")


def test_a_directory_that_lies_about_sizes_takes_no_memory(tmp_path):
    """Directory and header say that mu has two entries, and its stream inflates to 64 MB."""
    path = packed(tmp_path / "model.npz", arrays(mu=header_of((2,)) + bytes(BOMB)))
    true, said = len(header_of((2,))) + BOMB, len(header_of((2,))) + 16
    data = path.read_bytes()
    assert data.count(struct.pack("<I", true)) == 2  # before the member and in the directory
    path.write_bytes(data.replace(struct.pack("<I", true), struct.pack("<I", said)))
    refused(path, r"not a complete npz file of plain arrays")


def test_a_policy_cannot_be_a_bomb_either(tmp_path):
    header = {"format": "cmdpkit policy", "version": 1, "horizon": 1, "states": 1, "actions": 2, "draws": 1}
    text = saved(np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    rows = {"choice": saved(np.zeros((1, 1), np.int16)), "where": saved(np.zeros((1, 2), np.int64))}
    good = packed(tmp_path / "good.npz", {"header": text, **rows, "p": saved(np.array([[0.5, 0.5]]))})
    assert ck.read_policy(good).horizon == 1
    bomb = packed(tmp_path / "bomb.npz", {"header": text, **rows, "p": zeros(BOMB)})
    refused(bomb, "would inflate to", ck.read_policy)
    large = packed(tmp_path / "large.npz", {"header": text, **rows, "p": zeros(ALWAYS_ALLOWED_BYTES // 2)})
    refused(large, r"'draws' is 1, expected the rows of p, which has shape", ck.read_policy)


def test_a_compressed_file_of_a_real_model_is_read(tmp_path):
    cmdp = ck.load("random:S=60,seed=3")
    stored = ck.write_model(cmdp, tmp_path / "stored.npz")
    with np.load(stored) as members:
        np.savez_compressed(tmp_path / "small.npz", **dict(members))
    assert (tmp_path / "small.npz").stat().st_size < stored.stat().st_size
    assert ck.read_model(tmp_path / "small.npz") == cmdp


def test_a_large_file_may_inflate_in_proportion(tmp_path):
    size = ALWAYS_ALLOWED_BYTES // 8
    rng = np.random.default_rng(0)
    members = {"a": saved(rng.random(size // 8)), "b": zeros(20 * size)}
    assert 20 * size > ALWAYS_ALLOWED_BYTES
    assert read_arrays(packed(tmp_path / "some.npz", members))["b"].shape == (20 * size // 8,)
    assert MAX_INFLATION > 20
