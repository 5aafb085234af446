"""What tests of studies share."""

import csv
import json

import pytest

from studies.study import write


@pytest.fixture
def written(tmp_path):
    """Write the four files of a result; return the cells and the report that are in them."""

    def write_files(name, result):
        paths = write(name, result, tmp_path / "out")
        assert [path.suffix for path in paths] == [".json", ".csv", ".png", ".md"]
        cells = json.loads(paths[0].read_text())["cells"]
        with paths[1].open() as file:
            rows = list(csv.DictReader(file))
        assert [row.get("policy") for row in rows] == [cell.get("policy") for cell in cells]
        assert paths[2].read_bytes().startswith(b"\x89PNG")
        return cells, paths[3].read_text()

    return write_files
