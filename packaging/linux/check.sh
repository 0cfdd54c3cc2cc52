#!/bin/sh
# Tries dist/*.deb and dist/*.AppImage in a bare Debian 12: no Python, no compiler. docs/packaging.md says what it needs.
# Pictures and logs lie in build/release/check.
#
#     make release-check                        SUITE=trixie make release-check: Debian 13
#     OLD=FILE.deb make release-check           updates that package, not this one with a lower version
#
# In turn: installs an older package, looks at the menu entry and the file type, opens the window, asks the embedded
# model, hands a second model to the open window, updates the package, runs the command line, opens a model by the
# command line, tries Wayland alone, runs the journeys (tests/journeys), removes the package and looks for what it left.
# Then the AppImage, as an ordinary user: with FUSE and without, replaced while it runs, where /tmp is full or forbids
# programs, and the journeys in it.
#
# It runs in a mount namespace of its own. Each mount ends with it, and one that a journey makes in /tmp is seen in the
# bare system, too.
[ -n "${CHECK_HAS_MOUNTS:-}" ] || CHECK_HAS_MOUNTS=1 exec unshare --mount sh "$0" # as root
mount --make-rshared /
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$here/build/release/check
tree=$work/debian
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
display=${CHECK_DISPLAY:-:97}
deb=$(ls "$here"/dist/outrider_*_amd64.deb)
image=$(ls "$here"/dist/outrider-*.AppImage)
n_done=0

# journeys NAME FOLDER: whole journeys with the programs of a folder in the bare system. The driver and its stand-ins are
# outside of it; both have one /tmp, where homes and sockets are.
journeys() {
    mkdir -p "$work/programs"
    for program in outrider outrider-app; do
        printf '#!/bin/sh\nexec %s "%s" /usr/bin/env -C "$(pwd)" %s "$@"\n' \
            "$(command -v chroot)" "$tree" "$2/$program" > "$work/programs/$program"
        chmod 755 "$work/programs/$program"
    done
    # A server of tools that the programs start: the driver's Python, outside of the bare system, which has none.
    printf '#!/bin/sh\nexec /usr/sbin/chroot /proc/%s/root "%s" "$@"\n' $$ "$here/build/journeys/driver/bin/python" \
        > "$tree/opt/python"
    chmod 755 "$tree/opt/python"
    mount --bind /tmp "$tree/tmp"
    python3 "$here/tests/journeys" --programs "$work/programs" --python /opt/python > "$work/journeys-$1.log" 2>&1 ||
        { tail -40 "$work/journeys-$1.log"; die "a journey fails in the $1"; }
    umount "$tree/tmp" || die "the $1 leaves what it has mounted in /tmp"
    say "journeys in the $1: $(tail -1 "$work/journeys-$1.log" | tr -d =)"
}
say() { n_done=$((n_done + 1)); echo "ok $n_done: $*"; }
die() { echo "FAILED: $*" >&2; exit 1; }
inside() { $exec chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/user LANG=C.UTF-8 DISPLAY="$display" "$@"; }
as_user() { inside setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
exec=
# start LOG COMMAND...: runs a command of `inside` or `as_user` in the background; $app is its own process
start() {
    log=$1; shift
    (exec=exec; "$@" > "$log" 2>&1) &
    app=$!
    began=$(now)
}
# Closes what `start` started, as a session that ends does. A crash while it closes is a failure.
stop_app() {
    kill "$app"
    wait "$app" || die "closing it ended with the status $?: $(tail -3 "$log")"
    app=
}
now() { date +%s.%N; }
since() { awk "BEGIN { printf \"%.1f\", $(now) - $1 }"; }
# until_true SECONDS COMMAND...: waits until a command succeeds
until_true() {
    end=$(($(date +%s) + $1)); shift
    while ! "$@" > /dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.1
    done
}
window() { xdotool search --onlyvisible --name "Outrider"; }
no_window() { ! window; }
shot() { import -display "$display" -window root "$work/$1.png"; }
chats() { sqlite3 "file:$tree/home/user/.local/share/outrider/chats.db?mode=ro" "$1"; }
answered() { [ "$(chats "select count(*) from message where role = 'assistant' and length(content) > 20")" -ge "$1" ]; }
# The processes of the bare system whose command line has this: no others of this machine.
processes() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/root")" = "$tree" ] || continue
        tr '\0' ' ' < "$process/cmdline" | grep -q "$1" && echo "$process"
    done 2> /dev/null
}
# While the model is loading, Return sends the question, which waits.
asked() { xdotool key Return; sleep 0.5; [ "$(chats "select count(*) from message where role = 'user'")" -ge 1 ]; }
loaded() { grep -q "$1" "$tree/home/user/.config/outrider/settings.json"; }

