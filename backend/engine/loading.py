"""Load a checked model in one of three ways.

- plain: as stock llama.cpp does, memory-mapped, with its fastest weight layout;
- cached: the dense weights in anonymous memory, or mapped where they do not fit; the experts in the
  slow tier (Patch), which is the model's file or its pack;
- native: everything in memory, the experts in the file's layout.

A cache in the file's layout must equal native bit by bit; a cache in the repacked layout must equal
plain.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from backend import _native
from backend.engine.error import native_sentence
from backend.gguf.companions import vision_files
from backend.gguf.header import ModelFileError, read_header
from backend.gguf.identity import FileChangedError, FileIdentity, OpenFiles
from backend.gguf.model_file import ModelFile, TensorInfo, require_distinct_tokens
from backend.gguf.scales import bad_value, scan_scales
from backend.llama import function_of
from backend.llama.api import (
    ERROR,
    Context,
    LlamaError,
    Model,
    ProgressCallback,
    log,
    reason_of,
)
from backend.llama.batch_log import settings_of
from backend.memory.placement import ON_CPU, Placement
from backend.packs.file import Pack
from backend.system.memory import mappings
from backend.text import text

_N_AHEAD = 3
"""Layers that a window reads ahead (Klotski, section 6.1)."""
USED_KEY = "expert_used_count"
_EXPERTS_OF = rb"blk\.%s\.ffn_(gate|up|down|gate_up)_exps\.weight"
_EXPERTS = _EXPERTS_OF % b"[0-9]+"
_LATENT = "attn_k_b.weight"
"""Ends the names of matrices of latent attention. llama.cpp keeps them in a layout for AMX, which
cannot multiply them with the transposed view that attention has, and aborts."""
# Messages of llama.cpp.
_GAVE_UP_DIRECT = "Falling back to buffered IO"
_GET_SCHEDULER = "_ZNK13llama_context9get_schedEv"
"""llama_context::get_sched() const"""
_BAD_VALUE = re.compile(r"tensor '(.+)' has invalid data")

KvPages = Sequence[tuple[str, _native.PageRange]]
"""The name and the pages of tensors of an attention cache."""
Params = llama_cpp.llama_model_params


def load_plain(
    file: ModelFile,
    progress: ProgressCallback | None = None,
    *,
    repack: bool = True,
    mapped: bool = True,
    placement: Placement = ON_CPU,
    predicts: bool = False,
) -> Model:
    """Load as stock llama.cpp does.

    repack: copy weights into the layout that computes fastest, where there is one; this is
    llama.cpp's default. Otherwise all weights are pages of the file, which the system may drop.
    mapped: if False, no pages of the file stay in memory beside the weights. predicts: load the
    layers for multi-token prediction, too.
    """

    def settle(params: Params) -> list[object]:
        params.load_mtp = predicts
        if not mapped:
            params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO
        params.use_extra_bufts = repack
        params.check_tensors = repack  # without repack, the check would read the whole file
        return []

    return _load(file, settle, placement, progress)


def load_native(file: ModelFile, placement: Placement = ON_CPU, *, n_cpu_moe: int = 0) -> Model:
    """Load everything into memory, without repacked experts, cache or callback.

    A device's experts are loaded into its memory, except for those of the first n_cpu_moe layers,
    as with llama.cpp's --n-cpu-moe: they are in the device's pinned memory.
    """
    on_cpu = range(max(len(placement.cpu_layers(file.n_layer)), n_cpu_moe))

    def settle(params: Params) -> list[object]:
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO  # bypass the page cache
        params.check_tensors = True
        if not on_cpu:
            return []
        chosen = _EXPERTS if len(on_cpu) == file.n_layer else _experts_of(on_cpu)
        if n_cpu_moe:
            cpu_memory = int(function_of("ggml_backend_cpu_buffer_type")())
            return [_override(params, (chosen, cpu_memory))]
        buffers = _native.ExpertBuffers(unread=False)
        return [buffers, _override(params, (chosen, buffers.type))]

    return _load(file, settle, placement)


def load_header(
    file: ModelFile, placement: Placement, *, patched: bool, predicts: bool = False
) -> Model:
    """Load no weights. A context of this model reports its memory and allocates none.

    patched: as with experts on slots. predicts: as in load_plain.
    """

    def settle(params: Params) -> list[object]:
        params.no_alloc = True
        params.load_mtp = predicts
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        # With an override, llama.cpp pipelines no devices.
        return [_override(params, (b"^nothing$", None))] if patched else []

    return _load(file, settle, placement)


def vision_file(file: ModelFile, path: str) -> Path | None:
    """Return the checked mmproj file at `path`, or with "" the one that fits the model best.

    Raises LlamaError where `path` is no such file.
    """
    if path:
        try:
            metadata = read_header(Path(path)).metadata
        except ModelFileError as error:
            raise LlamaError(str(error)) from None
        if metadata.get("general.architecture") != "clip":
            raise LlamaError(text("vision.no_vision", file=Path(path).name))
        return Path(path)  # llama.cpp checks its width
    return next(iter(vision_files(file)), None)


class NotCacheable(LlamaError):
    """This model must run without a cache; the text gives the reason."""


class LayerRefused(LlamaError):
    """This model must run without its layer for multi-token prediction; the text says why."""


class CachedModel:
    """A model whose experts stay in its file, and the patch that feeds them to llama.cpp.

    repack: of the dense weights, as in load_plain. pack: read experts from this file. mapped: the
    dense weights are pages of the file, not repacked. predicts: load the layers for multi-token
    prediction, too. Their experts have a patch of their own, `layer_patch`, because another context
    computes them. Raises NotCacheable when the graph of this architecture is not understood,
    LlamaError when a file cannot be loaded.
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
        mapped: bool = False,
        predicts: bool = False,
    ) -> None:
        self.pack = pack
        self._window: _native.LayerWindow | None = None
        files = _expert_files(file, chain.from_iterable(file.expert_tensors.values()), pack)
        made: list[_native.ExpertBuffers] = []

        def settle(params: Params) -> list[object]:
            # Loading is tried again after a failure, and buffers know the tensors of one model.
            made[:] = (_native.ExpertBuffers(unread=True) for _ in range(3))
            buffers, layer_buffers, unused = made
            params.use_extra_bufts = repack and not mapped
            params.check_tensors = not mapped  # the dense tensors; mapped ones with all experts
            params.load_mode = llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO
            if mapped:
                params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
            params.load_mtp = predicts
            overrides = _override(
                params,
                (_experts_of(range(file.n_layer)), buffers.type),
                (_experts_of([file.n_layer]), layer_buffers.type),
                (_EXPERTS, unused.type),  # of further layers, which guess nothing
            )
            return [*made, files, overrides]

        dense_bytes = sum(t.n_bytes for t in file.dense_tensors)
        share = dense_bytes / (dense_bytes + file.expert_bytes_total)
        self.model = _load(file, settle, placement, progress, share, pack.files if pack else ())
        buffers, layer_buffers, _ = made
        buffers.loaded()
        layer_buffers.loaded()
        patch = _native.Patch(files, buffers)
        self.open_patch: _native.Patch | None = patch  # None once closed
        self.layer_patch: _native.Patch | None = None
        reason = self._probe(patch, n_thread, on_device=placement.on_device)
        # While loading the dense weights, the system read ahead into the experts. Drop those pages.
        files.drop_cached()
        self._mapped = _mapped_layers(file, patch.layers) if mapped and not reason else []
        if reason:
            self.close()
            raise NotCacheable(
                text("engine.cannot_cache", architecture=file.architecture, reason=reason)
            )
        if predicts and file.guess_experts:
            self._cache_layer(file, layer_buffers, n_thread)

    def _cache_layer(self, file: ModelFile, buffers: _native.ExpertBuffers, n_thread: int) -> None:
        """Make the patch of a layer for multi-token prediction. Raises LlamaError."""
        try:
            patch = _native.Patch(_expert_files(file, file.guess_experts), buffers)
            self.layer_patch = patch
            patch.begin_probe()
            reason = self._show(patch, (1, 2), n_thread, is_last=True, predicts=True)
            if reason:
                raise LlamaError(
                    text("engine.cannot_cache", architecture=file.architecture, reason=reason)
                )
        except LlamaError:
            self.close()
            raise

    @property
    def patch(self) -> _native.Patch:
        """The patch. REQUIRES: not closed."""
        assert self.open_patch is not None
        return self.open_patch

    @property
    def repacked(self) -> bool:
        """Whether the pack has its experts in the layout that computes fastest."""
        return self.pack is not None and self.pack.plan.layout == "repacked"

    def computes_in(self, context: Context | None, kv: KvPages = (), room_bytes: int = 0) -> None:
        """Tell the patch which context computes its passes. None: before that context is freed.

        Tokens for which the patch changes nothing are then computed without a callback. kv: the
        tensors of the context's attention cache that are pages of a file. room_bytes: memory for
        these and for mapped weights, of which a window of layers is kept (Klotski, section 6.1);
        0: the system decides.
        """
        if self.open_patch is None:
            return
        self.patch.use_scheduler(0 if context is None else scheduler_of(context))
        self._close_window()
        if context is not None and room_bytes > 0 and (kv or self._mapped):
            layers = [[*found] for found in self._mapped or [[] for _ in self.patch.layers]]
            for number, pages in _layers_of(kv):
                if number <= self.patch.layers[-1]:
                    layers[bisect.bisect_left(self.patch.layers, number)].append(pages)
            self._window = _native.LayerWindow(layers, room_bytes, _N_AHEAD)
            self.patch.window(self._window)

    def _close_window(self) -> None:
        if self._window is not None:
            self.patch.window(None)
            self._window.close()
            self._window = None

    def close(self) -> None:
        """Give the tensors back to the model and free it."""
        self._close_window()
        if self.layer_patch is not None:
            self.layer_patch.close()
            self.layer_patch = None
        if self.open_patch is not None:
            self.open_patch.close()
            self.open_patch = None
        self.model.close()

    def _probe(self, patch: _native.Patch, n_thread: int, *, on_device: bool) -> str:
        """Run passes without computation for the patch. Return its objection, or ""."""
        patch.begin_probe()
        if on_device:
            patch.find_devices()
            self._show(patch, (1,), n_thread)
        return self._show(patch, (1, 2), n_thread, is_last=True)

    def _show(
        self,
        patch: _native.Patch,
        passes: Sequence[int],
        n_thread: int,
        *,
        is_last: bool = False,
        predicts: bool = False,
    ) -> str:
        """Run passes of these numbers of tokens in a temporary context. Return as _probe()."""
        context = Context(
            self.model,
            n_context=64,
            n_ubatch=8,
            n_thread=n_thread,
            callback=patch.callback,
            user_data=patch.user_data,
            predicts=predicts,
        )
        try:
            position = 0
            for n_token in passes:
                patch.begin_pass(_native.Phase.prefill)
                if predicts:
                    states = np.zeros((n_token, context.n_state), np.float32)
                    context.predict([0] * n_token, states, position, with_logits=True)
                else:
                    context.decode([0] * n_token, position, all_logits=True)
                position += n_token
                if not patch.end_pass():
                    return patch.error
            return patch.end_probe() if is_last else ""
        finally:
            context.close()


