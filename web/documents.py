"""Writes the OpenAPI documents of all APIs into a folder, for `scripts/types`: NAME.json an app.

Nothing is started: routes are made for stand-ins, and only described.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from crowdgrad.host.remote import api as host
from crowdgrad.matchmaker import app as matchmaker
from crowdgrad.panel import app as panel
from crowdgrad.store.memory import MemoryStore
from crowdgrad.volunteer.remote import api as volunteer

Json = dict[str, Any]
SCHEMAS = "#/components/schemas/"

DOCUMENTS: dict[str, Callable[[], Json]] = {
    "host": lambda: host.create_app(Mock(), Mock(), "", asking=Mock()).openapi(),
    "matchmaker": lambda: matchmaker.create_service(MemoryStore()).http.openapi(),
    "panel": lambda: panel.create_app(Mock()).openapi(),
    "volunteer": lambda: volunteer.create_app(Mock(), "").openapi(),
}


def main(folder: Path) -> None:
    for name, make in DOCUMENTS.items():
        text = json.dumps(complete(make()), ensure_ascii=False, indent=2)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def complete(document: Json) -> Json:
    """With schemas by name; those that are told have all their fields, since our servers leave none
    out: a default only means that who asks may. Titles only repeat the names of fields."""
    schemas = document["components"]["schemas"]
    for name in told(document):
        if "properties" in schemas[name]:
            schemas[name]["required"] = list(schemas[name]["properties"])
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def told(document: Json) -> set[str]:
    """The schemas of what an app says, asked (responses) or not (webhooks)."""
    operations = [one for verbs in document["paths"].values() for one in verbs.values()]
    said = [document.get("webhooks", {}), *(one["responses"] for one in operations)]
    found: set[str] = set()
    new = set(references(said))
    while new:
        found |= new
        new = {
            inner
            for name in new
            for inner in references(document["components"]["schemas"][name])
            if inner not in found
        }
    return found


def references(part: object) -> Iterator[str]:
    """The names of the schemas that a part of a document refers to."""
    if isinstance(part, dict):
        target = part.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(SCHEMAS)
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
