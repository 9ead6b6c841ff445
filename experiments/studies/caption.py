"""One sentence below every figure: what is shown, bands, seeds, setting."""

from collections.abc import Sequence

BAND = "medians over {n} seeds with 95 % bands (2.5 to 97.5 percentile of the seeds)"
DOTS = (
    "SMSE of every dataset in the setting `{setting}`: filled markers with bars are {band}, a record without random "
    "numbers in the setting has one result and no bar; hollow markers are the published values{more}."
)
SWEEP = (
    "SMSE, mean predictive variance and number of revised points against the error threshold in the setting "
    "`{setting}`: {band}{more}, and the published and our SMSE of a batch model."
)
CAPTIONS = {
    "table_1": (
        "Time of all N scores (left: medians and quartiles over repetitions; factorisations as the paper does it, and "
        "from the cached factor) and of one score by a factorisation beside the published times, which are from "
        "another machine (right), against the number of points."
    ),
    "figure_reduction": (
        "SMSE while a dictionary of uniform points is reduced one by one, in the setting `{setting}`: {band}."
    ),
    "table_2": DOTS.replace("{more}", ""),
    "figure_rastrigin": (
        "Absolute prediction error (above) and predictive standard deviation (below) on Rastrigin after all new "
        "points were offered {acceptance} acceptance, in the setting `{setting}`, seed 0; dots are the points of the "
        "dictionary, the highest colour stands for the highest percent of a row of maps."
    ),
    "table_3": DOTS.replace("{more}", ", crosses our medians at thresholds of our own"),
    "table_4": DOTS.replace("{more}", ", crosses our medians at thresholds of our own"),
    "figure_van_der_pol": SWEEP.replace("{more}", ""),
    "figure_building": SWEEP.replace("{more}", ", which may leave the panels of the SMSE at the top"),
    "grid": (
        "Median SMSE over {n} seeds of every pair of acceptance and reduction over that of the best pair of the "
        "dataset, in the setting `trained`, all new points offered, leave-one-out reference; frames are matched pairs."
    ),
    "baselines": (
        "SMSE of the batch models and of the online GP on the Building (medians and quartiles over {n} seeds at most) "
        "against peak memory, training time and prediction time; dotted: the Kalman filter of the true plant."
    ),
    "guidelines": (
        "Claims of the paper tested {where}, over {n} seeds: at every place the median ratio that speaks least for "
        "the claim with its 95 % interval, drawn at the edge where it lies outside; numbers are places won, lost, and "
        "equal or tied, the right margin gives the verdict."
    ),
}
SETTINGS = ("trained", "published", "adaptive")


def caption(study: str, figure: str, n_seeds: int) -> str:
    """Caption of a figure, whose name tells its setting and variant.

    Raises
    ------
    KeyError
        A study without a caption.
    """
    words: Sequence[str] = figure.removeprefix(study).split("_")
    setting = next((name for name in SETTINGS if name in words), SETTINGS[0])
    return CAPTIONS[study].format(
        n=n_seeds,
        setting=setting,
        band=BAND.format(n=n_seeds),
        acceptance="with (leave-one-out reference)" if "acceptance" in words else "without",
        where="on its printed tables" if "printed" in words else f"on our results in the setting `{setting}`",
    )
