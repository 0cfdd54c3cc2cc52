#!/bin/sh
# Compiles the whole native part for macOS, for both processors, with zig (PyPI's ziglang), and links what needs no ggml:
# the tests of core, sim and the system's files. Nothing of it can run here. Needs .venv. Prints the numbers of files.
#
#     make macos-check
set -eu
cd "$(dirname "$0")/../.."
work=build/macos
python=$PWD/.venv/bin/python
mkdir -p "$work"
if [ ! -x "$work/zig/ziglang/zig" ]; then
    echo "ziglang==0.17.1" \
        "--hash=sha256:ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54" > "$work/zig.txt"
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
        --target "$work/zig" --requirement "$work/zig.txt"
fi
export ZIG="$PWD/$work/zig/ziglang/zig" ZIG_LOCAL_CACHE_DIR="$PWD/$work/cache" ZIG_GLOBAL_CACHE_DIR="$PWD/$work/cache"
native=backend/native
llama=.venv/.outrider/llama.cpp
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
nanobind=$site/nanobind
# Warnings do not stop it: those of GCC are the ones that the code is kept free of.
export FLAGS="-std=c++20 -O0 -Wall -Wextra -I$native -isystem $site/include"
export CHAT="-isystem $llama/common -isystem $llama/vendor"
export BINDINGS="-isystem $nanobind/include -isystem $nanobind/ext/robin_map/include -isystem $headers"
# As backend/native/live/CMakeLists.txt and backend/native/chat/CMakeLists.txt choose them.
own=$(find $native -name '*.cc' ! -name '*_windows.cc' ! -name '*_linux.cc')
chat=$(ls $llama/common/chat*.cpp $llama/common/json*.cpp $llama/common/jinja/*.cpp $llama/common/parsers/*.cpp)
for name in common log peg-parser trie unicode; do chat="$chat $llama/common/$name.cpp"; done
files="$own $chat $nanobind/src/nb_combined.cpp"
for target in aarch64-macos x86_64-macos; do
    export TARGET=$target OBJECTS="$work/$target"
    mkdir -p "$OBJECTS"
    # Others' code is compiled without warnings.
    printf '%s\n' $files | xargs -P "$(nproc)" -n 1 sh -c '
        case $1 in
            */site-packages/*) flags="$FLAGS $BINDINGS -w -DNB_COMPACT_ASSERTIONS" ;;
            .venv/*) flags="$FLAGS $CHAT -w" ;;
            */chat/*) flags="$FLAGS $CHAT $BINDINGS" ;;
            */bindings/*) flags="$FLAGS $BINDINGS" ;;
            *) flags=$FLAGS ;;
        esac
        object=$OBJECTS/$(echo "$1" | tr / _).o
        [ ! -e "$object" ] || [ -n "$(find "$1" backend/native -name "*.h" -newer "$object" -o -path "$1" -newer "$object")" ] ||
            exit 0
        exec "$ZIG" c++ -target "$TARGET" $flags -c "$1" -o "$object"' sh
    objects() { for file in $*; do echo "$OBJECTS/$(echo "$file" | tr / _).o"; done; }
    common=$(objects $(find $native/core $native/sim -name '*.cc'))
    system=$(objects $(ls $native/live/io/*_posix.cc $native/live/io/*_none.cc $native/live/ggml/*_posix.cc) \
        $native/live/io/direct_file.cc $native/live/io/transfer.cc)
    # system_test.cc has the function of ggml that the system's files ask for.
    link() {
        test=$1
        shift
        "$ZIG" c++ -target "$target" $FLAGS "tests/$test.cc" $common "$@" -o "$OBJECTS/$(basename $test)"
    }
    link core/core_test
    link sim/sim_test
    link live/system_test $system
    echo "$target: $(printf '%s\n' $files | wc -l) files compiled and 3 programs linked"
done
