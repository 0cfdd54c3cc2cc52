"""Loading a checked model: plainly, or with its experts left in the file.

Three ways:

- plain: as stock llama.cpp does it, memory-mapped, with its fastest weight layout;
- cached: the dense weights in anonymous memory, the experts in the slow tier (Patch), which is the
  model's file or its pack;
- native: everything in memory, the experts in the file's layout: the reference that a cache of
  experts in that layout must equal bit by bit. Of a cache in the repacked layout plain is the one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import llama_cpp

from backend import _native
from backend.gguf_file import ModelFile
from backend.llama import Context, LlamaError, Model, ProgressCallback, log
from backend.pack_file import Pack
from backend.placement import ON_CPU, Placement

_USED_KEY = "expert_used_count"
_EXPERT_PATTERN = rb"blk\.%s\.ffn_(gate|up|down|gate_up)_exps\.weight"
_EVERY_LAYER = b"[0-9]+"


def load_plain(
    file: ModelFile,
    progress: ProgressCallback | None = None,
    *,
    repack: bool = True,
    mapped: bool = True,
    placement: Placement = ON_CPU,
) -> Model:
    """Load as stock llama.cpp does.

    With `repack`, its default, weights are copied into the layout that computes fastest where
    there is one; without, all of them are pages of the file, which the system may drop. Not
    `mapped`: no pages of the file stay in memory beside the weights.
    """
    params, kept = _model_params(file, progress, placement)
    if not mapped:
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO
    params.use_extra_bufts = repack
    pointer = llama_cpp.llama_model_load_from_file(_first_path(file), params)
    return _checked(pointer, file, kept)


def load_native(file: ModelFile, placement: Placement = ON_CPU, *, n_cpu_moe: int = 0) -> Model:
    """Load everything into memory, with the experts not repacked; no cache, no callback.

    A device's experts are loaded into its memory, but for those of the first n_cpu_moe layers, as
    with llama.cpp's --n-cpu-moe.
    """
    buffers = _native.ExpertBuffers(unread=False)
    params, kept = _model_params(file, None, placement)
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO  # nothing of it in the page cache
    on_cpu = range(max(len(placement.cpu_layers(file.n_layer)), n_cpu_moe))
    if len(on_cpu) == file.n_layer:
        kept += [buffers, _place_experts(params, buffers)]
    elif on_cpu:
        layers = b"(%s)" % b"|".join(b"%d" % layer for layer in on_cpu)
        kept += [buffers, _place_experts(params, buffers, layers)]
    pointer = llama_cpp.llama_model_load_from_file(_first_path(file), params)
    return _checked(pointer, file, kept)


def load_header(file: ModelFile, placement: Placement, *, patched: bool) -> Model:
    """Load no weights: contexts of such a model say what memory they would take, and take none.

    patched: as it would be with its experts on slots.
    """
    params, kept = _model_params(file, None, placement)
    params.no_alloc = True
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
    if patched:
        kept.append(_override_nothing(params))
    return _checked(llama_cpp.llama_model_load_from_file(_first_path(file), params), file, kept)


class NotCacheable(LlamaError):
    """This model must run without a cache; the text says why."""


class CachedModel:
    """A model whose experts stay in its file, and the patch that feeds them to llama.cpp.

    `repack` is about the dense weights, as in load_plain. `pack`: read experts from there. Raises
    NotCacheable when the graph of this architecture is not understood, LlamaError when a file
    cannot be loaded.
    """

    def __init__(
        self,
        file: ModelFile,
        *,
        n_thread: int,
        progress: ProgressCallback | None = None,
        repack: bool = True,
        pack: Pack | None = None,
        placement: Placement = ON_CPU,
    ) -> None:
        self.pack = pack
        try:
            files = _expert_files(file, pack)
        except RuntimeError as error:
            raise LlamaError(f"{error}.") from None
        buffers = _native.ExpertBuffers(unread=True)
        dense_share = file.dense_bytes / (file.dense_bytes + file.expert_bytes_total)
        params, kept = _model_params(file, progress, placement, dense_share)
        kept += [buffers, files, _place_experts(params, buffers)]
        params.use_extra_bufts = repack
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO
        pointer = llama_cpp.llama_model_load_from_file(_first_path(file), params)
        self.model = _checked(pointer, file, kept)
        buffers.loaded()
        self.patch: Any = _native.Patch(files, buffers)  # None once closed
        reason = self._probe(n_thread, on_device=placement.on_device)
        # What loading has the system read ahead behind the dense weights, and has come by now.
        files.drop_cached()
        if reason:
            self.close()
            raise NotCacheable(
                f"The experts of the architecture {file.architecture} cannot be cached: {reason}."
            )

    @property
    def repacked(self) -> bool:
        """Whether the pack's experts are laid out as the processor computes fastest."""
        return self.pack is not None and self.pack.plan.layout == "repacked"

    def close(self) -> None:
        """Give the model its tensors back and free it."""
        if self.patch is not None:
            self.patch.close()
            self.patch = None
        self.model.close()

    def _probe(self, n_thread: int, *, on_device: bool) -> str:
        """Show the patch passes in which nothing is computed; returns its objection."""
        self.patch.begin_probe()
        if on_device:
            self.patch.find_devices()
            self._show((1,), n_thread)
        return self._show((1, 2), n_thread, is_last=True)

    def _show(self, passes: Sequence[int], n_thread: int, *, is_last: bool = False) -> str:
        """Passes of so many tokens in a context that is thrown away, with the graph seen in it."""
        patch = self.patch
        context = Context(
            self.model,
            n_context=64,
            n_ubatch=8,
            n_thread=n_thread,
            callback=patch.callback,
            user_data=patch.user_data,
        )
        try:
            position = 0
            for n_token in passes:
                patch.begin_pass(_native.Phase.prefill)
                context.decode([0] * n_token, position, all_logits=True)
                position += n_token
                if not patch.end_pass():
                    return str(patch.error)
            return str(patch.end_probe()) if is_last else ""
        finally:
            context.close()