def scheduler_of(context: Context) -> int:
    """Return the address of a context's ggml_backend_sched; 0: llama.cpp does not tell.

    llama.h has no function for it. On Linux and macOS the library exports the method of the class.
    """
    get = getattr(ctypes.CDLL(llama_cpp.llama_cpp._lib._name), _GET_SCHEDULER, None)
    if get is None:
        return 0
    get.argtypes, get.restype = [ctypes.c_void_p], ctypes.c_void_p
    return int(get(context.pointer) or 0)


def _layers_of(kv: KvPages) -> Iterator[tuple[int, _native.PageRange]]:
    """Yield the number of the layer and the pages of each tensor of an attention cache."""
    for name, pages in kv:
        if found := re.search(r"_l(\d+)$", name):  # such as cache_k_l12
            yield int(found[1]), pages


def _mapped_layers(file: ModelFile, layers: Sequence[int]) -> list[list[_native.PageRange]]:
    """Return the PageRanges of the mapped dense weights up to each of these MoE layers."""
    places = [mappings(path) for path in file.paths]
    found: list[list[_native.PageRange]] = [[] for _ in layers]
    for tensor in sorted(file.dense_tensors, key=lambda t: (t.part, t.offset)):
        if tensor.layer is None or tensor.layer > layers[-1]:
            continue
        ranges = found[bisect.bisect_left(layers, tensor.layer)]
        for begin, end, offset in places[tensor.part]:
            if offset <= tensor.offset and tensor.offset + tensor.n_bytes <= offset + end - begin:
                address = begin + tensor.offset - offset
                ranges.append(_native.PageRange(address, tensor.n_bytes))
    return found


