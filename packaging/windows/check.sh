#!/bin/sh
# Compiles core, sim and the Windows files of the native part with mingw-w64, and runs their tests under wine. Needs
# g++-mingw-w64-x86-64-posix and wine. Prints the number of tests.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$here/build/windows
native=$here/backend/native
cxx=${MINGW_CXX:-x86_64-w64-mingw32-g++-posix}
mkdir -p "$work"
export WINEPREFIX="$work/wine" WINEDEBUG=-all

objects=
for file in $(find "$native/core" "$native/sim" -name '*.cc') "$native/live/io/direct_file.cc" \
    "$native"/live/io/*_windows.cc "$native/live/io/read_ring_none.cc"; do
    object=$work/$(echo "${file#"$native"/}" | tr / _).o
    [ "$object" -nt "$file" ] || "$cxx" -std=c++20 -O1 -Wall -I"$native" -c "$file" -o "$object"
    objects="$objects $object"
done
n=0
for test in core/core_test sim/sim_test live/system_test; do
    program=$work/$(basename "$test").exe
    # shellcheck disable=SC2086
    "$cxx" -std=c++20 -O1 -static -I"$native" "$here/tests/$test.cc" $objects -o "$program"
    for name in $(sed -n 's/^    {"\([a-z_]*\)", .*/\1/p' "$here/tests/$test.cc"); do
        case $name in uncounted_* | not_pinned) continue ;; esac  # these must abort
        (cd "$work" && wine "$program" "$name") || { echo "$test $name failed"; exit 1; }
        n=$((n + 1))
    done
done
echo "$n native tests passed under wine"
