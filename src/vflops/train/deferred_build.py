"""Records how a constructor computes its large tensors, and computes them later one by one.

In a block of ``Recording``, large new tensors are on the meta device, where they need no memory.
The operators that fill them are recorded with the state of the random numbers before each draw. A
draw also happens at once, into memory that is freed again, so that the next one starts from the
same state as without the recording. Repeating the operators gives the same bits.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from vflops.counting.meta_device import MetaMode
from vflops.counting.meta_shapes import INITIALISATIONS

_SMALL = 4096
"""Elements up to which new tensors have values at once, so that constructors can read them."""

_RESHAPING = ("aten.set_.", "aten.resize_.", "aten.resize_as_.")


class CannotDefer(Exception):
    """A constructor does something that cannot be repeated tensor by tensor."""


@dataclass(frozen=True)
class _View:
    """Stands for a tensor on the meta device."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Call:
    """A recorded operator; its tensors on the meta device are ``_View``."""

    func: Any
    args: Any
    kwargs: dict[str, Any]
    made: tuple[_View | None, ...]
    """For each tensor that it returns, the layout if it has new memory."""
    random_state: Tensor | None
    """The state of its random numbers before the call; None if it draws none."""
    fills: bool
    """Whether it overwrites all of a tensor's memory."""

    @property
    def storages(self) -> set[int]:
        """The memory that it reads or writes."""
        leaves = tree_leaves((self.args, self.kwargs, self.made))
        return {leaf.storage for leaf in leaves if isinstance(leaf, _View)}

    def run(self, storages: dict[int, torch.UntypedStorage]) -> None:
        """Repeat the call on real memory, and add the memory of new tensors to ``storages``."""
        args, kwargs = tree_map_only(
            _View, lambda view: _on(storages, view), (self.args, self.kwargs)
        )
        if self.random_state is not None:
            generator = _generator(args, kwargs)
            if generator is torch.default_generator:
                torch.set_rng_state(self.random_state)
            else:
                again = torch.Generator().set_state(self.random_state)
                args, kwargs = tree_map_only(torch.Generator, lambda _: again, (args, kwargs))
        tensors = _tensors(self.func(*args, **kwargs))
        for view, tensor in zip(self.made, tensors, strict=True):
            if view is not None:
                if tensor.stride() != view.stride or tensor.storage_offset() != view.offset:
                    shaped = torch.empty_strided(view.size, view.stride, dtype=view.dtype)
                    tensor = shaped.copy_(tensor)
                storages[view.storage] = tensor.untyped_storage()


