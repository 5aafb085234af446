"""The documentation site: nothing is missing from what is generated, and it builds strictly."""

import contextlib
import importlib
import inspect
import io
import itertools
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import click
import msgspec
import pytest
from conftest import ROOT
from drawn import is_long
from harness import PATIENCE

import tacit

DOCS = ROOT / "docs"
MODULES = (
    "tacit",
    "tacit.evaluate",
    "tacit.interleaving",
    "tacit.clicks",
    "tacit.uplift",
    "tacit.client",
    "tacit.cluster",
    "tacit.logs",
    "tacit.policies",
    "tacit.environments",
    "tacit.classifiers",
    "tacit.checking",
)


@pytest.fixture(scope="module")
def generate():
    """The package that makes the parts of pages."""
    return lambda name: importlib.import_module(f"generate.{name}")


ANSWERED = {
    "personalization": "who-is-asking.html",
    "contextual bandit": "who-is-asking.html",
    "cold start": "who-is-asking.html",
    "features": "who-is-asking.html",
    "recommender": "items.html",
    "embedding": "items.html",
    "catalogue": "items.html",
    "ranking": "lists.html",
    "position bias": "lists.html",
    "multi-armed bandit": "choose.html",
    "a/b test": "interleaving.html",
    "interleaving": "interleaving.html",
    "conversion": "tutorials/operate.html",
    "delayed reward": "tutorials/operate.html",
    "docker": "tutorials/operate.html",
    "kubernetes": "tutorials/operate.html",
    "feature flag": "elsewhere/openfeature.html",
    "thompson sampling": "choose.html",
    "non-stationary": "shifting-intent.html",
    "off-policy evaluation": "offline-evaluation.html",
    "counterfactual": "offline-evaluation.html",
    "learning to rank": "lists.html",
    "click-through rate": "proof.html",
    "revenue": "proof.html",
    "delayed feedback": "feedback.html",
}
"""What people search for, and the page that must be found by it."""