def _expert_files(
    file: ModelFile, tensors: Iterable[TensorInfo], pack: Pack | None = None
) -> _native.ExpertFiles:
    """Return the slow tier. Raises LlamaError."""
    paths = [*file.paths]
    identities = [*file.identities]
    places = {t.name: _native.TensorPlace(t.part, t.offset) for t in tensors}
    packed: dict[str, _native.TensorPlace] = {}
    with _file_errors():
        if pack is not None:
            packed = _packed_places(pack, len(paths))
            paths += [path for path, _ in pack.files]
            identities += pack.identities
        try:
            files = _native.ExpertFiles([str(p) for p in paths], places, packed, _drives(paths))
        except RuntimeError as error:
            raise LlamaError(native_sentence(error)) from None
        if os.name == "posix":  # on Windows a handle is not a descriptor
            for path, identity, handle in zip(paths, identities, files.handles, strict=True):
                if identity is not None and not identity.resembles(FileIdentity.of(handle)):
                    raise FileChangedError(path)
    return files


@contextlib.contextmanager
def _file_errors() -> Iterator[None]:
    """Raise errors of a model's files as LlamaError."""
    try:
        yield
    except (ModelFileError, FileChangedError) as error:
        raise LlamaError(str(error)) from None
    except OSError as error:
        reason, name = error.strerror or str(error), str(error.filename)
        raise LlamaError(text("engine.not_opened", file=name, reason=reason)) from None


