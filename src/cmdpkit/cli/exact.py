"""Verbs for known models: `envs`, `check`, `solve`, `tradeoff`, `convert`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, BadParameter, Option

from cmdpkit.cli import shared
from cmdpkit.cli.progress import Busy
from cmdpkit.cli.shared import Average, Bounds, Discount, Force, Json, Model, Plot, verb
from cmdpkit.errors import INTERRUPTED


@verb("envs", "envs random", "solve random:S=20,seed=4")
def envs(
    name: Annotated[str | None, Argument(metavar="NAME", help="Show the parameters of this one.")] = None,
    as_json: Json = False,
) -> None:
    """List the environments, or the parameters of one."""
    from cmdpkit import envs
    from cmdpkit.results import catalogue

    names = envs.names() if name is None else [name]
    shared.answer(
        as_json,
        catalogue.environment_table(names).data,
        lambda: catalogue.environments(names) if name is None else catalogue.parameters(name),
    )


@verb("check queue", "check model.toml", "check treatment:budget=5 --json")
def check(model: Model, discount: Discount = None, average: Average = False, as_json: Json = False) -> None:
    """Validate a model and price its bounds.

    Shows how far every bound can be moved, which ones bind, and which actions of the optimum decide.

    Ends with exit code 3 if no policy meets all bounds.
    """
    with Busy(f"check {model}"):
        import cmdpkit as ck
        from cmdpkit.exact.diagnosis import MOST_SEPARATED, looked_at, separations
        from cmdpkit.results import diagnosis as show

        cmdp = _loaded(model, discount, average)
        found = ck.diagnose(cmdp, separation=False)
    if not as_json:  # at once: what follows may take a while
        shared.say(show.diagnosis(model, cmdp, found))
    optimum, separated = found.solution, None
    if optimum is not None and (many := looked_at(optimum, MOST_SEPARATED)):  # 0 where it would be slow
        with Busy(f"separating {min(many, optimum.used):,} actions"):
            separated = separations(optimum, MOST_SEPARATED)
    if as_json:
        shared.say_json(show.diagnosis_data(model, cmdp, found, separated))
    elif optimum is not None:
        shared.say(show.separation(optimum, separated))
    if found.infeasible is not None:
        raise found.infeasible


@verb(
    "solve paper/synthetic",
    "solve queue --bound energy=20 --bound backlog=30",
    "solve model.toml --save-policy best.csv",
    "solve queue --simple 1%",
    "solve two-rooms --one-class --bridge 0.01",
    "solve mymodel.py --folder solved --controller best",
)
def solve(
    model: Model,
    bound: Bounds = None,
    save_policy: shared.SavePolicy = None,
    discount: Discount = None,
    average: Average = False,
    threads: Annotated[
        int | None, Option(min=1, help="How many threads to use for a large model; all cores unless given.")
    ] = None,
    gap: Annotated[
        float | None,
        Option(min=0.0, help="Stop when the policy is proved this close to the optimum (0.001 for 0.1 %)."),
    ] = None,
    simple: Annotated[
        str | None,
        Option(metavar="SHARE", help="Show the simplest policy within this share of the optimum (1% or 0.01)."),
    ] = None,
    one_class: Annotated[
        bool,
        Option("--one-class", help="Long-run averages: one recurrent class, few random decisions, and their cost."),
    ] = False,
    bridge: Annotated[
        float | None,
        Option(metavar="SHARE", help="Long-run averages: share of time for moving between classes (1e-4)."),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(metavar="DIR", help="Models by functions: keep the work here; the same command continues it."),
    ] = None,
    one_policy: Annotated[
        bool, Option("--one-policy", help="Models by functions: one policy with few random decisions, not a mixture.")
    ] = False,
    controller: Annotated[
        Path | None,
        Option(metavar="DIR", help="Models by functions: write the policy to a new folder, with a program that acts."),
    ] = None,
    ranks: Annotated[
        bool, Option("--ranks", help="Models by functions: share the states among the ranks of mpiexec.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """The exact optimum, the price of every bound, and the proof.

    Shows the policy too: as a board, a table or a summary, and where it randomises.

    With --simple, gives up a little of the value for a policy that is easy to follow: few phases, then few changes
    from state to state. It meets all bounds, and --save-policy writes it.

    With --one-class, long-run averages do not depend on where a run happens to settle: the policy has one recurrent
    class. It moves between the classes of the optimum in a share --bridge of its time, and its cost is shown.

    After Ctrl-C, shows the best policy found so far and how good it is proved to be, with exit code 130.

    A Python file is a model, too: its variable or function "model" is one, or makes one. A model by functions may be
    shared among machines: mpiexec -n 4 python -m cmdpkit solve mymodel.py --ranks

    Ends with exit code 3 if no policy meets all bounds.
    """
    changed, share = shared.bounds_of(bound), shared.share_of(simple)
    shared.refuse_existing(save_policy, force)
    shared.refuse_existing(controller, False)
    comm = shared.all_ranks() if ranks else None
    with Busy(f"solve {model}", quiet=comm is not None and comm.rank > 0) as sign:
        import cmdpkit as ck  # the first line is shown before anything heavy is imported
        from cmdpkit.model.functions import FunctionModel
        from cmdpkit.results import solution as show
        from cmdpkit.results.diagnosis import relaxations

        cmdp = _loaded(model, discount, average, functions=True).with_bounds(**changed)
        by_functions = isinstance(cmdp, FunctionModel)
        others: dict[str, Any]
        how: dict[str, Any]
        if by_functions:
            kind, others = "by functions", {"--bridge": bridge, "--one-class": one_class, "--simple": simple}
            others |= {"--save-policy (write a --controller)": save_policy}
        else:
            kind, others = "with arrays", {"--folder": folder, "--one-policy": one_policy, "--ranks": ranks}
            others |= {"--controller (export makes one of a policy)": controller}
        for option, value in others.items():
            if value:
                raise BadParameter(f"{option} is not for models {kind}")
        report = sign.update if by_functions or cmdp.criterion.has_horizon else False
        how = {"policy": "one" if one_policy else "mixture", "folder": folder, "comm": comm} if by_functions else {}
        try:
            with shared.interruptible():
                found: Any = ck.solve(
                    cmdp, bridge=bridge, one_class=one_class, threads=threads, gap=gap, progress=report, **how
                )
        except ck.Infeasible as error:
            if comm is not None and comm.rank > 0:  # rank 0 says it
                raise typer.Exit(error.exit_code) from None
            if len(error.conflict) > 1 and not by_functions:  # a single bound: the error itself says how far
                for line in relaxations(error):
                    error.add_note(line)
            raise
        if share is not None:
            sign.update("simplifying")
            found = ck.simplify(found, share)
    if comm is not None and comm.rank > 0:
        return
    if controller is not None:
        found.save(controller)
    if save_policy is not None:
        ck.write_policy(found, save_policy, overwrite=force)
    shared.answer(
        as_json, lambda: show.solution_data(model, found), lambda: show.solution(model, found, shared.console().width)
    )
    if not found.complete:
        raise typer.Exit(INTERRUPTED)


@verb("tradeoff paper/grid cost", "tradeoff queue energy --points 11 --low 15 --high 30")
def tradeoff(
    model: Model,
    name: Annotated[str, Argument(metavar="CONSTRAINT", help="The constraint whose bound is moved.")],
    points: Annotated[int, Option(min=1, help="How many bounds to try.")] = 21,
    low: Annotated[float | None, Option(help="The smallest bound to try, in its unit.")] = None,
    high: Annotated[float | None, Option(help="The largest bound to try.")] = None,
    discount: Discount = None,
    average: Average = False,
    plot: Plot = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """The best value against the bound of one constraint.

    Without --low and --high, the bounds go from where the constraint stops mattering to the strictest that can be met.
    """
    shared.refuse_existing(plot, force)
    with Busy(f"tradeoff {model} {name}"):
        import cmdpkit as ck
        from cmdpkit.results import diagnosis as show

        cmdp = _loaded(model, discount, average, functions=True)
        found = ck.tradeoff(cmdp, name, points, low=low, high=high)
    if plot is not None:
        from cmdpkit.results.figures.style import save

        save(found.plot(), plot)
    shared.answer(as_json, lambda: show.tradeoff_data(model, found), lambda: show.tradeoff(model, found))


@verb(
    "convert model.toml model.npz",
    "convert inventory inventory.tra",
    'convert net.tra net.npz --reward gain --constraint "delay<=5" --horizon 20',
)
def convert(
    model: Model,
    out: Annotated[Path, Argument(metavar="OUT", help="The file to write (.toml, .json, .npz, .csv or .tra).")],
    reward: Annotated[str | None, Option(help="For .tra files: the reward structure to maximise.")] = None,
    constraint: Annotated[
        list[str] | None,
        Option(metavar="NAME<=BOUND", help="For .tra files: bound a reward structure; also NAME>=BOUND."),
    ] = None,
    horizon: Annotated[int | None, Option(help="For .tra files: the number of steps.")] = None,
    discount: Discount = None,
    average: Average = False,
    force: Force = False,
    renormalise: Annotated[
        bool, Option("--renormalise", help="Divide the probabilities in the file by their sum, whatever it is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a model or an environment to a file.

    The suffix chooses the format: .toml and .json to edit by hand, .csv for spreadsheets, .npz for large models, .tra
    for PRISM. A .tra file has neither bounds nor horizon; give both as options.
    """
    import cmdpkit as ck
    from cmdpkit.io.formats.prism import EXPLICIT_SUFFIXES
    from cmdpkit.io.formats.source import suffix_of
    from cmdpkit.io.models import SUFFIXES

    shared.refuse_existing(out, force)
    suffix_of(out, (*SUFFIXES, *EXPLICIT_SUFFIXES))
    if Path(model).suffix.lower() not in EXPLICIT_SUFFIXES:
        if reward is not None or constraint is not None or horizon is not None:
            raise BadParameter("--reward, --constraint and --horizon are for .tra files")
        cmdp = _loaded(model, discount, average, renormalise=renormalise)
    else:
        cmdp = ck.read_explicit(
            model,
            reward=reward or "reward",
            constraints=shared.constraints_of(constraint),
            horizon=horizon,
            discount=discount,
            criterion="average" if average else None,
            renormalise=renormalise,
        )
    if out.suffix.lower() in EXPLICIT_SUFFIXES:
        ck.write_explicit(cmdp, out, overwrite=force)
    else:
        ck.write_model(cmdp, out, overwrite=force)
    shared.wrote(out, as_json)


