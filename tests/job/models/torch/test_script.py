from __future__ import annotations

import os
from typing import NamedTuple, Optional

import numpy as np
import pytest
import torch

from cluster_serving.job.models import TensorSpec, load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from tests.support.payloads import model_zoo

ONES = np.ones((3, 2), np.float32)


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


class Two(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


class Dict(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"double": x * 2, "triple": x * 3}


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x, x + 1)


class WithMask(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:  # noqa: UP045
        return x if mask is None else x * mask


class Embedding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (self.table(tokens) * weights.unsqueeze(-1)).sum(1)


class Counter(torch.nn.Module):
    """Returns a buffer that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += x
        return self.count


class TakesList(torch.nn.Module):
    def forward(self, xs: list[torch.Tensor]) -> torch.Tensor:
        return xs[0]


class ReturnsNumber(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> int:
        return x.size(0)


def test_without_shapes_everything_is_unknown_and_passes(tmp_path):
    model_zoo.save_torchscript(tmp_path, Two())
    model = load(tmp_path)
    assert model.inputs == [TensorSpec("a", "", None), TensorSpec("b", "", None)]
    assert model.outputs == [TensorSpec("output_0", "", None), TensorSpec("output_1", "", None)]
    assert not model.warm_up(1)
    total, _ = model.predict([ONES.astype(np.int64), ONES.astype(np.int64)])
    assert (total.dtype, total.tolist()) == (np.int64, (2 * ONES).tolist())
    assert [spec.dtype for spec in model.outputs] == ["int64", "int64"]


def test_a_text_for_an_input_of_unknown_dtype_is_refused(tmp_path):
    """A path in place of a picture, for instance."""
    model_zoo.save_torchscript(tmp_path, Dict())
    with pytest.raises(InvalidInput, match=r"input 'x' is a text, 'cat\.png'; the model takes numbers"):
        load(tmp_path).predict([np.array(["cat.png"], object)])


def test_the_error_of_a_batch_is_its_reason_without_the_stacks_of_the_module(tmp_path):
    model_zoo.save_torchscript(tmp_path, torch.nn.Sequential(torch.nn.Linear(4, 3)))
    with pytest.raises(InferenceFailed) as failed:
        load(tmp_path).predict([np.zeros((1, 5), "f4")])
    assert "mat1 and mat2 shapes cannot be multiplied (1x5 and 4x3)" in str(failed.value)
    assert str(failed.value).startswith("TorchScript failed: RuntimeError: mat1")


class Refuses(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not bool((x > 0).all()):
            raise ValueError("not positive\nask again")
        return x


def test_a_reason_of_several_lines_is_whole_and_has_no_stack_of_nested_modules(tmp_path):
    model_zoo.save_torchscript(tmp_path, torch.nn.Sequential(Refuses()))
    with pytest.raises(InferenceFailed) as failed:
        load(tmp_path).predict([-ONES])
    assert str(failed.value).startswith("TorchScript failed: builtins.ValueError: not positive ask again")


def test_inputs_can_be_reordered(tmp_path):
    model_zoo.save_torchscript(tmp_path, Two())
    model = load(tmp_path, inputs=("b", "a"), outputs=("output_1",))
    np.testing.assert_array_equal(model.predict([ONES, 3 * ONES])[0], 2 * ONES)
    with pytest.raises(ModelError, match="also needs the input 'b'"):
        load(tmp_path, inputs=("a",))


@pytest.mark.parametrize(("module", "names"), [(Dict(), ["double", "triple"]), (Named(), ["first", "second"])])
def test_outputs_take_the_names_that_the_module_gives_them(tmp_path, module, names):
    model_zoo.save_torchscript(tmp_path, module)
    model = load(tmp_path, input_shapes=((2,),))
    assert [spec.name for spec in model.outputs] == names
    assert len(model.predict([ONES])) == 2
    second = load(tmp_path, input_shapes=((2,),), outputs=(names[1],))
    np.testing.assert_array_equal(second.predict([ONES])[0], model.predict([ONES])[1])


def test_an_optional_input_is_fed_only_on_request(tmp_path):
    model_zoo.save_torchscript(tmp_path, WithMask())
    assert [spec.name for spec in load(tmp_path).inputs] == ["x"]
    np.testing.assert_array_equal(load(tmp_path, inputs=("x", "mask")).predict([ONES, 0 * ONES])[0], 0 * ONES)


def test_dtypes_are_found_out_with_the_shapes(tmp_path):
    model_zoo.save_torchscript(tmp_path, Embedding())
    model = load(tmp_path, input_shapes=((-1,), (-1,)))
    assert list(map(str, model.inputs)) == ["tokens: int64[?, ?]", "weights: float32[?, ?]"]
    assert model.predict([np.zeros((3, 5), np.int64), np.ones((3, 5), np.float32)])[0].shape == (3, 4)


def test_shapes_that_the_model_refuses_are_an_error(tmp_path):
    model_zoo.save_torchscript_digits(tmp_path)
    with pytest.raises(ModelError, match=r"does not take inputs of the configured shapes.*3 and 64|1x3"):
        load(tmp_path, input_shapes=((3,),))
    with pytest.raises(ModelError, match=r"there are 2 input shapes; the model expects x: any\[\.\.\.\]"):
        load(tmp_path, input_shapes=((64,), (64,)))


def test_an_answer_is_no_view_of_a_buffer(tmp_path):
    model_zoo.save_torchscript(tmp_path, Counter())
    model = load(tmp_path)
    (first,) = model.predict([np.ones((1, 1), np.float32)])
    kept = first.copy()
    (second,) = model.predict([np.ones((1, 1), np.float32)])
    assert first == kept < second


def test_a_forward_that_does_not_take_tensors_is_refused(tmp_path):
    model_zoo.save_torchscript(tmp_path, TakesList())
    with pytest.raises(ModelError, match=r"argument 'xs' of forward is List\[Tensor\]; it has to be a Tensor"):
        load(tmp_path)


def test_a_forward_that_does_not_return_tensors_fails(tmp_path):
    model_zoo.save_torchscript(tmp_path, ReturnsNumber())
    with pytest.raises(InferenceFailed, match="forward has to return a Tensor, or"):
        load(tmp_path).predict([ONES])


class Explosive:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_refused_with_advice_and_never_loaded(tmp_path, zipped):
    folder, trace = tmp_path / "model", tmp_path / "trace"
    folder.mkdir()
    torch.save(Explosive(trace), folder / "model.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match=r"model\.pt is not TorchScript .*: save the model with torch\.jit\.save\("):
        load(folder)
    assert not trace.exists()


class Conjugate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = torch.conj(torch.complex(x, x))
        return z, z.imag


def test_numbers_that_are_conjugated_when_read(tmp_path):
    model_zoo.save_torchscript(tmp_path, Conjugate())
    conjugate, imaginary = load(tmp_path, input_shapes=((2,),)).predict([ONES])
    np.testing.assert_array_equal(conjugate, ONES - 1j * ONES)
    np.testing.assert_array_equal(imaginary, -ONES)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, rate: int, factor: float = 0.5) -> torch.Tensor:
        return x * (rate * factor)


@pytest.mark.parametrize("shapes", [(), ((2,), ())])
def test_plain_numbers_are_inputs(tmp_path, shapes):
    model_zoo.save_torchscript(tmp_path, Scaled())
    model = load(tmp_path, input_shapes=shapes)
    assert str(model.inputs[1]) == "rate: int64[?]"
    rates = np.array([1, 10, 100])
    np.testing.assert_array_equal(model.predict([ONES, rates])[0], ONES * rates[:, np.newaxis] * np.float32(0.5))
    all_inputs = load(tmp_path, inputs=("x", "rate", "factor"))
    factors = np.array([1.0, 2.0, 3.0])
    answer = all_inputs.predict([ONES, rates, factors])[0]
    np.testing.assert_array_equal(answer, ONES * (rates * factors)[:, np.newaxis].astype("f4"))


def test_a_file_that_is_cut_off_is_said_to_be(tmp_path):
    model_zoo.save_torchscript_digits(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.pt is cut off: copy it again"):
        load(tmp_path)


class Counting(torch.nn.Module):
    """Adds the number of its calls to each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return 0 * x + self.calls


def test_trials_leave_no_state_behind(tmp_path, caplog):
    model_zoo.save_torchscript(tmp_path, Counting())
    model = load(tmp_path)
    x = np.ones((1, 2), np.float32)
    assert [model.predict([x])[0].tolist() for _ in range(2)] == [[[1, 1]], [[2, 2]]]
    assert "keeps a state between calls" in model.one_by_one
    assert "keeps a state between calls; if it keeps a state, answers depend on the requests before" in caplog.text


class Late(torch.nn.Module):
    """Answers twice its input, and something else after thirty calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return torch.where(self.calls <= 30, 2 * x, 3 * x)


@pytest.mark.parametrize("shapes", [(), ((2,),)])
def test_trials_leave_no_state_behind_that_shows_late(tmp_path, shapes):
    model_zoo.save_torchscript(tmp_path, Late())
    model = load(tmp_path, input_shapes=shapes)
    x = np.ones((1, 2), np.float32)
    assert [model.predict([x])[0].tolist() for _ in range(2)] == [[[2, 2]], [[2, 2]]]
    assert model.one_by_one


class Centering(torch.nn.Module):
    """Writes to its input, if the values ask for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            x[:, :1].sub_(1.0)
        return 2 * x


class Into(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=x)


@pytest.mark.parametrize(("module", "expected"), [(Centering(), [0, 2]), (Into(), [2, 2])])
def test_an_input_that_the_model_writes_to_stays_as_it_is(tmp_path, module, expected):
    model_zoo.save_torchscript(tmp_path, module)
    model = load(tmp_path)
    x = np.ones((1, 2), np.float32)
    assert [model.predict([x])[0].tolist() for _ in range(3)] == [[expected]] * 3
    assert x.tolist() == [[1, 1]]


def test_inputs_that_nothing_writes_to_are_not_copied(tmp_path):
    model_zoo.save_torchscript(tmp_path, Two())
    assert not load(tmp_path)._model.writes


class Looping(torch.nn.Module):
    """Loops for ever if a number is negative, or very large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        while bool(((x < 0) | (x > 1e4)).any()):
            y = y * 1.0
        return y


def test_no_trial_keeps_a_model_in_a_loop(tmp_path, monkeypatch):
    # Either would end the trials.
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    monkeypatch.setattr("cluster_serving.job.models.torch.script.TorchScriptModel.graph", lambda self: None)
    model_zoo.save_torchscript(tmp_path, Looping())
    model = load(tmp_path, input_shapes=((3,),))
    assert model.one_by_one == ""
    np.testing.assert_array_equal(model.predict([np.ones((4, 3), np.float32)])[0], np.full((4, 3), 2))


def test_numbers_that_others_are_compared_with_are_known(tmp_path):
    class Between(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("least", torch.tensor([1.0, 2.0]))

        def forward(self, x):
            return torch.where((x < 7.5) & (x > self.least), x, 0)

    model_zoo.save_torchscript(tmp_path, Between(), torch.ones(1, 2))
    assert [array.tolist() for array in load(tmp_path)._model.bounds(9)] == [[1, 2], 7.5]


class Rounds(torch.nn.Module):
    def forward(self, x):
        for at in range(x.size(1) // 2 + 1):
            x = x + at
        return x


class Endless(torch.nn.Module):
    def forward(self, x):
        while bool((x > 1).any()):
            x = x - 1
        return x


class Counted(torch.nn.Module):
    def forward(self, x):
        for _ in range(int(x.max())):
            x = x * 0.5
        return x


@pytest.mark.parametrize(("module", "careful"), [(Rounds, False), (Endless, True), (Counted, True)])
def test_loops_whose_rounds_no_value_tells_need_no_care(tmp_path, module, careful):
    model_zoo.save_torchscript(tmp_path, module())
    assert load(tmp_path)._model.careful is careful
