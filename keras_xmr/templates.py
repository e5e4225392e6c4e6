"""Templates of HTML pages."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape


def render(package: str, template: str, /, **values: Any) -> str:
    """Renders a template; values are escaped.

    Args:
        package: The package with a folder `templates`.
        template: The file in this folder.
        **values: The variables of the template.
    """
    return _environment(package).get_template(template).render(**values)


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(),
        trim_blocks=True,
    )
