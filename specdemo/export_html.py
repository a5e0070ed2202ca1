"""One self-contained HTML page of a run."""


def template() -> str:
    return ""
