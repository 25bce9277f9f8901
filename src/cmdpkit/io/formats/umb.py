"""Files in the unified Markov binary format (.umb): a tar archive of an index in JSON and of plain vectors.

The format is that of https://github.com/pmc-tools/umb, version 0. Vectors are little-endian: probabilities and rewards
of their declared type, offsets and targets of 64 bits. A small archive can inflate to any size, so the bytes that come
out of it are counted, and every length is checked against the index before an array is made.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import cmdpkit
from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.npz import check_inflation
from cmdpkit.io.formats.prism import Explicit, check_names, told_apart
from cmdpkit.io.formats.source import Located, check_regular
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Name

FORMAT_VERSION = 0  # version of the format that is read and written
COMPRESSED: Mapping[bytes, Callable[[BinaryIO], Any]] = {  # by the first bytes of the file
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
BITS = {"double": 64, "int": 64, "uint": 64, "rational": 128}  # size of a number unless the index says otherwise
DAMAGE = (
    *(tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, KeyError, TypeError, RecursionError),  # of the index in JSON, which may be nested without end
)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Explicit:
    """The Markov decision process in a file, with all its reward structures."""
    check_regular(path)
    try:
        files = _members(path)
        index = Located(path, "the index", json.loads(files["index.json"])).table()
        system = index.at("transition-system").table()
        if index.value["format-version"] != FORMAT_VERSION:
            raise CmdpkitError(
                f"{path} has version {quoted(index.value['format-version'])} of the format, this cmdpkit reads "
                f"{FORMAT_VERSION}; update cmdpkit"
            )
        if system.value["time"] != "discrete" or system.value["#players"] > 1:
            raise CmdpkitError(f"{path} is not a Markov decision process in discrete time with one player")
        annotations = Located(path, "annotations", index.value.get("annotations", {})).table()
        rewards = Located(path, "rewards", annotations.value.get("rewards", {})).table()
        return _model(path, files, system, rewards)
    except CmdpkitError:
        raise
    except DAMAGE as error:
        said = f"{quoted(error.args[0])} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, TypeError):  # whose text is about Python
            said = f"a value in its index is not of the kind that the format asks for ({error})"
        raise CmdpkitError(f"{path}: not a complete .umb file: {said}") from None


def _model(path: Path, files: Mapping[str, bytes], system: Located, described: Located) -> Explicit:
    S, choices, branches = (system.at(key).whole(0) for key in ("#states", "#choices", "#branches"))
    target = _integers(files, "branch-to-target.bin", "<u8", branches)
    owner = np.repeat(np.arange(choices), np.diff(_offsets(files, "choice-to-branches.bin", choices, branches)))
    first = _offsets(files, "state-to-choices.bin", S, choices)
    if branches and target.max() >= S:
        raise CmdpkitError(f"{path}: a transition leads to state {target.max()}, but there are {S}, numbered from 0")
    state = np.repeat(np.arange(S), np.diff(first))
    if "branch-probability-type" in system:
        kind = system.at("branch-probability-type").table()
        prob = _numbers(files["branch-to-probability.bin"], kind, branches, "probabilities")
    elif branches == choices:
        prob = np.ones(branches)  # every choice has one next state
    else:
        raise CmdpkitError(f"{path} has no probabilities: it is a transition system, not a Markov decision process")
    rewards = {}
    for name in described.value:
        structure = described.at(name).table()
        total = np.zeros(choices)
        for part, n in (("states", S), ("choices", choices), ("branches", branches)):
            if part in structure.value["applies-to"]:
                data = files[f"annotations/rewards/{name}/{part}/values.bin"]
                values = _numbers(data, structure.at("type").table(), n, f"rewards of {quoted(name)}")
                if part == "states":
                    total += values[state]
                else:
                    total += values if part == "choices" else np.bincount(owner, prob * values, choices)
        rewards[structure.value.get("alias") or name] = total
    check_names(path, rewards)
    actions, action = _actions(files, system, state)
    return Explicit(
        states=list(range(S)),
        actions=actions,
        state=state,
        action=action,
        owner=owner,
        successors=target,
        prob=prob,
        rewards=rewards,
        start=_initial(files, system, S),
        start_place="state-is-initial.bin",
    )


def _members(path: Path) -> dict[str, bytes]:
    """The files in the archive. Not more bytes are inflated than an honest file of this size would give."""
    found: dict[str, bytes] = {}
    with open(path, "rb") as file:
        head = file.read(6)
        file.seek(0)
        inflate = next((opened for magic, opened in COMPRESSED.items() if head.startswith(magic)), lambda raw: raw)
        with tarfile.open(fileobj=_Limited(path, inflate(file)), mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    found[member.name] = content.read()
    return found


class _Limited(io.RawIOBase):
    """A stream that refuses to go on when it has given more bytes than a file of this size should hold."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream = path, stream
        self._size, self._given = path.stat().st_size, 0

    def read(self, n: int = -1) -> bytes:
        """The next bytes."""
        data: bytes = self._stream.read(n)
        self._given += len(data)
        check_inflation(self._path, self._size, self._given)
        return data


def _integers(files: Mapping[str, bytes], name: str, dtype: str, n: int) -> IntArray:
    data = files[name]
    if len(data) != n * np.dtype(dtype).itemsize:
        raise ValueError(f"{name} has {len(data):,} bytes, expected {n:,} numbers of {np.dtype(dtype).itemsize} bytes")
    return np.frombuffer(data, dtype).astype(np.int64)


def _offsets(files: Mapping[str, bytes], name: str, parents: int, children: int) -> IntArray:
    """Where the children of every parent begin [parents + 1]; without a file every parent has one child."""
    if name not in files:
        if parents != children:
            raise ValueError(f"{name} is missing")
        return np.arange(parents + 1)
    offsets = _integers(files, name, "<u8", parents + 1)
    if offsets[0] != 0 or offsets[-1] != children or (np.diff(offsets) < 0).any():
        raise ValueError(f"{name} does not rise from 0 to {children:,}")
    return offsets


