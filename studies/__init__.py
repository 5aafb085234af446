"""The papers' tables and figures, each a function of a seed."""

from __future__ import annotations

import importlib

from studies.study import Item
from tacit.errors import UnknownName

# Where each item is; modules are loaded when their item is asked for.
ITEMS = {
    "regret-basics": ("studies.regret_basics", "REGRET_BASICS"),
    "syed2009-figure2a": ("studies.eventful.syed2009", "FIGURE_2A"),
    "syed2009-figure2b": ("studies.eventful.syed2009", "FIGURE_2B"),
    "syed2009-figure2c": ("studies.eventful.syed2009", "FIGURE_2C"),
    "syed2009-theory": ("studies.eventful.syed2009_theory", "THEORY"),
    "syed2009-labels": ("studies.eventful.syed2009_labels", "LABELS"),
    "eventful-robustness": ("studies.eventful.eventful_robustness", "EVENTFUL_ROBUSTNESS"),
    "shift-horizons": ("studies.eventful.shift_horizons", "SHIFT_HORIZONS"),
    "dueling-practice": ("studies.dueling_practice", "DUELING_PRACTICE"),
    "interleaving-power": ("studies.sensitivity", "SENSITIVITY"),
    "qi2018-figure1": ("studies.qi2018", "FIGURE_1"),
    "qi2018-figure2": ("studies.qi2018", "FIGURE_2"),
    "qi2018-figure3": ("studies.qi2018_course", "FIGURE_3"),
    "qi2018-figure4": ("studies.qi2018_course", "FIGURE_4"),
    "qi2018-appendix-f": ("studies.qi2018", "APPENDIX_F"),
    "qi2018-scale": ("studies.qi2018", "SCALE"),
    "search-interest": ("studies.eventful.search_interest", "SEARCH_INTEREST"),
    "yue2011-figure1-top": ("studies.yue2011", "FIGURE_1_TOP"),
    "yue2011-figure1-bottom": ("studies.yue2011", "FIGURE_1_BOTTOM"),
    "yue2011-figure2-top": ("studies.yue2011", "FIGURE_2_TOP"),
    "yue2011-figure2-bottom": ("studies.yue2011", "FIGURE_2_BOTTOM"),
    "yue2011-table1": ("studies.yue2011", "TABLE_1"),
    "yue2011-pac": ("studies.yue2011", "PAC"),
    "yue2011-theory": ("studies.yue2011_theory", "THEORY"),
    "defaults": ("studies.defaults", "DEFAULTS"),
    "sharded-learning": ("studies.sharded_learning", "SHARDED_LEARNING"),
    "offline-coverage": ("studies.offline_coverage", "OFFLINE_COVERAGE"),
}


def item(name: str) -> Item:
    """Return an item.

    Raises
    ------
    UnknownName
        If there is none of that name.
    """
    if name not in ITEMS:
        raise UnknownName(f"item: there is no {name!r}; there are {', '.join(ITEMS)}")
    module, attribute = ITEMS[name]
    found: Item = getattr(importlib.import_module(module), attribute)
    return found
