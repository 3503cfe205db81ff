"""`sidecar/v1` is what `make proto` makes of `proto/`: nobody edits it, nobody forgets to run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto"
GENERATED = ROOT / "sidecar" / "v1"
SOURCES = sorted(PROTO.rglob("*.proto"))


def run_protoc(*arguments: str) -> None:
    assert protoc.main(["protoc", f"--proto_path={PROTO}", *arguments, *map(str, SOURCES)]) == 0


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    run_protoc(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    made = {path.name: path.read_text() for path in (tmp_path / "sidecar" / "v1").iterdir()}
    kept = {path.name: path.read_text() for path in GENERATED.glob("*_pb2.py*")}
    assert len(made) == 2 * len(SOURCES)
    assert kept == made


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_field_number_is_used_twice_or_left_out(source: Path, tmp_path: Path) -> None:
    """A hole in the numbers is a field that was taken away without `reserved`: its number must never come back."""
    out = tmp_path / "descriptors"
    run_protoc(f"--descriptor_set_out={out}")
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    (file,) = [found for found in files if found.name.endswith(source.name)]
    assert file.message_type
    for message in file.message_type:
        reserved = {number for held in message.reserved_range for number in range(held.start, held.end)}
        numbers = {field.number for field in message.field} | reserved
        assert numbers == set(range(1, len(numbers) + 1)), message.name