@verb("export best.json best.csv", "export best.json controller.py")
def export(
    policy: Annotated[Path, Argument(metavar="POLICY", help="A policy file (.json, .csv or .npz).")],
    out: Annotated[
        Path,
        Argument(metavar="OUT", callback=shared.policy_file, help="The file to write (.csv, .json, .npz or .py)."),
    ],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a policy in another format.

    The suffix chooses it: .csv, .json and .npz can be read back, .py is a module without dependencies for the
    machine that acts.
    """
    import cmdpkit as ck

    shared.refuse_existing(out, force)
    ck.write_policy(ck.read_policy(policy), out, overwrite=force)
    shared.wrote(out, as_json)


def _loaded(
    model: str, discount: float | None, average: bool, *, functions: bool = False, renormalise: bool = False
) -> Any:
    """The model, by another criterion if one is asked for; one by functions if the verb takes those."""
    from cmdpkit.io.loading import build, load
    from cmdpkit.model.cmdp import CMDP
    from cmdpkit.model.functions import FunctionModel

    cmdp = build(model) if functions else None
    if isinstance(cmdp, FunctionModel):
        if discount is not None or average:
            raise BadParameter("a model by functions is judged as it says itself; leave --discount and --average out")
        return cmdp
    cmdp = cmdp if isinstance(cmdp, CMDP) else load(model, renormalise=renormalise)
    if discount is None and not average:
        return cmdp
    if discount is not None and average:
        raise BadParameter("give either --discount or --average")
    return cmdp.with_criterion(discount=discount, criterion="average" if average else None)