def undocumented(module):
    """Return the public names of a module that the reference does not have."""
    pages = (DOCS / "reference" / "python").glob("*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    listed = {line.rpartition(".")[2] for line in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    missing = set()
    for name in getattr(importlib.import_module(module), "__all__", ()):
        found = getattr(importlib.import_module(module), name)
        described = inspect.isclass(found) or inspect.isfunction(found)
        error = inspect.isclass(found) and issubclass(found, Exception)
        if described and not error and name not in listed:
            missing.add(name)
    return missing


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    assert not undocumented(module)


def test_every_command_and_option_is_in_the_reference(generate):
    from tacit.cli import cli

    page = generate("cli").part()

    def check(command, path):
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                check(command.get_command(context, name), f"{path} {name}")
            return
        _, found, section = page.partition(f"## {path}\n")
        assert found
        section = section.partition("\n## ")[0]
        for parameter in command.params:
            names = parameter.opts if isinstance(parameter, click.Option) else []
            assert all(f"`{name}`" in section for name in names), (path, parameter.name)

    check(cli, "tacit")


def test_every_operation_and_field_is_in_the_reference(generate):
    from tacit.service.app.routes import document

    page, whole = generate("http").part(), document()
    for path, item in whole["paths"].items():
        for method in {"get", "post"} & set(item):
            assert f"### {generate('http').heading(path, method)}\n" in page
    assert "Needs the scope `admin`." in page.partition("### POST …/mode\n")[2].partition("\n### ")[0]
    assert "Needs no key." in page.partition("### GET /healthz\n")[2].partition("\n### ")[0]
    for name, schema in whole["components"]["schemas"].items():
        section = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert section
        assert all(f"| `{field}` |" in section for field in schema.get("properties", {}))


def test_every_key_of_the_configuration_has_a_type_and_a_meaning(generate):
    configuration = generate("configuration")
    page = configuration.part()
    for _, structure in configuration.TABLES.values():
        rows = configuration.keys(structure)
        assert list(rows) == [field.encode_name for field in msgspec.structs.fields(structure)]
        for name, (_, kind, _, meaning) in rows.items():
            assert kind, name
            assert meaning, name
            assert f"`{name}`" in page


def test_the_reference_of_the_configuration_speaks_of_toml_and_of_every_table(generate):
    from tacit.service.config.file import ConfigFile

    page = generate("configuration").part()
    assert not re.search(r"\bnull\b|\bNone\b|\bTrue\b|e\+", page)
    tables = set(re.findall(r"^## `\[(\w+)", page, re.MULTILINE))
    assert tables == set(ConfigFile.__struct_fields__) - {"version"}


def test_a_kind_of_placement_shares_with_arms_what_it_does_not_change(generate):
    for section in generate("configuration").part().split("\n## ")[1:]:
        own = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        shared = re.findall(r"`(\w+)`", section.partition("As for the kind `arms`: ")[2])
        assert not set(own) & set(shared)


def test_every_column_of_every_log_has_a_meaning(generate):
    from tacit.logs.schema import SCHEMA
    from tacit.service.maintenance import log_export as log

    logs = generate("logs")
    assert list(logs.click_columns()) == SCHEMA.names
    assert all(logs.click_columns().values())
    assert logs.click_columns()["arm"] == "the arm that was shown, one of `arms`"
    for name, schema in logs.SCHEMAS.items():
        meanings = generate("tables").attributes(logs.ROWS[name])
        assert set(schema.names) <= set(meanings), name
    assert set(logs.duel_schema().names) == set(logs.duel_columns())
    assert set(logs.SCHEMAS) == set(logs.ROWS)
    assert {name for name in vars(log) if name.endswith("_SCHEMA")} == {"RECORDS_SCHEMA", "BASES_SCHEMA"}


def test_every_metric_of_a_running_service_has_a_meaning(generate):
    metrics = generate("metrics").metrics()
    assert len(metrics) >= 10
    assert all(name.startswith(("tacit_", "process_")) and help for name, _, _, help in metrics)


def test_every_error_and_problem_is_in_the_reference(generate):
    from tacit.service.http.messages import PROBLEMS

    errors = generate("errors")
    page = errors.part()
    assert all(f"`{errors.name(kind)}`" in page for kind in errors.errors())
    assert {"ConfigError", "StoreError", "NoCluster", "Denied"} <= {kind.__name__ for kind in errors.errors()}
    assert all(f"`{kind}`" in page for kind in PROBLEMS)
    assert [code for code, _ in errors.exit_codes()] == ["`0`", "`1`", "`2`", "`3`", "`130`"]


def test_every_policy_stands_in_one_table_and_says_all(generate):
    policies = generate("policies")
    pages = {group: policies.part(group) for group in policies.GROUPS}
    for name, kind in policies.known().items():
        assert all(kind.about[:-2]), name
        assert [f"[`{name}`]" in page for page in pages.values()].count(True) == 1


def test_what_was_measured_is_of_policies_that_there_are(generate):
    policies = generate("policies")
    measured = policies.MEASURED["policies"]
    assert set(measured) <= set(policies.known())
    assert all(facts["bytes"] >= 0 for facts in measured.values())


def test_the_gallery_shows_small_figures_of_items_that_there_are(generate):
    from studies import ITEMS

    gallery = generate("gallery")
    facts = json.loads(gallery.FACTS.read_text())
    assert set(facts) == set(ITEMS), "python -m generate.gallery makes what is missing"
    for name in facts:
        assert (gallery.IMAGES / f"{name}.png").stat().st_size <= gallery.LIMIT
    page = gallery.part()
    assert all(f"$ python -m studies {name} " in page for name in facts)


def test_pictures_are_of_the_code_that_there_is(generate):
    """A picture whose code has changed since, or that was made with other numbers of runs, is made again."""
    gallery = generate("gallery")
    facts = json.loads(gallery.FACTS.read_text())
    made = {name: (took["code"], took["runs"]) for name, took in facts.items() if "code" in took}
    changed = [name for name in made if made[name] != (gallery.fingerprint(name), gallery.runs_of(name))]
    assert not changed, f"pictures of older code: PYTHONPATH=docs python -m generate.gallery {changed}"


def test_only_code_that_an_item_names_changes_its_fingerprint(generate, monkeypatch):
    import ast

    gallery = generate("gallery")
    before = {name: gallery.fingerprint(name) for name in ("qi2018-figure2", "syed2009-figure2c")}
    real = gallery.definitions_of
    definitions = dict(real("studies.qi2018"))
    for name, changes in (("appendix_f", set()), ("proposition_1", {"qi2018-figure2"})):
        other = definitions | {name: ast.parse(f"def {name}(): return 1").body[0]}
        with monkeypatch.context() as patch:
            patch.setattr(
                gallery, "definitions_of", lambda m, o=other: o if m == "studies.qi2018" else real(m)
            )
            assert {item for item, code in before.items() if gallery.fingerprint(item) != code} == changes
    texts = [
        gallery.as_text(gallery.number_locals(ast.parse(f"def f({code}").body[0]))
        for code in ("a): return a - 1", "b: int): return b - 1", "a): return 1 - a")
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("reference/*.md")))
def test_the_reference_in_a_checkout_is_that_of_its_code(generate, page):
    text = (DOCS / "reference" / page).read_text("utf-8")
    assert generate("hooks").filled(text) == text, "make reference writes it anew"


def test_every_place_for_a_part_is_filled(generate):
    hooks = generate("hooks")
    pages = [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]
    asked = {name for page in pages for name in hooks.PLACE.findall(page.read_text("utf-8"))}
    assert asked == set(hooks.PARTS)


@pytest.mark.parametrize("module", ["tables", "http", "policies", "run"])
def test_examples_in_docstrings_hold(generate, module):
    import doctest

    assert doctest.testmod(generate(module)).failed == 0


