"""Mistakes with commands, files and logs that would give a wrong result without a word."""

import pytest
from click.testing import CliRunner

from tacit.cli import cli

TWICE = {
    "evaluate log.csv --policy ucb1 --arms film --arms song": "'--arms': 'film', 'song': only one can count",
    "fit log.csv --output a.tacit -o b.tacit": "'--output': 'a.tacit', 'b.tacit': only one can count",
    "simulate --horizon 10 --horizon 20": "'--horizon': '10', '20': only one can count; give it once",
    "duel log.csv --ab --ab top-down": "'--ab': 'top-down': only one can count; give it once",
    "serve --store a.db --store b.db": "'--store': 'a.db', 'b.db': only one can count; give it once",
    "evaluate log.csv --policy ucb1 --column arm=a --column arm=b": "--column: arm: 'a', 'b': only one can",
    "duel log.csv --worth click=1 --worth click=5": "--worth: click: '1', '5': only one can count; give it",
}


@pytest.mark.parametrize("typed", TWICE)
def test_what_can_be_said_once_is_refused_where_it_is_said_in_two_ways(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("key,arms,arm,reward\n")
    said = CliRunner().invoke(cli, typed.split(), prog_name="tacit")
    assert said.exit_code == 2
    assert TWICE[typed] in " ".join(said.output.split())


def test_what_is_said_twice_alike_and_lists_are_taken():
    typed = "key home --scope read --scope decide --placement a --placement b --json --json"
    assert CliRunner().invoke(cli, typed.split()).exit_code == 0
    again = CliRunner().invoke(cli, ["policies", "ucb1", "--json", "--json"])
    assert again.exit_code == 0
