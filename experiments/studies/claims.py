"""A claim of the paper and how it is tested; its six guidelines."""

from dataclasses import dataclass

from experiments.studies.evidence import Evidence

#: section 7 of the paper
GUIDELINES = {
    1: "Select points offline by the marginal log likelihood.",
    2: "Online, where only the prediction error matters, select by the mean relevance.",
    3: "Where the uncertainty matters too, select by a likelihood.",
    4: "Select by an entropy only where the points shall cover the input space evenly.",
    5: "The acceptance criterion of the marginal log likelihood filters points without new information well.",
    6: "An acceptance criterion is recommended in general, to save computation.",
}


LOWEST_OF_THREE = 1.0 / 3.0  # chance of one of three equal criteria


@dataclass(frozen=True)
class PaperClaim:
    """One sentence of the paper, one sentence that makes it measurable, and the evidence."""

    name: str
    guideline: int  # that it is a part of; 0: of none
    section: int  # of the paper
    statement: str  # what the paper says
    test: str  # when a place counts as won
    evidence: Evidence
    chance: float = 0.5  # of winning a place that is decided, if nothing were in the claim

    @property
    def source(self) -> str:
        """Where the paper says it."""
        return f"guideline {self.guideline}" if self.guideline else f"section {self.section}"

    @property
    def label(self) -> str:
        """Name for people."""
        return self.name.replace("_", " ")
