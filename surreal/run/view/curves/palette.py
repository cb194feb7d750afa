"""Colours of curves: apart from each other for colour-blind eyes too, after Okabe and Ito 2008."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999933")
#: The same, brighter, for a dark ground.
BRIGHT_COLOURS = ("#4da3e0", "#ff8747", "#2cc795", "#e59bc6", "#f2b93b", "#8bd0f5", "#b79ce6", "#c9c95e")


def colour(number: int, *, is_dark: bool = False) -> str:
    """The colour of a curve by its number; after the last they begin again."""
    return (BRIGHT_COLOURS if is_dark else COLOURS)[number % len(COLOURS)]
