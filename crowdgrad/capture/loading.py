"""What a person names as `module:object`, imported from this machine's own disk.

Only what its own owner wrote on a command line or into a job file comes here, never anything that
arrived over a network.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from typing import TypeVar

from crowdgrad.errors import CrowdgradError, TargetError

T = TypeVar("T")


def check_target(target: str) -> tuple[str, str]:
    """Module and object. Raises TargetError where a target does not look like one."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name or module_name.endswith(".py"):
        raise TargetError(
            f"{target!r} is not module:object.",
            advice="Write e.g. model:task for task in model.py.",
        )
    return module_name, name


def load_object(target: str, folder: Path, wanted: type[T]) -> T:
    """What `module:object` names, or returns where it is a function. Raises TargetError.

    `folder` is looked into first.
    """
    module_name, name = check_target(target)
    where = str(folder.resolve())
    _look_first(where, module_name)
    try:
        found = getattr(importlib.import_module(module_name), name)
        if inspect.isroutine(found) or inspect.isclass(found):
            found = found()
    except CrowdgradError:
        raise
    except Exception as error:  # the user's own code: whatever it raises is the answer
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise TargetError(
            f"{target} cannot be had: {type(error).__name__}: {error} "
            f"({Path(at.filename).name}, line {at.lineno}).",
            advice=f"It is looked for in {where} and where Python finds modules.",
        ) from error
    if not isinstance(found, wanted):
        name = {"JobPlan": "cg.Job", "Task": "cg.Task"}.get(wanted.__name__, wanted.__name__)
        raise TargetError(
            f"{target} is a {type(found).__name__}, not a {name}.",
            advice=f"Name a {name}, or a function that returns one.",
        )
    return found


def _look_first(folder: str, module_name: str) -> None:
    """Let imports look into `folder` first, also for a module of another folder's by that name."""
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    here = Path(folder, *module_name.split(".")).with_suffix(".py")
    loaded = sys.modules.get(module_name)
    if loaded is not None and here.exists() and loaded.__file__ != str(here):
        del sys.modules[module_name]
    importlib.invalidate_caches()
