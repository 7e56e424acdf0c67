"""What lookups need to predict configurations: trees as plain arrays, features of a launch, the ranking made of both.

Nothing here trains (:mod:`..learn` does), and nothing but NumPy is needed.
"""

from __future__ import annotations

from .accuracy import Accuracy, CrossValidation
from .features import Feature, feature_rows, features_of
from .forest import Forest
from .ranking import Ranking

__all__ = ["Accuracy", "CrossValidation", "Feature", "Forest", "Ranking", "feature_rows", "features_of"]
