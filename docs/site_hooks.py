"""What the site needs beyond docs/*.md: the changelog, the guide for contributors, and every file that a page links to.

Pages link to files of the repository as they lie, ``../src/policytest/kl.py``, so that the links work there. In the
site each such file becomes a page of its own, outside the navigation and the search.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
WHOLE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(\]\(|src=\")([^)\s\"#]+)(#[^)\s\"]*)?(?=[)\"])")
INSERT = re.compile(r"^<!-- insert: (\S+) -->$", re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".csv": "text", ".sh": "bash", ".yml": "yaml"}
HEAD = "---\nsearch:\n  exclude: true\nhide:\n  - navigation\n---\n\n"


def outside(target: str, home: Path) -> Path | None:
    """The file or folder of the repository that a link on a page in ``home`` leads to, unless it is a page."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return None
    found = (home / target).resolve()
    is_page = found.is_relative_to(ROOT / "docs")
    return found if found.is_relative_to(ROOT) and not is_page and found.exists() else None


def rewritten(text: str, home: Path) -> str:
    """The text of a page that lies in ``home``, with the links that the site has in their places."""

    def where(match: re.Match[str]) -> str:
        front, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = outside(target, home)
        if path is not None:
            name = path.relative_to(ROOT).as_posix()
            target = WHOLE.get(name) or (f"{name}.md" if path.is_file() else "examples.md")
        elif home == ROOT and target.startswith("docs/"):
            target = target.removeprefix("docs/")
        return f"{front}{target}{anchor}"

    return LINK.sub(where, text)


def shown(path: Path) -> str:
    """A file of the repository as a page."""
    name = path.relative_to(ROOT).as_posix()
    if path.suffix not in LANGUAGES:
        return f"{HEAD}# {name}\n\nA file of the repository: `{name}`\n"
    return f"{HEAD}# {name}\n\n~~~~~{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}~~~~~\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for name, target in WHOLE.items():
        text = rewritten((ROOT / name).read_text(encoding="utf-8"), ROOT)
        files.append(File.generated(config, target, content=text))
    sources = [(page, ROOT / "docs") for page in sorted((ROOT / "docs").glob("*.md"))]
    sources += [(ROOT / name, ROOT) for name in WHOLE]
    linked = set()
    for page, home in sources:
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            path = outside(match.group(2), home)
            if path is not None and path.is_file() and path.relative_to(ROOT).as_posix() not in WHOLE:
                linked.add(path)
    for path in sorted(linked):
        name = f"{path.relative_to(ROOT).as_posix()}.md"
        files.append(File.generated(config, name, content=shown(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to the repository's files lead to their pages, and files to be inserted are."""
    if "/" in page.file.src_uri:
        return markdown
    text = rewritten(markdown, ROOT / "docs")
    return INSERT.sub(lambda match: (ROOT / "docs" / match.group(1)).read_text(encoding="utf-8"), text)
