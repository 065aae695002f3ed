"""docs/reference/settings.md, from the settings themselves: `python tests/docs/settings_page.py` writes it anew."""

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
            "Environment variables, read when the application is made. A value out of its limits is refused, by name.",
            "",
            "| variable | default | what it does |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
