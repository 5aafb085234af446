"""A call as a method of the clients: what makes it one, and the type that it has there.

A call is a method of a class of calls that returns a :class:`~tacit.client.call.Call`; both clients
have it, as a method that returns the answer and as one to be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from tacit.client.call import Call

P = ParamSpec("P")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Blocking:
    """A client whose calls return the answer."""


class Awaited:
    """A client whose calls are to be awaited."""


class Method(Protocol[P, A_co]):
    """The type of a call as a method of either client, with the call's own parameters."""

    @overload
    def __get__(self, client: Blocking, owner: type[Blocking]) -> Callable[P, A_co]: ...
    @overload
    def __get__(self, client: Awaited, owner: type[Awaited]) -> Callable[P, Coroutine[Any, Any, A_co]]: ...
    @overload
    def __get__(self, client: None, owner: type[Blocking]) -> Callable[Concatenate[Blocking, P], A_co]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Awaited]
    ) -> Callable[Concatenate[Awaited, P], Coroutine[Any, Any, A_co]]: ...


def call(make: Callable[Concatenate[Any, P], Call[A]]) -> Method[P, A]:
    """Return the function as it is; to a type checker it is what the clients make of it."""
    return cast("Method[P, A]", make)
