"""Finding what a user wants checked: a name that a package registered, or module:Object of their own."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from simulator.errors import InvalidInput


class Loaded(NamedTuple):
    """An object and the Python that defines it as `subject`."""

    subject: Any
    source: str


def load(reference: str, group: str, methods: tuple[str, ...] = ()) -> Loaded:
    """The object called `reference`: module:Object, or the name of an entry point of the group `packedss.<group>`.

    The working directory is searched for the module, as Python does for a script. With `methods`, an object that lacks them is
    called without arguments, so that a class or a function that makes one will do. Raises InvalidInput, naming what is wrong.
    """
    if ":" in reference:
        module, _, name = reference.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            subject: Any = importlib.import_module(module)
            for part in name.split("."):
                subject = getattr(subject, part)
        except Exception as error:  # whatever the user's module does at import
            raise InvalidInput(f"cannot load {reference!r}: {type(error).__name__}: {error}") from error
        source = f"from {module} import {name.split('.')[0]}\nsubject = {name}"
    else:
        registered = {point.name: point for point in entry_points(group=f"packedss.{group}")}
        if reference not in registered:
            known = ", ".join(sorted(registered)) or "none"
            raise InvalidInput(
                f"unknown name {reference!r}; allowed: module:Object, or one registered as packedss.{group} ({known})"
            )
        try:
            subject = registered[reference].load()
        except Exception as error:
            raise InvalidInput(f"cannot load {reference!r}: {type(error).__name__}: {error}") from error
        module, _, name = registered[reference].value.partition(":")
        source = f"from {module} import {name.split('.')[0]}\nsubject = {name}"
    if methods and (isinstance(subject, type) or not _has(subject, methods)):
        if not callable(subject):
            raise InvalidInput(f"{reference!r} has no {', '.join(methods)}, and cannot be called to make such an object")
        try:
            subject = subject()
        except Exception as error:
            raise InvalidInput(f"{reference!r} cannot be made without arguments: {type(error).__name__}: {error}") from error
        source += "()"
        if not _has(subject, methods):
            raise InvalidInput(f"what {reference!r} makes has no {', '.join(methods)}")
    return Loaded(subject, source)


def _has(subject: Any, methods: tuple[str, ...]) -> bool:
    return all(callable(getattr(subject, method, None)) for method in methods)
