"""A call as a method of the clients: what makes it one, and the type that it has there.

A call is a method of a class of calls that returns a :class:`~tacit.client.call.Call`; both clients
have it, as a method that returns the answer and as one to be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from tacit.client.call import Call

if TYPE_CHECKING:
    from tacit.client.clients import AsyncClient, Client

P = ParamSpec("P")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Method(Protocol[P, A_co]):
    """The type of a call as a method of either client, with the call's own parameters."""

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, A_co]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type[AsyncClient]
    ) -> Callable[P, Coroutine[Any, Any, A_co]]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Client]
    ) -> Callable[Concatenate[Client, P], A_co]: ...
    @overload
    def __get__(
        self, client: None, owner: type[AsyncClient]
    ) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, A_co]]: ...


def call(make: Callable[Concatenate[Any, P], Call[A]]) -> Method[P, A]:
    """Return the function as it is; to a type checker it is what the clients make of it."""
    return cast("Method[P, A]", make)
