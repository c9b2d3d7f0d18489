"""The elementwise steps in native code: filter, direction and update in one pass over memory.

The C code gets addresses. What torch's own kernels would check on their way (shapes,
dtypes, devices, layouts, overlaps) is checked here, whole columns of tensors at a time: a
network has hundreds of them, and a step takes a few milliseconds.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat
from operator import contains, is_, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.optimizer import _foreach_supported_types

from ..state import buffer_dtype
from . import build

State = Mapping[Tensor, Mapping[str, Tensor]]

# The numbers that kernels.c knows them by.
KINDS = {"sgdf": 0, "sign": 1, "adam": 2, "momentum": 3}
"""The kinds of direction that it has."""
_BUFFERS = 3
# Complex tensors are pairs of reals.
_CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.complex64: 0,
    torch.complex128: 1,
}
PLAIN_TYPES = frozenset(_foreach_supported_types)
_STATE_DTYPES = {dtype: buffer_dtype(torch.empty(0, dtype=dtype)) for dtype in _CODES}


class _Internals(NamedTuple):
    """What torch has for its own compiled code and, though no public interface, also for us."""

    make_guards: Any
    """Makes what looks at many tensors in one call: is each still of its type, dtype, device,
    shape and strides, and neither more nor less conjugated or negated than it was?"""
    address_of: int
    """Where the C function lies that finds the memory of a Python tensor. It throws, through C
    that cannot catch, unless that is a tensor with memory: see to that first."""

    @classmethod
    def find(cls) -> _Internals | None:
        try:
            from torch._C._dynamo import guards

            return cls(guards.TensorGuards, guards._torchinductor_pyobject_tensor_data_ptr)  # type: ignore[attr-defined]  # not in its stubs
        except (ImportError, AttributeError):
            return None


@functools.cache
def _library() -> ctypes.CDLL | OSError:
    if _Internals.find() is None:
        return OSError(f"torch {torch.__version__} lacks the guards or addresses that it needs")
    try:
        library = build.load(Path(__file__).with_name("kernels.c"))
    except OSError as error:
        return error
    pointer, count, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    table = pointer, count
    arguments = *table, pointer, count, pointer, pointer, count, pointer
    # It looks at Python's objects, so it must have Python's lock.
    enter = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(("sgdf_enter", library))
    setattr(library, "sgdf_enter", enter)  # noqa: B010 (types know nothing of such attributes)
    library.sgdf_counts.argtypes = (*table, pointer)
    library.sgdf_counts.restype = count
    library.sgdf_step.argtypes = (*table, pointer, pointer, threads)
    library.sgdf_touch.argtypes = (*table, threads)
    library.sgdf_prefetch.argtypes = (pointer, count)
    return library


def native_fault() -> str | None:
    """Return why there is no native step here, if there is none; the first call builds it."""
    library = _library()
    return str(library) if isinstance(library, OSError) else None


def is_supported(param: Tensor) -> bool:
    """Return whether the step is made for parameters of this device and dtype."""
    return param.is_cpu and param.dtype in _CODES


class _Form(NamedTuple):
    """What two columns of tensors must agree in, but for their shapes, to lie in memory alike."""

    dtypes: list[Any]
    layouts: list[Any]
    """The strides, or True for any that amount to contiguity."""

    @classmethod
    def of(cls, tensors: list[Tensor]) -> _Form:
        return cls(
            dtypes=[tensor.dtype for tensor in tensors],
            layouts=[tensor.is_contiguous() or tensor.stride() for tensor in tensors],
        )


def _are_plain(tensors: list[Tensor]) -> bool:
    """Return whether these are CPU tensors whose memory holds the numbers that they show.

    Subclasses may mean anything by theirs, and views may be yet to be negated or conjugated.
    """
    return (
        PLAIN_TYPES.issuperset(map(type, tensors))
        and all(tensor.is_cpu for tensor in tensors)
        and not any(tensor.is_neg() or tensor.is_conj() for tensor in tensors)
    )


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the elements fill their memory without gaps or repetitions."""
    # Only then does a new tensor get the same strides.
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _spans(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return where these dense tensors begin and end in memory, in order."""
    return sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.numel())


def _lie_apart(spans: list[tuple[int, int]]) -> bool:
    """Return whether these do not overlap, and none lies, as torch's zero tensors do, nowhere."""
    return all(start >= end for (_, end), (start, _) in pairwise([(0, 1), *spans]))


def _address(numbers: array[Any]) -> int:
    return numbers.buffer_info()[0]


def _records(tensor: Tensor) -> Iterator[int]:
    """Yield the cache lines in which Python and torch keep book of a tensor."""
    storage = tensor.untyped_storage()
    for address, lines in ((id(tensor), 1), (tensor._cdata, 3), (storage._cdata, 2)):
        yield from range(address, address + 64 * lines, 64)


class TensorTable:
    """Tensors as kernels.c sees them, one row each: addresses, size, dtypes.

    ``TensorTable.of`` looks at everything. The next step has other gradients but, as a rule, the
    same parameters and state: ``refill`` then looks at what can have changed in these.
    """

    def __init__(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        names: Sequence[str],
        columns: Sequence[list[Tensor]],
        rows: array[int],
    ) -> None:
        self.params = list(params)
        self._buffers = len(names) - 1
        self._state_of = itemgetter(*names)
        self._owned = [*params, *chain.from_iterable(zip(*columns, strict=True))]
        internals = _Internals.find()
        assert internals is not None  # or there were no library
        self._guards = internals.make_guards(
            *self._owned, *grads, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        self._rows = rows
        self._objects = array("Q", map(id, chain(self._owned, grads)))
        self._new_grads = memoryview(self._objects)[len(self._owned) :]
        self._spans = array("Q", chain.from_iterable(_spans(self._owned)))
        self._grad_spans = array("Q", bytes(16 * len(params)))
        self._counts = array("d", bytes(8 * len(params)))
        self._records = array("Q", chain.from_iterable(map(_records, self._owned)))
        # What the calls are told. No array changes its size, so none will move.
        self._library: Any = _library()
        self._place = _address(rows), len(params)
        self._entering = (
            *(*self._place, _address(self._objects), len(names), internals.address_of),
            *(_address(self._spans), len(self._spans) // 2, _address(self._grad_spans)),
        )

    @classmethod
    def of(
        cls, params: list[Tensor], grads: list[Tensor], state: State, names: Sequence[str]
    ) -> TensorTable | None:
        """Return the table of these tensors, or None if kernels.c must not touch them.

        Args:
            params: parameters.
            grads: their gradients.
            state: holds, for each parameter, a dict.
            names: what to take from it: the step count, then the buffers.
        """
        steps, *buffers = ([state[param][name] for param in params] for name in names)
        columns = params, grads, *buffers
        shapes = [param.shape for param in params]
        own, given, *others = (_Form.of(column) for column in columns)
        wanted = own._replace(dtypes=[_STATE_DTYPES.get(dtype) for dtype in own.dtypes])
        if not (
            None not in wanted.dtypes
            and all(other == wanted for other in others)
            and given._replace(dtypes=own.dtypes) == own
            and all(map(contains, zip(own.dtypes, wanted.dtypes, strict=True), given.dtypes))
            and all([tensor.shape for tensor in column] == shapes for column in columns)
            and all(step.dtype is torch.float32 and step.numel() == 1 for step in steps)
            and all(map(_are_plain, (steps, *columns)))
            and all(param.is_contiguous() or _is_dense(param) for param in params)
            and _lie_apart(_spans(chain(steps, params, *buffers)))
        ):
            return None
        addresses = (map(Tensor.data_ptr, column) for column in (params, steps, *buffers))
        unused = (repeat(0) for _ in range(_BUFFERS - len(buffers)))
        # To be entered once more, but a tensor without memory must meet Python's function first.
        grad_addresses = map(Tensor.data_ptr, grads)
        sizes = (param.numel() * (2 if param.is_complex() else 1) for param in params)
        codes = (map(_CODES.__getitem__, form.dtypes) for form in (own, given))
        rows = zip(*addresses, *unused, grad_addresses, sizes, *codes, repeat(0))
        table = cls(params, grads, names, (steps, *buffers), array("Q", chain.from_iterable(rows)))
        return table if table._enter(grads) else None

    def refill(self, params: list[Tensor], state: State) -> bool:
        """Enter the gradients that these now have, or return False if more than they is new.

        They are not held: a thread that lets go of them while the step is taken spoils it.
        """
        grads = [grad for param in params if (grad := param.grad) is not None]
        if len(grads) < len(params):
            params = [param for param in params if param.grad is not None]
        try:
            # Not by [], which would make an entry for a parameter that has none.
            kept = map(self._state_of, map(state.get, params, repeat({})))
            owned = [*params, *chain.from_iterable(kept)]
        except KeyError:
            return False
        return (
            len(owned) == len(self._owned)
            and all(map(is_, owned, self._owned))
            # Each could have been changed in place, at the same address.
            and self._guards.check(*owned, *grads)
            and self._enter(grads)
        )

    def prefetch(self) -> None:
        """Have the CPU fetch what ``refill`` will look at, all at once.

        Whatever ran last has left none of it in the caches, and to wait for one tensor after
        the other takes longer. A mere hint: should a record have moved, nothing is read in its
        place.
        """
        self._library.sgdf_prefetch(_address(self._records), len(self._records))

    def _enter(self, grads: list[Tensor]) -> bool:
        """Enter the gradients, unless tensors have moved or gradients lie in their memory."""
        self._new_grads[:] = array("Q", map(id, grads))
        return bool(self._library.sgdf_enter(*self._entering))

    def counts(self) -> list[float]:
        """Return the distinct numbers of steps that the tensors have seen."""
        distinct = self._library.sgdf_counts(*self._place, _address(self._counts))
        return self._counts[:distinct].tolist()

    def step(self, scalars: Iterable[Sequence[Any]], options: Sequence[float]) -> None:
        """Take the step, with the scalars that belong to each of ``counts()``."""
        # Autograd must know of what it does not see. Told now: the call below leaves the
        # caches without anything of Python's.
        increment_version(self.params)
        numbers = array("d", map(float, chain.from_iterable(scalars)))
        constants = array("d", options)
        self._library.sgdf_step(
            *self._place, _address(numbers), _address(constants), torch.get_num_threads()
        )

    def touch(self) -> None:
        """Read and write what a step of SGDF does in float32, and leave finite numbers as they are.

        This takes the time that no step can undercut.
        """
        if self._buffers != 2 or any(param.dtype != torch.float32 for param in self.params):
            raise ValueError("touch is for float32 parameters with two buffers")
        self._library.sgdf_touch(*self._place, torch.get_num_threads())


def aligned(params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Return the gradients, copied where they do not lie in memory as their parameters do."""
    return [
        grad
        if _Form.of([grad]) == _Form.of([param]) and _are_plain([grad])
        else _laid_out_as(param, grad)
        for param, grad in zip(params, grads, strict=True)
    ]


def _laid_out_as(param: Tensor, grad: Tensor) -> Tensor:
    if grad.shape != param.shape or not is_supported(param) or type(grad) not in PLAIN_TYPES:
        return grad  # nothing that a copy would mend
    dtype = param.dtype if grad.dtype == param.dtype else buffer_dtype(param)
    return torch.empty_like(param, dtype=dtype).copy_(grad)


def common_options(group: dict[str, Any]) -> dict[str, Any]:
    """Return what ``step`` needs of the options that every optimizer here has."""
    names = ("weight_decay", "decoupled_weight_decay", "maximize")
    return {"lr": float(group["lr"]), **{name: group[name] for name in names}}


def take_step(
    table: TensorTable,
    kind: str,
    scalars: Callable[[float], Sequence[Any]],
    *,
    lr: float,
    betas: tuple[float, float],
    weights: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled_weight_decay: bool,
    maximize: bool,
) -> None:
    """Take one step of a kind on the tensors of ``table``.

    Args:
        table: parameters, gradients, state.
        kind: one of ``KINDS``.
        scalars: from the number of a step to the numbers that depend on it.
        lr: learning rate.
        betas: what the old moments weigh in the new ones.
        weights: what this step's gradient weighs in them.
        eps: of the filter, and of Adam's direction.
        weight_decay: strength of the decay.
        decoupled_weight_decay: shrink the parameters instead of adding to the gradient.
        maximize: ascend.
    """
    shrink, decay = 1.0, weight_decay
    if decoupled_weight_decay:
        shrink, decay = 1.0 - lr * weight_decay, 0.0
    sign = -1.0 if maximize else 1.0
    table.step(
        [scalars(count + 1.0) for count in table.counts()],
        (KINDS[kind], lr, shrink, sign, decay, *betas, *weights, eps),
    )
