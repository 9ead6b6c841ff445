"""Settings as text: what comes back from a description, and which texts are refused."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from naive import CRITERIA
from small_models import ACCEPTANCES, INSERTION_RULES
from sysid import (
    Acceptance,
    Criterion,
    ExceedsMinimum,
    Fixed,
    Insertion,
    Kernel,
    MaximumLikelihood,
    MeanRelevance,
    SquaredExponential,
    Training,
    build,
    describe,
)

#: nine length scales of which no decimal number is exact
LENGTH_SCALES = np.random.default_rng(0).lognormal(size=9) * np.logspace(-12, 12, 9)

SETTINGS_BY_ROLE = {
    Acceptance: ACCEPTANCES,
    Criterion: CRITERIA,
    Insertion: INSERTION_RULES,
    Training: [Fixed(1.0, [1.0, 2.0], 0.1), MaximumLikelihood(n_initial=7)],
    Kernel: [SquaredExponential(np.pi, LENGTH_SCALES)],
}


def all_settings():
    """Yield a case for every rule, criterion, training and kernel, with its role."""
    for role, all_of_role in SETTINGS_BY_ROLE.items():
        for i, settings in enumerate(all_of_role):
            yield pytest.param(role, settings, id=f"{type(settings).__name__}-{i}")


@dataclass(frozen=True)
class Holder:
    """Settings with a field that can hold a value without a description."""

    value: object


@pytest.mark.parametrize(("role", "settings"), list(all_settings()))
def test_settings_come_back_from_their_text(role, settings):
    assert build(describe(settings), role) == settings


def test_the_text_names_the_public_class_and_all_fields():
    text = describe(ExceedsMinimum(MeanRelevance()))
    assert json.loads(text) == {
        "class": "sysid.ExceedsMinimum",
        "criterion": {"class": "sysid.MeanRelevance"},
        "reference": "leave_one_out",
    }


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="dictionary"),
        pytest.param(np.zeros(2), id="array"),
        pytest.param(len, id="function"),
        pytest.param(Holder, id="class"),
    ],
)
def test_a_value_without_a_description_is_refused(value):
    with pytest.raises(TypeError, match="expected a dataclass"):
        describe(Holder(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("no json", "Expecting value", id="no_json"),
        pytest.param('{"class": "os.getcwd"}', "dataclass", id="function"),
        pytest.param('{"class": "no_such_module.Rule"}', "no_such_module", id="unknown_module"),
        pytest.param(describe(MeanRelevance()), "Insertion", id="another_role"),
        pytest.param(
            '{"class": "sysid.ErrorThreshold", "threshold": 1}', "threshold", id="unknown_field"
        ),
        pytest.param(
            '{"class": "sysid.ErrorThreshold", "error_threshold": -1}',
            "at least 0",
            id="wrong_value",
        ),
    ],
)
def test_texts_that_describe_no_insertion_rule_are_refused(text, words):
    with pytest.raises((TypeError, ValueError), match=words):
        build(text, Insertion)
