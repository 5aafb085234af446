"""The wheel of one platform: with the compiled code of the folder that TACIT_COMPILED names.

``tests/release.py`` makes that folder, and says in its ``made_for.json`` where the code can run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCode(BuildHookInterface[Any]):
    """Adds compiled code to a wheel, if there is any."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Tell the builder what to bring along, and what the wheel then runs on."""
        folder = os.environ.get("TACIT_COMPILED")
        if folder and version == "standard":
            made_for = json.loads((Path(folder) / "made_for.json").read_text())
            build_data.update(pure_python=False, tag=made_for["tag"])
            build_data["force_include"][folder] = "tacit/compiled"