def _packed_places(pack: Pack, part: int) -> dict[str, _native.TensorPlace]:
    """Return the places in the pack by tensor, with checksums. part: its head. Raises OSError."""
    packed = {}
    is_striped = len(pack.files) > 1
    for layer, sums in zip(pack.plan.layers, pack.sums(), strict=True):
        of_layer = _native.PackSums(pack.path.name, layer.layer, layer.stride, sums)
        for t in layer.tensors:
            stripes = [(part + number, offset + t.place) for number, offset in layer.ranges]
            packed[t.tensor.name] = _native.TensorPlace(
                *stripes[0],
                layer.stride,
                t.repacked,
                t.place,
                of_layer,
                stripes if is_striped else [],
            )
    return packed


def _drives(paths: Sequence[Path]) -> list[int]:
    """Return a number of the drive of each path, from 0. Raises OSError."""
    devices = [path.stat().st_dev for path in paths]
    known = list(dict.fromkeys(devices))
    return [known.index(device) for device in devices]


def _load(
    file: ModelFile,
    settle: Callable[[Params], list[object]],
    placement: Placement,
    progress: ProgressCallback | None = None,
    share: float = 1.0,
    others: Sequence[tuple[Path, FileIdentity | None]] = (),
) -> Model:
    """Have llama.cpp load the checked file. Model.files tells whether the file still is the same.

    settle(params) sets llama_model_params and returns the objects that must outlive the model.
    share: the share of the file's bytes that llama.cpp reads. others: files read beside the model.
    Raises LlamaError.

    When a direct read ends within a block, llama.cpp continues with buffered reads and puts their
    data at the wrong place. The model is then loaded again without direct reads.
    """
    with _file_errors():
        require_distinct_tokens(file)
        held = file.open(*others)
    try:
        model = _load_once(file, settle, placement, progress, share, held, direct=True)
        if model is None:
            model = _load_once(file, settle, placement, progress, share, held, direct=False)
        assert model is not None
        return model
    except BaseException:
        held.close()
        raise