def test_a_page_that_shows_what_is_not_so_is_found_out(generate, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\n"
        "```console\n$ echo a b\na …\n$ false\n```\n\n![none](none.png)\n"
    )
    differences, after = generate("run").run(page, tmp_path)
    found = [difference.what for difference in differences]
    assert found == ["page.md: printed by Python", "page.md: false", "page.md: none.png"]
    assert "```text\n2\n```" in after


@pytest.mark.parametrize("name", sorted(page.stem for page in DOCS.glob("tutorials/*.md")))
def test_tutorials_run_and_print_what_they_show(generate, name, tmp_path):
    differences, _ = generate("run").run(DOCS / "tutorials" / f"{name}.md", tmp_path)
    assert not differences, "\n".join(map(str, differences))


FEWER = {
    "recommend_a_list": (" 1_500)", " 400)"),
    "from_raw_columns": ("ROWS, ROUNDS = 8_000, 1_000", "ROWS, ROUNDS = 8_000, 300"),
    "revenue_per_visitor": ("ROUNDS, VISITORS = 60, 500", "ROUNDS, VISITORS = 4, 500"),
}
"""What takes long, and what stands in its place but in the long form: fewer rounds of the same."""
NEWS = ["--days=2", "--queries=1", "--events=1", "--only", "BWC, signals of the service", "oracle"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("recover_from_a_shift", []),
        ("weigh_a_log", []),
        ("from_raw_columns", []),
        ("news_event", NEWS),
        ("personalise_home", []),
        ("judge_two_policies", []),
        ("revenue_per_visitor", []),
        ("replace_vowpal_wabbit", []),
        ("recommend_a_list", []),
        ("ratings_from_a_log", []),
        ("rerank_documents", []),
        ("value_of_another_ranker", []),
    ],
)
def test_examples_run(name, options, tmp_path):
    if name in ("from_raw_columns", "rerank_documents", "value_of_another_ranker"):
        pytest.importorskip("sklearn")
    if name == "from_raw_columns":
        pytest.importorskip("pandas")
    script = ROOT / "examples" / f"{name}.py"
    if name in FEWER and not is_long():
        many, few = FEWER[name]
        text = script.read_text(encoding="utf-8")
        assert many in text
        script = tmp_path / script.name
        script.write_text(text.replace(many, few), encoding="utf-8")
    output = run_script(script, tmp_path, *options)
    assert len(output.splitlines()) >= (1 if name == "rerank_documents" else 4)


def run_script(script, folder, *options):
    """Run a script in a folder, as its own process would; return what it printed."""
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [str(script), *options]),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
    ):
        runpy.run_path(str(script), run_name="__main__")
    return output.getvalue()


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOT.glob("examples/*.ipynb")))
def test_notebooks_run_from_top_to_bottom(name, tmp_path):
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "outputs are stripped"
    script = tmp_path / "notebook.py"
    begin = "display = lambda shown: None"
    script.write_text("\n".join([begin, *("".join(cell["source"]) for cell in cells)]))
    run_script(script, tmp_path)


def test_every_page_and_picture_is_used():
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(page in navigation for page in pages), "a page is not in the navigation"
    pictures = [*DOCS.rglob("*.png"), *DOCS.rglob("*.svg")]
    told = text + navigation
    unused = [one for one in pictures if one.parent.name != "gallery" and one.name not in told]
    assert not unused, "a picture stands on no page"


def test_the_site_builds_without_a_warning_and_asks_nobody(tmp_path):
    pytest.importorskip("mkdocs")
    site = tmp_path / "site"
    recipe = re.search(r"(?m)^docs: .*\n\t(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"))[1]
    command = recipe.replace("$(BIN)", str(Path(sys.executable).parent)) + f" --site-dir {site}"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    loads = re.compile(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"?(https?://[^\" >]+)")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not loads.findall(text), page
        assert "<p>|" not in text, f"{page}: a table does not render"
    assert json.loads((site / "reference" / "openapi.json").read_text())["openapi"] == "3.1.0"
    assert not (Path(site) / "generate").exists()
    sections = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    for sought, page in ANSWERED.items():
        found = [one for one in sections if sought in f"{one['title']} {one['text']}".casefold()]
        assert page in {one["location"].split("#")[0] for one in found}, sought
    assert tacit.__version__


def test_the_licence_of_everything_that_an_extra_names_is_listed(generate):
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = itertools.chain(
        project["dependencies"], *(extras[name] for name in extras if name not in ("all", "dev", "docs"))
    )
    named = {re.match(r"[\w-]+", line)[0].replace("_", "-") for line in lines} - {"tacit-learn"}
    listed = dict(
        re.findall(r"^\| `([\w.-]+)` \| [^|]+ \| ([^|]+) \|", generate("licences").part(), re.MULTILINE)
    )
    assert named <= set(listed)
    assert "not said" not in listed.values()
