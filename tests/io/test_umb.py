"""Files in the unified Markov binary format: compared with the library of its authors, and hostile ones refused."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import tarfile
import time
from fractions import Fraction

import numpy as np
import pytest
import umbi.ats

import cmdpkit as ck
from mutants import mutants
from refusals import refused


def members(path):
    with tarfile.open(path) as archive:
        return {x.name: archive.extractfile(x).read() for x in archive.getmembers()}


def packed(path, files, compress=gzip.compress):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    path.write_bytes(compress(raw.getvalue()))
    return path


def read(path):
    return ck.read_explicit(path, reward="reward", horizon=3)


def by_umbi(cmdp, path):
    """The same model, written by the authors' library one transition after the other."""
    ats = empty(cmdp.S, int(cmdp.mu.argmax()))
    ats.num_choice_actions, ats.choice_action_to_name = cmdp.A, [str(a) for a in cmdp.action_names]
    pairs = np.argwhere(cmdp.actions[0]).tolist()
    for s, a in pairs:
        choice = ats.add_state_choice(s)
        choice.action = a
        for x in np.flatnonzero(cmdp.P[0, s, a]).tolist():
            choice.add_branch(x, float(cmdp.P[0, s, a, x]))
    signals = {"reward": cmdp.r[0]} | {
        c.name: c.sign * g[0] + 0.0 for c, g in zip(cmdp.constraints, cmdp.g, strict=True)
    }
    for i, (name, signal) in enumerate(signals.items()):
        structure = ats.add_reward_annotation(f"r{i}", alias=name)
        structure.set_choice_values([float(signal[s, a]) for s, a in pairs])
    umbi.ats.write(ats, str(path))


@pytest.mark.parametrize("name", ["treatment", "streaming", "machine", "rover"])
def test_every_vector_is_the_one_that_the_authors_of_the_format_write(name, tmp_path):
    cmdp = ck.load(name)
    ours, theirs = ck.write_explicit(cmdp, tmp_path / "ours.umb"), tmp_path / "theirs.umb"
    by_umbi(cmdp, theirs)
    one, two = members(ours), members(theirs)
    assert one.keys() == two.keys() and all(one[x] == two[x] for x in one if x != "index.json")
    first, second = (json.loads(x["index.json"]) for x in (one, two))
    assert {**first, "file-data": 0} == {**second, "file-data": 0}
    asked = {"reward": "reward", "constraints": cmdp.constraints, "horizon": 5}
    assert ck.read_explicit(ours, **asked) == ck.read_explicit(theirs, **asked)


def test_a_model_written_twice_is_the_same_file(tmp_path):
    one, two = (ck.write_explicit(ck.load("machine"), tmp_path / f"{i}.umb").read_bytes() for i in range(2))
    assert one == two


def empty(S, start):
    """A Markov decision process of the authors' library that has states but no choices yet."""
    ats = umbi.ats.ExplicitAts(time=umbi.ats.TimeType.DISCRETE, num_players=1)
    for _ in range(S):
        ats.add_state()
    ats.state_to_player = [0] * S
    ats.set_initial_states([start])
    return ats


def two_states(path, probabilities, start=0, **rewards):
    """From the first state one goes on or stays, in the second one stays; rewards of states, choices and branches."""
    ats = empty(2, start)
    first, second = ats.add_state_choice(0), ats.add_state_choice(1)
    for x, p in enumerate(probabilities):
        first.add_branch(x, p)
    second.add_branch(1, type(probabilities[0])(1))
    structure = ats.add_reward_annotation("reward")
    for part, values in rewards.items():
        getattr(structure, f"set_{part}_values")(values)
    umbi.ats.write(ats, str(path))


def test_rewards_of_states_choices_and_branches_are_added(tmp_path):
    path = tmp_path / "m.umb"
    two_states(path, [0.25, 0.75], 1, state=[1.0, 10.0], choice=[0.5, 0.0], branch=[4.0, 8.0, 100.0])
    cmdp = read(path)
    assert cmdp.r[0, :, 0].tolist() == [1 + 0.5 + 0.25 * 4 + 0.75 * 8, 10 + 100] and cmdp.mu.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "rewards", [[Fraction(1, 3), Fraction(-7, 10**12)], [3, -(2**40)], [3, 4], [0.1, -0.2]], ids=str
)
@pytest.mark.parametrize("probabilities", [[Fraction(1, 3), Fraction(2, 3)], [0.25, 0.75]], ids=str)
def test_fractions_and_whole_numbers_are_read_to_the_nearest_float(probabilities, rewards, tmp_path):
    two_states(tmp_path / "m.umb", probabilities, choice=rewards)
    cmdp = read(tmp_path / "m.umb")
    assert cmdp.P[0, 0, 0].tolist() == [float(p) for p in probabilities]
    assert cmdp.r[0, :, 0].tolist() == [float(x) for x in rewards]


