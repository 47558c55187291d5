"""What `packedss check` checks, by its name: a schedule, an any-order schedule, an order policy."""

from __future__ import annotations

from typing import Any

from proofs_check.findings import Report
from proofs_check.loading import load
from simulator import any_order
from simulator.any_order.orders import Order
from simulator.any_order.schedules import order_of
from simulator.errors import InvalidInput

_METHODS = ("init", "request", "absorb")


def checked(reference: str, declares: str | None, width: int, order: str | None, start: str, limit: float) -> Report:
    """The report on NAME or module:Object, any-order:NAME or any-order:module:Object, order:NAME or order:module:policy.

    Raises InvalidInput for unknown names, and for options that do not go together.
    """
    if not limit > 0:
        raise InvalidInput(f"--limit must be > 0 seconds, got {limit}")
    family, _, name = reference.partition(":")
    if order is not None and family != "any-order":
        raise InvalidInput("--order is for any-order schedules: any-order:packed, any-order:module:Object")
    if family == "any-order":
        return _any_order(name, reference, declares, width, order or "ltr", start, limit)
    if family == "order":
        from proofs_check.any_order_policy import check_order

        if declares is not None:
            raise InvalidInput("an order policy is checked by itself: leave out --declares")
        return check_order(_order(name), limit=limit, name=reference)
    return _left_to_right(reference, declares, width, start, limit)


def _left_to_right(reference: str, declares: str | None, width: int, start: str, limit: float) -> Report:
    from proofs_check.battery import check_schedule
    from simulator.schedules import NAMES, named

    policy = named(declares, width, start) if declares else None
    if reference.split(":")[0] in {name.split(":")[0] for name in NAMES}:
        subject: Any = named(reference, width, start)
        policy = policy or subject
        source = f"schedule = named({reference!r}, {width}, {start!r})"
    else:
        try:
            subject, source = load(reference, "schedules", _METHODS)
        except InvalidInput as error:
            built_in = (
                "" if ":" in reference else f"; built in: {', '.join(NAMES)}, any-order:packed, ..., order:confidence, ..."
            )
            raise InvalidInput(f"{error}{built_in}") from None
        source = source.replace("subject =", "schedule =")
    return check_schedule(subject, policy, limit=limit, name=reference, source=source)


def _any_order(name: str, reference: str, declares: str | None, width: int, order: str, start: str, limit: float) -> Report:
    from proofs_check.any_order_battery import check_any_order

    chosen = _order(order)
    policy: Any = any_order.named(declares, width, chosen, start) if declares else None
    if name in any_order.NAMES:
        subject: Any = any_order.named(name, width, chosen, start)
        policy = policy or (subject if name != "native" else None)
        ours = ":" not in order or order.startswith("random:")
        source = (
            f"from simulator.any_order import named\nschedule = named({name!r}, {width}, {order!r}, {start!r})" if ours else ""
        )
    elif ":" in name:
        subject, source = load(name, "schedules", _METHODS)
        source = source.replace("subject =", "schedule =")
    else:
        allowed = ", ".join(any_order.NAMES)
        raise InvalidInput(f"unknown any-order schedule {name!r}; allowed: {allowed}, or any-order:module:Object of yours")
    return check_any_order(subject, policy, limit=limit, name=reference, source=source)


def _order(name: str) -> Order:
    """A policy of ours, or module:function of the user's."""
    if ":" not in name or name.startswith("random:"):
        return order_of(name)
    policy: Order = load(name, "orders").subject
    return policy
