"""Inputs that are chosen to learn: experiment design with the present model of a plant.

`InformativeInput` (`informative.py`) chooses the next stretch of the inputs. It draws candidates
(`candidates.py`), simulates the plant on each of them with the model as it is, computes what the
planned outputs would tell (`criteria.py`), and takes the best candidate whose outputs stay within
their limits with the stated probability.
"""
