#include "bindings/bindings.h"
#include "live/ggml/backends.h"

NB_MODULE(_native, m) {
    nanobind::set_leak_warnings(false);  // objects that live in a module at exit are no leak
    m.doc() = "Outrider's native part: the cache core and the patch of llama.cpp's graph.";
    outrider::load_backends();   // before anything asks ggml for a device
    outrider::bind_types(m);
    outrider::bind_allocate(m);
    outrider::bind_devices(m);
    outrider::bind_live(m);
    outrider::bind_evict(m);
    outrider::bind_predict(m);
    outrider::bind_recorder(m);
    outrider::bind_repack(m);
    outrider::bind_sampling(m);
    outrider::bind_sim(m);
    outrider::bind_speed(m);
}
