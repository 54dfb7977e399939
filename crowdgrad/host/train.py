"""`cg.train`: a job in ten lines, in a script or a notebook.

The host runs in a thread of its own with its own event loop, so it does not matter whether the
caller has one; worker 0 and the other volunteers are processes. Ctrl-C stops everything and raises
KeyboardInterrupt after the run folder is complete.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad import settings as settings_table
from crowdgrad.data import catalogue
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.data.folder import DataFolder, is_folder, open_folder
from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import JobFileError, RecipeError
from crowdgrad.host.earlier import find_run
from crowdgrad.host.job import JobPlan, Start, prepare
from crowdgrad.host.options import Options, Outcome
from crowdgrad.host.serve import Run
from crowdgrad.host.telling.status import Point, Status, point
from crowdgrad.process import new_event_loop
from crowdgrad.recipes import RECIPES, from_table
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.crowd import Crowd

if TYPE_CHECKING:
    from torch import nn

    from crowdgrad.capture.task import Task

Data = DataSet | DataFolder | str | Path | Sequence[object] | Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    model: nn.Module
    """A copy of the task's model with the best parameters, and the buffers that go with them."""
    history: list[Point]
    """Every evaluation on the validation split."""
    status: Status
    folder: Path

    def report(self) -> Path:
        """The page with curves and contributions."""
        return self.folder / "report.html"


def load_data(name: str | Path) -> DataSet | DataFolder:
    """A data set from the catalogue, fetched and verified if need be: `cg.load_data("mnist")`.

    Or a prepared data folder, by its path; what is in it stays on the disk. Raises DataError.
    """
    if isinstance(name, Path) or is_folder(Path(name)):
        return open_folder(Path(name))
    return catalogue.load(name, cache=settings_table.load().home / "data")


def train(
    task: Task,
    data: Data,
    *,
    recipe: Recipe | str | None = None,
    epochs: int = 5,
    volunteers: int = 0,
    start: Start = "any",
    title: str = "untitled",
    target: float | None = None,
    minutes: float | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    continue_from: str | Path | None = None,
    runs: str | Path = "runs",
    watch: Callable[[Status], None] | None = None,
) -> Result:
    """Train with this machine's own worker and `volunteers` further local processes.

    `start="all"` waits until all of them are there; otherwise whoever is there begins.

    `data`: a data set, a name from the catalogue, a prepared folder or its path, arrays (inputs,
    then targets), or a mapping from splits to arrays. `weights`: a file or run folder to start from
    instead of the model's own; `continue_from`: a run to go on from, with its splits; its folder,
    or its id in `runs`. `watch` is called about ten times a second. Raises CrowdgradError.
    """
    try:
        stop = StoppingRule(epochs=epochs, target=target, minutes=minutes)
    except ValueError as error:
        raise JobFileError(f"{error}.", advice="Change that argument.") from None
    plan = JobPlan(
        task=task,
        data=_as_dataset(data, title),
        title=title,
        recipe=_as_recipe(recipe),
        stop=stop,
        seed=seed,
        minimum=volunteers,
        start=start,
        weights=weights,
        continue_from=find_run(str(continue_from), Path(runs)) if continue_from else None,
    )
    prepared = prepare(plan)
    options = Options(runs=Path(runs), helpers=volunteers)

    async def run(stop: asyncio.Event) -> Outcome:
        here = Run(prepared, options, settings_table.load())
        return await here.to_the_end(stop, watch=watch or (lambda status: None))

    outcome = _in_a_thread(run)
    if outcome.state == "failed":
        warnings.warn(f"training failed: {outcome.status.reason}", RuntimeWarning, stacklevel=2)
    from crowdgrad.capture.weights import with_state

    return Result(
        model=with_state(task.model, prepared.program.spec, outcome.parameters),
        history=[found for scores in outcome.history if (found := point(scores))],
        status=outcome.status,
        folder=outcome.folder,
    )


def _as_recipe(recipe: Recipe | str | None) -> Recipe:
    """A recipe, or the one of that name with its defaults. Raises RecipeError."""
    if recipe is None:
        return Crowd()
    if isinstance(recipe, str):
        return from_table(recipe, {})
    if type(recipe) not in RECIPES.values():
        raise RecipeError(
            f"recipe is {recipe!r}.", advice="Give one, such as cg.Downpour(lr=0.01), or its name."
        )
    return recipe


def _as_dataset(data: Data, title: str) -> DataSet | DataFolder:
    if isinstance(data, DataSet | DataFolder):
        return data
    if isinstance(data, str | Path):
        return load_data(data)
    if isinstance(data, Mapping):
        return from_arrays(data, title=title)
    return from_arrays(*data, title=title)


def _in_a_thread(run: Callable[[asyncio.Event], Coroutine[None, None, Outcome]]) -> Outcome:
    """Run a coroutine on an event loop of its own; Ctrl-C in the caller sets its event."""
    stop = asyncio.Event()
    loop = new_event_loop()
    with concurrent.futures.ThreadPoolExecutor(1, "crowdgrad-host") as pool:
        future = pool.submit(_run_to_completion, loop, run, stop)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(stop.set)
            future.result()
            raise


def _run_to_completion(
    loop: asyncio.AbstractEventLoop,
    run: Callable[[asyncio.Event], Coroutine[None, None, Outcome]],
    stop: asyncio.Event,
) -> Outcome:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run(stop))
