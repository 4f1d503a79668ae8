"""The 95% interval of a median of paired ratios, by the bootstrap.

Rounds of one run are interleaved, so what slows the machine down slows both arms of a pair; an interval
without 1 says more than ranges that do not meet. The bootstrap draws n ratios out of n, again and again, and
takes each draw's median. What it would find after endless draws can be counted, so nothing is drawn here: the
chance that m of n draws are among the k smallest is binomial.
"""

from __future__ import annotations

import math

_TAIL = 0.025


def _middle_chances(n: int) -> dict[tuple[int, int], float]:
    """The chance that the two middle draws (one, for an odd n) are the i-th and j-th smallest of n values,
    counted from 0."""
    if n % 2:
        m = n // 2 + 1

        def at_most(k: int) -> float:
            return sum(math.comb(n, r) * (k / n) ** r * (1 - k / n) ** (n - r) for r in range(m, n + 1))

        return {(i, i): at_most(i + 1) - at_most(i) for i in range(n)}
    m = n // 2

    def apart(i: int, j: int) -> float:
        """m draws among the i smallest, m among the j largest."""
        return math.comb(n, m) * (i / n) ** m * (j / n) ** m

    def first_at_most(k: int) -> float:
        return sum(math.comb(n, r) * (k / n) ** r * (1 - k / n) ** (n - r) for r in range(m, n + 1))

    chances: dict[tuple[int, int], float] = {}
    for i in range(n):
        for j in range(i + 1, n):
            chances[i, j] = (
                apart(i + 1, n - j) - apart(i, n - j) - apart(i + 1, n - j - 1) + apart(i, n - j - 1)
            )
        chances[i, i] = first_at_most(i + 1) - first_at_most(i) - sum(chances[i, j] for j in range(i + 1, n))
    return chances


def interval(ratios: list[float]) -> tuple[float, float]:
    """The interval from the 2.5% to the 97.5% quantile of the bootstrap's medians."""
    values = sorted(ratios)
    medians = sorted(
        ((values[i] + values[j]) / 2, chance) for (i, j), chance in _middle_chances(len(values)).items()
    )
    low, high, seen = medians[0][0], medians[-1][0], 0.0
    for median, chance in medians:
        if seen < _TAIL <= seen + chance:
            low = median
        if seen < 1 - _TAIL <= seen + chance:
            high = median
        seen += chance
    return low, high
