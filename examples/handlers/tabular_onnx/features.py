"""Fields of a loan application become the numbers of the model; training and serving compute the same."""

from datetime import date
from math import cos, log, pi, sin

PURPOSES = ("car", "home", "study", "other")
RANGES = {"amount": (100, 1_000_000), "income": (0, 10_000_000), "age": (18, 120)}
NAMES = ("amount", "rate", "age", "season_sin", "season_cos", *PURPOSES)


def problems(fields):
    """Return what is wrong with the fields, one text each."""
    found = [
        f"{name} is {fields[name]:,.10g}; expected {least:,} to {most:,}"
        for name, (least, most) in RANGES.items()
        if not least <= fields[name] <= most  # also true for nan
    ]
    if fields["purpose"] not in PURPOSES:
        found.append(f"purpose is {fields['purpose'][:32]!r}; expected one of {', '.join(PURPOSES)}")
    try:
        date.fromisoformat(fields["applied"])
    except ValueError:
        found.append(f"applied is {fields['applied'][:32]!r}; expected a date such as 2025-12-31")
    return found


def vector(fields):
    """Return the numbers of valid fields, in the order of `NAMES`."""
    angle = 2 * pi * date.fromisoformat(fields["applied"]).timetuple().tm_yday / 365
    return [
        log(fields["amount"]),
        log((fields["amount"] + 1) / (fields["income"] + 1)),
        fields["age"] / 100,
        sin(angle),
        cos(angle),
        *(float(fields["purpose"] == purpose) for purpose in PURPOSES),
    ]
