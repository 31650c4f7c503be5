"""How the lists are written: words between blanks. Below: nothing."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())