stop() {
    set +e
    [ -z "${app:-}" ] || kill "$app" 2> /dev/null
    [ -z "${xvfb:-}" ] || kill "$xvfb" 2> /dev/null
    [ -z "${weston:-}" ] || kill "$weston" 2> /dev/null
}
trap stop EXIT INT TERM

for program in mmdebstrap dpkg-deb mksquashfs unshare python3 Xvfb xdotool weston sqlite3 import; do
    command -v "$program" > /dev/null || die "it needs $program; docs/packaging.md names the packages"
done
mkdir -p "$work"
suite=${SUITE:-bookworm}
bare=$work/bare-$suite.tar
if [ ! -e "$bare" ]; then
    mmdebstrap --quiet --variant=minbase --include=ca-certificates "$suite" "$bare" "$mirror"
fi
! grep -q " $tree/" /proc/self/mounts || die "something is mounted in $tree"
rm -rf --one-file-system "$tree"
mkdir "$tree"
tar -xf "$bare" -C "$tree" --exclude=./dev
mkdir -p "$tree/dev" "$tree/tmp/.X11-unix" "$tree/home/user"
mount --bind /dev "$tree/dev"
mount -t devpts devpts "$tree/dev/pts"
mount -t proc proc "$tree/proc"
mount -t sysfs sysfs "$tree/sys"
cp /etc/resolv.conf "$tree/etc/"
chown 1000:1000 "$tree/home/user"
echo "user:x:1000:1000::/home/user:/bin/sh" >> "$tree/etc/passwd"
for program in python3 gcc cc c++ make; do
    [ ! -e "$tree/usr/bin/$program" ] || die "the bare system has $program"
done
say "a bare Debian without Python and compiler"

cp "$deb" "$tree/var/tmp/new.deb"
if [ -n "${OLD:-}" ]; then
    cp "$OLD" "$tree/var/tmp/old.deb"
else # the same package as version 0, with a file that the new one lacks
    rm -rf "$work/old"
    dpkg-deb -R "$deb" "$work/old"
    sed -i 's/^Version: .*/Version: 0/' "$work/old/DEBIAN/control"
    touch "$work/old/usr/lib/outrider/_internal/of-an-older-version"
    dpkg-deb --root-owner-group -Znone --build "$work/old" "$tree/var/tmp/old.deb" > /dev/null
    rm -rf "$work/old"
fi
inside DEBIAN_FRONTEND=noninteractive sh -c "apt-get -qq update && apt-get -qq install -y --no-install-recommends \
    desktop-file-utils shared-mime-info fonts-dejavu-core /var/tmp/old.deb" > "$work/install.log" 2>&1 ||
    { tail "$work/install.log"; die "it cannot be installed"; }
[ ! -e "$tree/usr/bin/python3" ] || die "installing it brought Python"
say "installed with $(inside dpkg-query -W | wc -l) packages in all, no Python among them"
inside update-mime-database /usr/share/mime 2> /dev/null || true
inside grep -q "application/x-gguf=outrider.desktop" /usr/share/applications/mimeinfo.cache || die "no program for .gguf"
grep -q "application/x-gguf:\*.gguf" "$tree/usr/share/mime/globs2" || die "the type of .gguf is unknown"
say "a double-click on a .gguf file opens it"

