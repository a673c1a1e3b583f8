"""Durations, as people say them."""


def spoken(seconds: float) -> str:
    """A duration for people, rounded.

    Example:
        >>> [spoken(seconds) for seconds in (45, 1320, 7800, 273_600)]
        ['45 s', '22 min', '2 h 10 min', '3 days 4 h']
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} day{'s' if days > 1 else ''} {hours} h"