def test_fractions_of_any_size_are_read(tmp_path):
    two_states(tmp_path / "m.umb", [0.5, 0.5], choice=[Fraction(1, 3), Fraction(1, 7)])
    files = members(tmp_path / "m.umb")
    index = json.loads(files["index.json"])
    index["annotations"]["rewards"]["reward"]["type"]["size"] = 256
    pairs = [(-(10**31), 3 * 10**30), (1, 2**100)]
    data = b"".join(n.to_bytes(16, "little", signed=True) + d.to_bytes(16, "little") for n, d in pairs)
    files |= {"index.json": json.dumps(index).encode(), "annotations/rewards/reward/choices/values.bin": data}
    assert read(packed(tmp_path / "again.umb", files)).r[0, :, 0].tolist() == [-10 / 3, 2.0**-100]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_every_compression_is_read(compress, tmp_path):
    path = ck.write_explicit(ck.load("machine"), tmp_path / "m.umb")
    assert read(packed(tmp_path / "again.umb", members(path), compress)) == read(path)


def test_a_very_regular_model_is_written_so_that_it_can_be_read(tmp_path):
    """Its vectors would shrink to a hundredth if they were compressed, and the file would be taken for a bomb."""
    S = 1 << 18
    successors = np.zeros(S, dtype=int)
    kernel = ck.Kernel.from_entries((1, S, 1), np.arange(S), successors, np.ones(S))
    cmdp = ck.CMDP(kernel, np.zeros((S, 1)), mu=0, horizon=3)
    assert read(ck.write_explicit(cmdp, tmp_path / "m.umb")).S == S


def test_writing_takes_a_microsecond_per_transition_and_not_thirty(tmp_path):
    cmdp = ck.load("random:S=4000,A=5,H=5,successors=10,stationary=true,concentration=1.0")
    began = time.process_time()
    path = ck.write_explicit(cmdp, tmp_path / "m.umb")
    read(path)
    assert time.process_time() - began < 5e-6 * cmdp.kernel.nonzeros  # measured: 0.6e-6 for both


# -- hostile files -----------------------------------------------------------------------------------------------------

SIZE = 64 << 20


def small(path, **changed):
    """A sound file of a small model, with some members or entries of its index (those that begin with #) changed."""
    files = members(ck.write_explicit(ck.load("machine-two"), path.with_name("sound.umb"), overwrite=True))
    index = json.loads(files["index.json"])
    index["transition-system"] |= {key: changed.pop(key) for key in list(changed) if key.startswith("#")}
    files |= {"index.json": json.dumps(index).encode(), **changed}
    return packed(path, {name: data for name, data in files.items() if data is not None})


BOMBS = {
    "a vector": ({"branch-to-target.bin": bytes(SIZE)}, "would inflate to"),
    "a file that nobody asked for": ({"notes.bin": bytes(SIZE)}, "would inflate to"),
    "the index": ({"index.json": b" " * SIZE}, "would inflate to"),
}