class Recording(MetaMode):
    """A mode that records how large new tensors are filled."""

    def __init__(self, *, draws: bool = True) -> None:
        """Without ``draws``, random numbers do not continue as if nothing had been deferred."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._draws = draws
        self._calls: list[_Call] = []
        self._storages: dict[int, torch.UntypedStorage] = {}
        """Kept, so that no other memory has the same key; it has no size on the meta device."""
        self._made: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunction():  # attributes are those on the meta device
            return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensors = _tensors((args, kwargs))
        if any(tensor.is_meta for tensor in tensors):
            return self._use(func, args, kwargs, tensors)
        names = {argument.name for argument in func._schema.arguments}
        if tensors or "device" not in names:
            return func(*args, **kwargs)
        return self._create(func, args, kwargs)

    def _create(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return a new tensor: on the meta device if it is large."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type != "cpu":
            raise CannotDefer(f"it makes a tensor on {device}")
        layout = func(*args, **{**kwargs, "device": torch.device("meta")})
        if not isinstance(layout, Tensor) or layout.numel() <= _SMALL:
            return func(*args, **kwargs)
        state = None
        if _is_random(func):
            state = _generator(args, kwargs).get_state()
            if self._draws:
                func(*args, **kwargs)
        self._record(func, args, kwargs, layout, state)
        return layout

    def _use(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """Call an operator on the meta device, and record it if it fills memory."""
        if str(func).startswith(_RESHAPING):
            raise CannotDefer(f"{func} replaces the memory of a tensor")
        real = [tensor for tensor in tensors if not tensor.is_meta]
        if any(tensor.numel() > _SMALL for tensor in real):
            raise CannotDefer(f"{func} uses a large tensor with values")
        if any(not tensor.is_meta for tensor in _written(func, args, kwargs)):
            raise CannotDefer(f"{func} writes into a tensor with values")
        state = None
        if _is_random(func):
            if len(tensors) != 1 or not (
                _written(func, args, kwargs) or "_like" in str(func)
            ):  # what it draws may depend on values
                raise CannotDefer(f"{func} draws depending on values")
            state = _generator(args, kwargs).get_state()
            if self._draws:
                drawn = torch.empty_strided(args[0].size(), args[0].stride(), dtype=args[0].dtype)
                func(drawn, *args[1:], **kwargs)
        if str(func) in INITIALISATIONS:
            result = args[0]
        else:
            on_meta = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
            result = func(*on_meta[0], **on_meta[1])
        self._record(func, args, kwargs, result, state)
        return result

    def _record(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        state: Tensor | None,
    ) -> None:
        given, options = tree_map_only(Tensor, self._frozen, (tuple(args), kwargs))
        results = _tensors(result)
        known = set(self._storages)
        made = tuple(
            view if (view := self._view(tensor)).storage not in known else None
            for tensor in results
        )
        self._made += [weakref.ref(tensor) for tensor in results]
        if any(made) or _written(func, args, kwargs):
            fills = str(func) in INITIALISATIONS and _is_all_of_its_memory(args[0])
            self._calls.append(_Call(func, given, options, made, state, fills))

    def _frozen(self, tensor: Tensor) -> Tensor | _View:
        if not tensor.is_meta:
            return tensor.clone()
        return self._view(tensor)

    def _view(self, tensor: Tensor) -> _View:
        storage = tensor.untyped_storage()
        self._storages.setdefault(storage._cdata, storage)
        size, stride, offset = tuple(tensor.size()), tensor.stride(), int(tensor.storage_offset())
        return _View(storage._cdata, tensor.dtype, size, stride, offset)

    def recorded(self, kept: Sequence[Tensor]) -> RecordedTensors:
        """Return how to compute the tensors in ``kept``; raise if others are still in use."""
        ours = {id(item) for tensor in kept for item in (tensor, tensor._base)}
        if self._used_besides(ours):
            gc.collect()
            if self._used_besides(ours):
                raise CannotDefer("it keeps a tensor that is neither parameter nor buffer")
        views = [self._view(tensor) for tensor in kept]
        found = RecordedTensors(views, self._calls)
        if any(view.storage not in found.storages for view in views):
            raise CannotDefer("it makes a tensor on the meta device")
        return found

    def _used_besides(self, ours: set[int]) -> bool:
        alive = (reference() for reference in self._made)
        return any(tensor is not None and id(tensor) not in ours for tensor in alive)


class SeenOnHost(TorchFunctionMode):
    """A mode in which tensors on the meta device say that they are in host memory.

    Code that asks, such as ``nn.init.orthogonal_``, does the same as without a recording.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        attribute = getattr(func, "__self__", None)
        if attribute in _WHERE and args[0].is_meta:
            return _WHERE[attribute]
        return func(*args, **(kwargs or {}))


_WHERE: dict[Any, Any] = {
    Tensor.is_meta: False,
    Tensor.is_cpu: True,
    Tensor.device: torch.device("cpu"),
}


class RecordedTensors:
    """Tensors that can be computed one by one, by their index."""

    def __init__(self, views: Sequence[_View], calls: Sequence[_Call]) -> None:
        self._views = views
        joined: dict[int, set[int]] = {}
        for call in calls:
            group = set().union(call.storages, *(joined.get(one, ()) for one in call.storages))
            joined |= dict.fromkeys(group, group)
        self.storages = set(joined)
        self._calls: dict[int, list[_Call]] = {}
        for call in calls:
            group = joined[next(iter(call.storages))]
            self._calls.setdefault(id(group), []).append(call)
        self._groups = joined

    @torch.no_grad()
    def compute(self, index: int) -> Tensor:
        """Return a tensor with the bits that the constructor would have given it.

        What it was computed from is computed too, and freed.
        """
        view, storages = self._views[index], dict[int, torch.UntypedStorage]()
        group = self._groups[view.storage]
        with torch.random.fork_rng(devices=[]):
            for call in _needed(self._calls[id(group)], alone=len(group) == 1):
                call.run(storages)
        return _on(storages, view)


def _needed(calls: list[_Call], *, alone: bool) -> list[_Call]:
    """Return the calls without those whose effect is overwritten, if all use the same memory."""
    last = max((index for index, call in enumerate(calls) if call.fills), default=0)
    return [calls[0], *calls[last:]] if alone and last else calls


def _on(storages: dict[int, torch.UntypedStorage], view: _View) -> Tensor:
    empty = torch.empty(0, dtype=view.dtype)
    return empty.set_(storages[view.storage], view.offset, view.size, view.stride)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operator writes into."""
    names = [argument.name for argument in func._schema.arguments]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    return [
        tensor
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _tensors(values.get(argument.name))
    ]


def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _generator(args: Any, kwargs: Any) -> torch.Generator:
    """Return the generator that a call draws from."""
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Generator)]
    return given[0] if given else torch.default_generator


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _is_all_of_its_memory(tensor: Tensor) -> bool:
    return tensor.nbytes == tensor.untyped_storage().nbytes()