def _numbers(data: bytes, kind: Located, n: int, what: str) -> FloatArray:
    """A vector of numbers of a declared type; fractions are rounded to the nearest float."""
    name = kind.at("type").text()
    kind.at("type").expect(name in BITS, ", ".join(BITS))
    size, odd = divmod(kind.value.get("size", BITS[name]), 8)
    if odd or size < 1 or len(data) != n * size or (name == "double" and size != 8):
        raise ValueError(f"{what} have {len(data):,} bytes, expected {n:,} numbers of {8 * size + odd} bits")
    if name == "double":
        return np.frombuffer(data, "<f8").astype(float)
    top = size // 2 if name == "rational" else size  # bytes of the numerator; a whole number has no denominator
    pieces = (data[i : i + size] for i in range(0, len(data), size))
    pairs = ((int.from_bytes(x[:top], "little", signed=name != "uint"), x[top:]) for x in pieces)
    try:
        return np.array([a / (int.from_bytes(b, "little") if b else 1) for a, b in pairs])
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"{what} have a fraction that is no finite number ({error})") from None


def _actions(files: Mapping[str, bytes], system: Located, state: IntArray) -> tuple[list[Name], IntArray]:
    """Names of the actions, and the action of every choice."""
    given = np.zeros(len(state), dtype=np.int64)
    names: list[Name] = ["choice"]
    if system.at("#choice-actions").whole(0) and "actions/choices/string-mapping.bin" in files:
        names = list(_strings(files["actions/choices/strings.bin"], files["actions/choices/string-mapping.bin"]))
        if "actions/choices/values.bin" in files:
            given = _integers(files, "actions/choices/values.bin", "<u4", len(state))
        if len(given) and given.max() >= len(names):
            raise ValueError(f"a choice has action {given.max()}, but there are {len(names)} names")
    used, number = np.unique(given, return_inverse=True)
    pairs = state * max(len(used), 1) + number
    if len(np.unique(pairs)) == len(pairs) and len(set(names)) == len(names):
        return [names[a] for a in used.tolist()], number
    return told_apart(state, [names[a] for a in given.tolist()])


def _strings(data: bytes, mapping: bytes) -> list[str]:
    ends = np.frombuffer(mapping, "<u8").tolist()
    if not ends or ends[0] != 0 or ends != sorted(ends) or ends[-1] > len(data):
        raise ValueError("the names of the actions do not fit together")
    return [data[a:b].decode() for a, b in pairwise(ends)]


def _initial(files: Mapping[str, bytes], system: Located, S: int) -> list[int]:
    """The initial states, which are the bits of a file; there may be none."""
    if system.at("#initial-states").whole(0) == 0:
        return []
    bits = np.unpackbits(np.frombuffer(files["state-is-initial.bin"], np.uint8), bitorder="little")
    if len(bits) < S:
        raise ValueError(f"state-is-initial.bin has {len(bits)} bits, expected {S}")
    found: list[int] = np.flatnonzero(bits[:S]).tolist()
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def write(model: Explicit, file: BinaryIO) -> None:
    """Write a model to an open file, not compressed: a regular one would shrink so much that it looks like a bomb."""
    with tarfile.open(fileobj=file, mode="w|") as archive:
        for name, data in _contents(model):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _contents(model: Explicit) -> Iterable[tuple[str, bytes]]:
    S, choices = len(model.states), len(model.state)
    names = [str(a).encode() for a in model.actions]
    structures = {f"r{i}": name for i, name in enumerate(model.rewards)}  # names become folders, so they are plain
    double = {"type": "double", "size": 64}
    index = {
        "format-version": FORMAT_VERSION,
        "format-revision": 1,
        "file-data": {"tool": "cmdpkit", "tool-version": cmdpkit.__version__},
        "transition-system": {
            "time": "discrete",
            "#players": 1,
            "#states": S,
            "#initial-states": len(model.start),
            "#choices": choices,
            "#choice-actions": len(names),
            "#branches": len(model.successors),
            "#branch-actions": 0,
            "#observations": 0,
            "branch-probability-type": double,
        },
        "annotations": {
            "rewards": {
                key: {"alias": name, "applies-to": ["choices"], "type": double} for key, name in structures.items()
            }
        },
    }
    initial = np.zeros(-(-S // 64) * 64, dtype=np.uint8)  # filled up to whole words of 64 bits
    initial[list(model.start)] = 1
    yield "index.json", json.dumps(index, indent=2).encode()
    yield "state-is-initial.bin", np.packbits(initial, bitorder="little").tobytes()
    yield "state-to-choices.bin", _begins(model.state, S)
    yield "state-to-player.bin", np.zeros(S, "<u4").tobytes()
    yield "choice-to-branches.bin", _begins(model.owner, choices)
    yield "branch-to-target.bin", model.successors.astype("<u8").tobytes()
    yield "branch-to-probability.bin", model.prob.astype("<f8").tobytes()
    yield "actions/choices/values.bin", model.action.astype("<u4").tobytes()
    yield "actions/choices/strings.bin", b"".join(names)
    yield "actions/choices/string-mapping.bin", np.cumsum([0, *map(len, names)]).astype("<u8").tobytes()
    for key, name in structures.items():
        yield f"annotations/rewards/{key}/choices/values.bin", model.rewards[name].astype("<f8").tobytes()


def _begins(owner: IntArray, n: int) -> bytes:
    """Where the children of each of n parents begin, for children whose parents are these, rising."""
    return np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n)))).astype("<u8").tobytes()
