/* In place of the functions of Windows' own ICU that Qt6Core.dll needs and Wine 8 lacks. Qt calls them for rare encodings
 * only. */
#define NEVER(name) \
    __declspec(dllexport) long long name(void) { \
        return 0; \
    }
NEVER(ucnv_cbFromUWriteUChars)
NEVER(ucnv_cbToUWriteUChars)
NEVER(ucnv_close)
NEVER(ucnv_countAvailable)
NEVER(ucnv_fromUCountPending)
NEVER(ucnv_fromUnicode)
NEVER(ucnv_getAvailableName)
NEVER(ucnv_getFromUCallBack)
NEVER(ucnv_getMaxCharSize)
NEVER(ucnv_getName)
NEVER(ucnv_getStandardName)
NEVER(ucnv_getToUCallBack)
NEVER(ucnv_open)
NEVER(ucnv_reset)
NEVER(ucnv_setFromUCallBack)
NEVER(ucnv_setToUCallBack)
NEVER(ucnv_toUCountPending)
NEVER(ucnv_toUnicode)
