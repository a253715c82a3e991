"""A running cluster's record on disk, written before each part is made and kept until it is gone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testcluster.procs import Proc, boot_id
from testcluster.settings import ClusterError, Layout


@dataclass
class State:
    """The record of one cluster; :meth:`save` after every change."""

    path: Path
    boot: str
    owner: str
    ready: bool = False
    procs: dict[str, Proc] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    handed_down: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, layout: Layout, owner: str) -> State:
        """Start a record."""
        layout.run.mkdir(parents=True)
        layout.run.chmod(0o700)
        state = cls(layout.run / "state.json", boot_id(), owner)
        state.save()
        return state

    @classmethod
    def load(cls, layout: Layout) -> State | None:
        """Read the record; None when no cluster is up and none was left half way."""
        path = layout.run / "state.json"
        if not layout.run.exists():
            return None
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(path, "", "unknown")  # killed while writing: everything is found by name
        except ValueError:
            raise ClusterError(
                f"{path} is not readable; delete {layout.run} once 'cluster status' shows nothing"
            ) from None
        content["procs"] = {name: Proc(**proc) for name, proc in content["procs"].items()}
        return cls(path=path, **content)

    def save(self) -> None:
        """Write the record in one step."""
        content = asdict(self)
        del content["path"]
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1))
        partial.replace(self.path)

    def alive(self) -> list[Proc]:
        """Return the recorded processes that still run: none after a reboot, because identity includes the boot."""
        return [proc for proc in self.procs.values() if proc.alive()] if self.boot == boot_id() else []
