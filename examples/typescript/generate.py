"""Write a typed client for JavaScript and TypeScript from the service's OpenAPI document.

python generate.py [OPENAPI.json]    writes tacit.mjs, and its types tacit.d.mts, where it is run

Without a file, the document is that of the tacit which is installed. A service that runs has its own at
/openapi.json. The client needs nothing but fetch: a browser, node from 18 on, Deno or Bun.
"""

import json
import re
import sys
from pathlib import Path

HEAD = "// Written by generate.py from the OpenAPI document of tacit {version}: do not edit.\n"
CLIENT = """
/** What the service refused, or what came in place of an answer. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title);
    Object.assign(this, { name: "Refused", status, problem });
  }
}

/** A client of the decision service at an address, with a key where the service asks for one. */
export class Tacit {
  constructor(address, { key, timeout = 5000, fetch: ask = globalThis.fetch } = {}) {
    if (!/^https?:\\/\\//.test(address ?? "")) throw new TypeError(`address: ${address}; give http://HOST:PORT`);
    Object.assign(this, { address: address.replace(/\\/+$/, ""), key, timeout, ask });
  }

  async call(method, path, query, body) {
    const asked = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
    const url = this.address + path + (asked.length ? `?${new URLSearchParams(asked)}` : "");
    const headers = { ...(this.key && { authorization: `Bearer ${this.key}` }) };
    if (body !== undefined) headers["content-type"] = "application/json";
    const signal = AbortSignal.timeout(this.timeout);
    const ask = this.ask;
    const answer = await ask(url, { method, headers, signal, body: JSON.stringify(body) }).catch((error) => {
      const why = error.cause?.code ?? error.cause?.message ?? error.message;
      const remedy = "see whether the service runs there";
      throw new Error(
        `no answer from ${url} (${why}, timeout ${this.timeout} ms); ${remedy}`,
        { cause: error },
      );
    });
    const kind = answer.headers.get("content-type") ?? "";
    if (!answer.ok) {
      const told = kind.includes("json") ? await answer.json() : { detail: await answer.text() };
      throw new Refused(answer.status, told);
    }
    return kind.includes("json") ? answer.json() : answer.arrayBuffer();
  }
"""
TYPES = """
export declare class Refused extends Error {
  readonly status: number;
  readonly problem: Partial<Problem>;
}

export interface Options {
  /** One of the service's keys, where it asks for one. */
  key?: string;
  /** Milliseconds until a request is given up. */
  timeout?: number;
  fetch?: typeof fetch;
}

/** A client of the decision service at an address. */
export declare class Tacit {
  constructor(address: string, options?: Options);
"""


def typed(schema: dict) -> str:
    """Return the type that a schema describes."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(map(typed, choices)))
    match schema.get("type"):
        case "array":
            return f"Array<{typed(schema.get('items', {}))}>"
        case "object":
            values = schema.get("additionalProperties", {})
            return f"Record<string, {typed(values) if isinstance(values, dict) else 'unknown'}>"
        case "integer" | "number":
            return "number"
        case str(name):
            return name
    return "unknown"


def explained(text: str, indent: str = "") -> str:
    """Return a comment that editors show."""
    text = " ".join(text.replace("``", "`").replace("*/", "").split())
    return f"{indent}/** {text} */\n" if text else ""


def field(name: str, schema: dict, required: bool) -> str:
    """Return a line of an interface, and what it means."""
    name = name if re.fullmatch(r"\w+", name) else json.dumps(name)
    line = f"  {name}{'' if required else '?'}: {typed(schema)};\n"
    meant = schema.get("description") or next(
        (each["description"] for each in schema.get("anyOf", ()) if "description" in each), ""
    )
    return explained(meant, "  ") + line


def interface(name: str, schema: dict) -> str:
    """Return a request or an answer."""
    needed = schema.get("required", ())
    fields = "".join(field(key, each, key in needed) for key, each in schema["properties"].items())
    return f"{explained(schema.get('description', ''))}export interface {name} {{\n{fields}}}\n"


def method(path: str, kind: str, verb: dict, shared: list) -> tuple[str, str]:
    """Return a method of the client as code and as a type."""
    inside = [each["name"] for each in shared if each["in"] == "path"]
    asks = [each for each in [*shared, *verb.get("parameters", ())] if each["in"] == "query"]
    body = verb.get("requestBody", {}).get("content", {}).get("application/json")
    takes = dict.fromkeys(inside, "string") | ({"body": typed(body["schema"])} if body else {})
    if asks:
        fields = "; ".join(f"{each['name']}?: {typed(each['schema'])}" for each in asks)
        takes["query?"] = f"{{ {fields} }}"
    answer = next(each for status, each in verb["responses"].items() if status.startswith("2"))
    found = answer.get("content", {}).get("application/json")
    name, meant = verb["operationId"], explained(verb["summary"], "  ")
    declared = ", ".join(f"{each}: {kind}" for each, kind in takes.items())
    types = f"\n{meant}  {name}({declared}): Promise<{typed(found['schema']) if found else 'ArrayBuffer'}>;\n"
    where = re.sub(r"\{(\w+)\}", r"${encodeURIComponent(\1)}", path)
    sent = [f'"{kind.upper()}", `{where}`', "query" if asks else "undefined", *(["body"] if body else [])]
    given = ", ".join(each.rstrip("?") for each in takes)
    return f"\n{meant}  {name}({given}) {{\n    return this.call({', '.join(sent)});\n  }}\n", types


def client(document: dict) -> dict[str, str]:
    """Return the files of the client by name."""
    made = [
        method(path, kind, verb, verbs.get("parameters", []))
        for path, verbs in document["paths"].items()
        for kind, verb in verbs.items()
        if path.startswith("/v1/") and kind != "parameters"
    ]
    code, types = ("".join(parts) for parts in zip(*made, strict=True))
    head = HEAD.format(version=document["info"]["version"])
    wanted, found = set(re.findall(r"\w+", types)) | {"Problem"}, {}
    schemas = document["components"]["schemas"]
    while missing := [name for name in schemas if name in wanted and name not in found]:
        found |= {name: interface(name, schemas[name]) for name in missing}
        wanted |= {word for name in missing for word in re.findall(r"\w+", found[name])}
    shapes = "\n".join(found[name] for name in schemas if name in found)
    return {"tacit.mjs": f"{head}{CLIENT}{code}}}\n", "tacit.d.mts": f"{head}\n{shapes}{TYPES}{types}}}\n"}


def main() -> None:
    """Write the files."""
    if len(sys.argv) > 1:
        document = json.loads(Path(sys.argv[1]).read_text())
    else:
        from tacit.service.app.routes import document as of_this_version

        document = of_this_version()
    for name, text in client(document).items():
        Path(name).write_text(text)


if __name__ == "__main__":
    main()