# Without -noreset it begins again whenever its last client leaves, as xdotool does, and refuses one that comes then.
Xvfb "$display" -screen 0 1400x900x24 -nolisten tcp -ac -noreset > /dev/null 2>&1 &
xvfb=$!
export DISPLAY="$display"
until_true 10 xdotool getdisplaygeometry || die "there is no X server"
mount --bind /tmp/.X11-unix "$tree/tmp/.X11-unix"
model=$tree/usr/lib/outrider/_internal/assets/embedded/outrider-tiny.gguf
for name in second third fourth fifth sixth; do cp "$model" "$tree/home/user/$name model.gguf"; done
chown 1000:1000 "$tree"/home/user/*.gguf

start "$work/window.log" as_user outrider-app
until_true 120 window || { cat "$work/window.log"; die "no window opens"; }
say "the window is open after $(since "$began") s"
sleep "${CHECK_SETTLE_S:-8}"
xdotool windowfocus "$(window | tail -1)" || true
xdotool type --delay 20 "Tell me a story about a fox."
start=$(now)
until_true 120 asked || { shot not-asked; die "the window takes no question"; }
until_true 180 answered 1 || { shot no-answer; die "the embedded model does not answer"; }
say "the embedded model has answered after $(since "$start") s"
sleep 3
shot answer

start=$(now)
as_user outrider-app "/home/user/second model.gguf" > "$work/second.log" 2>&1 || die "a second start fails"
until_true 60 loaded "second model.gguf" || { shot no-second; die "the open window does not load a second start's file"; }
[ "$(processes "outrider-app *$" | wc -l)" -le 1 ] || die "there are two windows"
say "a second start ended after $(since "$start") s, and the open window has loaded its file"
sleep 3
shot second
stop_app
until_true 20 no_window || die "the window does not close"

n_message=$(chats "select count(*) from message")
settings=$(sha256sum "$tree/home/user/.config/outrider/settings.json")
inside dpkg -i /var/tmp/new.deb > "$work/update.log" 2>&1 || { cat "$work/update.log"; die "it cannot be updated"; }
rm "$tree"/var/tmp/*.deb
inside dpkg -L outrider | sort > "$work/listed"
find "$tree/usr/lib/outrider" | sed "s#^$tree##" | sort | comm -23 - "$work/listed" > "$work/left"
[ ! -s "$work/left" ] || die "the update leaves $(head -1 "$work/left")"
inside dpkg --verify outrider > "$work/update.log" 2>&1 && [ ! -s "$work/update.log" ] || die "the update is not whole"
version=$(inside dpkg-query -W -f '${Version}' outrider)
as_user outrider --version | grep -qF "$version" || die "the updated program is not version $version"
[ "$(chats "select count(*) from message")" = "$n_message" ] || die "the update took messages"
[ "$(sha256sum "$tree/home/user/.config/outrider/settings.json")" = "$settings" ] || die "the update changed the settings"
say "updated to $version: $n_message messages and the settings are as before; of the older package no file is left"

as_user env -u DISPLAY outrider-app --help | grep -q "^usage: outrider-app" || die "outrider-app --help says nothing"
answer=$(as_user outrider chat -p "Tell me a story about a fox." --max-tokens 20 2> "$work/chat.log") || die "the command line fails"
[ -n "$answer" ] || die "the command line answers nothing"
say "the command line answers: $(echo "$answer" | tail -1 | cut -c1-60)"
as_user outrider verify --tokens 16 --rates 0.5 --methods lru "/home/user/second model.gguf" > "$work/verify.log" 2>&1 ||
    { cat "$work/verify.log"; die "verify finds a difference"; }
! grep -E "^(llama|load|ggml|print_info|sched)|backend" "$work/verify.log" || die "verify prints llama.cpp's messages"
say "verify finds no difference, and prints $(wc -l < "$work/verify.log") lines of its own"
parts=$tree/usr/lib/outrider/_internal/THIRD-PARTY.txt
[ -z "$(find "$tree/usr/lib/outrider" -name '*readline*')" ] || die "GNU readline is in the package"
! grep -q "/usr/share/common-licenses" "$parts" || die "THIRD-PARTY.txt points to files of Debian"
say "THIRD-PARTY.txt names $(sed '/^=/,$d' "$parts" | grep -c '^[^ ]*: ') programs and libraries, and holds all texts"

start "$work/window.log" as_user outrider-app "/home/user/third model.gguf"
until_true 120 window || die "no window opens with a model on the command line"
say "the window with a model on the command line is open after $(since "$began") s, warm"
until_true 60 loaded "third model.gguf" || { shot no-third; die "the model of the command line is not loaded"; }
say "and has loaded it after $(since "$began") s"
stop_app
until_true 20 no_window || die "the window does not close"

runtime=$tree/run/weston
mkdir -m 700 -p "$runtime" "$tree/run/user-1000"
chown 1000:1000 "$tree/run/user-1000"
XDG_RUNTIME_DIR="$runtime" weston --backend=headless-backend.so --socket=wayland-7 > "$work/weston.log" 2>&1 &
weston=$!
until_true 20 test -S "$runtime/wayland-7" || { cat "$work/weston.log"; die "weston does not start"; }
chmod 711 "$runtime"
chmod 666 "$runtime/wayland-7"
wayland() { as_user env -u DISPLAY XDG_RUNTIME_DIR=/run/user-1000 WAYLAND_DISPLAY=/run/weston/wayland-7 "$@"; }
start "$work/wayland.log" wayland outrider-app "/home/user/fourth model.gguf"
until_true 120 loaded "fourth model.gguf" || { cat "$work/wayland.log"; die "no window on Wayland alone"; }
say "the window loads a model on Wayland alone"
stop_app
kill "$weston"
weston=

journeys .deb /usr/bin

inside dpkg --purge outrider > "$work/remove.log" 2>&1 || die "it cannot be removed"
left=$(find "$tree/usr" "$tree/etc" "$tree/opt" -iname '*outrider*' | head)
[ -z "$left" ] || die "removed, but there are still: $left"
[ "$(chats "select count(*) from message")" -ge 2 ] || die "removing it took the chats"
say "removed whole; the chats are still there"

installed=$tree/home/user/Outrider.AppImage
cp "$image" "$installed"
inside /home/user/Outrider.AppImage --appimage-extract || die "the AppImage cannot be unpacked"
# The older one is the same with a variable, by which its processes are known.
sed -i '1a export OF_AN_OLDER_IMAGE=1' "$tree/squashfs-root/AppRun"
mksquashfs "$tree/squashfs-root" "$work/old.squashfs" -quiet -no-progress -noappend -root-owned -comp zstd -Xcompression-level 1
head -c "$(inside /home/user/Outrider.AppImage --appimage-offset)" "$image" | cat - "$work/old.squashfs" > "$work/old.AppImage"
chmod 755 "$work/old.AppImage"
rm -rf "$tree/squashfs-root" "$work/old.squashfs"
is_old() { for one in $(processes outrider-app); do grep -qz OF_AN_OLDER_IMAGE "$one/environ" && return; done; false; }
inside DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends fuse3 >> "$work/install.log" 2>&1 ||
    die "fuse3 cannot be installed"
mkdir -p "$tree/small" "$tree/noexec"
[ -e "$work/fuse" ] || mknod "$work/fuse" c 10 229
ln -sf /proc/self/mounts "$tree/etc/mtab" # fusermount3 reads it; a bare system lacks it
nothing_left() { [ -z "$(find "$tree" "$tree/small" "$tree/noexec" -xdev -maxdepth 2 -name '.mount_*')" ] && ! grep -q "$tree/.*/.mount_" /proc/mounts; }
for how in mount unpack; do
    cp "$work/old.AppImage" "$installed"
    if [ "$how" = unpack ]; then
        chmod 600 "$work/fuse" # whatever the mode of this machine's own is
    else
        chmod 666 "$work/fuse"
        mount --bind "$work/fuse" "$tree/dev/fuse"
        for i in $(seq 20); do as_user /home/user/Outrider.AppImage --version > /dev/null; done
        until_true 20 nothing_left || die "20 starts with FUSE leave folders in /tmp"
        say "20 starts with FUSE leave nothing in /tmp"
    fi
    start "$work/image-$how.log" as_user /home/user/Outrider.AppImage
    until_true 180 is_old || { cat "$work/image-$how.log"; die "the older AppImage does not start ($how)"; }
    until_true 180 window || { cat "$work/image-$how.log"; die "the AppImage opens no window ($how)"; }
    say "the AppImage's window is open after $(since "$began") s ($how)"
    sleep 5
    grep -q " /tmp/.mount_outrider.* fuse.squashfuse" "/proc/$app/mounts" && was=mount || was=unpack
    [ "$was" = "$how" ] || die "the AppImage was to $how, and did not"
    shot "image-$how"
    cp "$image" "$installed.new"
    mv "$installed.new" "$installed" # as an updater does
    [ "$how" = mount ] && file="fifth model.gguf" || file="sixth model.gguf"
    as_user /home/user/Outrider.AppImage "/home/user/$file" > "$work/second.log" 2>&1 || die "the newer AppImage fails"
    until_true 60 loaded "$file" || { shot no-file; die "the older AppImage does not load the newer one's file ($how)"; }
    is_old || die "the older AppImage has ended ($how)"
    stop_app
    until_true 20 no_window || die "the window of the AppImage does not close"
    start "$work/image-$how.log" as_user /home/user/Outrider.AppImage
    until_true 180 window || { cat "$work/image-$how.log"; die "the newer AppImage opens no window ($how)"; }
    ! is_old || die "the older AppImage starts again ($how)"
    sleep 5
    shot "image-$how-newer"
    stop_app
    until_true 20 no_window || die "the window of the AppImage does not close"
    until_true 20 nothing_left || die "the AppImage leaves folders in /tmp ($how)"
    say "replaced while it runs, the AppImage goes on, and starts as the newer one; it leaves nothing in /tmp ($how)"
done
rm "$work/old.AppImage"
[ "$(chats "select count(*) from message")" -ge "$n_message" ] || die "the AppImage took messages"
mkdir "$tree/opt/image" # a link's name says what the AppImage starts
for program in outrider outrider-app; do ln -s /home/user/Outrider.AppImage "$tree/opt/image/$program"; done
journeys AppImage /opt/image
mount -t tmpfs -o mode=1777,size=20m small "$tree/small"
mount -t tmpfs -o mode=1777,noexec noexec "$tree/noexec"
for place in small noexec; do
    as_user env TMPDIR=/$place /home/user/Outrider.AppImage --version > "$work/$place.log" 2>&1 && die "it runs in $place"
    [ "$(grep -c "TMPDIR=FOLDER" "$work/$place.log")" = 1 ] && [ "$(wc -l < "$work/$place.log")" = 1 ] ||
        { cat "$work/$place.log"; die "$place ends without one sentence"; }
    nothing_left || die "$place keeps a folder"
done
say "where /tmp is full or forbids programs, one sentence says so"
echo "All $n_done checks passed. Look at the pictures in $work."
