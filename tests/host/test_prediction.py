"""Asking a finished run: what goes in is checked, what comes out is the model's."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crowdgrad.cli.main import main, parser
from crowdgrad.errors import ComputeError, CrowdgradError, DataMalformed, DataMissing
from crowdgrad.host.earlier import read_run
from crowdgrad.host.prediction import Model
from crowdgrad.host.samples import Wanted, read_records
from crowdgrad.numerics import noise
from tests.host.test_earlier import a_run

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
PIXELS = np.arange(28, dtype=np.uint8).reshape(7, 2, 2)
NOISE = {"name": "n0", "kind": "normal", "shape": [3], "per_sample": True}


def linear(folder: Path, *, batch: int | str = "batch", noisy: bool = False) -> None:
    """y = flatten(x) · W, plus noise where it draws some."""
    inputs = [helper.make_tensor_value_info("x:image", TensorProto.UINT8, [batch, 2, 2])]
    nodes = [
        helper.make_node("Cast", ["x:image"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c" if noisy else "y:0"]),
    ]
    if noisy:
        inputs.append(helper.make_tensor_value_info("z:n0", TensorProto.FLOAT, [batch, 3]))
        nodes.append(helper.make_node("Add", ["c", "z:n0"], ["y:0"]))
    output = helper.make_tensor_value_info("y:0", TensorProto.FLOAT, [batch, 3])
    graph = helper.make_graph(
        nodes, "model", inputs, [output], [numpy_helper.from_array(WEIGHTS, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, folder / "model.onnx")


def a_model(folder: Path, told: dict[str, object] | None = None, **how: Any) -> Model:
    a_run(folder, **(told or {}))
    linear(folder, **how)
    return Model(read_run(folder))


def wanted() -> np.ndarray:
    return PIXELS.reshape(7, 4).astype(np.float32) @ WEIGHTS


def test_it_answers_as_the_model_would(tmp_path: Path) -> None:
    model = a_model(tmp_path / "run")
    assert model.inputs == (Wanted(name="image", dtype=np.dtype(np.uint8), shape=(2, 2)),)
    found = model.answer([PIXELS])
    np.testing.assert_allclose(found.outputs[0], wanted())
    assert found.classes is None


def test_a_classification_gives_classes_and_how_sure_it_is(tmp_path: Path) -> None:
    model = a_model(tmp_path / "run", {"classes": 3})
    found = model.answer([PIXELS])
    assert found.classes is not None
    assert found.probabilities is not None
    assert found.classes.tolist() == wanted().argmax(1).tolist()
    powers = np.exp(wanted() - wanted().max(1, keepdims=True))
    np.testing.assert_allclose(found.probabilities, (powers / powers.sum(1)[:, None]).max(1))


def test_a_model_of_one_batch_size_is_filled_up(tmp_path: Path) -> None:
    done: list[int] = []
    found = a_model(tmp_path / "run", batch=4).answer([PIXELS], progress=done.append)
    np.testing.assert_allclose(found.outputs[0], wanted())
    assert done == [4, 7]


def test_what_it_draws_comes_from_the_seed(tmp_path: Path) -> None:
    model = a_model(tmp_path / "run", {"forward_noise": [NOISE]}, noisy=True)
    assert model.draws
    drawn = model.answer([PIXELS], seed=3).outputs[0] - wanted()
    expected = noise.normal(3, 0, 0, noise.FORWARD_STREAM, 21).reshape(7, 3)
    np.testing.assert_allclose(drawn, expected, atol=1e-4)
    again = model.answer([PIXELS], seed=4).outputs[0] - wanted()
    assert np.abs(again - drawn).max() > 0.1


def test_a_damaged_model_is_said_to_be_one(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    with pytest.raises(DataMissing, match=r"no model\.onnx"):
        Model(read_run(folder))
    (folder / "model.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(DataMalformed, match="cannot be loaded"):
        Model(read_run(folder))


def test_what_the_runtime_refuses_names_the_records(tmp_path: Path) -> None:
    model = a_model(tmp_path / "run")
    with pytest.raises(ComputeError, match="records 0 to 6"):
        model.answer([PIXELS.astype(np.float32)])


# -- files ------------------------------------------------------------------------------------

IMAGE = Wanted(name="image", dtype=np.dtype(np.uint8), shape=(2, 2))
MASK = Wanted(name="mask", dtype=np.dtype(np.bool_), shape=(2,))
PRICE = Wanted(name="price", dtype=np.dtype(np.float32), shape=())


def saved(folder: Path, name: str, *arrays: np.ndarray, **named: np.ndarray) -> Path:
    file = folder / name
    if file.suffix == ".npy":
        np.save(file, arrays[0])
    elif file.suffix == ".npz":
        np.savez(file, *arrays, **named)
    else:
        np.savetxt(file, arrays[0], delimiter=",", fmt="%g")
    return file


@pytest.mark.parametrize(
    ("name", "arrays", "named"),
    [
        ("a.npy", (PIXELS,), {}),
        ("a.npy", (PIXELS.astype(np.int64),), {}),
        ("a.npy", (PIXELS.reshape(7, 4).astype(np.float64),), {}),
        ("a.npz", (PIXELS,), {}),
        ("a.npz", (), {"image": PIXELS, "label": np.zeros(7)}),
        ("a.npz", (), {"x": PIXELS, "label": np.zeros(7)}),
        ("a.csv", (PIXELS.reshape(7, 4),), {}),
    ],
)
def test_records_are_read_as_they_are_stored(
    tmp_path: Path, name: str, arrays: tuple[np.ndarray, ...], named: dict[str, np.ndarray]
) -> None:
    (found,) = read_records(saved(tmp_path, name, *arrays, **named), [IMAGE])
    assert found.dtype == np.uint8
    assert np.array_equal(found, PIXELS)


def test_a_single_record_and_several_inputs(tmp_path: Path) -> None:
    (one,) = read_records(saved(tmp_path, "one.npy", PIXELS[3]), [IMAGE])
    assert np.array_equal(one, PIXELS[3:4])
    rows = np.concatenate([PIXELS.reshape(7, 4), np.ones((7, 2)), np.full((7, 1), 2.5)], axis=1)
    file = saved(tmp_path, "many.csv", rows)
    file.write_text("a,b,c,d,left,right,price\n" + file.read_text())
    image, mask, price = read_records(file, [IMAGE, MASK, PRICE])
    assert np.array_equal(image, PIXELS)
    assert mask.dtype == np.bool_
    assert mask.all()
    assert price.tolist() == [2.5] * 7


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.npy", PIXELS / 255, "holds 0.00392157, which is not uint8"),
        ("a.npy", np.full((2, 2, 2), np.nan), "holds nan, which is not uint8"),
        ("a.npy", np.full((2, 2, 2), 256), "holds 256, which is not uint8"),
        ("a.npy", np.zeros((7, 3), np.uint8), r"has the shape \(7, 3\)"),
        ("a.npy", np.zeros((0, 2, 2), np.uint8), "holds 0 records"),
        ("a.npy", np.array([["a", "b"]]), "type <U1"),
        ("a.npy", b"\x93NUMPY broken", "cannot be read"),
        ("a.npz", b"PK broken", "cannot be read"),
        ("a.csv", b"", "0 columns, the model takes 4"),
        ("a.csv", b"1,2,3\n", "3 columns, the model takes 4"),
        ("a.csv", b"1,2,3,4\n1,2,x,4\n", "not a table of numbers"),
        ("a.csv", b"1,2,x,4\n1,2,3,4\n", "not a table of numbers"),
        ("a.csv", b"1,,3,4\n1,2,3,4\n", "not a table of numbers"),
        ("a.csv", b"1,2,3,4\n1,,3,4\n", "not a table of numbers"),
        ("a.csv", b",,,\n1,2,3,4\n", "not a table of numbers"),
        ("a.csv", b"1,2,3,4\n\n1,2,3,4\n", "a line in its middle is empty"),
        ("a.txt", b"", "not one of .npy, .npz, .csv"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, name: str, content: Any, says: str) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    with pytest.raises(DataMalformed, match=says):
        read_records(file, [IMAGE])


@pytest.mark.parametrize("heading", ["", "a,b,c,d\n", '"a b",,c,#\n'])
def test_a_mark_and_a_heading_are_no_records(tmp_path: Path, heading: str) -> None:
    """Spreadsheets write a byte order mark."""
    file = tmp_path / "a.csv"
    file.write_bytes(f"\ufeff{heading}1,2,3,4\r\n5,6,7,8\r\n\r\n".encode())
    (found,) = read_records(file, [IMAGE])
    assert found.reshape(2, 4).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_several_inputs_need_their_names(tmp_path: Path) -> None:
    with pytest.raises(DataMalformed, match="one array, but the model has 2 inputs"):
        read_records(saved(tmp_path, "a.npy", PIXELS), [IMAGE, MASK])
    file = saved(tmp_path, "a.npz", image=PIXELS, other=PIXELS)
    with pytest.raises(DataMalformed, match="arrays image, other") as caught:
        read_records(file, [IMAGE, MASK])
    assert "mask (bool, 2 a record)" in caught.value.advice
    file = saved(tmp_path, "b.npz", image=PIXELS, mask=np.ones((3, 2), bool))
    with pytest.raises(DataMalformed, match="3 and 7 records"):
        read_records(file, [IMAGE, MASK])


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(CrowdgradError, match="cannot be read"):
        read_records(tmp_path / "a.npy", [IMAGE])


# -- the command ------------------------------------------------------------------------------


def test_the_command_shows_writes_and_describes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_model(tmp_path / "runs" / "digits-1", {"classes": 3})
    file = str(saved(tmp_path, "a.npy", np.repeat(PIXELS, 3, axis=0)))
    ask = ["predict", "digits-1", "--runs", str(tmp_path / "runs")]

    assert main([*ask, file, "--out", str(tmp_path / "out.csv")]) == 0
    shown = capsys.readouterr().out
    assert "probability" in shown
    assert "11 more" in shown
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["record", "class", "probability"]
    assert [int(row[1]) for row in rows[1:]] == np.repeat(wanted(), 3, axis=0).argmax(1).tolist()

    assert main([*ask, file, "--json", "-", "--out", str(tmp_path / "out.npz")]) == 0
    told = json.loads(capsys.readouterr().out)
    with np.load(tmp_path / "out.npz") as out:
        assert out["class"].tolist() == told["classes"]
        np.testing.assert_allclose(out["y0"], told["outputs"][0], rtol=1e-6)
    assert told["records"] == 21

    assert main([*ask, "--describe"]) == 0
    described = capsys.readouterr().out
    for said in ("image: uint8, 2 × 2", "one of 3 classes", "Digits"):
        assert said in described


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gone.npy",), "no file gone.npy"),
        (("a.npy", "--out", "a.txt"), "Name it .npz or .csv"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    a_model(tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), *arguments]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", "1.5", str(1 << 64)])
def test_a_seed_has_64_bits(capsys: pytest.CaptureFixture[str], seed: str) -> None:
    assert (
        parser().parse_args(["predict", "r", "f", "--seed", str((1 << 64) - 1)]).seed + 1 == 1 << 64
    )
    with pytest.raises(SystemExit):
        parser().parse_args(["predict", "r", "f", f"--seed={seed}"])
    assert "argument --seed" in capsys.readouterr().err
