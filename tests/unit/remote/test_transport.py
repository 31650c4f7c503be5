"""Files of a call that sends or gets one."""

import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest

from aforesaid.errors import InvalidInput
from aforesaid.remote.calls import Call
from aforesaid.remote.transport import _TransferFiles


def test_a_file_that_cannot_be_packed_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upload(file: BinaryIO) -> None:
        file.write(b"half of it")
        raise InvalidInput("folder must be that of an export", field="folder")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    call: Call[None] = Call(method="POST", path="/", read=lambda _: None, upload=upload)
    with pytest.raises(InvalidInput):
        _TransferFiles(call)
    assert list(tmp_path.iterdir()) == []
