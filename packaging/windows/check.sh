#!/bin/sh
# Compiles the native part but for chat and bindings with mingw-w64, and runs the tests of core, sim and the Windows files
# under wine. Needs g++-mingw-w64-x86-64-posix and wine. Prints the numbers of files and tests.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$here/build/windows
native=$here/backend/native
cxx=${MINGW_CXX:-x86_64-w64-mingw32-g++-posix}
mkdir -p "$work"
export WINEPREFIX="$work/wine" WINEDEBUG=-all

# The headers of ggml lie beside the installed llama-cpp-python.
ggml=${GGML_INCLUDE:-$(echo "$here"/.venv/lib/python3*/site-packages/include)}
# compile FILE: sets $object
compile() {
    object=$work/$(echo "${1#"$native"/}" | tr / _).o
    if [ ! -e "$object" ] || [ -n "$(find "$1" "$native" -name '*.h' -newer "$object" -o -path "$1" -newer "$object")" ]; then
        "$cxx" -std=c++20 -O1 -Wall -Wno-maybe-uninitialized -I"$native" -isystem "$ggml" -c "$1" -o "$object"
    fi
    n_file=$((n_file + 1))
}
n_file=0
rm -f "$work/native.a"
for file in $(find "$native/core" "$native/sim" -name '*.cc') "$native/live/io/direct_file.cc" \
    "$native"/live/*/*_windows.cc "$native/live/io/read_ring_none.cc" "$native/live/io/transfer.cc"; do
    compile "$file"
    "${MINGW_AR:-x86_64-w64-mingw32-ar}" qc "$work/native.a" "$object"
done
# What needs ggml is compiled and not linked: there is no ggml for Windows here.
for file in $(find "$native/live" "$native/sampling" -name '*.cc' ! -name '*_posix.cc' ! -name '*_linux.cc' \
    ! -name '*_windows.cc' ! -name direct_file.cc ! -name read_ring_none.cc ! -name transfer.cc); do
    compile "$file"
done
echo "$n_file files compiled"
echo 'extern "C" __declspec(dllexport) int answer() { return 42; }' > "$work/answer.cc"
"$cxx" -shared -static "$work/answer.cc" -o "$work/answer.dll"
export TEST_LIBRARY=answer.dll
n=0
for test in core/core_test sim/sim_test live/system_test; do
    program=$work/$(basename "$test").exe
    "$cxx" -std=c++20 -O1 -static -I"$native" "$here/tests/$test.cc" "$work/native.a" -o "$program"
    for name in $(sed -n 's/^    {"\([a-z_]*\)", .*/\1/p' "$here/tests/$test.cc"); do
        must=0
        case $name in uncounted_* | not_pinned) must=1 ;; esac  # an invariant is broken: they must abort
        status=0
        (cd "$work" && timeout 120 wine "$program" "$name") > "$work/test.log" 2>&1 || status=1
        [ "$status" = "$must" ] || { cat "$work/test.log"; echo "$test $name failed"; exit 1; }
        n=$((n + 1))
    done
done
echo "$n native tests passed under wine"