def _load_once(
    file: ModelFile,
    settle: Callable[[Params], list[object]],
    placement: Placement,
    progress: ProgressCallback | None,
    share: float,
    held: OpenFiles,
    *,
    direct: bool,
) -> Model | None:
    """Load once, with or without direct reads. Return None where llama.cpp gave up on them."""
    params, kept = _model_params(file, placement)
    kept += settle(params)
    if params.check_tensors and file.row_tensors:  # the check would read these tables whole
        params.check_tensors = False
        experts = chain.from_iterable(file.expert_tensors.values()) if share == 1.0 else ()
        with _file_errors():
            scan_scales(file, [*file.loaded_tensors, *experts])
    if _has_amx() and any(t.name.endswith(_LATENT) for t in file.tensors):
        params.use_extra_bufts = False
    if not direct and params.load_mode == llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO:
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
    gave_up, is_wanted = False, True
    fault: BaseException | None = None
    with log.captured() as lines, log.captured(ERROR) as errors:

        def on_progress(fraction: float, _user_data: int | None) -> bool:
            nonlocal gave_up, is_wanted, fault
            while lines:
                gave_up |= _GAVE_UP_DIRECT in lines.pop()
            if direct and gave_up:
                return False
            try:
                is_wanted = progress is None or progress(min(fraction / max(share, 1e-9), 1.0))
                return is_wanted
            except BaseException as error:  # ctypes would drop it
                fault = error
                return False

        params.progress_callback = llama_cpp.llama_progress_callback(on_progress)
        pointer = llama_cpp.llama_model_load_from_file(os.fsencode(file.paths[0]), params)
        gave_up |= any(_GAVE_UP_DIRECT in line for line in lines)
    try:
        if fault is not None:
            raise fault
        with _file_errors():
            held.require_unchanged()
        if direct and gave_up:
            return None
        if not pointer:
            given_up = text("engine.cancelled")
            raise LlamaError(_load_error(file, errors) if is_wanted else given_up)
        model, pointer = Model(pointer, held, kept), None
        model.settings = settings_of(params, llama_cpp.llama_model_default_params())
        return model
    finally:
        if pointer:
            llama_cpp.llama_model_free(pointer)


@functools.cache
def _has_amx() -> bool:
    """Return whether llama.cpp has layouts of weights for AMX on this processor."""
    return b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info()


def _load_error(file: ModelFile, errors: list[str]) -> str:
    """Return a sentence that says why llama.cpp could not load a model."""
    reason = reason_of(errors)
    if bad := _BAD_VALUE.search(reason):
        return str(bad_value(file.path, bad[1]))
    return text("engine.no_load", file=file.path.name, reason=reason)


def _model_params(file: ModelFile, placement: Placement) -> tuple[Params, list[object]]:
    """Return llama_model_params, and the objects that must outlive the loading."""
    params = llama_cpp.llama_model_default_params()
    devices = (ctypes.c_void_p * (len(placement.pointers) + 1))(*placement.pointers, None)
    params.devices = ctypes.addressof(devices)  # without a list, llama.cpp would use all devices
    params.n_gpu_layers = placement.n_gpu_layers if placement.pointers else 0
    kept: list[object] = [devices]
    if placement.shares:
        shares = (ctypes.c_float * llama_cpp.llama_max_devices())(*placement.shares)
        params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
        kept.append(shares)
    if file.n_expert_used_instead:
        kept.append(_override_used(params, file))
    return params, kept


def _override_used(params: Params, file: ModelFile) -> object:
    """Override the file's number of used experts (ModelFile.using)."""
    name = f"{file.architecture}.{USED_KEY}".encode()
    overrides: Any = (llama_cpp.llama_model_kv_override * 2)()  # the last entry ends the list
    overrides[0].tag, overrides[0].key = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT, name
    overrides[0].value.val_i64 = file.n_expert_used_instead
    params.kv_overrides = overrides
    return overrides


class _BufferOverride(ctypes.Structure):
    """struct llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def _experts_of(layers: Iterable[int]) -> bytes:
    """Return a regular expression for the routed experts of these layers."""
    return _EXPERTS_OF % (b"(%s)" % b"|".join(b"%d" % layer for layer in layers))


def _override(params: Params, *places: tuple[bytes, int | None]) -> object:
    """Have llama.cpp put tensors into such buffers. The result must outlive the loading.

    places: regular expressions for their names, and types of buffers. The first counts.
    """
    overrides = (_BufferOverride * (len(places) + 1))(
        *(_BufferOverride(*place) for place in places), _BufferOverride(None, None)
    )
    field: Any = type(params).tensor_buft_overrides
    place = ctypes.c_void_p.from_address(ctypes.addressof(params) + field.offset)
    place.value = ctypes.addressof(overrides)
    return overrides
