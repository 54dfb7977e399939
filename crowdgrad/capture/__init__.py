"""PyTorch module → program. With the torch engine the only code that imports torch.

    task ─trace→ ATen graphs ─lift, rewrites→ ─export→ ONNX ─check→ ─gate→ captured program

`capture.capture` is the whole way; `task` what a host's owner writes; `inference` the way back to a
file that other programs can load.
"""
