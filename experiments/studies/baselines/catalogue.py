"""All methods, in the order of the report."""

from experiments.studies.baselines.exact import FullGP, FullGPWithPriors
from experiments.studies.baselines.linear import Bilinear, Linear, Ridge, RidgeInHindsight
from experiments.studies.baselines.method import Method
from experiments.studies.baselines.online import Online, OnlineAdaptive
from experiments.studies.baselines.sparse import Fitc, Vfe

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        FullGP(),
        FullGPWithPriors(),
        Vfe(),
        Fitc(),
        Online(),
        OnlineAdaptive(),
        Linear(),
        Bilinear(),
        Ridge(),
        RidgeInHindsight(),
    )
}