def _expert_files(file: ModelFile, pack: Pack | None) -> Any:
    """The slow tier as a backend._native.ExpertFiles. Raises RuntimeError."""
    paths = [*file.paths]
    places = {
        t.name: _native.TensorPlace(t.part, t.offset)
        for tensors in file.expert_tensors.values()
        for t in tensors
    }
    packed = {}
    if pack is not None:
        for name, place in pack.plan.places(len(paths)).items():
            packed[name] = _native.TensorPlace(*place)
        paths.append(pack.path)
    return _native.ExpertFiles([str(p) for p in paths], places, packed)


def _first_path(file: ModelFile) -> bytes:
    return os.fsencode(file.paths[0])


def _model_params(
    file: ModelFile, progress: ProgressCallback | None, placement: Placement, share: float = 1.0
) -> tuple[Any, list[object]]:
    """llama_model_params, and what must outlive the loading; `share` of the bytes will be read."""
    params = llama_cpp.llama_model_default_params()
    devices = (ctypes.c_void_p * (len(placement.pointers) + 1))(*placement.pointers, None)
    params.devices = ctypes.addressof(devices)  # without any, llama.cpp would take all there are
    params.n_gpu_layers = placement.n_gpu_layers if placement.pointers else 0
    kept: list[object] = [devices]
    if placement.shares:
        shares = (ctypes.c_float * llama_cpp.llama_max_devices())(*placement.shares)
        params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
        kept.append(shares)
    if file.is_moe and file.n_expert_used != file.key(_USED_KEY, file.n_expert_used):
        kept.append(_override_used(params, file))
    if progress is not None:

        def on_progress(fraction: float, _user_data: int | None) -> bool:
            return progress(min(fraction / max(share, 1e-9), 1.0))

        callback = llama_cpp.llama_progress_callback(on_progress)
        params.progress_callback = callback
        kept.append(callback)
    return params, kept


def _override_used(params: Any, file: ModelFile) -> object:
    """Have llama.cpp use another number of experts than the file says (ModelFile.using)."""
    name = f"{file.architecture}.{_USED_KEY}".encode()
    overrides: Any = (llama_cpp.llama_model_kv_override * 2)()  # the last one has no key
    overrides[0].tag, overrides[0].key = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT, name
    overrides[0].value.val_i64 = file.n_expert_used
    params.kv_overrides = overrides
    return overrides


class _BufferOverride(ctypes.Structure):
    """struct llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def _place_experts(params: Any, buffers: Any, layers: bytes = _EVERY_LAYER) -> object:
    """Have llama.cpp put routed experts into `buffers`; the result must outlive the loading.

    `layers`: a regular expression of their numbers.
    """
    overrides = (_BufferOverride * 2)(
        _BufferOverride(_EXPERT_PATTERN % layers, buffers.type), _BufferOverride(None, None)
    )
    _set_overrides(params, overrides)
    return overrides


def _override_nothing(params: Any) -> object:
    """Override the place of no tensor. Where any is, llama.cpp pipelines no devices."""
    overrides = (_BufferOverride * 2)(
        _BufferOverride(b"^nothing$", None), _BufferOverride(None, None)
    )
    _set_overrides(params, overrides)
    return overrides


def _set_overrides(params: Any, overrides: Any) -> None:
    field = type(params).tensor_buft_overrides
    place = ctypes.c_void_p.from_address(ctypes.addressof(params) + field.offset)
    place.value = ctypes.addressof(overrides)


def _checked(pointer: Any, file: ModelFile, kept: list[object]) -> Model:
    if not pointer:
        raise LlamaError(f"llama.cpp could not load {file.path.name}: {log.last_error()}.")
    return Model(pointer, kept)
