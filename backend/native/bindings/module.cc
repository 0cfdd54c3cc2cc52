#include "bindings.h"

NB_MODULE(_native, m) {
    m.doc() = "Outrider's native part: the cache core and the patch of llama.cpp's graph.";
    outrider::bind_types(m);
    outrider::bind_live(m);
    outrider::bind_recorder(m);
}
