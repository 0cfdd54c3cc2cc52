/* Compiled before llama.cpp's C++ sources where GCC's bug 114098 is not mended (packaging/prepare.py).
 *
 * GCC before 11.5, 12.4 and 13.3 says that _tile_loadconfig() reads 8 bytes. It reads 64, so GCC drops
 * the stores to the other 56, and the first use of AMX ends the process. */
#ifdef __AMX_TILE__
#include <immintrin.h>

static inline void tile_loadconfig_whole(const void *config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])config));
}
#define _tile_loadconfig tile_loadconfig_whole
#endif
