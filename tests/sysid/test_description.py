"""Settings as text and back."""

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from naive import CRITERIA, INSERTIONS, criterion_name, insertion_rule

from sysid import SquaredExponential
from sysid.acceptance import AcceptAll, Acceptance, ExceedsMinimum
from sysid.criteria import Criterion, MeanRelevance
from sysid.description import build, describe
from sysid.insertion import Always, ErrorThreshold, Insertion
from sysid.kernels import Kernel
from sysid.reference import Reference
from sysid.training import Fixed, MaximumLikelihood, Training


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
@pytest.mark.parametrize("reference", Reference)
def test_acceptance_round_trip(criterion, reference):
    acceptance = ExceedsMinimum(criterion, reference)
    assert build(describe(acceptance), Acceptance) == acceptance
    assert build(describe(criterion), Criterion) == criterion


@pytest.mark.parametrize("rule", INSERTIONS, ids=lambda rule: rule.__name__)
def test_insertion_round_trip(rule):
    insertion = insertion_rule(rule, 0.1 + 0.2, 1e-17)
    assert build(describe(insertion), Insertion) == insertion


@pytest.mark.parametrize("training", [Fixed(1.0, [1.0, 2.0], 0.1), MaximumLikelihood(n_initial=7)])
def test_training_round_trip(training):
    assert build(describe(training), Training) == training


def test_kernel_round_trip_keeps_every_bit():
    scales = np.random.default_rng(0).lognormal(size=9) * np.logspace(-12, 12, 9)
    kernel = SquaredExponential(np.pi, scales)
    assert build(describe(kernel), Kernel) == kernel


def test_description_is_plain_json():
    described = json.loads(describe(ExceedsMinimum(MeanRelevance())))
    assert described == {
        "class": "sysid.acceptance.ExceedsMinimum",
        "criterion": {"class": "sysid.criteria.mean_relevance.MeanRelevance"},
        "reference": "leave_one_out",
    }


@dataclass(frozen=True)
class Odd:
    """Settings of a test: a field that cannot be described."""

    value: object = field(default_factory=dict)


@pytest.mark.parametrize("value", [{}, np.zeros(2), lambda: 1, Odd, {1, 2}], ids=lambda value: type(value).__name__)
def test_what_is_no_setting_is_refused(value):
    with pytest.raises(TypeError, match="expected a dataclass"):
        describe(Odd(value))


@pytest.mark.parametrize("value", [3, "text", ["a"], None])
def test_plain_values_describe_themselves(value):
    assert json.loads(describe(value)) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("no json", "Expecting value"),
        ("3", "Insertion"),
        ("null", "Insertion"),
        ("[]", "Insertion"),
        ("{}", "dataclass|import"),
        ('{"class": "os.getcwd"}', "dataclass"),
        ('{"class": "builtins.dict"}', "dataclass"),
        ('{"class": "no_such_module.Rule"}', "no_such_module"),
        ('{"class": "sysid.insertion.error.NoRule"}', "NoRule"),
        ('{"class": "ErrorThreshold"}', "ErrorThreshold"),
        (describe(MeanRelevance()), "Insertion"),
        (describe(AcceptAll()), "Insertion"),
    ],
)
def test_foreign_texts_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        build(text, Insertion)


def test_fields_that_are_wrong_or_missing_are_refused():
    with pytest.raises((TypeError, ValueError)):
        build('{"class": "sysid.insertion.error.ErrorThreshold"}', Insertion)
    with pytest.raises((TypeError, ValueError)):
        build('{"class": "sysid.insertion.error.ErrorThreshold", "threshold": 1}', Insertion)
    with pytest.raises(ValueError, match="at least 0"):
        build('{"class": "sysid.insertion.error.ErrorThreshold", "error_threshold": -1}', Insertion)


def test_roles_are_not_mixed_up():
    assert build(describe(Always()), Insertion) == Always()
    with pytest.raises(ValueError, match="Criterion"):
        build(describe(ErrorThreshold(1.0)), Criterion)
