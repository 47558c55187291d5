"""What mkdocs does not do by itself: pages may link to files of the repository, which are not part of the built pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Links that leave docs/ become the path they lead to. Raises PluginError for one that leads nowhere."""
    from mkdocs.exceptions import PluginError

    root = Path(config.config_file_path).parent

    def path(link: re.Match[str]) -> str:
        text, target = link.groups()
        if not (root / target).exists():
            raise PluginError(f"the link to ../{target} leads nowhere")
        shown = f"`{target}`"
        return shown if text.strip("`") == target else f"{text} ({shown})"

    return _OUTSIDE.sub(path, markdown)
