"""Tables and figures, each a function of a seed."""

from __future__ import annotations

import importlib

from tacit.errors import UnknownName
from tacit.reproduce.study import Item

# Where each item is; modules are loaded when their item is asked for.
ITEMS = {
    "regret-basics": ("tacit.reproduce.regret_basics", "REGRET_BASICS"),
    "syed2009-figure2a": ("tacit.reproduce.eventful.syed2009", "FIGURE_2A"),
    "syed2009-figure2b": ("tacit.reproduce.eventful.syed2009", "FIGURE_2B"),
    "syed2009-figure2c": ("tacit.reproduce.eventful.syed2009", "FIGURE_2C"),
    "syed2009-theory": ("tacit.reproduce.eventful.syed2009_theory", "THEORY"),
    "syed2009-labels": ("tacit.reproduce.eventful.syed2009_labels", "LABELS"),
    "eventful-robustness": ("tacit.reproduce.eventful.eventful_robustness", "EVENTFUL_ROBUSTNESS"),
    "shift-horizons": ("tacit.reproduce.eventful.shift_horizons", "SHIFT_HORIZONS"),
    "dueling-practice": ("tacit.reproduce.dueling_practice", "DUELING_PRACTICE"),
    "interleaving-power": ("tacit.reproduce.sensitivity", "SENSITIVITY"),
    "qi2018-figure1": ("tacit.reproduce.qi2018", "FIGURE_1"),
    "qi2018-figure2": ("tacit.reproduce.qi2018", "FIGURE_2"),
    "qi2018-figure4": ("tacit.reproduce.qi2018_course", "FIGURE_4"),
    "qi2018-appendix-f": ("tacit.reproduce.qi2018", "APPENDIX_F"),
    "qi2018-scale": ("tacit.reproduce.qi2018", "SCALE"),
    "search-interest": ("tacit.reproduce.eventful.search_interest", "SEARCH_INTEREST"),
    "yue2011-figure1-top": ("tacit.reproduce.yue2011", "FIGURE_1_TOP"),
    "yue2011-figure1-bottom": ("tacit.reproduce.yue2011", "FIGURE_1_BOTTOM"),
    "yue2011-figure2-top": ("tacit.reproduce.yue2011", "FIGURE_2_TOP"),
    "yue2011-figure2-bottom": ("tacit.reproduce.yue2011", "FIGURE_2_BOTTOM"),
    "yue2011-table1": ("tacit.reproduce.yue2011", "TABLE_1"),
    "yue2011-pac": ("tacit.reproduce.yue2011", "PAC"),
    "defaults": ("tacit.reproduce.defaults", "DEFAULTS"),
    "sharded-learning": ("tacit.reproduce.sharded_learning", "SHARDED_LEARNING"),
    "offline-coverage": ("tacit.reproduce.offline_coverage", "OFFLINE_COVERAGE"),
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
