"""The model at work: one batch in, its gradient or its metrics left on the device.

PyTorch is set so that it computes what the program does: random operators take the batch's noise,
attention is arithmetic where it draws, float32 is float32 where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from crowdgrad.domain.program import NoiseSpec, ProgramSpec
from crowdgrad.errors import CrowdgradError, ProgramError
from crowdgrad.numerics.noise import FORWARD_STREAM
from crowdgrad.program.engines.replay import Replay, as_drawn
from crowdgrad.program.engines.torch_feed import Fed
from crowdgrad.program.engines.torch_graphs import Recorder
from crowdgrad.program.engines.torch_noise import DeviceNoise
from crowdgrad.program.engines.torch_state import BoundModule


class Subject(Protocol):
    """What is to be computed, as functions of a stored batch."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def loss(self) -> object: ...

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The parameters that each loss teaches; empty where there is one loss for all."""

    def run(self, stored: Sequence[Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """The model's output and its losses by group, the only one under ''."""

    def evaluate(self, stored: Sequence[Tensor]) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """The model's output, its loss and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    device: str = "cpu"
    bf16: bool = False
    """Matrix products and convolutions in bfloat16, by PyTorch's autocast."""
    compile: bool = False
    graphs: bool = True
    """On a GPU, record the work of a batch and replay it; False: launch every kernel anew."""
    channels_last: bool | None = None
    """Convolution weights in the order tensor cores like; None: on a GPU in bfloat16."""

    @property
    def turns(self) -> bool:
        on_gpu = torch.device(self.device).type == "cuda"
        return on_gpu and self.bf16 if self.channels_last is None else self.channels_last


class Runner:
    """Takes the subject's module over: its tensors move into `bound`."""

    def __init__(self, spec: ProgramSpec, subject: Subject, options: TorchOptions) -> None:
        """Raises GateError where the subject's module is not what the spec describes."""
        self._spec = spec
        self._subject = subject
        self._bf16 = options.bf16
        self._device = torch.device(options.device)
        for module in (subject.loss, subject.model):
            if isinstance(module, nn.Module):
                _move(module, self._device)
        self.bound = BoundModule(subject.model, spec, self._device, channels_last=options.turns)
        self._taught = self._groups()
        self._recurrent = any(isinstance(part, nn.RNNBase) for part in subject.model.modules())
        self._run = torch.compile(subject.run) if options.compile else subject.run
        self._exact = False
        self._recorder: Recorder | None = None
        if self._device.type == "cuda" and options.graphs and not options.compile:
            self._recorder = Recorder(
                self._work, self._device, self.bound.gathered, self.bound.resume
            )
        self._noise = DeviceNoise(spec.noise, self._device)
        self._forward_noise = DeviceNoise(spec.forward_noise, self._device, FORWARD_STREAM)

    def begin(self, *, training: bool) -> None:
        """Put the module into a mode, before the first batch."""
        self._subject.model.train(training)

    def gradient(self, batch: Fed, seed: int, epoch: int) -> Tensor:
        """Leave the batch's gradient and new buffers in the module; returns its loss."""
        with _explained(batch.number):
            drawn = self._noise.make(seed, epoch, batch.number, batch.samples)
            if self._recorder is None or self._exact:
                return self._work(batch.columns, drawn)
            return self._recorder.run(batch.columns, drawn)

    def _work(self, columns: Sequence[Tensor], drawn: Sequence[Tensor]) -> Tensor:
        with self._around(bool(drawn)), _replaying(self._spec.noise, drawn):
            _, losses = self._run(columns)
        left = len(losses)
        for group, loss in losses.items():
            left -= 1
            wanted, views = self._taught[group]
            found = torch.autograd.grad(loss, wanted, retain_graph=left > 0, allow_unused=True)
            _store(views, found)
        self.bound.settle_buffers()
        return sum(loss.detach() for loss in losses.values())  # type: ignore[return-value]

    def look(self, batch: Fed, seed: int) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Output, loss and metrics in evaluation mode."""
        drawn = self._forward_noise.make(seed, 0, batch.number, batch.samples)
        with (
            _explained(batch.number),
            torch.no_grad(),
            self._around(bool(drawn)),
            _replaying(self._spec.forward_noise, drawn),
        ):
            found = self._subject.evaluate(batch.columns)
            self.bound.settle_buffers()
            return found

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Inside, float32 is float32: no bfloat16, no TF32. For comparing with the program."""
        settings: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
        before = self._bf16, [setting.allow_tf32 for setting in settings]
        self._bf16, self._exact = False, True
        for setting in settings:
            setting.allow_tf32 = False
        try:
            yield
        finally:
            self._bf16, allowed = before
            self._exact = False
            for setting, allow in zip(settings, allowed, strict=True):
                setting.allow_tf32 = allow

    @contextmanager
    def _around(self, draws: bool) -> Iterator[None]:
        """PyTorch set so that it computes what the program does."""
        fast = torch.backends.mha.get_fastpath_enabled()
        # In evaluation this shortcut leaves zeros where masks hide something.
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with ExitStack() as stack:
                if self._bf16:
                    stack.enter_context(torch.autocast(self._device.type, torch.bfloat16))
                if draws:  # fused kernels would draw their own numbers
                    stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                    if self._recurrent:
                        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    def _groups(self) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
        """For each loss the parameters it teaches, and where their gradients go."""
        frozen = set(self._spec.frozen)
        every = tuple(name for name in self.bound.parameters if name not in frozen)
        groups = dict(self._subject.groups) or {"": every}
        return {
            group: (
                [self.bound.parameters[name] for name in names if name not in frozen],
                [self.bound.gradients[name] for name in names if name not in frozen],
            )
            for group, names in groups.items()
        }


@contextmanager
def _replaying(specs: Sequence[NoiseSpec], drawn: Sequence[Tensor]) -> Iterator[None]:
    """Random operators inside take this noise; costs nothing where there is none."""
    if not drawn:
        yield
        return
    placed = (as_drawn(spec, z) for spec, z in zip(specs, drawn, strict=True))
    with Replay(placed):
        yield


def _store(views: list[Tensor], found: Sequence[Tensor | None]) -> None:
    """Gradients into their places, those that lie alike in one or two launches for all."""
    alike: list[tuple[Tensor, Tensor]] = []
    for view, gradient in zip(views, found, strict=True):
        if gradient is None:
            view.zero_()
        elif view.stride() == gradient.stride():
            alike.append((view, gradient))
        else:
            view.copy_(gradient)
    if alike:
        torch._foreach_copy_([view for view, _ in alike], [gradient for _, gradient in alike])


@contextmanager
def _explained(number: int) -> Iterator[None]:
    try:
        yield
    except CrowdgradError:
        raise
    except Exception as error:  # the owner's own code, and every kind PyTorch raises
        first = str(error).partition("\n")[0][:300]
        raise ProgramError(
            f"PyTorch failed on batch {number}: {type(error).__name__}: {first}.",
            advice="Check that the data holds what the model accepts (class numbers in range).",
        ) from error


def _move(module: nn.Module, device: torch.device) -> None:
    """To the device, plain attributes too. All stay the objects they are: a loss may hold some."""
    attributes = (value for part in module.modules() for value in vars(part).values())
    plain = (value for value in attributes if isinstance(value, Tensor))
    for tensor in (*module.parameters(), *module.buffers(), *plain):
        tensor.data = tensor.data.to(device)
