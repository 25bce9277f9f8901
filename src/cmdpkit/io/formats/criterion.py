"""The criterion of a model and its bounds as entries of a file: exactly one of horizon, discount and criterion."""

from __future__ import annotations

from typing import Any

from cmdpkit.io.formats.source import Fields
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.criterion import checked_discount, checked_name
from cmdpkit.model.validate import MAX_HORIZON

KEYS = ("horizon", "discount", "criterion")


def criterion_entry(cmdp: CMDP) -> dict[str, Any]:
    """The one key that says how a model is judged."""
    judged = cmdp.criterion
    if judged.kind == "finite":
        return {"horizon": judged.horizon}
    return {"discount": judged.discount} if judged.kind == "discounted" else {"criterion": judged.kind}


def read_criterion(fields: Fields) -> dict[str, Any]:
    """The same key with its value checked, as an argument of `CMDP`; an error if there is none or more than one."""
    given = [key for key in KEYS if key in fields.table]
    if not given:
        fields.fail("'horizon' is missing (or 'discount' or 'criterion')")
    if len(given) > 1:
        both = " and ".join(repr(key) for key in given)
        fields.fail(f"{both} are given, expected exactly one of horizon, discount and criterion", given[1])
    (key,) = given
    if key == "horizon":
        return {key: fields.whole(key, 1, MAX_HORIZON)}
    with fields.locating(key):
        return {key: checked_discount(fields.number(key)) if key == "discount" else checked_name(fields.text(key))}


def constraint_entry(c: Constraint) -> dict[str, Any]:
    """A bound as it was given: on the whole value, or per step."""
    if c.per_step:
        return {"name": c.name, "sense": c.sense, "bound": c.bound, "per_step": True}
    return {"name": c.name, "sense": c.sense, "bound": c.bound}
