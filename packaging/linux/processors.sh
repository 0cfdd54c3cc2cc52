#!/bin/sh
# Asks the embedded model of dist/outrider on imitated processors: Nehalem (x86-64-v2) and Haswell (x86-64-v3). Needs
# root and qemu-user-static. Its child processes have to be imitated, too: a mark in the padding of the executable's header
# selects qemu, in a namespace of its own.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$here/build/release/processors
rm -rf "$work"
mkdir -p "$work/home"
cp -a "$here/dist/outrider" "$work/bundle"
printf OUTRIDR | dd of="$work/bundle/outrider-app" bs=1 seek=9 conv=notrunc status=none
for QEMU_CPU in ${*:-Nehalem Haswell}; do
    export QEMU_CPU HOME="$work/home" OUTRIDER_DEBUG=1
    unshare -Um --map-root-user sh -c '
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        echo ":outrider:M:9:OUTRIDR::$(command -v qemu-x86_64-static):F" > /proc/sys/fs/binfmt_misc/register
        exec "$1/outrider" chat -p "Tell me a story about a fox." --temperature 0 --max-tokens 8' sh "$work/bundle" \
        > "$work/$QEMU_CPU.txt" 2> "$work/$QEMU_CPU.log" || { tail "$work/$QEMU_CPU.log"; exit 1; }
    [ -s "$work/$QEMU_CPU.txt" ] || { echo "$QEMU_CPU: no answer"; exit 1; }
    echo "$QEMU_CPU: $(sed -n 's/.*libggml-cpu-\(.*\)[.]so/\1/p' "$work/$QEMU_CPU.log" | head -1): $(tail -1 "$work/$QEMU_CPU.txt")"
done
