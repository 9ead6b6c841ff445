"""Predictive control with the present model of a plant.

`PredictiveControl` (`predictive.py`) plans the inputs over a horizon, at each decision anew. It
asks a `Predictor` (`prediction.py`) for the outputs of a plan and for their derivatives by the
inputs; `ModelPredictor` is that of an identified model.
"""
