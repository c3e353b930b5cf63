"""Averaging of gradients over ranks: modes, precisions, and the bytes sent.

    link (a group, with the bytes of each call) → codec (a precision) → average (a mode)
    → exchange (a hook of DDP, in a lane beside the backward pass)
    link → tally (the traffic of ranks that share a model)

This package knows process groups, but neither training nor workloads.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from vflops.config.parallel import CommunicationSettings
from vflops.train.communication.average import average
from vflops.train.communication.exchange import CodedExchange, Exchange, PlainExchange
from vflops.train.communication.link import Link, Traffic
from vflops.train.communication.powersgd import PowerSgdExchange
from vflops.train.communication.traffic_tally import Tally

__all__ = ["Exchange", "Tally", "average", "exchange_gradients"]


def exchange_gradients(
    ddp: DistributedDataParallel,
    settings: CommunicationSettings,
    group: dist.ProcessGroup | None,
    local_ranks: int,
) -> Exchange:
    """Average the gradients of ``ddp`` as the settings say; return the exchange, to be closed.

    ``group``: the ranks with a copy of the same parameters, None for all; ``local_ranks``: how many
    of them are on a node. All of them call it at the same time.
    """
    exchange: Exchange
    device = next(ddp.parameters()).device
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    if settings.is_plain:
        link = Link.of(group, min(local_ranks, len(ranks)), Traffic())
        exchange = PlainExchange(settings, link, backend)
    elif settings.precision == "powersgd":
        link = Link.between(ranks, backend, min(local_ranks, len(ranks)), Traffic())
        exchange = PowerSgdExchange(settings, link, backend, device)
    else:
        averaging = average(
            settings.mode, settings.precision, group, node=local_ranks, near=settings.near
        )
        exchange = CodedExchange(settings, averaging, device)
    # A lambda: DDP checks the annotated types of a hook, and cannot resolve their names.
    ddp.register_comm_hook(exchange, lambda state, bucket: state.hook(bucket))
    return exchange
