"""Operators that slide a window over images, and normalisation by channel.

Inputs are (samples, channels, *space). A window that steps by 1 may run over an axis that grows
with the batch; for larger steps the number of places would be rounded: those axes must be fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

from crowdgrad.program.shapes.base import FLOAT, INT64, Call, Dims, Value
from crowdgrad.program.sizes import (
    MAX_SIZE,
    Size,
    add,
    divide,
    least,
    multiply,
    never_negative,
    show,
    subtract,
)

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Window:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def window(call: Call, kernel: Dims, space: int) -> Window:
    """The window of a call, whose kernel comes from its weights or its attribute."""
    if call.text("auto_pad", b"NOTSET") != b"NOTSET":
        raise call.refusal("its padding must be given in numbers, not by auto_pad")
    sizes = tuple(size for size in kernel if isinstance(size, int))
    if len(sizes) != space or len(kernel) != space or not all(1 <= k < 1 << 31 for k in sizes):
        raise call.refusal(f"a window of {show(kernel)} does not fit {space} axes")
    pads = _per_axis(call, "pads", 0, space, 2)
    return Window(
        kernel=sizes,
        strides=_per_axis(call, "strides", 1, space),
        dilations=_per_axis(call, "dilations", 1, space),
        before=pads[:space],
        after=pads[space:],
    )


def _per_axis(call: Call, name: str, least: int, space: int, times: int = 1) -> tuple[int, ...]:
    """A list of numbers with `times` for each axis; `least` is also the default."""
    numbers = call.numbers(name)
    if numbers is None:
        return (least,) * space * times
    if len(numbers) != space * times or not all(least <= n < 1 << 31 for n in numbers):
        raise call.refusal(f"its {name} {numbers} make no sense for {space} axes")
    return numbers


def _places(call: Call, size: Size, w: Window, axis: int, ceil: bool = False) -> Size:
    """How many places the window has along an axis, as onnxruntime counts them."""
    reach = (w.kernel[axis] - 1) * w.dilations[axis] + 1
    free = subtract(add(size, w.before[axis] + w.after[axis]), reach)
    if not never_negative(free):
        raise call.refusal(f"its window of {reach} does not fit into {size} and its padding")
    stride = w.strides[axis]
    if stride == 1:
        return add(free, 1)
    if not isinstance(free, int) or not isinstance(size, int):
        raise call.refusal("a window may not jump along an axis that grows with the batch")
    places = (-(-free // stride) if ceil else free // stride) + 1
    if ceil and (places - 1) * stride >= size + w.before[axis]:
        places -= 1  # the last window must begin inside the image or the padding before it
    return places


def _image(call: Call) -> Value:
    x = call.input(0)
    if len(x.dims) < 3:
        raise call.refusal(f"{show(x.dims)} is no image: samples, channels and space are needed")
    return x


def _weights(call: Call, x: Value) -> tuple[Value, int]:
    """The weights of a convolution and the number of its groups."""
    w, group = call.input(1), call.number("group", 1)
    call.alike(x, w)
    given = call.numbers("kernel_shape")
    if len(w.dims) != len(x.dims) or (given is not None and given != w.dims[2:]):
        raise call.refusal(f"weights of shape {show(w.dims)} do not fit {show(x.dims)}")
    if not 1 <= group < MAX_SIZE:
        raise call.refusal(f"it has {group} groups")
    return w, group


def _refuse_empty(call: Call, *values: Value) -> None:
    if any(least(size) == 0 for value in values for size in value.dims[1:]):
        raise call.refusal("there is nothing for its window to slide over")


def _bias(call: Call, x: Value, channels: Size) -> None:
    if call.has(2):
        bias = call.input(2)
        call.alike(x, bias)
        if bias.dims != (channels,):
            raise call.refusal(f"a bias of shape {show(bias.dims)} for {channels} channels")


def conv(call: Call) -> Values:
    """Weights are (outputs, inputs / group, *kernel)."""
    x = _image(call)
    w, group = _weights(call, x)
    _refuse_empty(call, x, w)
    frame = window(call, w.dims[2:], len(x.dims) - 2)
    if multiply(w.dims[1], group) != x.dims[1] or not divide(w.dims[0], group):
        raise call.refusal(
            f"weights {show(w.dims)} in {group} groups do not fit {x.dims[1]} channels"
        )
    _bias(call, x, w.dims[0])
    space = (_places(call, size, frame, axis) for axis, size in enumerate(x.dims[2:]))
    return (call.make(x.element, (x.dims[0], w.dims[0], *space)),)


def conv_transpose(call: Call) -> Values:
    """The gradient of `conv` by its input; weights are (inputs, outputs / group, *kernel)."""
    x = _image(call)
    w, group = _weights(call, x)
    _refuse_empty(call, x, w)
    frame = window(call, w.dims[2:], len(x.dims) - 2)
    if w.dims[0] != x.dims[1] or not divide(w.dims[0], group):
        raise call.refusal(
            f"weights {show(w.dims)} in {group} groups do not fit {x.dims[1]} channels"
        )
    if "output_shape" in call.attributes:
        raise call.refusal("its output must follow from its padding, not from output_shape")
    channels = multiply(w.dims[1], group)
    _bias(call, x, channels)
    extra = _per_axis(call, "output_padding", 0, len(x.dims) - 2)
    space = (_spread(call, size, frame, axis, extra[axis]) for axis, size in enumerate(x.dims[2:]))
    return (call.make(x.element, (x.dims[0], channels, *space)),)


def _spread(call: Call, size: Size, w: Window, axis: int, extra: int) -> Size:
    stride, dilation = w.strides[axis], w.dilations[axis]
    if extra >= stride:
        raise call.refusal(f"its output padding {extra} is not below its stride")
    reach = (w.kernel[axis] - 1) * dilation + 1 + extra - w.before[axis] - w.after[axis]
    spread = add(multiply(subtract(size, 1), stride), reach)
    if not never_negative(subtract(spread, 1)):
        raise call.refusal("its padding takes everything away")
    return spread


def pool(call: Call) -> Values:
    """Largest or mean of each window; for the largest also their places."""
    x = _image(call)
    _refuse_empty(call, x)
    kernel = call.numbers("kernel_shape")
    if kernel is None:
        raise call.refusal("its window has no size")
    frame = window(call, kernel, len(x.dims) - 2)
    if any(p >= k for p, k in zip((*frame.before, *frame.after), kernel * 2, strict=True)):
        raise call.refusal("its padding must be smaller than its window")
    call.flag("count_include_pad")
    ceil = call.flag("ceil_mode")
    space = (_places(call, size, frame, axis, ceil) for axis, size in enumerate(x.dims[2:]))
    made = call.make(x.element, (*x.dims[:2], *space))
    return (made, Value(INT64, made.dims)) if call.op == "MaxPool" else (made,)


def batch_norm(call: Call) -> Values:
    """By given means and variances; the other form, which computes them, is refused."""
    x = call.input(0)
    if call.flag("training_mode"):
        raise call.refusal("in training mode runtimes disagree about it")
    if len(x.dims) < 2:
        raise call.refusal(f"{show(x.dims)} has no channels")
    _by_channel(call, x, 5)
    return (Value(x.element, x.dims),)


def instance_norm(call: Call) -> Values:
    x = _image(call)
    _by_channel(call, x, 3)
    return (Value(x.element, x.dims),)


def _by_channel(call: Call, x: Value, inputs: int) -> None:
    for index in range(1, inputs):
        value = call.input(index)
        call.alike(x, value)
        if value.dims != (x.dims[1],):
            raise call.refusal(f"{show(value.dims)} is not one number for each channel")


def layer_norm(call: Call) -> Values:
    """Over the last axes from `axis` on; also gives the means and the inverse deviations."""
    x = call.input(0)
    axis = call.axis(call.number("axis", -1), len(x.dims))
    if call.number("stash_type", FLOAT) != FLOAT:
        raise call.refusal("it must compute in float32")
    if any(least(size) == 0 for size in x.dims[axis:]):
        raise call.refusal("there is nothing to normalise")
    for index in (1, 2):
        if index == 1 or call.has(index):
            value = call.input(index)
            call.alike(x, value)
            if value.dims != x.dims[axis:]:
                raise call.refusal(f"weights of shape {show(value.dims)} for {show(x.dims)}")
    rows = (*x.dims[:axis], *(1 for _ in x.dims[axis:]))
    return (Value(x.element, x.dims), Value(FLOAT, rows), Value(FLOAT, rows))
