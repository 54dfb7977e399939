"""A module whose parameters lie in one flat tensor on the device, as the state lies in its vector.

So the whole state moves in one copy and a rule steps all parameters at once. Buffers have memory of
their own, since the compiler refuses to change a part of what parameters lie in; they are few, and
go in and out with the unit. Convolution weights may lie channels last, which is how tensor cores
like them: rules do not care about order, only the way in and out of the device has to.

D: the numbers of the parameters; S: the words of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.errors import GateError
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.torch_feed import as_tensor


class BoundModule:
    def __init__(
        self, model: nn.Module, spec: ProgramSpec, device: torch.device, *, channels_last: bool
    ) -> None:
        """Takes the module over. Raises GateError where it is not what the spec describes."""
        check_same(model, spec)
        self._layout = StateLayout(spec)
        self.state_S = torch.zeros(spec.state_words, device=device)
        self.weights_D = self.state_S[: spec.size]
        self.gradient_D = torch.zeros(spec.size, device=device)
        self._channels_last = channels_last
        self._turned = tuple(
            (tensor, at)
            for tensor, at in zip(spec.parameters, self._layout.parameters.offsets, strict=True)
            if channels_last and len(tensor.shape) == 4
        )
        self.parameters = dict(model.named_parameters())
        self.gradients = self._views(self.gradient_D)
        with torch.no_grad():
            for name, view in self._views(self.weights_D).items():
                self.parameters[name].data = view
                self.parameters[name].requires_grad_(name not in spec.frozen)
        self._holders = tuple(_holders(model))
        self._buffers = self._bind_buffers(model, spec)

    def load(self, state: Vector) -> None:
        """Take a state from host memory."""
        self.state_S.copy_(as_tensor(state), non_blocking=True)
        for tensor, at in self._turned:
            flat = self.weights_D[at : at + tensor.elements]
            _turned(flat, tensor.shape).copy_(flat.clone().view(tensor.shape))
        self._fill_buffers()

    def resume(self, state_S: Tensor) -> None:
        """Take a state that `gathered` gave."""
        self.state_S.copy_(state_S)
        self._fill_buffers()

    def gathered(self) -> Tensor:
        """The whole state as it is on the device, its buffers brought together."""
        for buffer, view in self._buffers:
            view.copy_(buffer)
        return self.state_S

    def straight(self, vector_D: Tensor) -> Tensor:
        """Gradients or weights in the order of the vector; may be the same tensor."""
        if not self._turned:
            return vector_D
        out_D = vector_D.clone()
        for tensor, at in self._turned:
            here = slice(at, at + tensor.elements)
            out_D[here].view(tensor.shape).copy_(_turned(vector_D[here], tensor.shape))
        return out_D

    def settle_buffers(self) -> None:
        """Bring back what the module put elsewhere: some write `self.b = …` instead of in place."""
        for module, key, ours in self._holders:
            value = module._buffers[key]
            if value is not ours:
                assert value is not None
                ours.copy_(value.detach())
                module._buffers[key] = ours

    def _views(self, flat_D: Tensor) -> dict[str, Tensor]:
        turned = {tensor.name for tensor, _ in self._turned}
        views = {}
        layout = self._layout.parameters
        for tensor, at in zip(layout.tensors, layout.offsets, strict=True):
            part = flat_D[at : at + tensor.elements]
            turn = tensor.name in turned
            views[tensor.name] = _turned(part, tensor.shape) if turn else part.view(tensor.shape)
        return views

    def _bind_buffers(self, model: nn.Module, spec: ProgramSpec) -> list[tuple[Tensor, Tensor]]:
        """Each buffer, moved to the device, with its part of the state."""
        held = dict(model.named_buffers())
        tensors = (*spec.buffers, *spec.fixed)
        places = (*self._layout.buffer_places, *self._layout.fixed_places)
        bound = []
        for tensor, at in zip(tensors, places, strict=True):
            buffer, view = held[tensor.name], _part(self.state_S, tensor, at)
            buffer.data = torch.empty_like(view)  # still the same object: others may hold it
            bound.append((buffer, view))
        return bound

    def _fill_buffers(self) -> None:
        for module, key, ours in self._holders:  # a batch that failed may have left another there
            module._buffers[key] = ours
        for buffer, view in self._buffers:
            buffer.copy_(view)


def _holders(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Every place a buffer stands in."""
    for module in model.modules():
        for key, buffer in module._buffers.items():
            if buffer is not None:
                yield module, key, buffer


def check_same(model: nn.Module, spec: ProgramSpec) -> None:
    """Raises GateError that says in what the module is not the one the program was made of."""
    fixed_or_not = (*spec.buffers, *spec.fixed)
    for what, ours, theirs in (
        ("parameter", dict(model.named_parameters()), spec.parameters),
        ("buffer", dict(model.named_buffers()), fixed_or_not),
    ):
        found = {name: _described(tensor) for name, tensor in ours.items()}
        wanted = {t.name: f"{t.dtype}{tuple(t.shape)}" for t in theirs}
        difference = _difference(what, found, wanted)
        if difference:
            raise GateError(
                f"the trusted model is not the job's: {difference}.",
                advice="Use the same version of the model as the host.",
            )


def _difference(what: str, found: dict[str, str], wanted: dict[str, str]) -> str:
    for name in wanted:
        if name not in found:
            return f"it has no {what} {name!r}"
        if found[name] != wanted[name]:
            return f"its {what} {name!r} is {found[name]}, the program's {wanted[name]}"
    extra: Sequence[str] = [name for name in found if name not in wanted]
    return f"it has a {what} {extra[0]!r} that the program has not" if extra else ""


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}"


def _turned(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A weight of shape (out, in, height, width) in memory that goes out, height, width, in."""
    out, inner, height, width = shape
    return flat.view(out, height, width, inner).permute(0, 3, 1, 2)


def _part(state_S: Tensor, tensor: TensorSpec, at: int) -> Tensor:
    words = state_S[at : at + -(-tensor.bytes // 4)].view(torch.uint8)
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return words[: tensor.bytes].view(dtype).view(tensor.shape)
