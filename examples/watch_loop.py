"""A module that follows its source file: edit the file, and the next call runs the new code."""

import tempfile
from pathlib import Path

import torch

import warmcc

SOURCE = "at::Tensor f(at::Tensor x) { return x + 1; }\n"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "live.cpp")
        file.write_text(SOURCE)
        with warmcc.watch("live", file, ["f"]) as ext:
            print(f"version {ext.version}: {ext.f(torch.zeros(2)).tolist()}")
            file.write_text(SOURCE.replace("x + 1", "x + 2"))  # your editor does this
            ext.wait(120)  # optional: calls made earlier run the version before
            print(f"version {ext.version}: {ext.f(torch.zeros(2)).tolist()}")
            file.write_text(SOURCE.replace("x + 1", "x + nothing"))
            ext.wait(120)
            print(f"version {ext.version} stays in use: {str(ext.error).splitlines()[-1]}")
