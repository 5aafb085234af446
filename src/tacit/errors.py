"""The errors that tacit raises; each names the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache, wraps
from inspect import CO_VARKEYWORDS, signature
from typing import Any, ClassVar, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

BEFORE_0_3 = "was written before tacit 0.3; open it with 0.3 first"
"""Error message for a file that this version no longer reads, after the file's name."""


class TacitError(Exception):
    """Base of every error that tacit raises on purpose."""

    arguments: ClassVar[tuple[str, ...]] = ()
    """The attributes that hold the arguments of the constructor, where it takes others than a message."""

    def __reduce__(self) -> Any:
        """Return the class and the constructor's arguments, by which pickle copies the error."""
        if not self.arguments:
            return super().__reduce__()
        return type(self), tuple(getattr(self, name) for name in self.arguments)


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean 'NAME'?)" with the name most similar to an unknown one, for an error; "" if none
    is similar.

    Examples
    --------
    >>> suggest_name("markt", ["MARKET", "USER"]), suggest_name("x", ["user"])
    (" (did you mean 'MARKET'?)", '')
    """
    by_folded_name = {candidate.casefold(): candidate for candidate in names}
    prefixes = [
        candidate
        for candidate in by_folded_name
        if len(candidate) > 4 and name.casefold().startswith(candidate) and name[len(candidate) :][:1] != "."
    ]
    matches = sorted(prefixes, key=len)[-1:] or get_close_matches(name.casefold(), list(by_folded_name), 1)
    return f" (did you mean {by_folded_name[matches[0]]!r}?)" if matches else ""


OPTION_SYNONYMS = {"propensities": "assume_uniform", "query": "key", "gamma": "discount", "rounds": "horizon"}
"""Names of an option in other functions: from one name to the other."""
OPTION_OWNERS = dict.fromkeys(("cluster", "weight_bound"), "off_policy(…)")
OPTION_OWNERS |= {"seed": "what draws: Learner(policy, seed=…), or rng=default_rng(seed)"}
OPTION_OWNERS |= {"epsilon": "ExplorationFloor(policy, epsilon=…)", "segment": "items.ids(segment), as arms="}
"""Functions that accept an option which the called function does not have."""


def option_error(function_name: str, name: str, parameters: Iterable[str]) -> TypeError:
    """Return the TypeError for an unknown option, with a hint about the right name or function; the caller
    raises it.

    Examples
    --------
    >>> print(option_error("auto", "arm", ["arms", "shows"]))
    auto() got an unexpected keyword argument 'arm'; did you mean 'arms'?
    """
    parameters = list(parameters)
    synonym = OPTION_SYNONYMS.get(name)
    matches = [synonym] if synonym in parameters else get_close_matches(name, parameters, 1)
    hint = f"did you mean {matches[0]!r}?" if matches else f"it takes {', '.join(parameters)}"
    if function_name == "Learner" and not matches:
        hint = f"a policy takes it: Learner(tacit.auto({name}=…))"
    if name in OPTION_OWNERS and not get_close_matches(name, parameters, 1, 0.9):
        hint = f"give it to {OPTION_OWNERS[name]}"
    return TypeError(f"{function_name}() got an unexpected keyword argument {name!r}; {hint}")


def parameter_names(code: Any) -> list[str]:
    """Return the names of all parameters in a function's code object, except ``self``."""
    return [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name != "self"]


def refuse_options(function: Any, unknown: Iterable[str]) -> None:
    """Raise a TypeError about the first of ``unknown``, options that ``function`` does not have."""
    raise option_error(function.__qualname__, next(iter(unknown)), parameter_names(function.__code__))


read_signature = cache(signature)


