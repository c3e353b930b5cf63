"""Averaging of gradients over ranks: modes, precisions, and the bytes sent.

- ``link``: a process group that counts the bytes of each call.
- ``codec``: the encoding of what is sent, one per precision.
- ``average``: the mean over the ranks, one class per mode.
- ``exchange``: the DDP hook that averages while the backward pass continues.
- ``traffic_tally``: the traffic of ranks that share a model.

This package uses process groups, but depends on neither training nor workloads.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from vflops.config.parallel import CommunicationSettings
from vflops.train.communication.average import average
from vflops.train.communication.exchange import CodedExchange, Exchange, PlainExchange, Sent
from vflops.train.communication.link import Link, Traffic
from vflops.train.communication.powersgd import PowerSgdExchange
from vflops.train.communication.traffic_tally import Tally

__all__ = ["Exchange", "Sent", "Tally", "average", "connect", "exchange_gradients"]


def exchange_gradients(
    ddp: DistributedDataParallel,
    settings: CommunicationSettings,
    group: dist.ProcessGroup | None,
    local_ranks: int,
) -> Exchange:
    """Make ``ddp`` average its gradients as the settings say; return the exchange, to be closed.

    ``group`` has the ranks with a copy of the same parameters; None for all ranks. ``local_ranks``
    of them are on each node. All ranks of the group call this function at the same time.
    """
    exchange = _exchange(ddp, settings, group, local_ranks)
    connect(ddp, exchange)
    return exchange


def connect(ddp: DistributedDataParallel, exchange: Exchange) -> None:
    """Make ``ddp`` average its gradients through ``exchange``, instead of the module before it."""
    # A lambda, because DDP checks the annotations of a hook and cannot resolve their names.
    ddp.register_comm_hook(exchange, lambda state, bucket: state.hook(bucket))


def _exchange(
    ddp: DistributedDataParallel,
    settings: CommunicationSettings,
    group: dist.ProcessGroup | None,
    local_ranks: int,
) -> Exchange:
    device = next(ddp.parameters()).device
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    if settings.is_plain:
        link = Link.wrap(group, min(local_ranks, len(ranks)), Traffic())
        return PlainExchange(settings, link, backend)
    if settings.precision == "powersgd":
        link = Link.create(ranks, backend, min(local_ranks, len(ranks)), Traffic())
        return PowerSgdExchange(settings, link, backend, device)
    averaging = average(
        settings.mode,
        settings.precision,
        group,
        local_ranks=local_ranks,
        row_ranks=settings.near,
    )
    return CodedExchange(settings, averaging, device)
