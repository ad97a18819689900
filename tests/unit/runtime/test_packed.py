"""The registry of packed constants: what is shared, for how long, and what is not."""

import gc

import numpy as np

from tests.support.packed import bytes_of
from webnn_vk import OperationError
from webnn_vk.compiler.program.constants import FileRange, MappedFile
from webnn_vk.runtime.packed import Form, PackedForms
from webnn_vk.runtime.storage import Storage


class Order:
    """Stands for a timeline."""


ORDER = Order()


def storage(size=16):
    return Storage(size, None)


def test_forms_are_found_by_identity_and_packing():
    forms, array = PackedForms(), np.zeros(4)
    first, second = storage(), storage(32)
    forms.add(Form(ORDER, array, "a", first))
    forms.add(Form(ORDER, array, "b", second))
    assert forms.find(ORDER, array, "a") is first and forms.find(ORDER, array, "b") is second
    assert forms.find(ORDER, array, "c") is None and forms.find(ORDER, np.zeros(4), "a") is None
    assert bytes_of(forms) == 48


def test_other_orders_of_work_have_forms_that_are_filled():
    forms, array, kept = PackedForms(), np.zeros(4), [storage(), storage()]
    first, other = Form(ORDER, array, "a", kept[0]), Order()
    forms.add(first)
    # Nothing orders work that is queued elsewhere after the work that fills it.
    assert forms.find(other, array, "a") is None
    second = Form(other, array, "a", kept[1])
    forms.add(second)
    assert forms.find(ORDER, array, "a") is kept[0] and forms.find(other, array, "a") is kept[1]
    first.filled = True
    assert forms.find(Order(), array, "a") is kept[0]
    kept[0].error = OperationError("no memory")
    assert forms.find(Order(), array, "a") is None


def test_a_range_of_a_file_is_known_by_value(tmp_path):
    forms, kept = PackedForms(), storage()
    (tmp_path / "x").write_bytes(bytes(8))

    def part(offset):
        return FileRange(tmp_path / "x", offset, 4, MappedFile(tmp_path / "x"))

    forms.add(Form(ORDER, (part(0), 17), "a", kept))
    assert forms.find(ORDER, (part(0), 17), "a") is kept
    assert forms.find(ORDER, (part(4), 17), "a") is None
    assert forms.find(ORDER, (part(0), 18), "a") is None


def test_forms_go_with_their_last_user_and_failed_ones_are_not_offered():
    forms, array = PackedForms(), np.zeros(4)
    kept = storage()
    forms.add(Form(ORDER, array, "a", kept))
    kept.error = OperationError("no memory")
    assert forms.find(ORDER, array, "a") is None
    kept.error = None
    assert forms.find(ORDER, array, "a") is kept
    del kept
    gc.collect()
    assert forms.find(ORDER, array, "a") is None and bytes_of(forms) == 0


def test_a_number_used_again_is_not_the_same_constant():
    forms, kept = PackedForms(), []
    hits = 0
    for _ in range(200):
        array = np.zeros(4)
        hits += forms.find(ORDER, array, "a") is not None
        kept.append(storage())
        forms.add(Form(ORDER, array, "a", kept[-1]))
        del array  # the next one may get its number
    assert hits == 0
