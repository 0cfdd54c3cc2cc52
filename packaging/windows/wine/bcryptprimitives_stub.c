/* In place of bcryptprimitives.dll, which programs in Rust need and Wine 8 lacks. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#define RtlGenRandom SystemFunction036
BOOLEAN NTAPI RtlGenRandom(PVOID bytes, ULONG n);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T n) { return RtlGenRandom(bytes, (ULONG) n); }
