"""Operators that are not on the list: real ones, foreign ones and look-alikes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import Case, spoilt, with_nodes
from tests.program.hostile.proto import block, blocks, node, number

_WORDS = """
    AffineGrid Bernoulli BitShift BitwiseAnd BlackmanWindow CenterCropPad Col2Im Compress
    ConcatFromSequence ConvInteger DFT DeformConv DepthToSpace DequantizeLinear Det Dropout
    DynamicQuantizeLinear Einsum EyeLike GRU GlobalLpPool GridSample GroupNormalization HannWindow
    Hardmax ImageDecoder LRN LSTM LpNormalization LpPool MatMulInteger MaxRoiPool MaxUnpool
    MeanVarianceNormalization MelWeightMatrix Multinomial NegativeLogLikelihoodLoss
    NonMaxSuppression NonZero OneHot Optional OptionalGetElement OptionalHasElement QLinearConv
    QLinearMatMul QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    RegexFullMatch Resize ReverseSequence RoiAlign STFT Scan Scatter SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength Shrink SoftmaxCrossEntropyLoss
    SpaceToDepth SplitToSequence StringConcat StringNormalizer StringSplit TfIdfVectorizer Unique
    Upsample
"""
UNLISTED = tuple(_WORDS.split())
DISGUISED = {
    "lower_case": "add",
    "upper_case": "ADD",
    "trailing_space": "Add ",
    "leading_space": " Add",
    "newline": "Add\n",
    "zero_byte": "Add\0",
    "zero_and_more": "Add\0Loop",
    "cyrillic": "А" + "dd",
    "full_width": "Ａｄｄ",
    "combining": "Add\u0301",
    "joiner": "A\u200ddd",
    "right_to_left": "\u202eddA",
    "soft_hyphen": "A\u00addd",
    "empty": "",
    "version": "Add_7",
    "path": "../Add",
    "qualified": "ai.onnx.Add",
    "python": "__import__('os').system('true')",
    "format": "%s%n{0.__class__}",
    "terminal_escape": "\x1b[2JAdd",
    "two_names": "Add Sub",
    "digits": "0",
}
DOMAINS = {
    "ml": "ai.onnx.ml",
    "training": "ai.onnx.training",
    "preview": "ai.onnx.preview.training",
    "microsoft": "com.microsoft",
    "nchwc": "com.microsoft.nchwc",
    "internal": "com.ms.internal.nhwc",
    "aten": "org.pytorch.aten",
    "extensions": "ai.onnx.contrib",
    "python": "com.microsoft.python",
    "space": " ",
    "zero": "\0",
    "case": "AI.ONNX",
    "trailing_dot": "ai.onnx.",
    "look_alike": "аi.onnx",
    "own": "local",
}
FOREIGN = ("ATen", "PythonOp", "PyOp", "FusedConv", "TreeEnsembleClassifier", "Adam", "Gradient")


def cases() -> Iterator[Case]:
    for op in UNLISTED:
        yield Case(
            name=f"operators/{op}",
            says=f"the standard's {op}, which our capture does not emit",
            reason=f"'{op}', which is not on the list",
            make=lambda op=op: with_nodes(node(op, "loss", "out")),
        )
    for op in FOREIGN:
        yield Case(
            name=f"operators/foreign_{op}",
            says=f"{op}, which only one runtime knows",
            reason=f"'{op}', which is not on the list",
            make=lambda op=op: with_nodes(node(op, "loss", "out")),
        )
    for name, op in DISGUISED.items():
        yield Case(
            name=f"operators/disguised_{name}",
            says=f"an operator that looks like Add: {op!a}",
            reason="operator .*which is not on the list|cannot be shown",
            make=lambda op=op: with_nodes(raw_node(op.encode())),
        )
    for name, op in (("not_utf8", b"Add\xff"), ("surrogate", b"\xed\xa0\x80Add")):
        yield Case(
            name=f"operators/disguised_{name}",
            says="an operator whose name is not UTF-8",
            reason="not UTF-8",
            make=lambda op=op: with_nodes(raw_node(op)),
        )
    yield Case(
        name="operators/long_name",
        says="an operator with a name of 100 kB",
        reason="'op' has 100000 bytes|take more than \\d+ bytes",
        make=lambda: with_nodes(raw_node(b"A" * 100_000)),
    )
    yield Case(
        name="operators/no_name",
        says="a node that names no operator",
        reason="operator ''",
        make=lambda: with_nodes(blocks(1, ["loss"]) + blocks(2, ["out"])),
    )
    yield from _domains()


def raw_node(op: bytes, domain: bytes | None = None) -> bytes:
    foreign = b"" if domain is None else block(7, domain)
    return blocks(1, ["loss", "loss"]) + blocks(2, ["out"]) + block(4, op) + foreign


def _domains() -> Iterator[Case]:
    for name, domain in DOMAINS.items():
        yield Case(
            name=f"operators/domain_{name}",
            says=f"Add of the domain {domain!a}",
            reason="::Add', which is not one of the standard's|'domain' .*cannot be shown",
            make=lambda domain=domain: with_nodes(raw_node(b"Add", domain.encode())),
        )
        yield Case(
            name=f"operators/opset_of_{name}",
            says=f"the whole graph in the domain {domain!a}",
            reason="standard operators only|'domain' .*cannot be shown",
            make=lambda domain=domain: spoilt(opset=block(1, domain.encode()) + number(2, 20)),
        )
    for version in (-1, 0, 1, 6, 17, 19, 21, 23, 9999, 1 << 62):
        yield Case(
            name=f"operators/opset_{version}",
            says=f"a graph of opset {version} with a spec of 20",
            reason=f"opset {version},? ",
            make=lambda version=version: spoilt(opset=block(1, "") + number(2, version)),
        )
    for ir in (-1, 0, 3, 7, 14, 99, 1 << 40):
        yield Case(
            name=f"operators/ir_{ir}",
            says=f"ONNX format {ir}",
            reason=f"format {ir}\\b",
            make=lambda ir=ir: spoilt(ir=ir),
        )
    yield Case(
        name="operators/two_opsets",
        says="two operator sets, the second for another domain",
        reason="more than 1 of 'opsets'|one version",
        make=lambda: spoilt(model_more=block(8, block(1, "com.microsoft") + number(2, 1))),
    )
    yield Case(
        name="operators/no_opset",
        says="an operator set of which nothing is said",
        reason="opset 0",
        make=lambda: spoilt(opset=b""),
    )