def check_call(
    function: Any, function_name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> None:
    """Raise a TypeError with a hint about options if a function cannot be called with the arguments.

    Parameters
    ----------
    function : function
    function_name : str
        Name of the function for callers.
    arguments, keywords : tuple and dict
        Positional and keyword arguments of the call, including ``self``.

    Raises
    ------
    TypeError
    """
    try:
        read_signature(function).bind(*arguments, **keywords)
    except TypeError as error:
        parameters = parameter_names(function.__code__)
        for name in keywords:
            if name not in parameters and not function.__code__.co_flags & CO_VARKEYWORDS:
                raise option_error(function_name, name, parameters) from None
        raise TypeError(f"{function_name}(): {error}; it takes {', '.join(parameters)}") from None


def with_suggestions(function: Function) -> Function:
    """Return a wrapper of a function, whose TypeError for a wrong call lists the options and suggests one."""
    name = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call_with_suggestions(*arguments: Any, **keywords: Any) -> Any:
        """Call the function; if the arguments do not fit it, raise a TypeError with a suggestion."""
        try:
            return function(*arguments, **keywords)
        except TypeError:
            check_call(function, name, arguments, keywords)
            raise

    return call_with_suggestions  # type: ignore[return-value]


class AssumptionWarning(UserWarning):
    """Warning that data contradict an assumption of a policy or an estimate, whose guarantees may not
    hold."""


class InvalidValue(TacitError, ValueError):
    """A value that its field does not allow.

    Parameters
    ----------
    field : str
        The field's name, as the caller knows it.
    value : object
        The value.
    allowed : str
        The allowed values, phrased as the remedy.
    """

    arguments = "field", "value", "allowed"

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        """Create the error; its message has at most 200 characters of the value."""
        text = repr(value)
        text = text if len(text) <= 200 else text[:197] + "..."
        super().__init__(f"{field}: {text} is not allowed; {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class UnknownName(TacitError, LookupError):
    """An unknown name (of a policy, an environment, an arm, a placement …)."""


class KernelError(TacitError):
    """A kernel that cannot be compiled, with file, line and cause; ``__cause__`` is numba's error.

    Parameters
    ----------
    file : str
        Where the kernel is defined; a notebook's cell and a prompt have names in angle brackets.
    line : int
        0 if it is not known.
    kernel : str
        The function's name.
    cause : str
        The error, with a remedy if one is known.
    """

    arguments = "file", "line", "kernel", "cause"

    def __init__(self, file: str, line: int, kernel: str, cause: str) -> None:
        """Create the error; ``line`` is in ``file``, and ``kernel`` may be empty."""
        super().__init__(f"{file}:{line}: {kernel + ': ' if kernel else ''}{cause}")
        self.file, self.line, self.kernel, self.cause = file, line, kernel, cause


class SnapshotError(TacitError):
    """A snapshot that is damaged, truncated, of another kind, or newer than this version."""


class LogError(TacitError):
    """A click log that cannot be read, or an invalid row under ``strict``."""


class UnfitLog(LogError):
    """A click log that an estimator refuses, because its estimate would be wrong."""


class TooManyRejected(LogError):
    """A log of which more rows, or a feed of which more events, are rejected than its limit allows."""


class ConfigError(TacitError):
    """An invalid configuration; the message names the file and the key."""


class MissingPackage(TacitError, ImportError):
    """A required package is not installed."""

    arguments = ("package",)

    def __init__(self, package: str) -> None:
        """Create the error for a package, with the command that installs it."""
        super().__init__(f"{package} is not installed; install it with: pip install {package}")
        self.package = package


class MissingExtra(TacitError, ImportError):
    """An optional part of tacit was used without its packages."""

    arguments = "module", "extra"

    def __init__(self, module: str, extra: str) -> None:
        """Create the error for a module that is missing, with the command that installs ``extra``."""
        super().__init__(f"{module} is not installed; install it with: pip install 'tacit-learn[{extra}]'")
        self.module, self.extra = module, extra


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Raise MissingExtra, which names the extra to install, in place of an ImportError in the ``with`` block.

    Raises
    ------
    MissingExtra
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        raise MissingExtra(error.name or "a package", extra) from error


@contextmanager
def undo_on_error(undo: Callable[..., object], *arguments: Any, **keywords: Any) -> Iterator[None]:
    """If the ``with`` block raises, call ``undo`` with the arguments, and raise the error again."""
    try:
        yield
    except BaseException:
        undo(*arguments, **keywords)
        raise
