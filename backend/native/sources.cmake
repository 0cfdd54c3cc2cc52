# Write the name and the SHA-256 of each source in `folder` to the file `built_from`.
# check_native() of backend/__init__.py compares them with the sources at the start.
file(GLOB_RECURSE sources RELATIVE "${folder}" "${folder}/*.cc" "${folder}/*.h")
list(SORT sources)
set(digests "")
foreach(source IN LISTS sources)
    file(SHA256 "${folder}/${source}" digest)
    string(APPEND digests "${source} ${digest}\n")
endforeach()
file(WRITE "${built_from}" "${digests}")