@pytest.mark.parametrize(("changed", "message"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_before_it_is_inflated(changed, message, tmp_path):
    path = small(tmp_path / "m.umb", **changed)
    assert path.stat().st_size < 1 << 20
    refused_early(path, message)


def refused_early(path, message):
    began = time.process_time()
    with pytest.raises(ck.CmdpkitError, match=message):
        read(path)
    assert time.process_time() - began < 5


def test_a_bomb_in_a_header_of_the_archive_is_refused(tmp_path):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("index.json"), io.BytesIO(b""))
        long = tarfile.TarInfo("x")
        long.pax_headers = {"comment": "y" * SIZE}
        archive.addfile(long, io.BytesIO(b""))
    path = tmp_path / "m.umb"
    path.write_bytes(gzip.compress(raw.getvalue()))
    refused_early(path, "would inflate to")


RATIONAL, LONG = {"type": "rational", "size": 128}, {"type": "rational", "size": 32_000}


def described(kind, **parts):
    """The index of a model with one state, one action and one transition, its probability of this type."""
    system = {"time": "discrete", "#players": 1, "#states": 1, "#initial-states": 0, "#choices": 1, "#branches": 1}
    system |= {"#choice-actions": 0} | ({} if kind is None else {"branch-probability-type": kind})
    return json.dumps({"format-version": 0, "transition-system": system, **parts}).encode()


def fractions(a, b, size=8):
    """The files of such a model: its only probability is a / b, two numbers of so many bytes."""
    return {
        "branch-to-target.bin": bytes(8),
        "choice-to-branches.bin": None,
        "state-to-choices.bin": None,
        "branch-to-probability.bin": a.to_bytes(size, "little") + b.to_bytes(size, "little"),
    }


LIES = {
    "more states than there are": ({"#states": 10**15}, "state-to-choices.bin has"),
    "more transitions than there are": ({"#branches": 10**18}, "branch-to-target.bin has"),
    "more of everything, and no offsets": (
        {"#states": 10**17, "#choices": 10**17, "#branches": 10**17, "state-to-choices.bin": None},
        "branch-to-target.bin has",
    ),
    "a number of states that is no number": ({"#states": "many"}, "'#states' is 'many', expected a whole number"),
    "a number of states below zero": ({"#states": -3}, "'#states' is -3, expected a whole number"),
    "offsets that fall": ({"state-to-choices.bin": np.array([0, 5, 4], "<u8").tobytes()}, "does not rise"),
    "a next state that does not exist": ({"branch-to-target.bin": b"\xff" * 8}, "expected|leads to state"),
    "no probabilities": ({"branch-to-probability.bin": None}, "'branch-to-probability.bin' is missing"),
    "no index": ({"index.json": b"{}"}, "'transition-system' is missing"),
    "an index that is a list": ({"index.json": b"[]"}, r"the index: expected a table, got \[\]"),
    "an index that is no JSON": ({"index.json": b"{"}, "not a complete .umb file"),
    "a game": ({"#players": 2}, "with one player"),
    "an index without end": ({"index.json": b"[" * 100_000}, "not a complete .umb file"),
    "a denominator of 0": (
        {"index.json": described(RATIONAL), **fractions(1, 0)},
        "a fraction that is no finite number",
    ),
    "a number of 16,000 bits": ({"index.json": described(LONG), **fractions(2**15_000, 1, 2000)}, "no finite number"),
    "annotations that are a list": (
        {"index.json": described(None, annotations=[])},
        r"annotations: expected a table, got \[\]",
    ),
    "players that are a text": ({"#players": "two"}, "a value in its index is not of the kind that the format asks"),
    "a size that is a text": (
        {"index.json": described({"type": "double", "size": "x"}), **fractions(1, 1)},
        "a value in its index is not of the kind",
    ),
    "a type that is a list": (
        {"index.json": described({"type": ["double"]}), **fractions(1, 1)},
        r"'type' is \['double'\], expected text",
    ),
    "rewards that are a text": (
        {"index.json": described(None, annotations={"rewards": "r"})},
        "rewards: expected a table, got 'r'",
    ),
    "a type that is a text": (
        {"index.json": described("double"), **fractions(1, 1)},
        "'branch-probability-type': expected a table, got 'double'",
    ),
}


@pytest.mark.parametrize(("changed", "message"), LIES.values(), ids=LIES)
def test_a_file_that_contradicts_itself_is_refused_without_taking_memory(changed, message, tmp_path):
    refused(small(tmp_path / "m.umb", **changed), message, read)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_raise_nothing_but_errors_for_the_user(seed, tmp_path):
    path = ck.write_explicit(ck.load("machine-two"), tmp_path / "sound.umb")
    rng, sound = np.random.default_rng(seed), path.read_bytes()
    damaged = tmp_path / "damaged.umb"
    for _ in range(100):
        data = bytearray(sound[: rng.integers(1, len(sound))] if rng.random() < 0.3 else sound)
        for i in rng.integers(0, len(data), 3):
            data[i] = rng.integers(256)
        damaged.write_bytes(data)
        with contextlib.suppress(ck.CmdpkitError):  # any other error fails the test
            read(damaged)


def test_an_index_with_anything_else_in_one_place_is_read_or_refused_as_a_fault_of_the_file(tmp_path):
    files = members(ck.write_explicit(ck.load("machine-two"), tmp_path / "sound.umb"))
    found = 0
    for index in mutants(json.loads(files["index.json"])):
        path = packed(tmp_path / "m.umb", {**files, "index.json": json.dumps(index).encode()}, bytes)
        try:
            read(path)
        except ck.CmdpkitError:
            found += 1
    assert found > 100
