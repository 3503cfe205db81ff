"""The steps in which the embedded parts start, and a display of them for terminals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of `part` (a short fixed name: jars, kafka, valkey, …): `done` of `total`; total 0: unknown."""

    part: str
    text: str
    done: int = 0
    total: int = 0

    @property
    def finished(self) -> bool:
        """Whether this is the last step of its part."""
        return 0 < self.total <= self.done


Listener = Callable[[Step], None]


def silent(_step: Step) -> None:
    """Reports nothing."""


class ProgressDisplay:
    """A `Listener` that draws one line per part, or prints it if the output is no terminal; a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._printed: set[tuple[str, str]] = set()

    def __call__(self, step: Step) -> None:
        """Show `step`."""
        if not self._console.is_terminal:
            if (step.part, step.text) not in self._printed:
                self._printed.add((step.part, step.text))
                self._console.print(step.text, highlight=False)
            return
        if step.part not in self._tasks:
            self._tasks[step.part] = self._progress.add_task(step.text, total=None)
        self._progress.update(
            self._tasks[step.part], description=step.text, completed=step.done, total=step.total or None
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
