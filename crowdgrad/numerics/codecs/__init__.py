"""How parameters travel: one codec a file, and the list of them.

Adding one means a file, a name in `CodecName` of `crowdgrad/domain/work.py` and a line here.
"""

from __future__ import annotations

from crowdgrad.domain.work import CodecName
from crowdgrad.numerics.codecs.base import Codec
from crowdgrad.numerics.codecs.bf16 import BF16
from crowdgrad.numerics.codecs.fp16 import FP16
from crowdgrad.numerics.codecs.fp32 import FP32

_CODECS: tuple[Codec, ...] = (FP32(), FP16(), BF16())
CODECS: dict[CodecName, Codec] = {codec.name: codec for codec in _CODECS}
