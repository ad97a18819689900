"""Packed forms in use."""

from __future__ import annotations

from webnn_vk.runtime.packed import PackedForms
from webnn_vk.runtime.storage import Storage


def storages(forms: PackedForms) -> list[Storage]:
    """The memory of packed forms in use."""
    with forms.lock:
        made = [form for each in forms._forms.values() for form in each]
    return [storage for form in made if (storage := form.storage()) is not None]


def bytes_of(forms: PackedForms) -> int:
    """Bytes of all packed forms in use."""
    return sum(storage.size for storage in storages(forms))
