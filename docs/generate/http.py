"""The reference of the HTTP interface, from its OpenAPI document."""

from __future__ import annotations

import json
from typing import Any

from generate.tables import code, markdown, table
from tacit.service.app.routes import APIS, document

SCOPES = {
    (path.template, method.lower()): route.scope
    for api in APIS
    for path in api.paths.values()
    for method, route in path.routes.items()
}
"""What a key must be for, by address and method."""


def part() -> str:
    """Return every operation, then every structure."""
    whole = document()
    schemas = whole["components"]["schemas"]
    paths = "\n\n".join(
        operation(path, method, item[method], item.get("parameters", []))
        for path, item in whole["paths"].items()
        for method in ("get", "post", "put", "delete")
        if method in item
    )
    structures = "\n\n".join(structure(name, schema) for name, schema in schemas.items())
    return f"## Operations\n\n{paths}\n\n## Structures\n\n{structures}"


def operation(path: str, method: str, what: dict[str, Any], parameters: list[Any]) -> str:
    """Return an operation: what it takes, answers, and refuses."""
    parameters = [one for one in parameters if one["in"] != "path"]
    scope = SCOPES[path, method]
    needs = "Needs no key." if scope is None else f"Needs the scope {code(scope)}."
    lines = [f"### {heading(path, method)}", f"{what['summary']}. {needs}"]
    if parameters:
        rows = [[code(p["name"]), p["in"], shape(p["schema"]), p.get("description", "")] for p in parameters]
        lines.append(table(["parameter", "in", "type", ""], rows))
    if "requestBody" in what:
        lines.append(f"Takes {body(what['requestBody'])}.")
    for status, answer in what["responses"].items():
        if status.startswith("2"):
            kind = f" {body(answer)}" if "content" in answer else ""
            meaning = first_lower(markdown(answer["description"])).rstrip(".")
            lines.append(f"Answers {status}{kind}: {meaning}.")
    refusals = [status for status in what["responses"] if not status.startswith("2")]
    if refusals:
        lines.append(f"Or a [problem](errors.md#problems-of-the-service): {', '.join(refusals)}.")
    return "\n\n".join(lines)


def heading(path: str, method: str) -> str:
    """Return how an operation is called here, where ``…`` is a placement.

    Examples
    --------
    >>> heading("/v1/placements/{name}/decide", "post")
    'POST …/decide'
    """
    return f"{method.upper()} {path.replace('/v1/placements/{name}', '…')}"


def first_lower(text: str) -> str:
    """Return a sentence as it stands after a colon."""
    return text[:1].lower() + text[1:]


def body(content: dict[str, Any]) -> str:
    """Return the structure of a body."""
    (media,) = content["content"].values()
    return shape(media["schema"])


def structure(name: str, schema: dict[str, Any]) -> str:
    """Return a structure with its fields."""
    needed = set(schema.get("required", []))
    rows = [
        [
            code(field),
            shape(what),
            "must be given" if field in needed else default(what),
            markdown(said(what, "description")),
        ]
        for field, what in schema.get("properties", {}).items()
    ]
    text = markdown(schema.get("description", ""))
    fields = table(["field", "type", "default", ""], rows) if rows else ""
    return f"### {name}\n\n{text}\n\n{fields}"


def said(schema: dict[str, Any], what: str) -> str:
    """Return what a schema, or the first of its alternatives, says."""
    each = [schema, *schema.get("anyOf", [])]
    return str(next((one[what] for one in each if what in one), ""))


def default(schema: dict[str, Any]) -> str:
    """Return the default of a field that may be left out."""
    return code(json.dumps(schema["default"])) if "default" in schema else ""


def shape(schema: dict[str, Any]) -> str:
    """Return the type of a schema, with its range.

    Examples
    --------
    >>> shape({"type": "array", "items": {"type": "number"}, "maxItems": 3})
    'list of number, at most 3'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(shape(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(code(str(one).lower() if one is True else one) for one in schema["enum"])
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        kind = f"list of {shape(schema.get('items', {}))}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {shape(schema['additionalProperties'])}"
    limits = [f"{words} {number(schema[key])}" for key, words in LIMITS.items() if key in schema]
    return ", ".join([kind, *limits])


def number(limit: float) -> str:
    """Return a limit as it would be typed, to the last digit."""
    return str(limit) if isinstance(limit, int) else f"{limit:.12g}"


LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "at least",
    "maxItems": "at most",
}
