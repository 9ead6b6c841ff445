"""The online GP, offered all rows as in table 2, beside the batch models."""

from typing import ClassVar

from experiments.studies.baselines.method import Fitted, Material, Method
from experiments.studies.setting import Setting
from experiments.studies.stream import identification_of
from sysid import AcceptAll, Always, MeanRelevance


class Online(Method):
    """Hyper-parameters trained on the initial rows, then fixed."""

    name, title = "online_gp", "Online GP"
    note = "mean relevance, all rows offered, no acceptance; its time includes the training on the initial rows"
    setting: ClassVar[Setting] = Setting.trained

    def fit(self, material: Material) -> Fitted:
        """Train on the initial rows and offer the others."""
        data = material.data
        training = self.setting.training(len(data.initial_targets))
        found = training.train(data.initial_inputs, data.initial_targets, material.seed)
        identification = identification_of(
            data,
            found,
            Always(),
            AcceptAll(),
            MeanRelevance(),
            budget=material.budget,
            seed=material.seed,
            training=training,
        )
        identification.observe_many(data.inputs, data.targets)
        model = identification.model
        assert model is not None
        size = sum(array.nbytes for array in model.gp.state().values())
        return Fitted(model.predict, model.gp.noise_variance, size)


class OnlineAdaptive(Online):
    """Hyper-parameters that follow the stream."""

    name, title = "online_gp_adaptive", "Online GP, adaptive"
    note = "the same, hyper-parameters follow the stream; ten seeds on records too, of the sample that it keeps"
    setting = Setting.adaptive
