// The one export of bcryptprimitives.dll that Rust's standard library needs, for Wine 8, which has no
// such file. Test directories only: a DLL of this name beside a program would be loaded on Windows too.
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
    while (size) {
        ULONG step = size > 0x10000 ? 0x10000 : (ULONG)size;
        if (!RtlGenRandom(data, step)) return FALSE;
        data += step;
        size -= step;
    }
    return TRUE;
}
