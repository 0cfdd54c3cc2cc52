#!/usr/bin/env bash
# Builds Outrider on a machine with a GPU, tests and measures it, and writes one JSON file.
#
#   packaging/gpu-check.sh OUT.json [--part PART] [--bundle LIBRARIES.tar.xz] [--wheels FOLDER] [--model MODEL.gguf]
#   packaging/gpu-check.sh OUT.json [--part PART] --dry-run      without a GPU, on a device in another process
#   packaging/gpu-check.sh OUT.json [--part PART] --dry-run --device Vulkan0      with a small model on this device
#
# PART: facts (default), correct, speed or edges. A visit is one call for each; each adds to OUT.json.
# PYTHON names the Python, 3.11 or newer; the default is .venv's, then python3. It needs numpy, jinja2,
# typing_extensions, diskcache, platformdirs, nanobind and cmake. The model and the tests also need pytest and
# gguf (with tqdm, pyyaml).
# --bundle: llama-cpp-python built for the GPU, with headers and CMake files. It replaces an installed one.
# --wheels: a folder of pure Python wheels of missing packages (pip download --no-deps).
# CUDA's libraries are searched in LD_LIBRARY_PATH, /usr/local/cuda and that Python's packages.
# A call ends within 8 minutes. A native part that is in backend/ is used as it is. A failed step leaves its error in OUT.json beside the other results.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: gpu-check.sh OUT.json [--part PART] [--bundle FILE] [--model FILE] [--dry-run]}"); shift
bundle= wheels= model=assets/embedded/outrider-tiny.gguf dry= part=facts device=auto
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) bundle=$(realpath "$2"); shift 2 ;;
    --wheels) wheels=$(realpath "$2"); shift 2 ;;
    --model) model=$(realpath "$2"); shift 2 ;;
    --part) part=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --dry-run) dry=--dry-run; shift ;;
    *) echo "gpu-check.sh does not know $1." >&2; exit 2 ;;
  esac
done
python=${PYTHON:-.venv/bin/python}
command -v "$python" > /dev/null || python=python3
build=build/gpu-check
mkdir -p "$build"
mkdir -p "$build/site"
if [ -n "$bundle" ] && [ ! -e "$build/site/llama_cpp" ]; then
  tar -xJf "$bundle" -C "$build/site"
  # A wheel has no links. llama_cpp opens the plain names.
  for library in "$build"/site/llama_cpp/lib/*.so.0; do ln -sf "$(basename "$library")" "${library%.0}"; done
fi
for wheel in ${wheels:+"$wheels"/*.whl}; do "$python" -m zipfile -e "$wheel" "$build/site"; done
if [ -n "$bundle$wheels" ]; then
  export PYTHONPATH="$PWD/$build/site${PYTHONPATH:+:$PYTHONPATH}"
fi
cuda=$("$python" -c 'import glob, os, sysconfig
roots = glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib") + ["/usr/local/cuda/lib64"]
print(":".join(r for r in roots if os.path.isdir(r)))')
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda"
if ! "$python" -c 'import backend._native' 2> /dev/null; then
  began=$(date +%s)
  export PATH="$(dirname "$(command -v "$python")"):$PATH"
  generator=$(command -v ninja > /dev/null && echo Ninja || echo "Unix Makefiles")
  build() {
    cmake -S . -B "$build/native" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DOUTRIDER_CHAT=OFF \
      -DPython_EXECUTABLE="$(command -v "$python")" &&
    timeout 240 cmake --build "$build/native" --parallel "$(nproc)"
  }
  if ! build > "$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log" >&2
    "$python" -c 'import json, sys; print(json.dumps({"build": {"ok": False, "error": sys.stdin.read()[-4000:]}}))' \
      < "$build/build.log" > "$out"
    exit 1
  fi
  find "$build/native" -name '_native*.so' -exec cp {} backend/ \;
  export GPU_CHECK_BUILD_S=$(($(date +%s) - began))
fi
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" timeout $((470 - ${GPU_CHECK_BUILD_S:-0})) "$python" packaging/gpu_check.py "$model" "$out" --part "$part" --device "$device" $dry
