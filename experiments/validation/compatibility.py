"""Whether records and a model belong together; nothing is guessed."""

from collections.abc import Sequence

from experiments.validation.material import Material
from simulators import Controller
from sysid import JointModel


def check_together(joint: JointModel, material: Material, left_out: Sequence[str]) -> None:
    """Refuse records whose channels are not those of the model.

    Raises
    ------
    ValueError
        A model or a table without time; a signal that is missing, that the model does not know, or that is an input
        on one side and an output on the other; a name in `left_out` that is no such signal.
    """
    if joint.models[0].narx.max_lag == 0:
        raise ValueError(
            "the model has no lags, it is a static function: there is nothing to simulate; sysid-identify reports how "
            "well it predicts its test rows"
        )
    if material.is_static:
        raise ValueError(f"{material.title} is a table without time: there is nothing to simulate")
    known = {"outputs": joint.output_names, "inputs": joint.input_names}
    given = {"outputs": material.outputs, "inputs": material.inputs}
    for role, names in known.items():
        if missing := [name for name in names if name not in given[role]]:
            raise ValueError(
                f"the model needs the {role} {missing}, {material.title} has outputs {list(material.outputs)} and "
                f"inputs {list(material.inputs)}: give every signal the name and the role that it has in the model"
            )
    _check_surplus(known, given, left_out, material.title)


def _check_surplus(
    known: dict[str, tuple[str, ...]], given: dict[str, tuple[str, ...]], left_out: Sequence[str], title: str
) -> None:
    surplus = [name for role, names in given.items() for name in names if name not in known[role]]
    if unknown := [name for name in left_out if name not in surplus]:
        raise ValueError(
            f"left_out={list(left_out)}: {unknown} "
            + ("is" if len(unknown) == 1 else "are")
            + f" no signal of {title} that the model does without, these are {surplus}"
        )
    if unexpected := [name for name in surplus if name not in left_out]:
        raise ValueError(
            f"the model does not know the signals {unexpected} of {title}: if they may be ignored, say so with "
            f"left_out=[{','.join(surplus)}], else identify a model with them"
        )


def check_loop(joint: JointModel, controller: Controller) -> None:
    """Refuse a controller that cannot close its loop around the model.

    Raises
    ------
    ValueError
        An output that it reads and the model does not predict, an input that it drives and the model does not have,
        or that acts on the output of the same sample.
    """
    title = type(controller).__name__
    for verb, names, known in (
        ("reads the output", controller.outputs_read, joint.output_names),
        ("drives the input", controller.inputs_driven, joint.input_names),
    ):
        if missing := [name for name in names if name not in known]:
            raise ValueError(
                f"{title} {verb} {missing[0]!r}, the model has {list(known)}: its loop cannot be closed around this "
                "model; identify one with it, or take controller=none"
            )
    lags = joint.models[0].narx.lags
    if instant := [name for name in controller.inputs_driven if 0 in lags[name]]:
        raise ValueError(
            f"the model has lag 0 of {instant[0]!r}, which {title} sets after it has read the output of the same "
            "sample: identify a model without lag 0 of that input, or take controller=none"
        )
