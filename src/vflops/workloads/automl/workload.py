"""The AutoML workload; its model and operation count are those of the starting network."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vflops.config.training import WorkloadSettings
from vflops.errors import UsageError
from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture.cost_limits import exceeded_limits
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import first_network, limits_of
from vflops.workloads.automl.replay import REPLAYED_LEDGER, SearchLedger
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.code import Progress
from vflops.workloads.image_classification.workload import ImageClassification


class Automl(ImageClassification):
    """Image classification with networks that a search finds.

    Model and operation count are those of the network that the search starts from.
    """

    @classmethod
    def workers(cls, settings: WorkloadSettings) -> int:
        """Return the number of workers of the search."""
        assert isinstance(settings, AutomlSettings)
        return settings.search.workers

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Prepare the images; raise ``UsageError`` if a replay does not fit them."""
        assert isinstance(settings, AutomlSettings)
        if settings.search.ledger is None:
            return super().prepare_data(settings, progress)
        ledger = SearchLedger.find(Path(settings.search.ledger))
        ledger.check_batches(settings)
        data = super().prepare_data(settings, progress)
        ledger.check_data(data)
        return data

    @classmethod
    def check_data(cls, settings: WorkloadSettings, data: DataFacts) -> None:
        """Raise ``UsageError`` if the starting network exceeds the limits of a search."""
        assert isinstance(settings, AutomlSettings)
        if settings.search.ledger is not None:
            return
        faults = exceeded_limits(first_network(settings, data), limits_of(settings))
        if faults:
            raise UsageError(
                f"the network that the search starts from is too large: {'; '.join(faults)}",
                hint="raise search.limits, or use a smaller network",
            )

    @classmethod
    def lay_out(cls, run: Path, settings: WorkloadSettings) -> None:
        """Write the candidates of a replay, and a copy of their ledger."""
        assert isinstance(settings, AutomlSettings)
        if settings.search.ledger is not None:
            ledger, buffer = SearchLedger.find(Path(settings.search.ledger)), CandidateBuffer(run)
            ledger.write(run / REPLAYED_LEDGER)
            for candidate in ledger.fixed_work():
                buffer.put(candidate)

    def model(self) -> nn.Module:
        """Return the network that the search starts from."""
        assert isinstance(self._settings, AutomlSettings)
        return build(first_network(self._settings, self._data))

    def fast_model(self, *_: object) -> None:
        """Return None: candidates differ too much for a special implementation."""
