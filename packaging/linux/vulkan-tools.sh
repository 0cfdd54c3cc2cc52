#!/bin/sh
# Vulkan's headers and a shader compiler (glslc) for a build on Debian 12, whose own are too old for llama.cpp:
# those of Debian 13, unpacked into a folder of their own. Nothing is installed on the system.
#
#     packaging/linux/vulkan-tools.sh FOLDER
#
# FOLDER/glslc is then the compiler and FOLDER/usr holds headers, CMake files and the loader to link with. On newer
# systems, install glslc, libvulkan-dev and spirv-headers instead.
set -eu
folder=$(realpath -m "${1:?usage: vulkan-tools.sh FOLDER}")
[ -x "$folder/glslc" ] && exit 0
work=$folder/apt
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/dpkg" "$folder/debs"
: > "$work/dpkg/status"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$work/sources.list"
apt() {
    apt-get -qq -oDir::Etc::SourceList="$work/sources.list" -oDir::Etc::SourceParts=/dev/null \
        -oDir::State::Lists="$work/lists" -oDir::Cache="$work/cache" -oDir::State::status="$work/dpkg/status" \
        -oAPT::Sandbox::User=root "$@"
}
apt update
cd "$folder/debs"
apt download libc6 libgcc-s1 libstdc++6 libshaderc1 glslc libvulkan1 libvulkan-dev spirv-headers
for package in *.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$folder/debs" "$work"
# It runs with the C library of its own system.
cat > "$folder/glslc.new" <<'END'
#!/bin/sh
tree=$(dirname "$(readlink -f "$0")")/usr
exec "$tree/lib64/ld-linux-x86-64.so.2" --library-path "$tree/lib/x86_64-linux-gnu" "$tree/bin/glslc" "$@"
END
chmod +x "$folder/glslc.new"
mv "$folder/glslc.new" "$folder/glslc"
