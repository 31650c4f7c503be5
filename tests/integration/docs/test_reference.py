"""Reference pages that are made from the code are what the code makes."""

import runpy
from pathlib import Path

from aforesaid.settings import ENVIRONMENT, every_setting

ROOT = Path(__file__).parents[3]


def test_the_command_line_page_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))
    assert made["PAGE"].read_text("utf-8") == made["page"](), "run scripts/cli_reference.py"


def test_the_page_of_the_http_interface_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "api_reference.py"))
    assert made["PAGE"].read_text("utf-8") == made["page"](), "run scripts/api_reference.py"


def test_the_settings_page_names_every_setting_once_with_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    for setting in every_setting(environ={}):
        value = str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)
        value = "unset" if setting.value is None else value
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{setting.name}` |"))
        assert f"`{ENVIRONMENT[setting.name]}`" in row
        assert value in row
