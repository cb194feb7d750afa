"""Colours of curves: apart from each other for colour-blind eyes too, on white and on black (Okabe and Ito 2008)."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999933")


def colour(number: int) -> str:
    """The colour of a curve by its number; after the last they begin again."""
    return COLOURS[number % len(COLOURS)]
