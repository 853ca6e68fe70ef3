"""The live terminal view of a run: draws a `Frame` so that it fits the terminal, whatever its size.

The only module that knows rich. It decides what is left out when there is no room, and nothing else: events give way
first, then queues (the ones with the largest backlog stay), then the consumers' list.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lbg.local import frames
from lbg.local.frames import ConsumerRow, Frame, QueueRow

_QUEUE_WIDTH: Final = 50  # of one column of queues
_CONSUMER_WIDTH: Final = 36
_LEAST_EVENTS: Final = 4


class Screen:
    """The terminal while a run is live. Enter it, `show` frames, leave it."""

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(console=console, auto_refresh=False, screen=True, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, frame: Frame) -> None:
        """Draw a frame over the last one."""
        self._live.update(Picture(frame), refresh=True)


class Picture:
    """A frame that draws itself into whatever room the console gives it."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the frame out for this console's size."""
        yield picture(self._frame, options.max_width, options.height or console.height)


def picture(frame: Frame, width: int, height: int) -> RenderableType:
    """Return the frame for a terminal of `width` x `height` characters; never more lines than `height`."""
    head = [_title(frame), _scale(frame), _load(frame, width)]
    if frame.trouble:
        head.append(_line(frame.trouble, "bold red"))
    foot = _line(f"Ctrl-C stops it. From another terminal: lbg scale|kill|rollout|status {frame.group}", "dim")
    room = height - len(head) - 2  # the foot, and a blank line below the head
    body_room = max(2, room - _LEAST_EVENTS - 1)
    body, used = _body(frame, width, body_room)
    events = _events(frame, room - used - 1)
    parts: list[RenderableType] = [*head, Text(), body, *([Text(), *events] if events else []), foot]
    return Group(*parts)


def _title(frame: Frame) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(frame.group, "bold")
    text.append(f"  on {frame.broker}  {frame.shards} shards, {frame.queue_count} queues", "dim")
    text.append(f"  {_clock(frame.seconds)}  {frame.folder}", "dim")
    return text


def _scale(frame: Frame) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("replicas ")
    text.append(f"{frame.desired} desired", "bold")
    settled = "green" if frame.desired == frame.effective == frame.ready else "yellow"
    text.append(f"  {frame.effective} effective  {frame.ready} ready", settled)
    text.append(f"  autoscaling {frame.mode}", "dim")
    return text


def _load(frame: Frame, width: int) -> Text:
    rates = f"in {frames.count(frame.rate_in)}/s  out {frames.count(frame.rate_out)}/s"
    start = f"backlog {frames.count(frame.backlog):<6}{rates}  "
    text = Text(start, no_wrap=True, overflow="crop")
    text.append(frames.sparkline(frame.history, width - len(start)), "cyan")
    return text


def _body(frame: Frame, width: int, room: int) -> tuple[RenderableType, int]:
    """Return queues and consumers side by side, and the lines they take."""
    beside = width >= _QUEUE_WIDTH + _CONSUMER_WIDTH - 8
    columns = max(1, (width - _CONSUMER_WIDTH) // _QUEUE_WIDTH) if beside else 1
    rows = room - 1
    queues = list(frame.queues)
    if frame.queue_count > len(queues) or len(queues) > rows * columns:
        queues = _most_loaded(queues, max(1, (rows - 1) * columns))
    per_column = -(-len(queues) // columns) if queues else 0
    grid = Table.grid(padding=(0, 2, 0, 0))
    cells: list[RenderableType] = [
        _queue_table(queues[start : start + per_column]) for start in range(0, len(queues), max(1, per_column))
    ]
    if beside:
        cells.append(_consumer_table(frame.consumers, rows))
    grid.add_row(*cells)
    listed = min(len(frame.consumers), rows) if beside else 0
    used = 1 + max(per_column, listed, 1)
    hidden = frame.queue_count - len(queues)
    if not hidden:
        return grid, used
    shown = [row.backlog for row in queues]
    known = frame.backlog is not None and None not in shown
    rest = (frame.backlog or 0) - sum(value or 0 for value in shown) if known else None
    return Group(grid, _line(f"{hidden} more queues, backlog {frames.count(rest)}", "dim")), used + 1


def _most_loaded(rows: Sequence[QueueRow], room: int) -> list[QueueRow]:
    """Return the queues that fit, by index; those with the largest backlog stay, and the unknown ones first of all."""
    by_backlog = sorted(rows, key=lambda row: (row.backlog is not None, -(row.backlog or 0), row.queue))
    return sorted(by_backlog[:room], key=lambda row: row.queue)


def _queue_table(rows: Sequence[QueueRow]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("queue", justify="right", no_wrap=True)
    table.add_column("owner", no_wrap=True, min_width=11, max_width=13)
    table.add_column("standby", no_wrap=True, min_width=11, max_width=13)
    table.add_column("epoch", justify="right", no_wrap=True)
    table.add_column("backlog", justify="right", no_wrap=True)
    for row in rows:
        owner = Text(row.owner or "nobody", "" if row.owner else "red")
        standby = Text(row.standby or "-", "dim")
        epoch = "?" if row.epoch is None else str(row.epoch)
        table.add_row(str(row.queue), owner, standby, epoch, frames.count(row.backlog))
    return table


def _consumer_table(rows: Sequence[ConsumerRow], room: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("consumer", no_wrap=True, min_width=11, max_width=13)
    table.add_column("seat", justify="right", no_wrap=True)
    table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("busy", justify="right", no_wrap=True)
    for row in rows[: max(0, room)]:
        style = {"ready": "", "starting": "dim", "stopping": "yellow"}.get(row.phase, "")
        seat = "-" if row.seat is None else str(row.seat)
        state = f"{row.busy:.0%}" if row.phase == "ready" else row.phase[:5]
        table.add_row(Text(row.name, style), seat, f"{frames.count(row.rate)}/s", state)
    return table


def _events(frame: Frame, room: int) -> list[RenderableType]:
    return [_line(f"{at}  {said}", "") for at, said in frame.events[-room:]] if room > 0 else []


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
