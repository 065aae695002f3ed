"""Generates docs/reference/settings.md from the settings: `python tests/docs/settings_page.py` writes it."""

from __future__ import annotations

from pathlib import Path

from rowlock.settings import Settings, environment_names

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def page() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else f"`{field.default}`"
        names = " or ".join(f"`{variable}`" for variable in environment_names(name))
        rows.append(f"| {names} | {default} | {field.description} |")
    return "\n".join(
        [
            "# Settings",
            "",
            "Environment variables, read when the application object is created. A value outside its limits raises",
            "an error that names the variable.",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
