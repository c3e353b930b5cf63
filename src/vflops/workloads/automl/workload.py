"""AutoML on images: the first network of the search is what is counted before it runs."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vflops.automl.architecture.build import build
from vflops.automl.buffer import Buffer
from vflops.automl.propose import first_network
from vflops.automl.replay import SearchLedger
from vflops.config.training import WorkloadSettings
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.workload import ImageClassification


class Automl(ImageClassification):
    """Image classification by networks that a search finds; this is the one it starts from."""

    @classmethod
    def workers(cls, settings: WorkloadSettings) -> int:
        """Of the search."""
        assert isinstance(settings, AutomlSettings)
        return settings.search.workers

    @classmethod
    def lay_out(cls, run: Path, settings: WorkloadSettings) -> None:
        """The candidates of a replay."""
        assert isinstance(settings, AutomlSettings)
        if settings.search.ledger is not None:
            buffer = Buffer(run)
            for candidate in SearchLedger.find(Path(settings.search.ledger)).fixed_work():
                buffer.put(candidate)

    def model(self) -> nn.Module:
        """The network that the search starts from."""
        assert isinstance(self._settings, AutomlSettings)
        return build(first_network(self._settings, self._data))

    def fast_model(self, *_: object) -> None:
        """None: networks differ."""
